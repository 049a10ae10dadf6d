//! An open device: what every object of a domain uses of it, and whether it is still there.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fabric_core::{Error, Info, Result};
use fabric_util::stats::Stats;

use crate::device;
use crate::error::NAME;
use crate::ffi;
use crate::handle::{Context, DeviceAttributes, Pd, Qp, kernel_version};
use crate::quirks::Quirks;
use crate::scratch::Scratch;

/// A device poorer than it is, so that tests see what the provider does on such a one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TestLimits {
    /// Requests carry no bytes.
    pub no_inline: bool,
    /// Once it is lost, the kernel answers `EIO`, as where it has taken it from the process.
    pub no_flush: bool,
    /// The domain's thread panics at the first event of a connection.
    pub thread_panics: bool,
}

/// How long the kernel may take to end what a process has on a device, once it answers `EIO`: it does so from right before that
/// (`uverbs_disassociate_api_pre`, and then `uverbs_destroy_ufile_hw`, in Linux's drivers/infiniband/core).
const ENDING: Duration = Duration::from_millis(100);

/// What is left of a device: it only gets less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Left {
    All,
    /// It may be there and at work, but nothing serves it, or part of it has failed.
    Unserved,
    /// It is said to be gone. It may not have stopped.
    Lost,
    /// The kernel has ended all that was made on it.
    Nothing,
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
    /// A [`Left`].
    left: AtomicU8,
    /// When a call on the lost device ended with `EIO` first.
    ending: OnceLock<Instant>,
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
            left: AtomicU8::new(Left::All as u8),
            ending: OnceLock::new(),
        }))
    }

    /// The interrupt of a completion queue: the one asked for, else each in turn.
    pub(crate) fn vector(&self, wanted: Option<u32>) -> u32 {
        let vectors = self.pd.context.completion_vectors().max(1);
        wanted.unwrap_or_else(|| self.vectors.fetch_add(1, Ordering::Relaxed)) % vectors
    }

    fn set_left(&self, left: Left) -> bool {
        self.left.fetch_max(left as u8, Ordering::AcqRel) == Left::All as u8
    }

    fn has_come_to(&self, left: Left) -> bool {
        self.left.load(Ordering::Acquire) >= left as u8
    }

    /// Notes that nothing serves the device, or that part of it has failed; whether it was good until now.
    pub(crate) fn set_unserved(&self) -> bool {
        self.set_left(Left::Unserved)
    }

    /// Notes that the device is said to be gone; whether it was good until now.
    pub(crate) fn set_lost(&self) -> bool {
        self.set_left(Left::Lost)
    }

    /// Whether nothing new can be done with it.
    pub(crate) fn is_lost(&self) -> bool {
        self.has_come_to(Left::Unserved)
    }

    /// Whether it is proven that the device touches no memory of this domain any more, and completes nothing.
    pub(crate) fn is_gone(&self) -> bool {
        self.has_come_to(Left::Nothing)
    }

    /// Whether a failed call on a device that is said to be gone says that the kernel has taken it from the process; and since
    /// when. Every other failure may be one of the call alone, and the device at work.
    fn ending(&self, cause: &io::Error) -> Option<Instant> {
        let says = self.has_come_to(Left::Lost) && ffi::code(cause) == Some(libc::EIO);
        says.then(|| *self.ending.get_or_init(Instant::now))
    }

    /// Moves a queue pair to the error state. Where that fails, the device may be found to be gone ([`is_gone`](Self::is_gone)).
    pub(crate) fn fail(&self, qp: &Qp) -> io::Result<()> {
        let failed = if self.test_limits.no_flush && self.is_lost() {
            Err(io::Error::from_raw_os_error(libc::EIO))
        } else {
            qp.fail()
        };
        failed.inspect_err(|cause| {
            if self.ending(cause).is_some_and(|since| since.elapsed() >= ENDING) {
                self.set_left(Left::Nothing);
            }
        })
    }

    /// How an object has ended: one of a device that is gone went with it. Waits until the kernel must have ended it, for
    /// [`ENDING`] at most, once.
    pub(crate) fn unless_gone(&self, ended: io::Result<()>) -> io::Result<()> {
        ended.or_else(|cause| {
            let since = self.ending(&cause).ok_or(cause)?;
            std::thread::sleep(ENDING.saturating_sub(since.elapsed()));
            Ok(())
        })
    }

    /// # Errors
    /// `DeviceLost`.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_lost() { Err(Error::DeviceLost) } else { Ok(()) }
    }
}
