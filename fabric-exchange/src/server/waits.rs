//! What clients of the server wait for: found by what it is, by when the time for it is over, and by connection.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use crate::jobs::JobNumber;

/// What a client waits for in its job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Awaited {
    /// A blob, by its key.
    Blob(String),
    /// That all ranks come to a barrier.
    Gate { name: String, round: u32 },
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) connection: u64,
    /// The number of the request.
    pub(super) request: u32,
    pub(super) job: JobNumber,
    /// The rank that waits.
    pub(super) rank: u32,
    pub(super) awaited: Awaited,
    /// The blob is the first part of a gather that is asked for: the round, and whose part.
    pub(super) gather: Option<(u32, u32)>,
    pub(super) until: Instant,
}

/// All of them, by numbers in the order in which they began.
#[derive(Default)]
pub(super) struct Waits {
    numbered: u64,
    waits: HashMap<u64, Wait>,
    by_awaited: BTreeMap<(JobNumber, Awaited), BTreeSet<u64>>,
    by_time: BTreeSet<(Instant, u64)>,
    by_connection: HashMap<u64, BTreeSet<u64>>,
    gathers: BTreeSet<(JobNumber, u64)>,
}

impl Waits {
    pub(super) fn add(&mut self, wait: Wait) {
        self.numbered += 1;
        let number = self.numbered;
        self.by_awaited.entry((wait.job, wait.awaited.clone())).or_default().insert(number);
        self.by_connection.entry(wait.connection).or_default().insert(number);
        self.by_time.insert((wait.until, number));
        if wait.gather.is_some() {
            self.gathers.insert((wait.job, number));
        }
        self.waits.insert(number, wait);
    }

    /// How many requests of a connection wait.
    pub(super) fn count(&self, connection: u64) -> usize {
        self.by_connection.get(&connection).map_or(0, BTreeSet::len)
    }

    /// Takes those for something that may be there now.
    pub(super) fn take_for(&mut self, job: JobNumber, awaited: &Awaited) -> Vec<Wait> {
        let numbers = self.by_awaited.get(&(job, awaited.clone())).cloned().unwrap_or_default();
        self.take(numbers)
    }

    /// Takes all of a job.
    pub(super) fn take_of_job(&mut self, job: JobNumber) -> Vec<Wait> {
        let numbers = self.from(job, Awaited::Blob(String::new())).collect();
        self.take(numbers)
    }

    /// Takes those of a job that wait for ranks: in barriers and gathers.
    pub(super) fn take_for_ranks(&mut self, job: JobNumber) -> Vec<Wait> {
        let gates = self.from(job, Awaited::Gate { name: String::new(), round: 0 });
        let gathers = self.gathers.range((job, 0)..=(job, u64::MAX)).map(|(_, number)| *number);
        let numbers = gates.chain(gathers).collect();
        self.take(numbers)
    }

    /// The numbers of those of a job, from one that is awaited on.
    fn from(&self, job: JobNumber, first: Awaited) -> impl Iterator<Item = u64> {
        let of_job =
            self.by_awaited.range((job, first)..).take_while(move |((of, _), _)| *of == job);
        of_job.flat_map(|(_, numbers)| numbers).copied()
    }

    /// Takes all of a connection.
    pub(super) fn take_of_connection(&mut self, connection: u64) -> Vec<Wait> {
        let numbers = self.by_connection.get(&connection).cloned().unwrap_or_default();
        self.take(numbers)
    }

    /// Takes those whose time is over.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Wait> {
        let late = self.by_time.iter().take_while(|(until, _)| *until <= now);
        let numbers = late.map(|(_, number)| *number).collect();
        self.take(numbers)
    }

    /// When the next one's time is over.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(until, _)| *until)
    }

    fn take(&mut self, numbers: BTreeSet<u64>) -> Vec<Wait> {
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    fn remove(&mut self, number: u64) -> Option<Wait> {
        let wait = self.waits.remove(&number)?;
        self.by_time.remove(&(wait.until, number));
        self.gathers.remove(&(wait.job, number));
        let place = (wait.job, wait.awaited.clone());
        if let Some(numbers) = self.by_awaited.get_mut(&place) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_awaited.remove(&place);
            }
        }
        if let Some(numbers) = self.by_connection.get_mut(&wait.connection) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_connection.remove(&wait.connection);
            }
        }
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::{Job, Membership};
    use crate::jobs::Jobs;
    use crate::limits::Limits;

    fn two_jobs() -> [JobNumber; 2] {
        let mut jobs = Jobs::new(Limits::default(), 2, 64, Duration::ZERO);
        [0, 1].map(|incarnation| {
            let job = Job::new("a", incarnation, 1).unwrap();
            jobs.join(&Membership::new(job, 0).unwrap(), Instant::now()).unwrap()
        })
    }

    #[test]
    fn waits_are_found_by_all_that_ends_them() {
        let ([first, second], begin) = (two_jobs(), Instant::now());
        let blob = |key: &str| Awaited::Blob(key.to_owned());
        let (part, gate) = (blob("g0.0"), Awaited::Gate { name: "x".into(), round: 0 });
        let mut waits = Waits::default();
        let mut add = |connection, request, job, awaited: &Awaited, s| {
            let until = begin + Duration::from_secs(s);
            let gather = (*awaited == part).then_some((0, 0));
            let (rank, awaited) = (0, awaited.clone());
            waits.add(Wait { connection, request, job, rank, awaited, gather, until });
        };
        add(1, 1, first, &blob("k"), 5);
        add(2, 2, first, &blob("k"), 3);
        add(2, 3, second, &blob("k"), 9);
        add(2, 4, first, &gate, 8);
        add(3, 5, second, &gate, 1);
        add(4, 6, second, &part, 9);
        add(4, 7, second, &gate, 9);
        add(4, 8, first, &blob("other"), 9);
        let requests = |waits: Vec<Wait>| waits.iter().map(|wait| wait.request).collect::<Vec<_>>();
        assert_eq!(waits.next(), Some(begin + Duration::from_secs(1)));
        assert_eq!(waits.count(2), 3);
        assert_eq!(requests(waits.take_late(begin + Duration::from_secs(3))), [2, 5]);
        assert_eq!(requests(waits.take_for(first, &blob("k"))), [1]);
        assert_eq!(requests(waits.take_for(first, &blob("k"))), [0; 0]);
        assert_eq!(requests(waits.take_for_ranks(second)), [6, 7]);
        assert_eq!(requests(waits.take_of_job(first)), [4, 8]);
        assert_eq!(requests(waits.take_of_connection(2)), [3]);
        assert_eq!((waits.next(), waits.count(2)), (None, 0));
        assert!(waits.by_awaited.is_empty() && waits.by_connection.is_empty());
        assert!(waits.gathers.is_empty());
    }
}
