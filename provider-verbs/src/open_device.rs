//! An open device: what every object of a domain uses of it, and whether it is still there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fabric_core::{Error, Info, Result};
use fabric_util::stats::Stats;

use crate::device;
use crate::error::NAME;
use crate::handle::{Context, DeviceAttributes, Pd, kernel_version};
use crate::quirks::Quirks;
use crate::scratch::Scratch;

/// A device poorer than it is, so that tests see what the provider does on such a one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TestLimits {
    /// Requests carry no bytes.
    pub no_inline: bool,
    /// Once it is lost, its queue pairs cannot be flushed.
    pub no_flush: bool,
    /// The domain's thread panics at the first event of a connection.
    pub thread_panics: bool,
}

/// One port of a device, with a protection domain.
pub(crate) struct OpenDevice {
    pub(crate) info: Info,
    pub(crate) quirks: Quirks,
    pub(crate) test_limits: TestLimits,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) port: u8,
    pub(crate) pd: Arc<Pd>,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) stats: Stats,
    vectors: AtomicU32,
    lost: AtomicBool,
}

impl OpenDevice {
    pub(crate) fn open(info: &Info, test_limits: TestLimits) -> Result<Arc<Self>> {
        let fail = |cause| Error::system("open domain", NAME, cause);
        let (name, port) = device::device_and_port(&info.device);
        let context = Arc::new(Context::open(name).map_err(fail)?);
        context.poll_events().map_err(fail)?;
        let attributes = context.attributes().map_err(fail)?;
        let pd = Arc::new(Pd::new(&context).map_err(fail)?);
        Ok(Arc::new(OpenDevice {
            info: info.clone(),
            quirks: Quirks::of(&attributes, kernel_version()),
            test_limits,
            attributes,
            port,
            scratch: Scratch::new(&pd)?,
            pd,
            stats: Stats::default(),
            vectors: AtomicU32::new(0),
            lost: AtomicBool::new(false),
        }))
    }

    /// The interrupt of a completion queue: the one asked for, else each in turn.
    pub(crate) fn vector(&self, wanted: Option<u32>) -> u32 {
        let vectors = self.pd.context.completion_vectors().max(1);
        wanted.unwrap_or_else(|| self.vectors.fetch_add(1, Ordering::Relaxed)) % vectors
    }

    /// Notes that the device is gone, or that nothing serves it; whether that is new.
    pub(crate) fn set_lost(&self) -> bool {
        !self.lost.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// # Errors
    /// `DeviceLost`.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_lost() { Err(Error::DeviceLost) } else { Ok(()) }
    }
}
