//! Looks that find nothing: a program that turns without a pause keeps the processor, for a whole time slice, from the one that it
//! waits for, where both share one.

/// Looks in a row until the processor is offered to others: longer than a message takes where nothing is in its way.
const LOOKS: u32 = 128;

/// How many there were.
#[derive(Default)]
pub(super) struct Idle(u32);

impl Idle {
    /// Whether to offer the processor, after a look that found nothing, or something.
    #[inline]
    pub(super) fn after_look(&mut self, is_empty: bool) -> bool {
        self.0 = if is_empty { (self.0 + 1) % LOOKS } else { 0 };
        is_empty && self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turning_offers_the_processor() {
        let mut idle = Idle::default();
        let offers =
            |idle: &mut Idle, looks: u32| (0..looks).filter(|_| idle.after_look(true)).count();
        assert_eq!(offers(&mut idle, 4 * LOOKS), 4);
        assert_eq!(offers(&mut idle, LOOKS - 1), 0);
        assert!(!idle.after_look(false), "there was something");
        assert_eq!(offers(&mut idle, LOOKS - 1), 0);
    }
}
