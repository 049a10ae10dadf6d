//! Log lines that peers can cause.

use std::net::SocketAddr;

use fabric_util::log_limiter;
use fabric_util::log_line;

pub(crate) use fabric_util::log_limiter::PeerEvent;

/// Log lines that peers can cause, at a bounded rate.
#[derive(Default)]
pub(crate) struct PeerLog(log_limiter::PeerLog);

impl PeerLog {
    /// `peer`: who caused it, if that is known.
    pub(crate) fn warn(
        &self,
        event: PeerEvent,
        peer: Option<SocketAddr>,
        what: std::fmt::Arguments<'_>,
    ) {
        if let Some(suppressed) = self.0.check(event, peer) {
            log_line!(Warn, "fabric-async: {what}{suppressed}");
        }
    }
}
