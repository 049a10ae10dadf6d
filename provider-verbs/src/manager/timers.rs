//! The domain's timers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// What happens when the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Connecting or accepting took too long.
    Connect,
    /// The peer still thought of an earlier connection: ask again.
    Retry,
    /// Ask whether the peer lives.
    Liveness,
    /// Look for refusals that the device does not tell.
    Look,
    /// An identifier has parted long enough.
    Parting,
}

#[derive(Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, u64, Timer)>>);

impl Timers {
    /// Adds one; whether it is the next one now.
    pub(super) fn add(&mut self, after: Duration, name: u64, timer: Timer) -> bool {
        let at = Instant::now() + after;
        let first = self.next().is_none_or(|next| at < next);
        self.0.push(Reverse((at, name, timer)));
        first
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes one that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<(u64, Timer)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, name, timer))| (name, timer))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
