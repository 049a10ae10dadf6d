//! What can go wrong with an exchange, in the words of every implementation.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The result of a call of this crate.
pub type Result<T, E = ExchangeError> = std::result::Result<T, E>;

/// Why a call of an [`Exchange`](crate::Exchange) failed, or why a process could not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The key has other bytes already. A key is put once for each incarnation; the same bytes may be put again.
    #[error("the key {key:?} has other bytes already: a key is put once for each incarnation")]
    Conflict {
        /// The key.
        key: String,
    },
    /// It did not happen within the time given.
    #[error("{what} did not come within {waited:?}{missing}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// Which ranks did not come; of a key it is not known.
        missing: MissingRanks,
    },
    /// A rank ended without leaving: its process was killed, its host is gone, or it said so. The incarnation is over:
    /// what was not there when that happened never comes.
    #[error(
        "rank {rank} was lost: it ended without leaving the job; start the job's next incarnation"
    )]
    RankLost {
        /// The rank, the lowest if there are more.
        rank: u32,
    },
    /// A rank left that the call would have needed.
    #[error("rank {rank} has left the job and never came to this")]
    RankLeft {
        /// The rank, the lowest if there are more.
        rank: u32,
    },
    /// This rank has joined this incarnation before. A process that starts again joins the next incarnation.
    #[error(
        "rank {rank} has joined this incarnation before: two processes have the same rank, or a process that started again has \
         to join the next incarnation"
    )]
    AlreadyJoined {
        /// The rank.
        rank: u32,
    },
    /// Other members of this incarnation say that the job has another size.
    #[error("this process says that the job has {own} ranks, and others say {others}")]
    SizeDiffers {
        /// What this process says.
        own: u32,
        /// What others say.
        others: u32,
    },
    /// A bound is reached.
    #[error("no room: {what}, and there may be {max}")]
    Full {
        /// What there is too much of.
        what: String,
        /// How much there may be.
        max: u64,
    },
    /// A blob, a key or a name is longer than it may be.
    #[error("{what} has {found} bytes, and may have {max}")]
    TooLong {
        /// What is.
        what: String,
        /// Its bytes.
        found: u64,
        /// The bytes that it may have.
        max: u64,
    },
    /// An argument or a variable that can never work.
    #[error("{0}")]
    Invalid(String),
    /// The other side has another secret, or none, or something between changed what was said or stored.
    #[error("{0}")]
    Unauthenticated(String),
    /// The place of the rendezvous could not be reached within the time for it.
    #[error("{0}")]
    Unreachable(String),
    /// The connection to the server ended.
    #[error("the connection to the server ended: {0}")]
    Disconnected(String),
    /// Bytes that are none of this protocol's.
    #[error("{0}")]
    Malformed(String),
    /// The system, or the store, did not do what it was asked.
    #[error("{0}")]
    Storage(String),
}

/// As many ranks as an error names.
pub(crate) const MAX_NAMED: usize = 8;

/// The ranks that did not come: the first of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRanks {
    /// The lowest ones.
    pub first: Vec<u32>,
    /// How many there are.
    pub count: u32,
}

impl MissingRanks {
    /// Those of `size` ranks that `has_come` denies.
    pub(crate) fn of(size: u32, has_come: impl Fn(u32) -> bool) -> Self {
        let mut missing = MissingRanks::default();
        for rank in (0..size).filter(|rank| !has_come(*rank)) {
            if missing.first.len() < MAX_NAMED {
                missing.first.push(rank);
            }
            missing.count += 1;
        }
        missing
    }

    /// Whether all have come.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl fmt::Display for MissingRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first.is_empty() {
            return Ok(());
        }
        f.write_str(if self.count == 1 {
            "; missing is rank "
        } else {
            "; missing are the ranks "
        })?;
        for (at, rank) in self.first.iter().enumerate() {
            write!(f, "{}{rank}", if at > 0 { ", " } else { "" })?;
        }
        match self.count as usize - self.first.len().min(self.count as usize) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl ExchangeError {
    /// The system's error of what was done to a path.
    pub(crate) fn of_path(doing: &str, path: &Path, error: &io::Error) -> Self {
        ExchangeError::Storage(format!("cannot {doing} {}: {error}", path.display()))
    }

    pub(crate) fn full(what: &str, max: impl Into<u64>) -> Self {
        ExchangeError::Full { what: what.to_owned(), max: max.into() }
    }
}

/// Whether so many bytes may be.
///
/// # Errors
/// `TooLong`.
pub(crate) fn check_len(what: &str, found: usize, max: usize) -> Result<()> {
    if found <= max {
        return Ok(());
    }
    let (found, max) = (found as u64, max as u64);
    Err(ExchangeError::TooLong { what: what.to_owned(), found, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_are_named_and_counted() {
        let text =
            |size, come: &[u32]| MissingRanks::of(size, |rank| come.contains(&rank)).to_string();
        assert_eq!(text(3, &[0, 2]), "; missing is rank 1");
        assert_eq!(text(3, &[1]), "; missing are the ranks 0, 2");
        assert_eq!(text(3, &[0, 1, 2]), "");
        assert_eq!(text(20, &[0]), "; missing are the ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more");
    }

    /// A server may send any numbers.
    #[test]
    fn counts_that_contradict_each_other_are_shown_all_the_same() {
        let missing = MissingRanks { first: vec![1, 2], count: 1 };
        assert_eq!(missing.to_string(), "; missing is rank 1, 2");
    }

    #[test]
    fn a_length_is_named_with_its_bound() {
        assert_eq!(check_len("the key", 3, 3), Ok(()));
        let text = check_len("the key", 4, 3).unwrap_err().to_string();
        assert_eq!(text, "the key has 4 bytes, and may have 3");
    }
}
