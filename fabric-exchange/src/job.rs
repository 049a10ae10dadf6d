//! The job that processes belong to, and the place of one process in it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{ExchangeError, Result, check_len};

/// As many bytes as the name of a job may have.
pub const MAX_JOB_NAME_BYTES: usize = 128;
/// As many bytes as a key, or the name of a barrier, may have.
pub const MAX_KEY_BYTES: usize = 256;
/// As many ranks as a job may have, whatever a server permits.
pub const MAX_RANKS: u32 = 1 << 20;

/// A job: a name, which start of it is meant, and its size. Each incarnation is a job of its own: it sees nothing of an
/// earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Job {
    name: String,
    incarnation: u64,
    size: u32,
}

impl Job {
    /// A job of `size` ranks: 0 to `size` - 1. Its name has 1 to [`MAX_JOB_NAME_BYTES`] bytes, without control characters.
    /// A process that starts again gives a higher incarnation.
    ///
    /// # Errors
    /// `Invalid` or `TooLong`: what is wrong with the name or the size.
    pub fn new(name: impl Into<String>, incarnation: u64, size: u32) -> Result<Self> {
        let name = name.into();
        check_name("the name of a job", &name, MAX_JOB_NAME_BYTES)?;
        if let Some(control) = name.chars().find(|c| c.is_control()) {
            let text = format!("the name of a job has the control character {control:?}");
            return Err(ExchangeError::Invalid(text));
        }
        if !(1..=MAX_RANKS).contains(&size) {
            let text = format!("a job has 1 to {MAX_RANKS} ranks, not {size}");
            return Err(ExchangeError::Invalid(text));
        }
        Ok(Job { name, incarnation, size })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which start of it.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// How many ranks it has.
    pub fn size(&self) -> u32 {
        self.size
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, incarnation {}, {} ranks", self.name, self.incarnation, self.size)
    }
}

/// One process's place in a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Membership {
    job: Job,
    rank: u32,
}

impl Membership {
    /// This rank of the job.
    ///
    /// # Errors
    /// `Invalid`: the job has no such rank.
    pub fn new(job: Job, rank: u32) -> Result<Self> {
        if rank < job.size {
            return Ok(Membership { job, rank });
        }
        let (size, last) = (job.size, job.size - 1);
        Err(ExchangeError::Invalid(format!(
            "a job of {size} ranks has the ranks 0 to {last}, and not {rank}"
        )))
    }

    /// What another process sent, checked as its own would be.
    ///
    /// # Errors
    /// As [`Job::new`] and [`Membership::new`].
    pub(crate) fn checked(self) -> Result<Self> {
        Self::new(Job::new(self.job.name, self.job.incarnation, self.job.size)?, self.rank)
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The rank of this process.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}

/// Whether that may be the name of a job, a key or a barrier.
///
/// # Errors
/// `Invalid` if it is empty, `TooLong`.
pub(crate) fn check_name(what: &str, name: &str, max: usize) -> Result<()> {
    if name.is_empty() {
        return Err(ExchangeError::Invalid(format!("{what} is empty")));
    }
    check_len(what, name.len(), max)
}

/// What a store has a user's key under.
pub(crate) fn user_key(key: &str) -> String {
    format!("u{key}")
}

/// What a store has a rank's part of a gather under, apart from all keys of users.
pub(crate) fn gather_key(round: u32, rank: u32) -> String {
    format!("g{round}.{rank}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_ranks_are_checked() {
        let job = Job::new("a job, any text: é/..", 7, 2).unwrap();
        assert_eq!((job.name(), job.incarnation(), job.size()), ("a job, any text: é/..", 7, 2));
        let text = Membership::new(job.clone(), 2).unwrap_err().to_string();
        assert_eq!(text, "a job of 2 ranks has the ranks 0 to 1, and not 2");
        let own = Membership::new(job, 1).unwrap();
        assert_eq!(own.clone().checked(), Ok(own));
        for (name, size) in [("", 1), ("a\nb", 1), ("a", 0), ("a", MAX_RANKS + 1)] {
            assert!(matches!(Job::new(name, 0, size), Err(ExchangeError::Invalid(_))), "{name:?}");
        }
        let long = Job::new("x".repeat(MAX_JOB_NAME_BYTES + 1), 0, 1);
        assert!(matches!(long, Err(ExchangeError::TooLong { max: 128, .. })), "{long:?}");
    }

    /// As a hostile client would send it.
    #[test]
    fn what_others_send_is_checked() {
        let job = Job { name: "\u{7}".into(), incarnation: 0, size: 1 };
        assert!(Membership { job, rank: 0 }.checked().is_err());
        let job = Job { name: "a".into(), incarnation: 0, size: 1 };
        assert!(Membership { job, rank: 1 }.checked().is_err());
    }
}
