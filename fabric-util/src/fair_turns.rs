//! Work that peers cause without being trusted yet, and that takes a thread's time: the networks that it comes from take turns,
//! and all together have a share of the time. So a client from elsewhere waits for one piece of work of each, however much
//! a crowd has asked for.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::fair_table::Network;
use crate::sync::Mutex;

/// Work goes on for so long, or as long as one piece takes.
const BUDGET: Duration = Duration::from_millis(2);
/// It has one of so many parts of the time: a crowd has a quarter of the thread.
const PARTS: u32 = 4;

/// Work that waits for its turn, until it is closed.
pub struct FairTurns<T>(Mutex<Option<Turns<T>>>);

impl<T> Default for FairTurns<T> {
    fn default() -> Self {
        FairTurns(Mutex::new(Some(Turns::default())))
    }
}

impl<T> FairTurns<T> {
    /// Adds work, behind what its network has already.
    ///
    /// # Errors
    /// The work, where this is closed.
    pub fn push(&self, from: impl Into<Network>, work: T) -> Result<(), T> {
        match &mut *self.0.lock() {
            Some(turns) => turns.push(from.into(), work),
            None => return Err(work),
        }
        Ok(())
    }

    /// Does what waits, in turn, until its time is over: then gives how long others have theirs, and does nothing more until
    /// [`rested`](FairTurns::rested) says that they had. `is_alone`: the thread has nothing else to do, so that nothing is gained by a
    /// rest but a look at what has come.
    pub fn run(&self, is_alone: impl Fn() -> bool, work: impl FnMut(T)) -> Option<Duration> {
        self.run_by(Instant::now, is_alone, work)
    }

    fn run_by(
        &self,
        clock: impl Fn() -> Instant,
        is_alone: impl Fn() -> bool,
        mut work: impl FnMut(T),
    ) -> Option<Duration> {
        loop {
            let begun = clock();
            let next = |turns: &mut Turns<T>| turns.next(begun, &is_alone);
            // Not under the lock, which is that of others, too.
            let turn = self.0.lock().as_mut().map_or(Turn::Done, next);
            match turn {
                Turn::Work(next) => work(next),
                Turn::Rest(rest) => return Some(rest),
                Turn::Done => return None,
            }
            if let Some(turns) = &mut *self.0.lock() {
                turns.took(clock().saturating_duration_since(begun));
            }
        }
    }

    /// A rest is over.
    pub fn rested(&self) {
        if let Some(turns) = &mut *self.0.lock() {
            turns.rests = false;
        }
    }

    /// Takes no more work; gives what waits, in no order.
    pub fn close(&self) -> impl Iterator<Item = T> {
        let turns = self.0.lock().take();
        turns.into_iter().flat_map(|turns| turns.work.into_values().flatten())
    }
}

/// What is to be done now, where nothing else has that in hand.
#[derive(Debug, PartialEq, Eq)]
enum Turn<T> {
    /// This; [`Turns::took`] is to follow.
    Work(T),
    /// Nothing for so long, for others have the time; [`FairTurns::rested`] is to follow.
    Rest(Duration),
    /// Nothing waits.
    Done,
}

/// Work that waits, and the time that it took lately.
struct Turns<T> {
    /// In turn; each has work in `work`.
    networks: VecDeque<Network>,
    work: HashMap<Network, VecDeque<T>>,
    since: Option<Instant>,
    spent: Duration,
    rests: bool,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let (networks, work) = Default::default();
        Turns { networks, work, since: None, spent: Duration::ZERO, rests: false }
    }
}

impl<T> Turns<T> {
    /// Adds work, behind what its network has already.
    fn push(&mut self, from: Network, work: T) {
        let waiting = self.work.entry(from).or_default();
        if waiting.is_empty() {
            self.networks.push_back(from);
        }
        waiting.push_back(work);
    }

    /// What is to be done at this time. `alone` is asked where the time is spent: the thread has nothing else to do, so that
    /// nothing is gained by a rest but a look at what has come.
    fn next(&mut self, now: Instant, alone: impl FnOnce() -> bool) -> Turn<T> {
        if self.rests {
            return Turn::Done;
        }
        let Some(from) = self.networks.front().copied() else { return Turn::Done };
        let over = self.since.map(|since| since + self.spent.max(BUDGET).saturating_mul(PARTS));
        let left = over.map_or(Duration::ZERO, |over| over.saturating_duration_since(now));
        if left.is_zero() {
            self.begin(now);
        } else if self.spent >= BUDGET {
            self.rests = true;
            if !alone() {
                return Turn::Rest(left);
            }
            self.begin(now);
            return Turn::Rest(Duration::ZERO);
        }
        self.networks.pop_front();
        let Some(waiting) = self.work.get_mut(&from) else { return Turn::Done };
        let next = waiting.pop_front();
        match waiting.is_empty() {
            true => drop(self.work.remove(&from)),
            false => self.networks.push_back(from),
        }
        next.map_or(Turn::Done, Turn::Work)
    }

    fn begin(&mut self, now: Instant) {
        (self.since, self.spent) = (Some(now), Duration::ZERO);
    }

