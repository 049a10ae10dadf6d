//! When peers come again whose requests were refused for want of a place: each at a time of its own, as fast as places come
//! free. So a crowd of any size asks no more often than it can be answered, and needs no memory here.

use std::time::Duration;

/// Between two, as long as no place was wanted.
const AT_FIRST: Duration = Duration::from_millis(1);
/// No longer than this, however long one took.
const LONGEST: Duration = Duration::from_secs(1);
/// So many make the mean.
const SAMPLES: u32 = 32;

pub(super) struct Appointments {
    /// The last one that was given.
    last: Duration,
    /// Between two places that come free, as of late.
    interval: Duration,
    /// When a request had the last place.
    served: Duration,
    /// No appointment is later than this from now.
    longest: Duration,
}

impl Appointments {
    pub(super) fn new(longest: Duration) -> Self {
        let (last, served) = (Duration::ZERO, Duration::ZERO);
        Appointments { last, interval: AT_FIRST, served, longest }
    }

    /// A request has a place that has waited for it since then.
    pub(super) fn on_served(&mut self, now: Duration, since: Duration) {
        let sample = now.saturating_sub(self.served.max(since)).min(LONGEST);
        self.interval = (self.interval * (SAMPLES - 1) + sample) / SAMPLES;
        self.served = now;
    }

    /// How long the next one has to wait, behind so many that are here.
    pub(super) fn next(&mut self, now: Duration, ahead: usize) -> Duration {
        // Half of those that are here: the others are for places that come free earlier than that.
        let ahead = self.interval.saturating_mul((ahead / 2).try_into().unwrap_or(u32::MAX));
        let first = now.saturating_add(ahead);
        // Where more have come than there are times for, they share them, and some come once more.
        let is_near = self.last <= now.saturating_add(self.longest);
        let last = if is_near { self.last.max(first) } else { first };
        self.last = last.saturating_add(self.interval);
        self.last.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_WAIT: Duration = Duration::from_secs(10);

    /// Whatever is asked for, each time is one that can be waited for, and no two follow each other faster than places come free.
    #[test]
    fn each_has_a_time_of_its_own() {
        let mut appointments = Appointments::new(LONGEST_WAIT);
        let now = Duration::from_secs(100);
        let waits: Vec<_> = (0..9000).map(|_| appointments.next(now, 64)).collect();
        assert_eq!(waits[0], 33 * AT_FIRST, "behind half of those that wait here");
        assert!(waits.windows(2).all(|two| two[1] == two[0] + AT_FIRST));
        let last = waits[waits.len() - 1];
        let later = now + last / 2;
        assert_eq!(appointments.next(later, 0), last - last / 2 + AT_FIRST, "time has passed");
    }

    #[test]
    fn a_crowd_without_end_shares_its_times() {
        let mut appointments = Appointments::new(LONGEST_WAIT);
        let now = Duration::from_secs(100);
        for _ in 0..1_000_000 {
            let wait = appointments.next(now, 64);
            assert!(!wait.is_zero() && wait <= LONGEST_WAIT + AT_FIRST);
        }
    }

    #[test]
    fn they_are_as_far_apart_as_places_come_free() {
        let mut appointments = Appointments::new(LONGEST_WAIT);
        let (mut now, came) = (Duration::from_secs(100), Duration::from_secs(100));
        for _ in 0..1000 {
            now += Duration::from_millis(20);
            appointments.on_served(now, came);
        }
        let first = appointments.next(now, 0);
        assert!(
            (Duration::from_millis(18)..=Duration::from_millis(20)).contains(&first),
            "{first:?}"
        );
        // Hours in which no place was wanted say nothing.
        now += Duration::from_secs(7200);
        appointments.on_served(now, now - Duration::from_millis(20));
        assert!(appointments.next(now, 0) < Duration::from_millis(21));
        // Nor do endless ones stop all others.
        (0..1000).for_each(|hours| appointments.on_served(now + hours * LONGEST_WAIT * 360, now));
        assert!(appointments.next(now, 0) <= now + LONGEST_WAIT);
    }

    #[test]
    fn no_time_is_too_long() {
        let mut appointments = Appointments::new(Duration::MAX);
        appointments.on_served(Duration::MAX, Duration::ZERO);
        (0..100).for_each(|_| _ = appointments.next(Duration::MAX, usize::MAX));
    }
}
