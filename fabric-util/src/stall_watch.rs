//! Whether what is under way at an end of a connection gets on: the looks at it, the same on every provider.
//!
//! A provider feeds it with what it counts anyway, a few times in the limit, so the data path does nothing for it.

use std::time::{Duration, Instant};

/// Looks that find no difference before the connection has stalled. It ends within the limit and two of these parts of it.
const LOOKS: u32 = 4;

/// Something of a connection that may be under way, as a look finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// It is.
    pub pending: bool,
    /// A number that has become another one wherever it got on.
    pub mark: u64,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is under way.
    Rest,
    /// Look again after this time.
    LookAfter(Duration),
    /// Nothing of this, by its place, got on for the limit.
    Stalled(usize),
}

/// The looks at one connection, at `N` things that are under way apart from each other.
#[derive(Debug)]
pub struct StallWatch<const N: usize> {
    limit: Duration,
    /// When the next look is due; none while nothing is under way.
    due: Option<Instant>,
    last: [UnderWay; N],
    /// Looks that found no difference, of each.
    unmoved: [u32; N],
}

impl<const N: usize> StallWatch<N> {
    /// One that rests. What is under way has to get on within `limit`.
    pub fn new(limit: Duration) -> Self {
        StallWatch { limit, due: None, last: [UnderWay::default(); N], unmoved: [0; N] }
    }

    /// In what time what is under way has to get on.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether no look is due.
    #[inline]
    pub fn rests(&self) -> bool {
        self.due.is_none()
    }

    /// Looks.
    pub fn look(&mut self, now: Instant, found: [UnderWay; N]) -> Verdict {
        let part = self.limit / LOOKS;
        // This process was stopped, or had no processor: what came meanwhile may not have been read yet.
        let late = self.due.is_some_and(|due| now > due + part);
        let last = std::mem::replace(&mut self.last, found);
        for ((unmoved, last), found) in self.unmoved.iter_mut().zip(last).zip(found) {
            if last != found || !found.pending {
                *unmoved = 0;
            } else if !late {
                *unmoved += 1;
            }
        }
        self.due = None;
        if let Some(place) = self.unmoved.iter().position(|unmoved| *unmoved >= LOOKS) {
            return Verdict::Stalled(place);
        }
        if !found.iter().any(|one| one.pending) {
            return Verdict::Rest;
        }
        self.due = Some(now + part);
        Verdict::LookAfter(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(1000);
    const PART: Duration = Duration::from_millis(250);

    fn pending(mark: u64) -> UnderWay {
        UnderWay { pending: true, mark }
    }

    fn idle(mark: u64) -> UnderWay {
        UnderWay { pending: false, mark }
    }

    /// After what time of looks in time something ends that is under way from `begun`, and gets on until `until`.
    fn ends(begun: Duration, until: Duration) -> Duration {
        let (start, mut watch) = (Instant::now(), StallWatch::new(LIMIT));
        let mut at = Duration::ZERO;
        loop {
            let mark = at.min(until).as_nanos() as u64;
            let found = if at < begun { idle(mark) } else { pending(mark) };
            match watch.look(start + at, [found]) {
                Verdict::Rest => at += PART,
                Verdict::LookAfter(after) => at += after,
                Verdict::Stalled(0) => return at,
                Verdict::Stalled(place) => panic!("place {place}"),
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn it_ends_when_nothing_gets_on_for_the_limit_and_soon_after() {
        for ms in (0..3000).step_by(7) {
            let begun = Duration::from_millis(ms);
            for until in [begun, begun + LIMIT, begun + 5 * LIMIT + PART / 3] {
                let taken = ends(begun, until) - until;
                assert!(
                    (LIMIT..=LIMIT + 2 * PART).contains(&taken),
                    "{begun:?} {until:?} {taken:?}"
                );
            }
        }
    }

    #[test]
    fn what_gets_on_once_in_the_limit_lives() {
        let (start, mut watch) = (Instant::now(), StallWatch::new(LIMIT));
        for look in 0..100u32 {
            let verdict = watch.look(start + look * PART, [pending(u64::from(look / 4))]);
            assert_eq!(verdict, Verdict::LookAfter(PART), "look {look}");
        }
    }

    #[test]
    fn each_thing_is_looked_at_for_itself() {
        let (start, mut watch) = (Instant::now(), StallWatch::new(LIMIT));
        let verdicts = [0u32, 1, 2, 3, 4].map(|look| {
            watch.look(start + look * PART, [pending(look.into()), pending(7), idle(3)])
        });
        assert_eq!(verdicts[..4], [Verdict::LookAfter(PART); 4]);
        assert_eq!(verdicts[4], Verdict::Stalled(1));
    }

    #[test]
    fn what_has_just_begun_has_the_whole_limit_though_nothing_moved_before() {
        let (start, mut watch) = (Instant::now(), StallWatch::new(LIMIT));
        assert_eq!(watch.look(start, [idle(5)]), Verdict::Rest);
        assert!(watch.rests());
        for look in 1..=4u32 {
            let verdict = watch.look(start + look * PART, [pending(5)]);
            assert_eq!((verdict, watch.rests()), (Verdict::LookAfter(PART), false), "look {look}");
        }
        assert_eq!(watch.look(start + 5 * PART, [pending(5)]), Verdict::Stalled(0));
        assert!(watch.rests());
    }

    #[test]
    fn a_look_that_comes_late_holds_nothing_against_the_peer() {
        let (start, mut watch) = (Instant::now(), StallWatch::new(LIMIT));
        let mut now = start;
        for _ in 0..4 {
            assert_eq!(watch.look(now, [pending(5)]), Verdict::LookAfter(PART));
            now += PART;
        }
        // The process was stopped for an hour.
        now += Duration::from_secs(3600);
        assert_eq!(watch.look(now, [pending(5)]), Verdict::LookAfter(PART));
        // What came meanwhile has been read since, or there was nothing.
        let mut other =
            StallWatch { limit: LIMIT, due: watch.due, last: watch.last, unmoved: watch.unmoved };
        assert_eq!(watch.look(now + PART, [pending(6)]), Verdict::LookAfter(PART));
        assert_eq!(other.look(now + PART, [pending(5)]), Verdict::Stalled(0));
    }
}
