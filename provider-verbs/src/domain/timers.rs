//! What the domain's deadlines are for.

use std::time::Duration;

/// What happens when the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Connecting or accepting took too long.
    Connect,
    /// The peer still thought of an earlier connection: ask again.
    Retry,
    /// Ask whether the peer lives.
    Liveness,
    /// Mark the end of a connection, which could not be done at once.
    EndMarker,
    /// Look for refusals that the device does not report.
    RefusalScan,
    /// An identifier has stayed long enough after its connection.
    Disconnecting,
}

/// A tenth of the shortest interval of asking.
const EARLY: Duration = Duration::from_millis(100);

/// How much before its time a deadline may be taken.
pub(super) fn early((_, timer): &(u64, Timer)) -> Duration {
    if *timer == Timer::Liveness { EARLY } else { Duration::ZERO }
}
