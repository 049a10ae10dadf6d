//! By which rail of its address a peer is asked.
//!
//! A rail may lead to another host than the peer's, or back to this one, where both have an address that is not theirs alone, as
//! those of bridges for containers are. So one rail by which the peer is gone says little: the others are asked first.

use crate::connection::{DialError, Refusal};

/// The one that is asked by: the one that served last, until it does not.
#[derive(Default)]
pub(super) struct DialedRail {
    at: usize,
    count: usize,
    /// Attempts without the peer since it was found last.
    failed: usize,
    /// By one of these rails another incarnation is there, or another endpoint.
    has_gone: bool,
}

impl DialedRail {
    /// The number of the rail to ask by, of so many.
    pub(super) fn next(&mut self, count: usize) -> usize {
        self.count = count.max(1);
        self.at % self.count
    }

    /// The peer was found there.
    pub(super) fn is_found(&mut self) {
        (self.failed, self.has_gone) = (0, false);
    }

    /// An attempt has failed: the next one goes by another rail, unless it was the peer who answered. What is known of the peer
    /// then.
    pub(super) fn on_failed(&mut self, error: DialError) -> DialError {
        let is_gone = error == DialError::Refused(Refusal::Gone);
        if !is_gone && error != DialError::Unreachable {
            self.is_found();
            return error;
        }
        self.at = (self.at + 1) % self.count.max(1);
        self.failed += 1;
        self.has_gone |= is_gone;
        if self.has_gone && self.failed >= self.count {
            DialError::Refused(Refusal::Gone)
        } else {
            DialError::Unreachable
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GONE: DialError = DialError::Refused(Refusal::Gone);
    const BUSY: DialError = DialError::Refused(Refusal::Busy(Duration::ZERO));

    #[test]
    fn a_peer_is_gone_when_no_rail_leads_to_it() {
        let mut rail = DialedRail::default();
        assert_eq!((rail.next(3), rail.on_failed(GONE)), (0, DialError::Unreachable));
        assert_eq!(
            (rail.next(3), rail.on_failed(DialError::Unreachable)),
            (1, DialError::Unreachable)
        );
        assert_eq!((rail.next(3), rail.on_failed(DialError::Unreachable)), (2, GONE));
        let mut rail = DialedRail::default();
        assert_eq!((rail.next(1), rail.on_failed(GONE)), (0, GONE), "there is no other one");
    }

    #[test]
    fn the_rail_that_served_stays() {
        let mut rail = DialedRail::default();
        assert_eq!(
            (rail.next(2), rail.on_failed(DialError::Unreachable)),
            (0, DialError::Unreachable)
        );
        assert_eq!((rail.next(2), rail.on_failed(BUSY), rail.next(2)), (1, BUSY, 1));
        rail.is_found();
        assert_eq!(rail.next(2), 1);
        // What failed before it was found does not count.
        assert_eq!((rail.on_failed(GONE), rail.next(2)), (DialError::Unreachable, 0));
        assert_eq!(rail.on_failed(DialError::Unreachable), GONE);
    }
}
