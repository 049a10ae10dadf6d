//! Domains and completion queues.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::completions::Completions;
use super::devices::{Device, Fabric};
use super::done::Done;
use crate::abi::flags::{FI_CLASS_CQ, FI_CLASS_DOMAIN};
use crate::abi::{FidCq, FidDomain};
use crate::errno::Errno;
use crate::handle::Object;

/// A domain: all of one device share one of ours.
pub(crate) struct Domain {
    pub(crate) device: Arc<Device>,
    pub(crate) fabric: Arc<Fabric>,
    /// Of an info of reliable datagram endpoints.
    pub(crate) has_datagrams: bool,
    /// Of one with `FI_MR_LOCAL`, or the mode that went before it.
    pub(crate) has_local_regions: bool,
}

// SAFETY: `FidDomain` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for Domain {
    type C = FidDomain;
    const CLASS: usize = FI_CLASS_DOMAIN;
}

/// A completion queue.
pub(crate) struct Queue {
    pub(crate) completions: Arc<Completions>,
    /// One of `FI_CQ_FORMAT_...`.
    pub(crate) format: c_int,
    pub(crate) domain: Arc<Domain>,
}

// SAFETY: `FidCq` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for Queue {
    type C = FidCq;
    const CLASS: usize = FI_CLASS_CQ;
}

impl Queue {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        size: usize,
        format: c_int,
        has_wait: bool,
    ) -> Result<Self, Errno> {
        let completions = Arc::new(Completions::new(&domain.device.domain, size, has_wait)?);
        domain.device.add_queue(&completions);
        Ok(Queue { completions, format, domain: domain.clone() })
    }

    /// As [`Completions::read`], and sleeps for the first one until the time has come, a signal of either kind, or for ever.
    pub(crate) fn read_or_sleep(
        &self,
        count: usize,
        until: Option<Instant>,
        mut put: impl FnMut(usize, &Done),
    ) -> Result<usize, Errno> {
        // Without a wait object there is nothing to sleep on (fi_cq(3)).
        let wait = self.completions.wait().ok_or(Errno::NOT_THERE)?;
        loop {
            match self.completions.read(count, &mut put) {
                Err(Errno::AGAIN) if self.completions.take_signal() => return Err(Errno::AGAIN),
                Err(Errno::AGAIN) if until.is_some_and(|until| until <= Instant::now()) => {
                    return Err(Errno::AGAIN);
                }
                Err(Errno::AGAIN) if self.completions.arm(true)? => {
                    if wait.sleep(until)? {
                        return self.completions.read(count, &mut put);
                    }
                }
                Err(Errno::AGAIN) => {}
                other => return other,
            }
        }
    }
}

/// When a wait of so many milliseconds ends; a negative one never does.
pub(crate) fn deadline(milliseconds: c_int) -> Option<Instant> {
    let time = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    time.and_then(|time| Instant::now().checked_add(time))
}
