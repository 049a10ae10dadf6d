//! Queue pairs that only send and answer probes for liveness, and their completion queue.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ffi::ibv_wc_status;
use crate::handle::{Cq, Qp, QpAttributes};
use crate::open_device::OpenDevice;
use crate::tokens::InternalWr;

/// Probes that may be on their way at a time.
const PROBES: usize = 4096;
/// Completions taken at a time.
const BATCH: usize = 16;

/// The probes of a domain; nothing where connections probe on their own queue pair.
pub(crate) struct Probes {
    cq: Option<Arc<Cq>>,
    /// Connections whose probe is on its way.
    in_flight: AtomicUsize,
}

impl Probes {
    pub(crate) fn new(device: &OpenDevice) -> io::Result<Self> {
        let cq = if device.quirks.separate_probes {
            // Twice: for those of connections that ended as well.
            Some(Arc::new(Cq::new(&device.pd.context, 2 * PROBES, 0)?))
        } else {
            None
        };
        Ok(Probes { cq, in_flight: AtomicUsize::new(0) })
    }

    /// A connection's queue pair for probes, where it needs one.
    pub(crate) fn qp(&self, device: &OpenDevice) -> io::Result<Option<Qp>> {
        let Some(cq) = &self.cq else { return Ok(None) };
        let small = QpAttributes {
            send_depth: 2,
            recv_depth: 1,
            send_segments: 1,
            recv_segments: 1,
            inline: 0,
            atomics: false,
        };
        Qp::new(&device.pd, (cq, cq), None, &small, device.port).map(Some)
    }

    /// Whether one more probe has room, which it then takes until `release`; if not, the next round asks.
    pub(crate) fn reserve(&self) -> bool {
        let more = |now| (now < PROBES).then_some(now + 1);
        self.cq.is_none()
            || self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// A probe came back, or never will.
    pub(crate) fn release(&self) {
        if self.cq.is_some() {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The descriptor that is readable when a probe ended.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.cq.as_ref()?.channel.as_fd())
    }

    /// Makes the descriptor readable when the next probe ends.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // Not for errors only: RXE takes a failed request for no reason to wake.
        self.cq.as_ref().map_or(Ok(()), |cq| cq.arm(false))
    }

    /// Takes the probes that ended: the numbers of their connections, and how.
    pub(crate) fn take(&self, mut ended: impl FnMut(u64, ibv_wc_status::Type)) {
        let Some(cq) = &self.cq else { return };
        cq.channel.clear();
        let mut room = [const { MaybeUninit::uninit() }; BATCH];
        loop {
            let got = cq.poll(&mut room);
            for wc in got {
                let (_, number) = InternalWr::parse(wc.wr_id);
                ended(number, wc.status);
            }
            if got.len() < BATCH {
                return;
            }
        }
    }
}
