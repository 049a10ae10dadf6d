//! What a thread has measured.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::problem::Outcome;

/// Longer times count as so long.
const LONGEST_NS: u64 = 60_000_000_000;
const CLOCK_READS: usize = 1001;

pub(crate) struct Tally {
    /// Nanoseconds: of each operation, or round trip; of streams, of an operation on the average of an interval.
    pub(crate) times: Histogram<u64>,
    pub(crate) operations: u64,
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
    clock_ns: u64,
}

impl Tally {
    pub(crate) fn start() -> Outcome<Self> {
        let times = Histogram::new_with_bounds(1, LONGEST_NS, 3)?;
        let clock_ns = clock_ns();
        let now = Instant::now();
        Ok(Tally { times, operations: 0, begin: now, end: now, clock_ns })
    }

    /// Counts one time, less what it took to read the clock. Allocates nothing.
    #[inline]
    pub(crate) fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS);
        self.times.saturating_record(ns.saturating_sub(self.clock_ns).max(1));
    }

    /// Counts `operations` that took `time` together.
    pub(crate) fn record_average(&mut self, time: Duration, operations: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS) / operations.max(1);
        self.times.saturating_record(ns.max(1));
    }

    /// That of all threads.
    pub(crate) fn join(&mut self, other: &Tally) -> Outcome {
        self.times.add(&other.times)?;
        self.operations += other.operations;
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        Ok(())
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.end - self.begin).as_secs_f64().max(1e-9)
    }
}

/// What it takes to read the clock, in nanoseconds: the median.
fn clock_ns() -> u64 {
    let reads: Vec<Instant> = (0..CLOCK_READS).map(|_| Instant::now()).collect();
    let mut gaps: Vec<u128> = reads.windows(2).map(|pair| (pair[1] - pair[0]).as_nanos()).collect();
    gaps.sort_unstable();
    gaps[gaps.len() / 2] as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_and_joined() {
        let mut one = Tally::start().unwrap();
        one.clock_ns = 20;
        one.record(Duration::from_nanos(1020));
        one.record(Duration::from_nanos(3));
        one.record(Duration::from_secs(1000));
        assert_eq!((one.times.min(), one.times.len()), (1, 3));
        assert!(one.times.max() >= LONGEST_NS);
        let mut other = Tally::start().unwrap();
        other.record_average(Duration::from_micros(64), 64);
        other.operations = 64;
        other.join(&one).unwrap();
        assert_eq!((other.times.len(), other.operations), (4, 64));
        assert!(other.begin <= one.begin);
    }
}
