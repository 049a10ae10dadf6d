//! The jobs that one process keeps for others: found by name and incarnation, bounded, and forgotten.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::board::Board;
use crate::error::{ExchangeError, Result};
use crate::job::Membership;
use crate::limits::Limits;

/// What names a job: its name and incarnation.
type Title = (String, u64);

/// A job, by a number that no other ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobNumber(u64);

struct Entry {
    title: Title,
    board: Board,
    /// Since when no member is here.
    idle: Option<Instant>,
}

/// All jobs.
pub(crate) struct Jobs {
    limits: Limits,
    max: usize,
    /// Bytes of the blobs and barriers of all.
    max_bytes: u64,
    bytes: u64,
    /// A job without members is forgotten after so long.
    keep: Duration,
    numbered: u64,
    by_title: HashMap<Title, JobNumber>,
    entries: BTreeMap<JobNumber, Entry>,
}

impl Jobs {
    /// Room for `max` jobs, whose blobs and barriers have `max_bytes` together.
    pub(crate) fn new(limits: Limits, max: usize, max_bytes: u64, keep: Duration) -> Self {
        let (by_title, entries) = Default::default();
        Jobs { limits, max, max_bytes, bytes: 0, keep, numbered: 0, by_title, entries }
    }

    /// A member joins its job, which begins with the first one.
    pub(crate) fn join(&mut self, membership: &Membership, now: Instant) -> Result<JobNumber> {
        let job = membership.job();
        let title = (job.name().to_owned(), job.incarnation());
        let there = self.by_title.get(&title).copied();
        let number = match there.filter(|number| !self.forget_if_idle(*number, now)) {
            Some(number) => number,
            None => self.begin(title, job.size(), now)?,
        };
        let Some(entry) = self.entries.get_mut(&number) else {
            return Err(ExchangeError::full("jobs", self.max as u64)); // every title has an entry
        };
        entry.board.join(membership.rank(), job.size())?;
        entry.idle = None;
        Ok(number)
    }

    fn begin(&mut self, title: Title, size: u32, now: Instant) -> Result<JobNumber> {
        self.limits.check_ranks(size)?;
        if self.entries.len() >= self.max && !self.forget_longest_idle() {
            return Err(ExchangeError::full("there are as many jobs already", self.max as u64));
        }
        self.numbered += 1;
        let number = JobNumber(self.numbered);
        self.by_title.insert(title.clone(), number);
        let board = Board::new(size, self.limits);
        self.entries.insert(number, Entry { title, board, idle: Some(now) });
        Ok(number)
    }

    /// The state of a job; `None` once it is forgotten.
    pub(crate) fn board(&self, number: JobNumber) -> Option<&Board> {
        self.entries.get(&number).map(|entry| &entry.board)
    }

    /// The state of a job that has members.
    ///
    /// # Errors
    /// `Disconnected`: it is forgotten.
    pub(crate) fn existing(&self, number: JobNumber) -> Result<&Board> {
        self.board(number).ok_or_else(forgotten)
    }

    /// As [`Board::put`]. Jobs without members are forgotten for it if all have too many bytes.
    pub(crate) fn put(&mut self, number: JobNumber, key: &str, blob: &[u8]) -> Result<bool> {
        self.make_room(self.existing(number)?.bytes_for(key, blob))?;
        self.change(number, |board| board.put(key, blob))?
    }

    /// As [`Board::arrive`], and [`put`](Jobs::put).
    pub(crate) fn arrive(&mut self, number: JobNumber, gate: (&str, u32), rank: u32) -> Result<()> {
        let (name, round) = gate;
        self.make_room(self.existing(number)?.bytes_to_arrive(name, round, rank))?;
        self.change(number, |board| board.arrive(name, round, rank))?
    }

    /// As [`Board::pass`].
    pub(crate) fn pass(&mut self, number: JobNumber, gate: (&str, u32), rank: u32) -> Result<bool> {
        self.change(number, |board| board.pass(gate.0, gate.1, rank))?
    }

    /// A rank's part of a gather is not needed any more.
    pub(crate) fn take_back(&mut self, number: JobNumber, round: u32, rank: u32) -> Result<()> {
        self.change(number, |board| board.forget(round, rank))
    }

