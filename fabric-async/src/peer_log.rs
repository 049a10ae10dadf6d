//! Log lines that peers can cause.

use fabric_util::log_line;
use fabric_util::log_rate::LogRate;

/// Log lines that peers can cause, at a bounded rate.
#[derive(Default)]
pub(crate) struct PeerLog(LogRate);

impl PeerLog {
    pub(crate) fn warn(&self, what: std::fmt::Arguments<'_>) {
        if let Some(unsaid) = self.0.admit() {
            log_line!(Warn, "fabric-async: {what}{unsaid}");
        }
    }
}
