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
    /// A job without members is forgotten after so long.
    keep: Duration,
    numbered: u64,
    by_title: HashMap<Title, JobNumber>,
    entries: BTreeMap<JobNumber, Entry>,
}

impl Jobs {
    /// Room for `max` jobs.
    pub(crate) fn new(limits: Limits, max: usize, keep: Duration) -> Self {
        let (by_title, entries) = Default::default();
        Jobs { limits, max, keep, numbered: 0, by_title, entries }
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
        if self.entries.len() >= self.max {
            self.forget_idle(now);
        }
        if self.entries.len() >= self.max {
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
    pub(crate) fn board(&mut self, number: JobNumber) -> Option<&mut Board> {
        self.entries.get_mut(&number).map(|entry| &mut entry.board)
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

    fn forget(&mut self, number: JobNumber) {
        if let Some(entry) = self.entries.remove(&number) {
            self.by_title.remove(&entry.title);
        }
    }

    /// How many jobs there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;

    fn member(name: &str, incarnation: u64, size: u32, rank: u32) -> Membership {
        Membership::new(Job::new(name, incarnation, size).unwrap(), rank).unwrap()
    }

    #[test]
    fn incarnations_are_jobs_of_their_own() {
        let (mut jobs, now) =
            (Jobs::new(Limits::default(), 8, Duration::from_secs(60)), Instant::now());
        let first = jobs.join(&member("a", 0, 2, 0), now).unwrap();
        let second = jobs.join(&member("a", 1, 2, 0), now).unwrap();
        assert_eq!(jobs.join(&member("a", 1, 2, 1), now), Ok(second));
        jobs.board(first).unwrap().put("key", b"old").unwrap();
        assert_eq!(jobs.board(second).unwrap().look("key"), Ok(None));
    }

    #[test]
    fn jobs_are_bounded_and_forgotten() {
        let keep = Duration::from_secs(60);
        let (mut jobs, now) = (Jobs::new(Limits::default(), 2, keep), Instant::now());
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
        jobs.join(&member("c", 0, 1, 0), now).unwrap();
        jobs.join(&member("d", 0, 1, 0), now + keep).unwrap();
        assert!(jobs.board(second).is_none());
    }

    #[test]
    fn a_job_that_is_too_large_takes_no_room() {
        let limits = Limits { ranks: 4, ..Limits::default() };
        let (mut jobs, now) = (Jobs::new(limits, 1, Duration::ZERO), Instant::now());
        let large = jobs.join(&member("a", 0, 5, 0), now);
        assert!(matches!(large, Err(ExchangeError::Full { max: 4, .. })), "{large:?}");
        assert_eq!(jobs.len(), 0);
    }
}
