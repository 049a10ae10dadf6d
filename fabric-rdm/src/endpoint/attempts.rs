//! How many attempts an endpoint has under way.
//!
//! Half of the places stay for peers that ask: where all places are taken by attempts, endpoints that ask each other have
//! none to accept by. And peers that do not answer are asked fewer at a time: perhaps they have too much to do, and what
//! is not answered in time is work for nothing.

use std::time::Duration;

/// So many at first, if there are places for them; more as peers answer.
const AT_FIRST: usize = 16;
/// An eighth of the maximum may go in any case: peers that are no more do not keep others waiting.
const MIN_PART: usize = 8;

/// Attempts of one endpoint.
pub(super) struct Attempts {
    under_way: usize,
    allowed: usize,
    max: usize,
    /// Until then there is no further cause to have fewer: attempts that began together end together.
    settles: Duration,
}

impl Attempts {
    pub(super) fn new(max_open: u32) -> Self {
        let max = (max_open as usize / 2).max(1);
        Attempts { under_way: 0, allowed: max.min(AT_FIRST), max, settles: Duration::ZERO }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// One begins, or ends.
    pub(super) fn note(&mut self, was_under_way: bool, is_under_way: bool) {
        self.under_way = self.under_way - usize::from(was_under_way) + usize::from(is_under_way);
    }

    /// So many more may begin.
    pub(super) fn left(&self) -> usize {
        self.allowed.saturating_sub(self.under_way)
    }

    /// The peer said something, if only no.
    pub(super) fn is_answered(&mut self) {
        self.allowed = (self.allowed + 1).min(self.max);
    }

    /// The peer said nothing in this time.
    pub(super) fn is_unanswered(&mut self, now: Duration, patience: Duration) {
        if self.settles <= now {
            self.settles = now.saturating_add(patience);
            self.allowed = (self.allowed / 2).max(self.max.div_ceil(MIN_PART));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_while_peers_do_not_answer() {
        let second = Duration::from_secs(1);
        let mut attempts = Attempts::new(64);
        assert_eq!(attempts.allowed, 16);
        (0..100).for_each(|_| attempts.is_answered());
        assert_eq!(attempts.allowed, 32);
        (0..100).for_each(|_| attempts.is_unanswered(second, second));
        assert_eq!(attempts.allowed, 16, "of one time");
        (2..9).for_each(|at| attempts.is_unanswered(at * second, second));
        assert_eq!(attempts.allowed, 4);
    }

    #[test]
    fn one_place_is_enough() {
        let mut attempts = Attempts::new(1);
        attempts.is_unanswered(Duration::ZERO, Duration::ZERO);
        assert_eq!(attempts.left(), 1);
        attempts.note(false, true);
        assert_eq!((attempts.left(), attempts.under_way()), (0, 1));
        attempts.note(true, false);
        assert_eq!(attempts.left(), 1);
    }
}
