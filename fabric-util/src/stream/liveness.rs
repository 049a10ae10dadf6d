//! Whether the peer's host still answers.
//!
//! The kernel's keepalive looks after a connection while nothing is under way, and only then. So each end that has sent
//! something, be it an acknowledgement, looks itself until all of it is answered. An end that only receives has nothing
//! under way. A connection without traffic costs nothing.

use std::time::{Duration, Instant};

use super::transport::Silence;

/// The looks at one connection.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// There is a deadline for the next look.
    on: bool,
    /// Since when, at least, the peer's host owes an answer.
    owed: Option<Instant>,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing is under way: the kernel takes over.
    Rest,
    /// Look again after this time.
    Again(Duration),
    /// The peer's host is gone.
    Lost,
}

impl Watch {
    /// Whether there is a deadline for the next look.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Something was sent at `now`; says after what time to look.
    pub(super) fn begin(&mut self, now: Instant, silence: Silence, interval: Duration) -> Duration {
        // Where the host is silent for longer than an idle one can be, the kernel's own probe is unanswered.
        let owed = silence.lasts.saturating_sub(interval * 5 / 4);
        (self.on, self.owed) = (true, now.checked_sub(owed));
        next(silence.lasts, owed, interval)
    }

    /// Looks. The host is gone when for two intervals nothing was heard from it, in the last half of an interval at least
    /// in spite of something that it had to answer and that was repeated meanwhile. Whenever the way was cut, that is
    /// within three intervals.
    pub(super) fn look(&mut self, now: Instant, silence: Silence, interval: Duration) -> Look {
        if !silence.unanswered {
            self.owed = None;
            self.on = silence.held_back;
            // To a peer that takes no more the kernel sends a probe now and then, which is to be answered.
            return if self.on { Look::Again(interval) } else { Look::Rest };
        }
        let owed = match self.owed {
            Some(since) if since + silence.lasts >= now => now.saturating_duration_since(since),
            // Heard since; what is unanswered by now may be younger.
            _ => {
                self.owed = Some(now);
                Duration::ZERO
            }
        };
        if silence.lasts >= 2 * interval && owed >= interval / 2 {
            self.on = false;
            return Look::Lost;
        }
        Look::Again(next(silence.lasts, owed, interval))
    }
}

/// After what time the host would be gone if it stays silent.
fn next(silent: Duration, owed: Duration, interval: Duration) -> Duration {
    let silent = (2 * interval).saturating_sub(silent);
    // The kernel counts in its own ticks.
    silent.max((interval / 2).saturating_sub(owed)) + Duration::from_millis(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    /// A host that is cut off at `cut`, and an end that sends for the first time at `first`, and on and on from then, or
    /// only once; all in milliseconds. Says when the end notices.
    fn noticed(cut: u64, first: u64, on_and_on: bool) -> u64 {
        let start = Instant::now();
        let silence = |now: u64| {
            // It answers what an idle end's kernel asks, or else what is sent.
            let heard = if on_and_on && now >= first { now } else { now / 1000 * 1000 };
            let lasts = Duration::from_millis(now - heard.min(cut));
            let unanswered = now >= cut && now >= first;
            Silence { lasts, unanswered, held_back: false }
        };
        let mut watch = Watch::default();
        let mut now = first;
        let at = |now| start + Duration::from_millis(now);
        now += watch.begin(at(now), silence(now), INTERVAL).as_millis() as u64;
        loop {
            match watch.look(at(now), silence(now), INTERVAL) {
                Look::Lost => return now,
                Look::Again(time) => now += time.as_millis() as u64,
                Look::Rest => {
                    now = if on_and_on { now + 1 } else { now.max(cut) + 1 };
                    now += watch.begin(at(now), silence(now), INTERVAL).as_millis() as u64;
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn whenever_it_is_cut_off_that_is_noticed_within_three_intervals() {
        for cut in (5000..9000).step_by(37) {
            for first in [1000, 1500, cut, cut + 100, cut + 900, cut + 1500, cut + 2300] {
                for on_and_on in [false, true] {
                    let taken = noticed(cut, first, on_and_on) as i64 - cut as i64;
                    let min = if on_and_on { 2000 } else { 1000 };
                    assert!((min..=3000).contains(&taken), "{cut} {first} {on_and_on}: {taken}");
                }
            }
        }
    }

    #[test]
    fn a_host_that_answers_is_never_lost() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let fresh = Silence { lasts: Duration::from_millis(3), unanswered: true, held_back: false };
        watch.begin(start, fresh, INTERVAL);
        for i in 1..100 {
            let look = watch.look(start + i * INTERVAL, fresh, INTERVAL);
            assert!(matches!(look, Look::Again(_)), "{look:?}");
        }
    }

    #[test]
    fn one_that_takes_no_more_is_watched_and_one_that_owes_nothing_is_not() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let lasts = 50 * INTERVAL;
        let stopped = Silence { lasts, unanswered: false, held_back: true };
        watch.begin(start, stopped, INTERVAL);
        assert_eq!(watch.look(start + INTERVAL, stopped, INTERVAL), Look::Again(INTERVAL));
        // A probe that is just on its way.
        let asked = Silence { lasts, unanswered: true, held_back: false };
        assert!(matches!(watch.look(start + INTERVAL, asked, INTERVAL), Look::Again(_)));
        assert!(watch.is_on());
        let idle = Silence { lasts, unanswered: false, held_back: false };
        assert_eq!(watch.look(start + 2 * INTERVAL, idle, INTERVAL), Look::Rest);
        assert!(!watch.is_on());
    }
}
