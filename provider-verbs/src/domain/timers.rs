//! What the domain's deadlines are for. Each is a connection's or an identifier's, by its number, or the domain's.

use std::time::Duration;

/// What to do when a deadline is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Connecting or accepting took too long.
    Connect,
    /// The peer had not forgotten an earlier connection: ask again.
    Retry,
    /// Probe the peer.
    Liveness,
    /// Look whether the send queue gets on.
    Stall,
    /// Post the end marker of a connection, which was not possible at once.
    EndMarker,
    /// Scan for refusals that the device does not report; a later round replaces an earlier one.
    RefusalScan { round: u64 },
    /// Ask the device again to stop, for the how manieth time.
    Proof { round: u32 },
    /// Notify the peer of an end, for which its device has had the time by now.
    Disconnect,
    /// An identifier has stayed long enough after its connection.
    Disconnecting,
}

/// The number of the domain itself, which no connection has.
pub(super) const DOMAIN: u64 = 0;

/// A tenth of the shortest interval of asking.
const EARLY: Duration = Duration::from_millis(100);

/// How much before its time a deadline may be taken.
pub(super) fn early(timer: &Timer) -> Duration {
    if *timer == Timer::Liveness { EARLY } else { Duration::ZERO }
}
