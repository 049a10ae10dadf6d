//! Deadlines, the nearest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Deadlines of a service thread. One that no longer matters stays until it has come; its owner then finds that there is
/// nothing to do.
pub struct Timers<K>(BinaryHeap<Reverse<(Instant, K)>>);

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Timers(BinaryHeap::new())
    }
}

impl<K: Ord> Timers<K> {
    /// Adds a deadline. True if it is the nearest now: a thread that sleeps until a later one has to be woken.
    pub fn add(&mut self, at: Instant, what: K) -> bool {
        let nearest = self.next().is_none_or(|next| at < next);
        self.0.push(Reverse((at, what)));
        nearest
    }

    /// The nearest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a deadline that has come. `early` is how much before its time it may be taken: deadlines of many connections
    /// that may be early soon come together, and wake the thread once.
    pub fn pop_due(&mut self, now: Instant, early: impl Fn(&K) -> Duration) -> Option<K> {
        let Reverse((at, what)) = self.0.peek()?;
        if *at > now + early(what) {
            return None;
        }
        self.0.pop().map(|Reverse((_, what))| what)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER_EARLY: fn(&u32) -> Duration = |_| Duration::ZERO;

    #[test]
    fn nearest_first_and_none_early() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        assert!(timers.add(at(20), 2));
        assert!(timers.add(at(10), 1));
        assert!(!timers.add(at(30), 3));
        assert_eq!(timers.pop_due(at(9), NEVER_EARLY), None);
        assert_eq!(timers.pop_due(at(20), NEVER_EARLY), Some(1));
        assert_eq!(timers.pop_due(at(20), NEVER_EARLY), Some(2));
        assert_eq!(timers.pop_due(at(20), NEVER_EARLY), None);
        assert_eq!((timers.next(), timers.len()), (Some(at(30)), 1));
    }

    #[test]
    fn some_may_be_early_and_the_order_stays() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        let early = |what: &u32| Duration::from_millis(if *what == 3 { 0 } else { 100 });
        for (ms, what) in [(1000, 1), (1050, 2), (1060, 3), (1070, 4)] {
            timers.add(at(ms), what);
        }
        assert_eq!(timers.pop_due(at(899), early), None);
        assert_eq!(timers.pop_due(at(1000), early), Some(1));
        assert_eq!(timers.pop_due(at(1000), early), Some(2));
        // Not before its time, nor what is behind it.
        assert_eq!(timers.pop_due(at(1000), early), None);
        assert_eq!(timers.pop_due(at(1100), early), Some(3));
        assert_eq!(timers.pop_due(at(1100), early), Some(4));
        assert!(timers.pop_due(at(9000), early).is_none() && timers.is_empty());
    }
}
