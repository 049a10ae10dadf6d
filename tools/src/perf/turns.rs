//! The turns of a latency measurement, whatever a turn is: counted, timed, and over when the limit says so.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Outcome;
use super::initiator::Shared;
use super::plan::Limit;
use super::tally::Tally;

/// Operations after which the live line is told, and a stream looks at the clock.
pub(crate) const STRETCH: u64 = 64;

/// The number of operations of an endpoint, and the latest moment.
pub(crate) fn bounds(limit: Limit) -> (u64, Option<Duration>) {
    match limit {
        Limit::Iterations(count) => (count, None),
        Limit::Seconds(seconds) => (u64::MAX, Some(Duration::from_secs_f64(seconds))),
    }
}

/// Times one operation after the other.
pub(crate) struct Pace {
    tally: Tally,
    last: Instant,
    gap: Option<Duration>,
}

impl Pace {
    /// Counts the operation before: while the next one is under way, so that counting takes none of its time.
    #[inline]
    pub(crate) fn record(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.tally.record(gap);
        }
    }

    /// An operation has ended.
    #[inline]
    pub(crate) fn ended(&mut self) {
        let now = Instant::now();
        (self.gap, self.last) = (Some(now - self.last), now);
    }
}

/// Takes turns until the limit; a turn calls `record` and `ended` for each of its operations.
#[inline]
pub(crate) fn turns(
    limit: Limit,
    shared: &Shared,
    mut turn: impl FnMut(&mut Pace) -> Outcome,
) -> Outcome<Tally> {
    let (count, time) = bounds(limit);
    let tally = Tally::start()?;
    let deadline = time.map(|time| tally.begin + time);
    let mut pace = Pace { last: tally.begin, tally, gap: None };
    for number in 0..count {
        turn(&mut pace)?;
        if number % STRETCH == 0 {
            shared.done.fetch_add(STRETCH, Ordering::Relaxed);
        }
        if deadline.is_some_and(|deadline| pace.last >= deadline) {
            break;
        }
    }
    pace.record();
    let Pace { mut tally, last, .. } = pace;
    (tally.end, tally.operations) = (last, tally.times.len());
    Ok(tally)
}
