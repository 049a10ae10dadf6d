//! A rank of a job whose exchange is a store: it looks, and looks again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fabric_core::Secret;

use super::names::{gate, name_of};
use super::sealed::{OVERHEAD, Sealer};
use super::store::{MEMBERS, Store};
use crate::error::{ExchangeError, MissingRanks, Result};
use crate::exchange::{Backend, Exchange};
use crate::job::{Membership, gather_key};
use crate::limits::{Backoff, Deadline, Limits};
use crate::random::random;

const KEYS: &str = "keys";
const GONE: &str = "gone";
const JOB: &str = "job";
const SIZE: &str = "size";
const LEFT: &[u8] = b"left";
const LOST: &[u8] = b"lost";

/// As many bytes as what is no blob has.
const SMALL: usize = 64;
/// A value that another process has made is seen after so long, if not at once.
const SEEN_WITHIN: Duration = Duration::from_secs(60);
/// Which processes live is looked at so often while all do.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The longest pause between two looks: of small jobs, and of any.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Joins the job that the store is of.
pub(crate) fn join<S: Store + 'static>(
    store: S,
    membership: &Membership,
    secret: Option<&Secret>,
    limits: Limits,
) -> Result<Exchange> {
    let (job, rank) = (membership.job(), membership.rank());
    limits.check()?;
    limits.check_ranks(job.size())?;
    let sealer = Sealer::new(secret, job);
    let (departed, look_at) = (Mutex::default(), Mutex::new(Instant::now()));
    let size = job.size();
    let member = StoredMember { store, sealer, size, rank, limits, departed, look_at };
    let size = size.to_string();
    let others = member.create_or_read(JOB, SIZE, size.as_bytes(), SMALL)?;
    if let Some(others) = others.filter(|others| *others != size.as_bytes()) {
        let others = String::from_utf8(others).ok().and_then(|text| text.parse().ok());
        let others = others.ok_or_else(|| {
            ExchangeError::Malformed("the job's size is stored as something else".to_owned())
        })?;
        return Err(ExchangeError::SizeDiffers { own: job.size(), others });
    }
    // By that this process knows its own entry: some stores try again on their own, and find what they made.
    let own = random()?;
    match member.create_or_read(MEMBERS, &rank.to_string(), &own, SMALL)? {
        Some(other) if other != own => Err(ExchangeError::AlreadyJoined { rank }),
        _ => Ok(Exchange::new(membership.clone(), limits, Box::new(member))),
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

struct StoredMember<S> {
    store: S,
    sealer: Sealer,
    size: u32,
    rank: u32,
    limits: Limits,
    /// Ranks that are known to be gone, and whether they are lost.
    departed: Mutex<BTreeMap<u32, bool>>,
    /// When to look which processes live.
    look_at: Mutex<Instant>,
}

impl<S: Store> StoredMember<S> {
    fn read(&self, folder: &str, name: &str, max: usize) -> Result<Option<Vec<u8>>> {
        let Some(value) = self.store.read(folder, name, max + OVERHEAD)? else { return Ok(None) };
        Ok(Some(self.sealer.open(folder, name, &value)?.to_vec()))
    }

    /// Keeps a value, or gives the one that is there.
    fn create_or_read(
        &self,
        folder: &str,
        name: &str,
        payload: &[u8],
        max: usize,
    ) -> Result<Option<Vec<u8>>> {
        let value = self.sealer.seal(folder, name, payload);
        let deadline = Deadline::after(SEEN_WITHIN);
        let mut backoff = self.backoff();
        while !self.store.create(folder, name, &value)? {
            // There is one, though this host may not see it yet.
            if let Some(there) = self.read(folder, name, max)? {
                return Ok(Some(there));
            }
            if deadline.is_over() {
                return Err(ExchangeError::Storage(format!(
                    "{folder}/{name} is there, and could not be seen within {SEEN_WITHIN:?}"
                )));
            }
            thread::sleep(backoff.next(&deadline));
        }
        Ok(None)
    }

    fn backoff(&self) -> Backoff {
        // The more look, the less often each does.
        Backoff::up_to((PAUSE + Duration::from_micros(200) * self.size).min(MAX_PAUSE))
    }

    /// Looks until there is an answer, or the time is over.
    fn wait<T>(
        &self,
        deadline: &Deadline,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut backoff = self.backoff();
        loop {
            let is_last = deadline.is_over();
            if let Some(answer) = look()? {
                return Ok(Some(answer));
            }
            if is_last {
                return Ok(None);
            }
            thread::sleep(backoff.next(deadline));
        }
    }

    /// The ranks in a folder whose values have ranks as names; others are ignored.
    fn ranks(&self, folder: &str) -> Result<BTreeSet<u32>> {
        let names = self.store.list(folder)?;
        let ranks = names.iter().filter_map(|name| name.parse().ok());
        Ok(ranks.filter(|rank| *rank < self.size).collect())
    }

    /// The ranks that are gone, and whether they are lost.
    fn departed(&self) -> Result<BTreeMap<u32, bool>> {
        let gone = self.ranks(GONE)?;
        let mut departed = lock(&self.departed).clone();
        for rank in gone {
            if !departed.contains_key(&rank)
                && let Some(how) = self.read(GONE, &rank.to_string(), SMALL)?
            {
                departed.insert(rank, how == LOST);
            }
        }
        lock(&self.departed).extend(departed.clone());
        Ok(departed)
    }

    /// The ranks that have left.
    ///
    /// # Errors
    /// `RankLost`: one did not leave, and said so or lives no more.
    fn check_lost(&self) -> Result<BTreeMap<u32, bool>> {
        let mut lost = if self.begin_look() { self.dead()? } else { BTreeSet::new() };
        // A rank says that it leaves before it ends.
        let departed = self.departed()?;
        lost.retain(|rank| !departed.contains_key(rank));
        if !lost.is_empty() {
            // The next call finds them as well.
            *lock(&self.look_at) = Instant::now();
        }
        lost.extend(departed.iter().filter(|(_, is_lost)| **is_lost).map(|(rank, _)| *rank));
        match lost.first() {
            Some(rank) => Err(ExchangeError::RankLost { rank: *rank }),
            None => Ok(departed),
        }
    }

    /// Whether it is time to look which processes live. Of several threads one does, without a lock.
    fn begin_look(&self) -> bool {
        let (mut look_at, now) = (lock(&self.look_at), Instant::now());
        let is_due = S::ALIVE.is_some() && now >= *look_at;
        if is_due {
            *look_at = now + LOOK_AGAIN;
        }
        is_due
    }

    /// The members whose processes do not live, as far as the store knows. Ranks that left may be among them.
    fn dead(&self) -> Result<BTreeSet<u32>> {
        let Some(alive) = S::ALIVE else { return Ok(BTreeSet::new()) };
        let departed = lock(&self.departed).len();
        // In this order: a rank is alive before it is a member. Most often it is enough to count them.
        if self.store.count(MEMBERS)? <= self.store.count(alive)? + departed {
            return Ok(BTreeSet::new());
        }
        let members = self.ranks(MEMBERS)?;
        Ok(members.difference(&self.ranks(alive)?).copied().collect())
    }

    /// The blob of this key, or the ranks that have left without having put it.
    ///
    /// # Errors
    /// `RankLost`: it is not there, and does not come any more.
    fn look(&self, key: &str) -> Result<Result<Vec<u8>, BTreeMap<u32, bool>>> {
        let (name, max) = (name_of(key), self.limits.blob_bytes as usize);
        if let Some(blob) = self.read(KEYS, &name, max)? {
            return Ok(Ok(blob));
        }
        let departed = self.check_lost();
        // What a rank put before it was gone is there now.
        match self.read(KEYS, &name, max)? {
            Some(blob) => Ok(Ok(blob)),
            None => departed.map(Err),
        }
    }

    /// Adds the ranks that have come to a barrier.
    fn look_at_gate(&self, folder: &str, arrived: &mut BTreeSet<u32>) -> Result<()> {
        for rank in self.ranks(folder)? {
            if arrived.contains(&rank) {
                continue;
            }
            // Anything that can be written there is no proof.
            let is_proven =
                !self.sealer.has_secret() || self.read(folder, &rank.to_string(), 0)?.is_some();
            if is_proven {
                arrived.insert(rank);
            }
        }
        Ok(())
    }
}

impl<S: Store> Backend for StoredMember<S> {
    fn put(&self, key: &str, blob: &[u8]) -> Result<bool> {
        let (name, max) = (name_of(key), self.limits.blob_bytes as usize);
        if let Some(there) = self.read(KEYS, &name, max)? {
            return Ok(there == blob);
        }
        let max_keys = self.limits.job_keys;
        if self.store.count(KEYS)? >= max_keys as usize {
            return Err(ExchangeError::full("the job has more keys", max_keys));
        }
        let there = self.create_or_read(KEYS, &name, blob, max)?;
        Ok(there.is_none_or(|there| there == blob))
    }

    fn get(&self, key: &str, deadline: &Deadline) -> Result<Option<Vec<u8>>> {
        self.wait(deadline, || Ok(self.look(key)?.ok()))
    }

    fn gather(&self, round: u32, first: u32, deadline: &Deadline) -> Result<Vec<Vec<u8>>> {
        let key = gather_key(round, first);
        let part = self.wait(deadline, || {
            let departed = match self.look(&key)? {
                Ok(blob) => return Ok(Some(blob)),
                Err(departed) => departed,
            };
            for (rank, _) in departed.range(first..) {
                if self.look(&gather_key(round, *rank))?.is_err() {
                    return Err(ExchangeError::RankLeft { rank: *rank });
                }
            }
            Ok(None)
        });
        Ok(part?.into_iter().collect())
    }

    fn barrier(&self, name: &str, round: u32, deadline: &Deadline) -> Result<MissingRanks> {
        let folder = gate(name, round);
        self.create_or_read(&folder, &self.rank.to_string(), &[], 0)?;
        let mut arrived = BTreeSet::new();
        let size = self.size as usize;
        let passed = self.wait(deadline, || {
            let departed = self.check_lost();
            // While some are missing, which ones makes no difference, unless one has left.
            let is_none_gone = departed.as_ref().is_ok_and(BTreeMap::is_empty);
            if is_none_gone && self.store.count(&folder)? < size {
                return Ok(None);
            }
            self.look_at_gate(&folder, &mut arrived)?;
            if arrived.len() == size {
                return Ok(Some(()));
            }
            match departed?.keys().find(|rank| !arrived.contains(rank)) {
                Some(rank) => Err(ExchangeError::RankLeft { rank: *rank }),
                None => Ok(None),
            }
        });
        if passed?.is_none() {
            self.look_at_gate(&folder, &mut arrived)?;
        }
        if arrived.len() < size {
            return Ok(MissingRanks::of(self.size, |rank| arrived.contains(&rank)));
        }
        // Each rank is at this barrier, so it has passed the one before.
        if let Some(before) = round.checked_sub(1).filter(|_| self.rank == 0) {
            self.store.remove_folder(&gate(name, before))?;
        }
        Ok(MissingRanks::default())
    }

    fn forget(&self, round: u32) -> Result<()> {
        self.store.remove(KEYS, &name_of(&gather_key(round, self.rank)))
    }

    fn leave(&self, is_lost: bool) -> Result<()> {
        let how = if is_lost { LOST } else { LEFT };
        self.create_or_read(GONE, &self.rank.to_string(), how, SMALL)?;
        if self.ranks(GONE)?.len() == self.size as usize {
            self.store.remove_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::job::Job;

    const ALIVE: &str = "alive";

    /// Values in memory, by their paths, and how often each folder was listed.
    #[derive(Clone, Default)]
    struct Memory {
        values: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
        lists: Arc<Mutex<BTreeMap<String, usize>>>,
    }

    impl Memory {
        fn names(&self, folder: &str) -> Vec<String> {
            let (values, prefix) = (lock(&self.values), format!("{folder}/"));
            values.keys().filter_map(|path| path.strip_prefix(&prefix)).map(str::to_owned).collect()
        }

        fn lists(&self, folder: &str) -> usize {
            lock(&self.lists).get(folder).copied().unwrap_or(0)
        }
    }

    impl Store for Memory {
        fn create(&self, folder: &str, name: &str, value: &[u8]) -> Result<bool> {
            let (mut values, path) = (lock(&self.values), format!("{folder}/{name}"));
            let is_new = !values.contains_key(&path);
            values.entry(path).or_insert_with(|| value.to_vec());
            Ok(is_new)
        }

        fn read(&self, folder: &str, name: &str, _max: usize) -> Result<Option<Vec<u8>>> {
            Ok(lock(&self.values).get(&format!("{folder}/{name}")).cloned())
        }

        fn list(&self, folder: &str) -> Result<Vec<String>> {
            *lock(&self.lists).entry(folder.to_owned()).or_default() += 1;
            Ok(self.names(folder))
        }

        fn count(&self, folder: &str) -> Result<usize> {
            Ok(self.names(folder).len())
        }

        fn remove(&self, folder: &str, name: &str) -> Result<()> {
            lock(&self.values).remove(&format!("{folder}/{name}"));
            Ok(())
        }

        fn remove_folder(&self, folder: &str) -> Result<()> {
            self.names(folder).iter().try_for_each(|name| self.remove(folder, name))
        }

        fn remove_all(&self) -> Result<()> {
            lock(&self.values).clear();
            Ok(())
        }

        const ALIVE: Option<&'static str> = Some(ALIVE);
    }

    #[test]
    fn a_rank_that_has_left_is_not_looked_for_at_every_poll() {
        let (store, job) = (Memory::default(), Job::new("job", 0, 3).unwrap());
        let [first, _second, third] = [0, 1, 2].map(|rank| {
            store.create(ALIVE, &rank.to_string(), b"").unwrap();
            let membership = Membership::new(job.clone(), rank).unwrap();
            join(store.clone(), &membership, None, Limits::default()).unwrap()
        });
        third.leave().unwrap();
        store.remove(ALIVE, "2").unwrap();
        let begun = Instant::now();
        for _ in 0..10 {
            let late = first.get("absent", Duration::from_millis(20)).unwrap_err();
            assert!(matches!(late, ExchangeError::TimedOut { .. }), "{late:?}");
        }
        // Once, and again where others had the processors for as long as that is good for.
        let max = 1 + begun.elapsed().as_millis() / LOOK_AGAIN.as_millis();
        assert!(store.lists(MEMBERS) as u128 <= max, "{}, {max} at most", store.lists(MEMBERS));
        // And one that ends is noticed, by every call.
        store.remove(ALIVE, "1").unwrap();
        let lost = Err(ExchangeError::RankLost { rank: 1 });
        assert_eq!(first.get("absent", Duration::from_secs(60)), lost);
        assert_eq!(first.barrier("x", Duration::ZERO).map(|()| Vec::new()), lost);
    }
}
