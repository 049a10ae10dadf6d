//! How long an acknowledgement that is due waits for a message that carries it.
//!
//! One that goes alone costs both ends as much as a short message. Where an application answers, its answer follows soon, but not
//! always in the next turn: it may send to others before, or its processor may be another's for a while. So an acknowledgement
//! waits for some turns, as long as that is of use.

use fabric_core::unlikely;

/// Turns that it waits for: a few microseconds, where each finds nothing.
const TURNS: u32 = 12;
/// Acknowledgements in a row that wait in vain before the next ones do not.
const TRUST: u32 = 4;
/// From then on so many go at once for each that waits, to see whether it is of use again.
const AT_ONCE: u32 = 15;

/// The acknowledgements of a connection.
#[derive(Debug)]
pub(super) struct AckHold {
    /// Turns for which the present one has waited.
    turns: u32,
    trust: u32,
    /// How many went at once since the last one that waited.
    at_once: u32,
}

impl AckHold {
    pub(super) fn new() -> Self {
        AckHold { turns: 0, trust: TRUST, at_once: 0 }
    }

    /// Whether one that is due in this turn waits for the next one.
    #[inline]
    pub(super) fn waits(&mut self) -> bool {
        if self.turns == TURNS {
            (self.turns, self.trust) = (0, self.trust.saturating_sub(1));
            return false;
        }
        if self.turns == 0 && self.trust == 0 {
            if self.at_once < AT_ONCE {
                self.at_once += 1;
                return false;
            }
            self.at_once = 0;
        }
        self.turns += 1;
        true
    }

    /// None is due in this turn: if one has waited, a message has carried it.
    #[inline]
    pub(super) fn on_none(&mut self) {
        if unlikely(self.turns > 0) {
            (self.turns, self.trust) = (0, (self.trust + 1).min(TRUST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many turns the next acknowledgement waits where no message comes.
    fn waits_for(hold: &mut AckHold) -> u32 {
        (0..).take_while(|_| hold.waits()).count() as u32
    }

    #[test]
    fn one_waits_for_a_message_and_no_longer_than_some_turns() {
        let mut hold = AckHold::new();
        assert_eq!(waits_for(&mut hold), TURNS);
        for _ in 0..100 {
            assert!(hold.waits() && hold.waits());
            hold.on_none();
        }
        assert_eq!(waits_for(&mut hold), TURNS, "no turn of earlier ones counts");
    }

    #[test]
    fn where_no_message_carries_them_few_wait() {
        let mut hold = AckHold::new();
        let first = (0..TRUST).map(|_| waits_for(&mut hold));
        assert!(first.eq([TURNS; TRUST as usize]));
        for _ in 0..3 {
            let later = (0..=AT_ONCE).map(|_| waits_for(&mut hold)).collect::<Vec<_>>();
            assert_eq!(later.iter().filter(|turns| **turns > 0).count(), 1, "{later:?}");
        }
    }

    #[test]
    fn where_messages_carry_them_again_all_wait_again() {
        let mut hold = AckHold::new();
        while waits_for(&mut hold) > 0 {}
        while !hold.waits() {}
        hold.on_none();
        assert!(hold.waits());
    }
}