    /// A piece of work took this long.
    fn took(&mut self, time: Duration) {
        self.spent += time;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const WINDOW: Duration = Duration::from_millis(8);

    fn from(host: u8) -> Network {
        IpAddr::from(Ipv4Addr::new(127, 0, 0, host)).into()
    }

    /// All that is done until the first rest, each in this time.
    fn until_rest(turns: &mut Turns<u32>, now: Instant, each: Duration) -> Vec<u32> {
        let mut done = Vec::new();
        while let Turn::Work(work) = turns.next(now, || false) {
            turns.took(each);
            done.push(work);
        }
        done
    }

    #[test]
    fn networks_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        (0..100).for_each(|work| turns.push(from(1), work));
        turns.push(from(2), 200);
        turns.push(from(2), 201);
        turns.push(from(3), 300);
        let done = until_rest(&mut turns, Instant::now(), Duration::ZERO);
        assert_eq!(done[..7], [0, 200, 300, 1, 201, 2, 3]);
        assert_eq!(done.len(), 103);
        turns.push(from(2), 202);
        assert_eq!(turns.next(Instant::now(), || false), Turn::Work(202));
        assert_eq!(turns.next(Instant::now(), || false), Turn::Done);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn a_crowd_has_a_quarter_of_the_time() {
        // However long a piece takes.
        [300, 3000, 30_000].map(Duration::from_micros).into_iter().for_each(has_a_quarter);
    }

    fn has_a_quarter(each: Duration) {
        let mut turns = Turns::default();
        (0..3000).for_each(|work| turns.push(from(1), work));
        let begin = Instant::now();
        let (mut now, mut busy) = (begin, Duration::ZERO);
        while now < begin + Duration::from_secs(2) {
            match turns.next(now, || false) {
                Turn::Work(_) => {
                    turns.took(each);
                    (now, busy) = (now + each, busy + each);
                }
                Turn::Rest(rest) => {
                    turns.rests = false;
                    now += rest;
                }
                Turn::Done => panic!("there is more"),
            }
        }
        let share = busy.as_secs_f64() / (now - begin).as_secs_f64();
        assert!((0.2..0.3).contains(&share), "{share} of the time, {each:?} each");
    }

    /// One that comes beside a crowd that always has more waits for a rest and one other at most.
    #[test]
    fn a_client_from_elsewhere_is_next() {
        let mut turns = Turns::default();
        (0..100).for_each(|work| turns.push(from(1), work));
        let now = Instant::now();
        until_rest(&mut turns, now, Duration::from_millis(1));
        turns.push(from(2), 5000);
        // That is in hand.
        assert_eq!(turns.next(now + WINDOW, || false), Turn::Done);
        turns.rests = false;
        let done = until_rest(&mut turns, now + WINDOW, Duration::from_millis(1));
        assert!(done.contains(&5000), "{done:?}");
    }

    /// A thread that has nothing else to do only looks at what has come.
    #[test]
    fn alone_it_goes_on_at_once() {
        let mut turns = Turns::default();
        (0..10).for_each(|work| turns.push(from(1), work));
        let (now, mut rests) = (Instant::now(), 0);
        loop {
            match turns.next(now, || true) {
                Turn::Work(_) => turns.took(BUDGET),
                Turn::Rest(rest) => {
                    assert_eq!(rest, Duration::ZERO);
                    turns.rests = false;
                    rests += 1;
                }
                Turn::Done => break,
            }
        }
        assert_eq!(rests, 9);
    }

    #[test]
    fn what_was_long_ago_does_not_count() {
        let mut turns = Turns::default();
        let now = Instant::now();
        turns.push(from(1), 1);
        assert_eq!(until_rest(&mut turns, now, BUDGET), [1]);
        turns.push(from(1), 2);
        assert_eq!(turns.next(now, || false), Turn::Rest(WINDOW));
        turns.rests = false;
        assert_eq!(turns.next(now + WINDOW, || false), Turn::Work(2));
    }

    #[test]
    fn what_comes_while_it_works_is_done_and_what_waits_is_given_at_the_end() {
        let (turns, now, done) =
            (FairTurns::default(), Cell::new(Instant::now()), Cell::new(Vec::new()));
        assert_eq!(turns.push(from(1), 1), Ok(()));
        let work = |work: u32| {
            let mut all = done.take();
            all.push(work);
            done.set(all);
            now.set(now.get() + BUDGET / 2);
            let _ = turns.push(from(1), work + 1);
        };
        let run = || turns.run_by(|| now.get(), || false, work);
        assert_eq!(run(), Some(WINDOW - BUDGET));
        assert_eq!(done.take(), [1, 2]);
        // Others have their time first.
        now.set(now.get() + WINDOW);
        assert_eq!(run(), None);
        turns.rested();
        assert_eq!(run(), Some(WINDOW - BUDGET));
        assert_eq!(done.take(), [3, 4]);
        assert_eq!(turns.close().collect::<Vec<_>>(), [5]);
        assert_eq!((turns.push(from(1), 6), run()), (Err(6), None));
    }
}
