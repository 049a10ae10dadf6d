//! Times and lengths of leases.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Nanoseconds on this process's monotonic clock.
pub(super) fn nanos(at: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    u64::try_from(at.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// When it is `until` by the clock of one that was asked for it at `asked`, or after that, and said `now`: no later than there.
pub(super) fn by_own_clock(asked: Instant, until: u64, now: u64) -> u64 {
    nanos(asked).saturating_add(until.saturating_sub(now))
}

/// Bytes that a request for `len` gets: some, in whole words.
pub(super) fn whole(len: u64) -> u64 {
    len.max(1).checked_next_multiple_of(8).unwrap_or(u64::MAX)
}

/// `now + time`, however long that is.
pub(super) fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time.min(Duration::from_secs(1 << 32))).unwrap_or(now)
}
