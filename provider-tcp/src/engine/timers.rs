//! Deadlines of connections.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The connection must stand by now, or the handshake be over.
    Connect,
    /// The peer had its time to read the last frame.
    Linger,
    /// Look whether the peer's host still answers.
    Liveness,
    /// Try to accept again after running out of descriptors.
    Accept,
    /// Tests only: do what the adversary put off.
    PutOff,
}

/// Deadlines, the nearest first. One that no longer matters stays until it has come; its owner then finds
/// that there is nothing to do.
#[derive(Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, usize, Timer)>>);

impl Timers {
    /// Adds a deadline; says whether it is the nearest.
    pub(super) fn add(&mut self, at: Instant, member: usize, timer: Timer) -> bool {
        let nearest = self.next().is_none_or(|next| at < next);
        self.0.push(Reverse((at, member, timer)));
        nearest
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes a deadline that has come.
    pub(super) fn expired(&mut self, now: Instant) -> Option<(usize, Timer)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, member, timer))| (member, timer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nearest_first_and_none_early() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        assert!(timers.add(at(20), 2, Timer::Linger));
        assert!(timers.add(at(10), 1, Timer::Connect));
        assert!(!timers.add(at(30), 3, Timer::Liveness));
        assert_eq!(timers.expired(at(9)), None);
        assert_eq!(timers.expired(at(20)), Some((1, Timer::Connect)));
        assert_eq!(timers.expired(at(20)), Some((2, Timer::Linger)));
        assert_eq!(timers.expired(at(20)), None);
        assert_eq!(timers.next(), Some(at(30)));
    }
}
