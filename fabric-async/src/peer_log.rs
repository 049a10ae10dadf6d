//! Log lines that peers can cause.

use fabric_util::log_limiter::LogLimiter;
use fabric_util::log_line;

/// Log lines that peers can cause, at a bounded rate.
#[derive(Default)]
pub(crate) struct PeerLog(LogLimiter);

impl PeerLog {
    pub(crate) fn warn(&self, what: std::fmt::Arguments<'_>) {
        if let Some(suppressed) = self.0.check() {
            log_line!(Warn, "fabric-async: {what}{suppressed}");
        }
    }
}
