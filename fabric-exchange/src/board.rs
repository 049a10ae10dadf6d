//! What is known of one job: its members, blobs and barriers. It decides; it neither waits nor knows a clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::{ExchangeError, MissingRanks, Result, check_len};
use crate::job::gather_key;
use crate::limits::Limits;

/// As many bytes of blobs as one answer of a gather has, unless a single one has more.
const GATHER_BYTES: usize = 32 << 10;
/// What each blob of an answer counts beside its bytes.
const GATHER_ENTRY: usize = 8;

/// What each rank of a barrier counts.
const ARRIVAL: u64 = 8;

/// A barrier that not every rank has passed.
#[derive(Default)]
struct Gate {
    arrived: BTreeSet<u32>,
    passed: BTreeSet<u32>,
}

/// The state of one incarnation of a job.
pub(crate) struct Board {
    size: u32,
    limits: Limits,
    /// Those that have come, and whether they are here.
    members: BTreeMap<u32, bool>,
    here: u32,
    left: BTreeSet<u32>,
    first_lost: Option<u32>,
    blobs: HashMap<String, Box<[u8]>>,
    bytes: u64,
    gates: HashMap<(String, u32), Gate>,
}

impl Board {
    /// A job that has no member yet.
    pub(crate) fn new(size: u32, limits: Limits) -> Self {
        let (members, left, blobs, gates) = Default::default();
        Board { size, limits, members, here: 0, left, first_lost: None, blobs, bytes: 0, gates }
    }

    /// A rank comes.
    pub(crate) fn join(&mut self, rank: u32, size: u32) -> Result<()> {
        if size != self.size {
            return Err(ExchangeError::SizeDiffers { own: size, others: self.size });
        }
        if self.members.contains_key(&rank) {
            return Err(ExchangeError::AlreadyJoined { rank });
        }
        self.members.insert(rank, true);
        self.here += 1;
        Ok(())
    }

    /// A rank leaves or is lost. Once it has, nothing changes.
    pub(crate) fn depart(&mut self, rank: u32, is_lost: bool) {
        let is_here = self.members.get_mut(&rank).is_some_and(std::mem::take);
        if !is_here {
            return;
        }
        self.here -= 1;
        if is_lost {
            self.first_lost = Some(self.first_lost.map_or(rank, |first| first.min(rank)));
        } else {
            self.left.insert(rank);
        }
    }

    /// A rank that came does not know it, and may come again.
    pub(crate) fn withdraw(&mut self, rank: u32) {
        if self.members.get(&rank) == Some(&true) {
            self.members.remove(&rank);
            self.here -= 1;
        }
    }

    /// How many members are here.
    pub(crate) fn here(&self) -> u32 {
        self.here
    }

    /// Whether every rank has come and gone.
    pub(crate) fn is_over(&self) -> bool {
        self.here == 0 && self.members.len() == self.size as usize
    }

    /// Keeps a blob; false if the key has other bytes.
    pub(crate) fn put(&mut self, key: &str, blob: &[u8]) -> Result<bool> {
        check_len("the blob", blob.len(), self.limits.blob_bytes as usize)?;
        if let Some(there) = self.blobs.get(key) {
            return Ok(**there == *blob);
        }
        self.check_keys()?;
        self.take_bytes(self.bytes_for(key, blob))?;
        self.blobs.insert(key.to_owned(), blob.into());
        Ok(true)
    }

    /// The bytes of all blobs and their keys, and of barriers.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that it takes to keep a blob: none if the key is there.
    pub(crate) fn bytes_for(&self, key: &str, blob: &[u8]) -> u64 {
        if self.blobs.contains_key(key) { 0 } else { (key.len() + blob.len()) as u64 }
    }

    /// The bytes that it takes for a rank to come to a barrier: none if it has.
    pub(crate) fn bytes_to_arrive(&self, name: &str, round: u32, rank: u32) -> u64 {
        match self.gates.get(&(name.to_owned(), round)) {
            Some(gate) if gate.arrived.contains(&rank) => 0,
            Some(_) => ARRIVAL,
            None => name.len() as u64 + ARRIVAL,
        }
    }

