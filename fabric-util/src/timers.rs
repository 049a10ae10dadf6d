//! Deadlines, the nearest first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Deadlines of a service thread: each is some owner's (`O`), for something (`T`), and goes with its owner.
pub struct Timers<O, T> {
    /// With the number of each.
    deadlines: BTreeMap<(Instant, u64), (O, T)>,
    owners: BTreeMap<(O, u64), Instant>,
    next_number: u64,
}

impl<O: Ord + Copy, T: Copy> Default for Timers<O, T> {
    fn default() -> Self {
        Timers { deadlines: BTreeMap::new(), owners: BTreeMap::new(), next_number: 0 }
    }
}

impl<O: Ord + Copy, T: Copy> Timers<O, T> {
    /// Adds a deadline. True if it is the nearest now: a thread that sleeps until a later one has to be woken.
    pub fn add(&mut self, at: Instant, owner: O, what: T) -> bool {
        let nearest = self.next().is_none_or(|next| at < next);
        let number = self.next_number;
        self.next_number += 1;
        self.deadlines.insert((at, number), (owner, what));
        self.owners.insert((owner, number), at);
        nearest
    }

    /// The nearest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes a deadline that has come. `early` is how much before its time it may be taken: deadlines of many connections
    /// that may be early soon come together, and wake the thread once.
    pub fn pop_due(&mut self, now: Instant, early: impl Fn(&T) -> Duration) -> Option<(O, T)> {
        let first = self.deadlines.first_entry()?;
        let ((at, number), (owner, what)) = (*first.key(), *first.get());
        if at > now + early(&what) {
            return None;
        }
        first.remove();
        self.owners.remove(&(owner, number));
        Some((owner, what))
    }

    /// Forgets the deadlines of an owner that is gone: a peer cannot fill memory with those of connections that it ended.
    pub fn cancel(&mut self, owner: O) {
        let all = (owner, 0)..=(owner, u64::MAX);
        while let Some((&own, &at)) = self.owners.range(all.clone()).next() {
            self.owners.remove(&own);
            self.deadlines.remove(&(at, own.1));
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
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
        assert!(timers.add(at(20), 'a', 2));
        assert!(timers.add(at(10), 'a', 1));
        assert!(!timers.add(at(30), 'a', 3));
        assert_eq!(timers.pop_due(at(9), NEVER_EARLY), None);
        assert_eq!(timers.pop_due(at(20), NEVER_EARLY), Some(('a', 1)));
        assert_eq!(timers.pop_due(at(20), NEVER_EARLY), Some(('a', 2)));
        assert_eq!(timers.pop_due(at(20), NEVER_EARLY), None);
        assert_eq!((timers.next(), timers.len()), (Some(at(30)), 1));
    }

    #[test]
    fn some_may_be_early_and_the_order_stays() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        let early = |what: &u32| Duration::from_millis(if *what == 3 { 0 } else { 100 });
        for (ms, what) in [(1000, 1), (1050, 2), (1060, 3), (1070, 4)] {
            timers.add(at(ms), 'a', what);
        }
        let pop = |timers: &mut Timers<char, u32>, ms| {
            timers.pop_due(at(ms), early).map(|(_, what)| what)
        };
        assert_eq!(pop(&mut timers, 899), None);
        assert_eq!(pop(&mut timers, 1000), Some(1));
        assert_eq!(pop(&mut timers, 1000), Some(2));
        // Not before its time, nor what is behind it.
        assert_eq!(pop(&mut timers, 1000), None);
        assert_eq!(pop(&mut timers, 1100), Some(3));
        assert_eq!(pop(&mut timers, 1100), Some(4));
        assert!(pop(&mut timers, 9000).is_none() && timers.is_empty());
    }

    #[test]
    fn deadlines_go_with_their_owner() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        for (ms, owner, what) in [(10, 'a', 1), (20, 'b', 1), (30, 'a', 2), (30, 'a', 2)] {
            timers.add(at(ms), owner, what);
        }
        timers.cancel('c');
        timers.cancel('a');
        assert_eq!((timers.next(), timers.len()), (Some(at(20)), 1));
        assert_eq!(timers.pop_due(at(99), NEVER_EARLY), Some(('b', 1)));
        assert!(timers.is_empty() && timers.owners.is_empty());
    }
}
