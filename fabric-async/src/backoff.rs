//! How often to look for what no device reports: soon at first, and then less often.

use std::time::Duration;

/// Between two looks: at first, and at most.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(2);

/// The pauses between looks.
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff(FIRST)
    }

    /// The pause before the next look.
    pub(crate) fn pause(&mut self) -> Duration {
        let next = (self.0 * 2).min(LONGEST);
        std::mem::replace(&mut self.0, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..8).map(|_| backoff.pause().as_micros()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
    }
}