    fn make_room(&mut self, needed: u64) -> Result<()> {
        while self.bytes + needed > self.max_bytes {
            if !self.forget_longest_idle() {
                let what = "all jobs' blobs and barriers have more bytes";
                return Err(ExchangeError::full(what, self.max_bytes));
            }
        }
        Ok(())
    }

    /// Changes what a job keeps, and counts its bytes.
    fn change<T>(&mut self, number: JobNumber, change: impl FnOnce(&mut Board) -> T) -> Result<T> {
        let entry = self.entries.get_mut(&number).ok_or_else(forgotten)?;
        let before = entry.board.bytes();
        let result = change(&mut entry.board);
        self.bytes = self.bytes - before + entry.board.bytes();
        Ok(result)
    }

    /// What names a job, for logs.
    pub(crate) fn name(&self, number: JobNumber) -> String {
        self.entries.get(&number).map_or_else(String::new, |entry| {
            format!("{:?}, incarnation {}", entry.title.0, entry.title.1)
        })
    }

    /// A member leaves or is lost. A job that every rank has left is forgotten.
    pub(crate) fn depart(&mut self, number: JobNumber, rank: u32, is_lost: bool, now: Instant) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.board.depart(rank, is_lost);
        if entry.board.is_over() {
            self.forget(number);
        } else if entry.board.here() == 0 {
            entry.idle = Some(now);
        }
    }

    /// A member does not know that it joined, and may join again.
    pub(crate) fn withdraw(&mut self, number: JobNumber, rank: u32, now: Instant) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.board.withdraw(rank);
        if entry.board.here() == 0 {
            entry.idle = Some(now);
        }
    }

    /// Forgets jobs that had no member for long.
    pub(crate) fn forget_idle(&mut self, now: Instant) {
        for number in self.entries.keys().copied().collect::<Vec<_>>() {
            self.forget_if_idle(number, now);
        }
    }

    /// Whether the job was forgotten, as it had no member for long.
    fn forget_if_idle(&mut self, number: JobNumber, now: Instant) -> bool {
        let Some(since) = self.entries.get(&number).and_then(|entry| entry.idle) else {
            return false;
        };
        let is_old = now.saturating_duration_since(since) >= self.keep;
        if is_old {
            self.forget(number);
        }
        is_old
    }

    /// Forgets the job that has had no member for longest, to make room; false if all have members.
    fn forget_longest_idle(&mut self) -> bool {
        let idle = self.entries.iter().filter_map(|(number, entry)| Some((entry.idle?, *number)));
        let Some((_, number)) = idle.min() else { return false };
        self.forget(number);
        true
    }

    fn forget(&mut self, number: JobNumber) {
        if let Some(entry) = self.entries.remove(&number) {
            self.bytes -= entry.board.bytes();
            self.by_title.remove(&entry.title);
        }
    }

    /// How many jobs there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn forgotten() -> ExchangeError {
    ExchangeError::Disconnected("the job is forgotten".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use crate::job::gather_key;

    fn member(name: &str, incarnation: u64, size: u32, rank: u32) -> Membership {
        Membership::new(Job::new(name, incarnation, size).unwrap(), rank).unwrap()
    }

    #[test]
    fn incarnations_are_jobs_of_their_own() {
        let (mut jobs, now) =
            (Jobs::new(Limits::default(), 8, 64, Duration::from_secs(60)), Instant::now());
        let first = jobs.join(&member("a", 0, 2, 0), now).unwrap();
        let second = jobs.join(&member("a", 1, 2, 0), now).unwrap();
        assert_eq!(jobs.join(&member("a", 1, 2, 1), now), Ok(second));
        jobs.put(first, "key", b"old").unwrap();
        assert_eq!(jobs.board(second).unwrap().look("key"), Ok(None));
    }

    #[test]
    fn jobs_are_bounded_and_forgotten() {
        let keep = Duration::from_secs(60);
        let (mut jobs, now) = (Jobs::new(Limits::default(), 2, 64, keep), Instant::now());
        let first = jobs.join(&member("a", 0, 1, 0), now).unwrap();
        let second = jobs.join(&member("b", 0, 2, 0), now).unwrap();
        let full = jobs.join(&member("c", 0, 1, 0), now);
        assert!(matches!(full, Err(ExchangeError::Full { max: 2, .. })), "{full:?}");
        jobs.depart(first, 0, false, now);
        assert!(jobs.board(first).is_none(), "all have left");
        // The other rank may still come; after a time it does not.
        jobs.depart(second, 0, true, now);
        assert!(jobs.board(second).is_some());
        jobs.forget_idle(now + keep / 2);
        assert_eq!(jobs.len(), 1);
        jobs.forget_idle(now + keep);
        assert!(jobs.board(second).is_none());
    }

    /// A client that comes and goes holds nothing that others need.
    #[test]
    fn for_a_new_job_the_one_without_members_for_longest_goes() {
        let keep = Duration::from_secs(60);
        let (mut jobs, now) = (Jobs::new(Limits::default(), 3, 64, keep), Instant::now());
        let names = ["a", "b", "c"];
        let [a, b, c] = names.map(|name| jobs.join(&member(name, 0, 2, 0), now).unwrap());
        jobs.depart(b, 0, true, now + keep / 4);
        jobs.depart(a, 0, false, now + keep / 3);
        let d = jobs.join(&member("d", 0, 1, 0), now + keep / 2).unwrap();
        assert!(jobs.board(b).is_none() && jobs.board(a).is_some());
        jobs.join(&member("e", 0, 1, 0), now + keep / 2).unwrap();
        assert!(jobs.board(a).is_none() && jobs.board(c).is_some() && jobs.board(d).is_some());
        let full = jobs.join(&member("f", 0, 1, 0), now + keep / 2);
        assert!(matches!(full, Err(ExchangeError::Full { max: 3, .. })), "{full:?}");
    }

    #[test]
    fn the_bytes_of_all_jobs_are_bounded() {
        let keep = Duration::from_secs(60);
        let (mut jobs, now) = (Jobs::new(Limits::default(), 8, 64, keep), Instant::now());
        let [a, b] = ["a", "b"].map(|name| jobs.join(&member(name, 0, 2, 0), now).unwrap());
        assert_eq!(jobs.put(a, "key", &[0; 37]), Ok(true));
        let full = jobs.put(b, "key", &[0; 22]);
        assert!(matches!(full, Err(ExchangeError::Full { max: 64, .. })), "{full:?}");
        assert_eq!(
            (jobs.put(a, "key", &[0; 37]), jobs.put(a, "key", &[1; 37])),
            (Ok(true), Ok(false))
        );
        let part = gather_key(0, 0);
        assert_eq!(jobs.put(b, &part, &[0; 20]), Ok(true));
        assert_eq!(jobs.bytes, 64);
        let full = jobs.arrive(b, ("x", 0), 0);
        assert!(matches!(full, Err(ExchangeError::Full { max: 64, .. })), "{full:?}");
        jobs.take_back(b, 0, 0).unwrap();
        jobs.take_back(b, 0, 0).unwrap();
        for (rank, bytes) in [(0, 49), (0, 49), (1, 57)] {
            jobs.arrive(b, ("x", 0), rank).unwrap();
            assert_eq!(jobs.bytes, bytes);
        }
        assert_eq!([0, 1].map(|rank| jobs.pass(b, ("x", 0), rank)), [Ok(true), Ok(true)]);
        assert_eq!(jobs.bytes, 40);
        jobs.depart(a, 0, true, now);
        assert_eq!(jobs.put(b, "key", &[0; 61]), Ok(true), "for the members of another");
        assert!(jobs.board(a).is_none());
        jobs.depart(b, 0, false, now);
        jobs.forget_idle(now + keep);
        assert_eq!((jobs.bytes, jobs.len()), (0, 0));
    }

    #[test]
    fn a_job_that_is_too_large_takes_no_room() {
        let limits = Limits { ranks: 4, ..Limits::default() };
        let (mut jobs, now) = (Jobs::new(limits, 1, 64, Duration::ZERO), Instant::now());
        let large = jobs.join(&member("a", 0, 5, 0), now);
        assert!(matches!(large, Err(ExchangeError::Full { max: 4, .. })), "{large:?}");
        assert_eq!(jobs.len(), 0);
    }
}
