//! One process's part in the exchange of its job, whatever carries it; and what each carrier has to do.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::error::{ExchangeError, MissingRanks, Result, check_len};
use crate::job::{MAX_KEY_BYTES, Membership, check_name, gather_key, user_key};
use crate::limits::{Deadline, Limits};

/// What a carrier of an exchange does. Arguments are checked already; all ranks of a job use the same carrier.
pub(crate) trait Backend: Send + Sync {
    /// Keeps a blob; false if the key has other bytes.
    fn put(&self, key: &str, blob: &[u8]) -> Result<bool>;

    /// Waits for a blob; `None` if it did not come in time.
    fn get(&self, key: &str, deadline: &Deadline) -> Result<Option<Vec<u8>>>;

    /// Waits for a rank's part of a gather, and gives it with those of the next ranks that are there; none if it did not come
    /// in time.
    fn gather(&self, round: u32, first: u32, deadline: &Deadline) -> Result<Vec<Vec<u8>>>;

    /// Waits for all ranks; gives those that did not come in time.
    fn barrier(&self, name: &str, round: u32, deadline: &Deadline) -> Result<MissingRanks>;

    /// Forgets this rank's part of a gather that all ranks have taken.
    fn forget(&self, round: u32) -> Result<()>;

    /// Leaves, or says that this rank is lost. It is the last call.
    fn leave(&self, is_lost: bool) -> Result<()>;
}

/// A process's part in the exchange of its job: it puts blobs under keys, gets those of others, and waits for others.
///
/// All implementations do the same. Every method may be called by any thread, and by several at a time. When the
/// exchange is dropped the rank leaves the job; if that happens while its thread panics, the rank is lost for the others, as
/// by [`abandon`](Exchange::abandon).
///
/// Once a rank is lost, what is there can still be got, and every wait for something else fails by
/// [`ExchangeError::RankLost`].
pub struct Exchange {
    membership: Membership,
    limits: Limits,
    backend: Box<dyn Backend>,
    /// How many gathers are behind this rank.
    gathers: Mutex<u32>,
    barriers: Mutex<HashMap<String, BarrierState>>,
    is_over: bool,
}

/// What this rank knows of the barriers of a name.
#[derive(Default)]
struct BarrierState {
    /// How many of them it has passed.
    passed: u32,
    /// A thread of it is in the next one.
    is_entered: bool,
}

/// A thread is in a barrier, until this is dropped.
struct BarrierEntry<'a> {
    of: &'a Exchange,
    name: &'a str,
    round: u32,
    has_passed: bool,
}

impl Drop for BarrierEntry<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.of.barriers().get_mut(self.name) {
            state.is_entered = false;
            state.passed = self.round.saturating_add(u32::from(self.has_passed));
        }
    }
}

impl Exchange {
    pub(crate) fn new(membership: Membership, limits: Limits, backend: Box<dyn Backend>) -> Self {
        let (gathers, barriers) = Default::default();
        Exchange { membership, limits, backend, gathers, barriers, is_over: false }
    }

