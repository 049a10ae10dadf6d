//! The turns of a latency measurement, whatever a turn is: counted, timed, and over when the limit says so.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::plan::Limit;
use super::problem::Outcome;
use super::tally::Tally;
use super::threads::Shared;

/// Operations after which the live line is updated, and a stream looks at the clock.
pub(crate) const REPORT_EVERY: u64 = 64;

/// The number of operations of an endpoint, and the latest moment.
pub(crate) fn bounds(limit: Limit) -> (u64, Option<Duration>) {
    match limit {
        Limit::Iterations(count) => (count, None),
        Limit::Seconds(seconds) => (u64::MAX, Some(Duration::from_secs_f64(seconds))),
    }
}

/// Times one operation after the other.
pub(crate) struct Pace {
    /// When the operations of this interval ended, and the one before them.
    ends: Vec<Instant>,
}

impl Pace {
    /// An operation has ended. Nothing more is done about it now: it would be part of the next one's time.
    #[inline]
    pub(crate) fn ended(&mut self) {
        self.ends.push(Instant::now());
    }

    /// Counts the interval; the next one begins now.
    fn count(&mut self, tally: &mut Tally) {
        for pair in self.ends.windows(2) {
            tally.record(pair[1] - pair[0]);
        }
        self.ends.clear();
        self.ends.push(Instant::now());
    }
}

/// Takes turns until the limit; a turn has so many `operations`, and calls `ended` for each.
#[inline]
pub(crate) fn turns(
    limit: Limit,
    operations: usize,
    shared: &Shared,
    mut turn: impl FnMut(&mut Pace) -> Outcome,
) -> Outcome<Tally> {
    let (count, time) = bounds(limit);
    let mut tally = Tally::start()?;
    let deadline = time.map(|time| tally.begin + time);
    let mut pace = Pace { ends: Vec::with_capacity(REPORT_EVERY as usize * operations + 1) };
    pace.ends.push(tally.begin);
    for number in 0..count {
        turn(&mut pace)?;
        tally.end = pace.ends.last().copied().unwrap_or(tally.end);
        if (number + 1) % REPORT_EVERY == 0 {
            shared.done.fetch_add(REPORT_EVERY, Ordering::Relaxed);
            pace.count(&mut tally);
        }
        if deadline.is_some_and(|deadline| tally.end >= deadline) {
            break;
        }
    }
    pace.count(&mut tally);
    tally.operations = tally.times.len();
    Ok(tally)
}