    fn take_bytes(&mut self, more: u64) -> Result<()> {
        let (bytes, max) = (self.bytes + more, self.limits.job_bytes);
        if bytes > max {
            return Err(ExchangeError::full("the job's blobs and barriers have more bytes", max));
        }
        self.bytes = bytes;
        Ok(())
    }

    fn check_keys(&self) -> Result<()> {
        if self.blobs.len() + self.gates.len() < self.limits.job_keys as usize {
            return Ok(());
        }
        Err(ExchangeError::full("the job has more keys and barriers", self.limits.job_keys))
    }

    /// A rank's part of a gather is not needed any more.
    pub(crate) fn forget(&mut self, round: u32, rank: u32) {
        let key = gather_key(round, rank);
        let bytes = self.blobs.remove(&key).map_or(0, |blob| (key.len() + blob.len()) as u64);
        self.bytes -= bytes;
    }

    /// The blob, if it is there.
    ///
    /// # Errors
    /// `RankLost`: it is not there, and does not come any more.
    pub(crate) fn look(&self, key: &str) -> Result<Option<&[u8]>> {
        match self.blobs.get(key) {
            Some(blob) => Ok(Some(blob)),
            None => self.check_lost().map(|()| None),
        }
    }

    fn check_lost(&self) -> Result<()> {
        self.first_lost.map_or(Ok(()), |rank| Err(ExchangeError::RankLost { rank }))
    }

