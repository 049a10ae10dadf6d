//! The exchange within one process: for tests, and for many endpoints in one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{MissingRanks, Result};
use crate::exchange::{Backend, Exchange};
use crate::job::Membership;
use crate::jobs::{JobNumber, Jobs};
use crate::limits::{Deadline, Limits};

/// As many jobs as one has at a time.
const MAX_JOBS: usize = 1024;
/// A job that some ranks never joined is forgotten so long after its last member left.
const KEEP: Duration = Duration::from_secs(600);

/// Where the threads of one process meet. Copies are of the same place. Nothing leaves the process, so nothing is authenticated.
#[derive(Clone)]
pub struct InProcess {
    limits: Limits,
    place: Arc<LocalPlace>,
}

struct LocalPlace {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

impl InProcess {
    /// A place without jobs, with the default limits.
    pub fn new() -> Self {
        Self::of(Limits::default())
    }

    /// A place without jobs, with these limits for each.
    ///
    /// # Errors
    /// As [`Limits::check`].
    pub fn with_limits(limits: Limits) -> Result<Self> {
        limits.check()?;
        Ok(Self::of(limits))
    }

    fn of(limits: Limits) -> Self {
        let jobs = Mutex::new(Jobs::new(limits, MAX_JOBS, u64::MAX, KEEP));
        InProcess { limits, place: Arc::new(LocalPlace { jobs, changed: Condvar::new() }) }
    }

    /// Joins a job here.
    ///
    /// # Errors
    /// `AlreadyJoined`, `SizeDiffers`, `Full`.
    pub fn join(&self, membership: &Membership) -> Result<Exchange> {
        let job = self.place.lock().join(membership, Instant::now())?;
        let place = Arc::clone(&self.place);
        let member = LocalMember { place, job, rank: membership.rank() };
        Ok(Exchange::new(membership.clone(), self.limits, Box::new(member)))
    }
}

impl Default for InProcess {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InProcess({} jobs)", self.place.lock().len())
    }
}

impl LocalPlace {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One rank of a job.
struct LocalMember {
    place: Arc<LocalPlace>,
    job: JobNumber,
    rank: u32,
}

impl LocalMember {
    /// Asks until there is an answer, or the time is over.
    fn wait<T>(
        &self,
        deadline: &Deadline,
        mut ask: impl FnMut(&mut Jobs) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut jobs = self.place.lock();
        loop {
            if let Some(answer) = ask(&mut jobs)? {
                return Ok(Some(answer));
            }
            let left = deadline.left();
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.place.changed.wait_timeout(jobs, left);
            jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Backend for LocalMember {
    fn put(&self, key: &str, blob: &[u8]) -> Result<bool> {
        let is_kept = self.place.lock().put(self.job, key, blob);
        self.place.changed.notify_all();
        is_kept
    }

    fn get(&self, key: &str, deadline: &Deadline) -> Result<Option<Vec<u8>>> {
        self.wait(deadline, |jobs| Ok(jobs.existing(self.job)?.look(key)?.map(<[u8]>::to_vec)))
    }

    fn gather(&self, round: u32, first: u32, deadline: &Deadline) -> Result<Vec<Vec<u8>>> {
        let part = self.wait(deadline, |jobs| {
            let part = jobs.existing(self.job)?.gather(round, first)?;
            let part: Vec<_> = part.into_iter().map(<[u8]>::to_vec).collect();
            Ok((!part.is_empty()).then_some(part))
        });
        Ok(part?.unwrap_or_default())
    }

    fn barrier(&self, name: &str, round: u32, deadline: &Deadline) -> Result<MissingRanks> {
        let (gate, rank) = ((name, round), self.rank);
        self.place.lock().arrive(self.job, gate, rank)?;
        self.place.changed.notify_all();
        let pass = |jobs: &mut Jobs| Ok(jobs.pass(self.job, gate, rank)?.then_some(()));
        let passed = self.wait(deadline, pass)?;
        if passed.is_some() {
            return Ok(MissingRanks::default());
        }
        let mut jobs = self.place.lock();
        // The last rank may have come just now.
        if jobs.pass(self.job, gate, rank)? {
            return Ok(MissingRanks::default());
        }
        Ok(jobs.existing(self.job)?.missing(name, round))
    }

    fn forget(&self, round: u32) -> Result<()> {
        self.place.lock().take_back(self.job, round, self.rank)
    }

    fn leave(&self, is_lost: bool) -> Result<()> {
        self.place.lock().depart(self.job, self.rank, is_lost, Instant::now());
        self.place.changed.notify_all();
        Ok(())
    }
}
