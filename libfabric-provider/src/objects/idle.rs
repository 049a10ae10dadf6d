//! Looks that find nothing: a program that turns without a pause keeps the processor, for a whole time slice, from the one that it
//! waits for, where both share one.

/// Looks in a row until the processor is offered to others: longer than a message takes where nothing is in its way.
const LOOKS: u32 = 128;

/// What a queue's reads have found of late.
#[derive(Default)]
pub(super) struct Idle {
    /// Looks in a row that found nothing.
    looks: u32,
    /// The last read took all that was found, and had room for more.
    took_all: bool,
}

impl Idle {
    /// Whether a read of a queue where nothing waits is to look where completions come from: not the first one behind a read
    /// that took all. Programs read until there is nothing, and answer what they have read only then. A look in between would
    /// find nothing, and send an acknowledgement alone that the answer carries otherwise.
    #[inline]
    pub(super) fn is_worth_a_look(&mut self) -> bool {
        !std::mem::take(&mut self.took_all)
    }

    /// Whether to offer the processor, after a look for so many that found so many.
    #[inline]
    pub(super) fn after_look(&mut self, count: usize, found: usize) -> bool {
        let is_empty = found == 0 && count > 0;
        self.took_all = (1..count).contains(&found);
        self.looks = if is_empty { (self.looks + 1) % LOOKS } else { 0 };
        is_empty && self.looks == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turning_offers_the_processor() {
        let mut idle = Idle::default();
        let offers =
            |idle: &mut Idle, looks: u32| (0..looks).filter(|_| idle.after_look(8, 0)).count();
        assert_eq!(offers(&mut idle, 4 * LOOKS), 4);
        assert_eq!(offers(&mut idle, LOOKS - 1), 0);
        assert!(!idle.after_look(8, 8), "there was something");
        assert_eq!(offers(&mut idle, LOOKS - 1), 0);
    }

    #[test]
    fn one_read_behind_one_that_took_all_does_not_look() {
        let mut idle = Idle::default();
        assert!(idle.is_worth_a_look());
        for (found, looks) in [(0, true), (3, false), (8, true)] {
            idle.after_look(8, found);
            assert_eq!(idle.is_worth_a_look(), looks, "found {found} of 8");
            assert!(idle.is_worth_a_look(), "once");
        }
    }
}