    /// The part of `first` in a gather and those of the next ranks, as far as they are there and fit into an answer.
    ///
    /// # Errors
    /// `RankLost` and `RankLeft`: it is not there, and the gather is never complete.
    pub(crate) fn gather(&self, round: u32, first: u32) -> Result<Vec<&[u8]>> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for rank in first..self.size {
            let Some(blob) = self.blobs.get(&gather_key(round, rank)) else { break };
            bytes += blob.len() + GATHER_ENTRY;
            if bytes > GATHER_BYTES && !part.is_empty() {
                break;
            }
            part.push(&**blob);
        }
        if part.is_empty() {
            self.check_lost()?;
            for rank in self.left.range(first..) {
                if !self.blobs.contains_key(&gather_key(round, *rank)) {
                    return Err(ExchangeError::RankLeft { rank: *rank });
                }
            }
        }
        Ok(part)
    }

    /// A rank comes to a barrier; it may come again.
    pub(crate) fn arrive(&mut self, name: &str, round: u32, rank: u32) -> Result<()> {
        let place = (name.to_owned(), round);
        if !self.gates.contains_key(&place) {
            self.check_keys()?;
        }
        self.take_bytes(self.bytes_to_arrive(name, round, rank))?;
        self.gates.entry(place).or_default().arrived.insert(rank);
        Ok(())
    }

    /// Whether a rank that has come to a barrier may pass it now; it has then.
    ///
    /// # Errors
    /// `RankLost` and `RankLeft`: it is not open, and never will be.
    pub(crate) fn pass(&mut self, name: &str, round: u32, rank: u32) -> Result<bool> {
        let place = (name.to_owned(), round);
        let is_whole = self.check_lost();
        let Some(gate) = self.gates.get_mut(&place) else { return Ok(false) };
        if gate.arrived.len() == self.size as usize {
            gate.passed.insert(rank);
            if gate.passed.len() == self.size as usize {
                self.gates.remove(&place);
                self.bytes -= name.len() as u64 + ARRIVAL * u64::from(self.size);
            }
            return Ok(true);
        }
        is_whole?;
        let without = self.left.difference(&gate.arrived).next();
        without.map_or(Ok(false), |rank| Err(ExchangeError::RankLeft { rank: *rank }))
    }

    /// The ranks that have not come to a barrier.
    pub(crate) fn missing(&self, name: &str, round: u32) -> MissingRanks {
        let gate = self.gates.get(&(name.to_owned(), round));
        MissingRanks::of(self.size, |rank| gate.is_some_and(|gate| gate.arrived.contains(&rank)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(size: u32) -> Board {
        let mut board = Board::new(size, Limits::default());
        for rank in 0..size {
            board.join(rank, size).unwrap();
        }
        board
    }

    #[test]
    fn a_rank_joins_once_and_all_agree_on_the_size() {
        let mut board = board(2);
        assert_eq!(board.join(1, 2), Err(ExchangeError::AlreadyJoined { rank: 1 }));
        assert_eq!(board.join(0, 3), Err(ExchangeError::SizeDiffers { own: 3, others: 2 }));
        board.depart(1, false);
        assert_eq!(board.join(1, 2), Err(ExchangeError::AlreadyJoined { rank: 1 }));
        assert!(!board.is_over());
        board.depart(0, false);
        assert!(board.is_over() && board.here() == 0);
    }

    #[test]
    fn bounds_hold() {
        let limits = Limits { blob_bytes: 4, job_keys: 3, job_bytes: 18, ..Limits::default() };
        let mut board = Board::new(1, limits);
        assert!(matches!(board.put("a", b"12345"), Err(ExchangeError::TooLong { max: 4, .. })));
        assert_eq!(board.put("a", b"1234"), Ok(true));
        assert_eq!((board.put("a", b"1234"), board.put("a", b"123")), (Ok(true), Ok(false)));
        assert_eq!(board.put("b", b""), Ok(true));
        board.join(0, 1).unwrap();
        let bytes = board.bytes();
        for _ in 0..2 {
            board.arrive("x", 0, 0).unwrap();
            assert_eq!((board.bytes() - bytes, board.bytes_to_arrive("x", 0, 0)), (9, 0));
        }
        assert!(matches!(board.put("c", b""), Err(ExchangeError::Full { max: 3, .. })));
        assert!(matches!(board.arrive("y", 0, 0), Err(ExchangeError::Full { max: 3, .. })));
        assert_eq!(board.pass("x", 0, 0), Ok(true));
        assert_eq!(board.bytes(), bytes);
        // There are keys left, and no bytes.
        let long = board.put("cccccccccc", b"1234");
        assert!(matches!(long, Err(ExchangeError::Full { max: 18, .. })));
        assert!(matches!(board.arrive("yyyyy", 0, 0), Err(ExchangeError::Full { max: 18, .. })));
        board.arrive("y", 0, 0).unwrap();
    }

    #[test]
    fn an_open_barrier_stays_open_until_all_have_passed() {
        let mut board = board(2);
        board.arrive("x", 0, 0).unwrap();
        assert_eq!(board.pass("x", 0, 0), Ok(false));
        assert_eq!(board.missing("x", 0), MissingRanks { first: vec![1], count: 1 });
        board.arrive("x", 0, 1).unwrap();
        assert_eq!(board.pass("x", 0, 1), Ok(true));
        board.depart(1, true);
        assert_eq!(board.pass("x", 0, 0), Ok(true), "all had come");
        assert!(board.gates.is_empty());
    }

    #[test]
    fn what_needs_a_rank_that_is_gone_fails() {
        let mut board = board(3);
        board.put("there", b"x").unwrap();
        board.arrive("x", 0, 0).unwrap();
        board.depart(2, false);
        assert_eq!(board.pass("x", 0, 0), Err(ExchangeError::RankLeft { rank: 2 }));
        assert_eq!(board.gather(0, 2), Err(ExchangeError::RankLeft { rank: 2 }));
        assert_eq!(board.look("absent"), Ok(None), "another rank may put it");
        board.depart(1, true);
        board.depart(1, false);
        let lost = ExchangeError::RankLost { rank: 1 };
        assert_eq!(board.pass("x", 0, 0), Err(lost.clone()));
        assert_eq!(board.look("absent"), Err(lost.clone()));
        assert_eq!(board.gather(0, 0), Err(lost));
        assert_eq!(board.look("there"), Ok(Some(&b"x"[..])));
    }

    #[test]
    fn a_gather_gives_what_fits() {
        let mut board = board(40);
        for rank in (0..40).filter(|rank| *rank != 20) {
            board.put(&gather_key(0, rank), &[rank as u8; 4096]).unwrap();
        }
        let part = board.gather(0, 0).unwrap();
        assert_eq!(part.len(), 7);
        assert_eq!(part[6], [6; 4096]);
        assert_eq!(board.gather(0, 19).unwrap().len(), 1);
        assert_eq!(board.gather(0, 20), Ok(vec![]));
        assert_eq!(board.gather(1, 0), Ok(vec![]));
        for rank in 0..40 {
            board.forget(0, rank);
        }
        assert_eq!((board.bytes, board.blobs.len()), (0, 0));
    }
}
