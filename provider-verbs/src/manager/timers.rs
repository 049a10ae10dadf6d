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
    /// Mark the end of a connection, which could not be done at once.
    Mark,
    /// Look for refusals that the device does not tell.
    Look,
    /// An identifier has parted long enough.
    Parting,
}

/// A tenth of the shortest interval of asking.
const EARLY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, u64, Timer)>>);

impl Timers {
    /// Adds one; whether it is the next one now.
    pub(super) fn add(&mut self, after: Duration, name: u64, timer: Timer) -> bool {
        self.add_at(Instant::now() + after, name, timer)
    }

    fn add_at(&mut self, at: Instant, name: u64, timer: Timer) -> bool {
        let first = self.next().is_none_or(|next| at < next);
        self.0.push(Reverse((at, name, timer)));
        first
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes one that is due. To ask whether a peer lives may come a little early: so those of many connections soon
    /// come together, and wake the thread once.
    pub(super) fn due(&mut self, now: Instant) -> Option<(u64, Timer)> {
        let Reverse((at, _, timer)) = self.0.peek()?;
        let early = if *timer == Timer::Liveness { EARLY } else { Duration::ZERO };
        if *at > now + early {
            return None;
        }
        self.0.pop().map(|Reverse((_, name, timer))| (name, timer))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_liveness_may_be_early_and_the_rest_is_in_order() {
        let mut timers = Timers::default();
        let ms = Duration::from_millis;
        let begin = Instant::now();
        assert!(timers.add_at(begin + ms(1000), 1, Timer::Liveness));
        assert!(!timers.add_at(begin + ms(1050), 2, Timer::Liveness));
        assert!(!timers.add_at(begin + ms(1060), 3, Timer::Connect));
        assert!(!timers.add_at(begin + ms(1070), 4, Timer::Liveness));
        let first = timers.next().unwrap();
        assert_eq!(timers.due(first - ms(101)), None);
        assert_eq!(timers.due(first), Some((1, Timer::Liveness)));
        assert_eq!(timers.due(first), Some((2, Timer::Liveness)));
        // Not before its time, nor what is behind it.
        assert_eq!(timers.due(first), None);
        assert_eq!(timers.due(first + ms(100)), Some((3, Timer::Connect)));
        assert_eq!(timers.due(first + ms(100)), Some((4, Timer::Liveness)));
        assert_eq!((timers.due(first + ms(9000)), timers.len()), (None, 0));
    }
}
