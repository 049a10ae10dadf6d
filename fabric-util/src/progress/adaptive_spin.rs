//! How long the thread looks for more work before it sleeps.
//!
//! To fall asleep and be woken takes longer than most of what the thread does, so where work has lately come soon after
//! the work before, it is waited for awake: a target whose application sleeps then answers as one that polls. Where it
//! has not, the thread sleeps at once, so that now and then a message costs no more than its own time.

use std::time::{Duration, Instant};

/// What is soon: some times what it takes to sleep and wake.
const SOON: Duration = Duration::from_micros(50);
/// So often in a row work must have come soon.
const TRUST: u32 = 3;

/// The thread's recent luck with looking.
pub(super) struct AdaptiveSpin {
    /// When the thread had nothing more to do.
    idle: Instant,
    /// How often in a row work came soon.
    soon: u32,
    /// The machine has one processor, so the thread that brings the next work cannot run meanwhile.
    alone: bool,
}

impl AdaptiveSpin {
    pub(super) fn new() -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        AdaptiveSpin { idle: Instant::now(), soon: 0, alone: alone || cfg!(loom) }
    }

    /// There is nothing to do; returns until when to look for more, if at all.
    pub(super) fn begin(&mut self) -> Option<Instant> {
        self.idle = Instant::now();
        (self.soon >= TRUST && !self.alone).then(|| self.idle + SOON)
    }

    /// There is something to do.
    pub(super) fn end(&mut self) {
        self.soon = if self.idle.elapsed() <= SOON { self.soon.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "its clock runs by steps, each longer than what is measured here")]
    fn it_looks_only_where_that_was_worth_it() {
        let mut spin = AdaptiveSpin { idle: Instant::now(), soon: 0, alone: false };
        for _ in 0..TRUST {
            assert!(spin.begin().is_none());
            // As work that comes at once, however slow this machine is.
            spin.idle = Instant::now() + SOON;
            spin.end();
        }
        let begin = Instant::now();
        assert!(spin.begin().is_some_and(|until| until >= begin + SOON));
        std::thread::sleep(2 * SOON);
        spin.end();
        assert!(spin.begin().is_none());
    }
}
