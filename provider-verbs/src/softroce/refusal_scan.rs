//! When to look at the queue pairs' states, on a device that does not say that it refused an access: at once after a
//! region was deregistered, and for as long as a transfer that was under way may take to notice.

use std::collections::VecDeque;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(5);
const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(2)];

/// The scans that are still to come.
#[derive(Default)]
pub(crate) struct RefusalScan {
    /// The pauses before those that follow the next one.
    pauses: VecDeque<Duration>,
    /// Scans of an earlier round are not due any more.
    round: u64,
    /// The first scan of the round is still to come, and sees what happens until then.
    is_first_due: bool,
}

impl RefusalScan {
    /// A region was deregistered. Gives when the first scan of a new round is due, and the round; `None` if one is due
    /// already, which is not put off, however many regions follow each other.
    pub(crate) fn restart(&mut self) -> Option<(Duration, u64)> {
        self.pauses = PAUSES.into();
        if std::mem::replace(&mut self.is_first_due, true) {
            return None;
        }
        self.round += 1;
        Some((FIRST, self.round))
    }

    /// Whether a scan of this round is due. A region that goes from now on needs a scan of its own.
    pub(crate) fn begin(&mut self, round: u64) -> bool {
        let is_due = self.round == round;
        self.is_first_due &= !is_due;
        is_due
    }

    /// The pause before the next scan of this round.
    pub(crate) fn next(&mut self, round: u64) -> Option<Duration> {
        if self.round == round { self.pauses.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_go_together_share_a_round() {
        let mut scan = RefusalScan::default();
        assert_eq!(scan.restart(), Some((FIRST, 1)));
        assert_eq!(scan.restart(), None);
        assert!(scan.begin(1));
        assert_eq!(scan.next(1), Some(PAUSES[0]));
        // One that goes after the first scan begins a round, and the earlier one is over.
        assert_eq!(scan.restart(), Some((FIRST, 2)));
        assert!(!scan.begin(1) && scan.next(1).is_none());
        assert!(scan.begin(2));
        assert_eq!(
            [(); 4].map(|()| scan.next(2)),
            [Some(PAUSES[0]), Some(PAUSES[1]), Some(PAUSES[2]), None]
        );
    }
}
