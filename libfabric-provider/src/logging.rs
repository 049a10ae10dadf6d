//! The log: what this library and the providers below it have to say goes to libfabric's, where `FI_LOG_LEVEL` and
//! `FI_LOG_PROV` choose.

use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::abi::FiProvider;
use crate::abi::flags::{FI_LOG_DEBUG, FI_LOG_INFO, FI_LOG_WARN};
use crate::handle::Name;
use crate::libfabric::Libfabric;

/// Where the provider is, while libfabric takes lines of it.
static PROVIDER: AtomicUsize = AtomicUsize::new(0);

struct ToLibfabric;

/// From now on lines go to libfabric.
pub(crate) fn begin(provider: Name) {
    PROVIDER.store(provider.address(), Ordering::Release);
    // It is this library's own copy of the facade, so no one else has set a logger.
    if log::set_logger(&ToLibfabric).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

/// libfabric ends, and takes no lines any more.
pub(crate) fn end() {
    PROVIDER.store(0, Ordering::Release);
}

/// The provider, if libfabric takes lines.
fn provider() -> Option<(&'static Libfabric, *const FiProvider)> {
    match PROVIDER.load(Ordering::Acquire) {
        0 => None,
        address => Some((Libfabric::get()?, address as *const FiProvider)),
    }
}

fn level(level: Level) -> c_int {
    match level {
        Level::Error | Level::Warn => FI_LOG_WARN,
        Level::Info => FI_LOG_INFO,
        Level::Debug | Level::Trace => FI_LOG_DEBUG,
    }
}

impl Log for ToLibfabric {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        provider().is_some_and(|(libfabric, provider)| {
            // SAFETY: the provider is never freed, and libfabric has it, or is loading it.
            unsafe { libfabric.logs(provider, level(metadata.level())) }
        })
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = CString::new(record.args().to_string().replace('\0', " "));
        let place = CString::new(record.target());
        if let (Some((libfabric, provider)), Ok(text), Ok(place)) = (provider(), text, place) {
            let line = record.line().and_then(|line| line.try_into().ok()).unwrap_or(0);
            // SAFETY: as above.
            unsafe { libfabric.log(provider, level(record.level()), (&place, line), &text) };
        }
    }

    fn flush(&self) {}
}