    /// The job, and this process's rank in it.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.membership.rank()
    }

    /// How many ranks the job has.
    pub fn size(&self) -> u32 {
        self.membership.job().size()
    }

    /// The bounds that hold here.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Keeps `bytes` under `key`, for all ranks of this incarnation. The same bytes may be put again, by any rank.
    ///
    /// # Errors
    /// `Conflict` if the key has other bytes; `TooLong` and `Full` at a bound of [`Limits`]; `Invalid` for an empty key; and what
    /// the carrier finds.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        check_name("the key", key, MAX_KEY_BYTES)?;
        self.put_checked(&user_key(key), bytes, || key.to_owned())
    }

    fn put_checked(&self, key: &str, bytes: &[u8], name: impl FnOnce() -> String) -> Result<()> {
        check_len("the blob", bytes.len(), self.limits.blob_bytes as usize)?;
        match self.backend.put(key, bytes)? {
            true => Ok(()),
            false => Err(ExchangeError::Conflict { key: name() }),
        }
    }

    /// The bytes under `key`; waits until they are there. With a time of zero it only looks.
    ///
    /// # Errors
    /// `TimedOut`; `RankLost` if they are not there and a rank was lost; `TooLong` and `Invalid` for the key; and what the carrier
    /// finds.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        check_name("the key", key, MAX_KEY_BYTES)?;
        self.backend.get(&user_key(key), &Deadline::after(timeout))?.ok_or_else(|| {
            let missing = MissingRanks::default();
            ExchangeError::TimedOut { what: format!("the key {key:?}"), waited: timeout, missing }
        })
    }

    /// Waits until all ranks of the job are here. A name may be used again: each rank's next call is of the next barrier
    /// of that name. A call that timed out has not passed it; the rank counts as having come, and may call again.
    ///
    /// # Errors
    /// `TimedOut`, with the ranks that did not come; `RankLost`; `RankLeft` if one has left without coming; `Invalid` if another
    /// thread of this rank is in a barrier of that name; `Full`, also for more different names than a job may have keys; `TooLong` and
    /// `Invalid`, as [`put`](Exchange::put); and what the carrier finds.
    pub fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        check_name("the name of the barrier", name, MAX_KEY_BYTES)?;
        let mut entry = self.enter(name)?;
        let missing = self.backend.barrier(name, entry.round, &Deadline::after(timeout))?;
        entry.has_passed = missing.is_empty();
        if !entry.has_passed {
            let what = format!("the barrier {name:?}");
            return Err(ExchangeError::TimedOut { what, waited: timeout, missing });
        }
        Ok(())
    }

    fn barriers(&self) -> MutexGuard<'_, HashMap<String, BarrierState>> {
        self.barriers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes to the next barrier of a name, which a rank passes once.
    fn enter<'a>(&'a self, name: &'a str) -> Result<BarrierEntry<'a>> {
        let mut barriers = self.barriers();
        if !barriers.contains_key(name) && barriers.len() >= self.limits.job_keys as usize {
            return Err(ExchangeError::full("barriers of different names", self.limits.job_keys));
        }
        let state = barriers.entry(name.to_owned()).or_default();
        if std::mem::replace(&mut state.is_entered, true) {
            let text = format!(
                "another thread of this rank is in the barrier {name:?}: they would be taken for one"
            );
            return Err(ExchangeError::Invalid(text));
        }
        Ok(BarrierEntry { of: self, name, round: state.passed, has_passed: false })
    }

    /// Gives `bytes` to all ranks, and takes those of each, by rank. All ranks have to call it, each equally often; it may
    /// be called again after a time-out, with the same bytes.
    ///
    /// # Errors
    /// `TimedOut`, with the first rank that did not come; `RankLost`; `RankLeft` if one has left without coming; `Invalid` if another
    /// thread of this rank is gathering; else as [`put`](Exchange::put).
    pub fn all_gather(&self, bytes: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let mut gathers = match self.gathers.try_lock() {
            Ok(gathers) => gathers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let text =
                    "another thread of this rank is in all_gather: they would be taken for one";
                return Err(ExchangeError::Invalid(text.to_owned()));
            }
        };
        let (round, size, deadline) = (*gathers, self.size() as usize, Deadline::after(timeout));
        let what = || format!("gather {round} of this job");
        self.put_checked(&gather_key(round, self.rank()), bytes, what)?;
        let mut all = Vec::new();
        while all.len() < size {
            let first = all.len() as u32; // at most the size
            let mut part = self.backend.gather(round, first, &deadline)?;
            if part.is_empty() {
                let missing = MissingRanks { first: vec![first], count: 1 };
                return Err(ExchangeError::TimedOut { what: what(), waited: timeout, missing });
            }
            part.truncate(size - all.len());
            all.append(&mut part);
        }
        *gathers = round.saturating_add(1);
        // Each rank is in this gather, so it has taken all of the one before. What is not forgotten only takes room.
        if let Some(before) = round.checked_sub(1) {
            let _ = self.backend.forget(before);
        }
        Ok(all)
    }

    /// Leaves the job. Dropping it does the same, without the error.
    ///
    /// # Errors
    /// What the carrier finds; the rank has left all the same, or is lost for the others.
    pub fn leave(mut self) -> Result<()> {
        self.is_over = true;
        self.backend.leave(false)
    }

    /// Says that this rank is lost: the others' waits fail and name it, instead of waiting for what never comes.
    ///
    /// # Errors
    /// As [`leave`](Exchange::leave).
    pub fn abandon(mut self) -> Result<()> {
        self.is_over = true;
        self.backend.leave(true)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.is_over {
            // Others learn of it by the carrier, or by their time-outs.
            let _ = self.backend.leave(std::thread::panicking());
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange(rank {} of {})", self.rank(), self.membership.job())
    }
}
