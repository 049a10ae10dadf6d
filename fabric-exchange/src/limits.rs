//! How much a job may keep in an exchange, and how long a wait may be.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{ExchangeError, Result};
use crate::job::MAX_RANKS;

/// The bounds of each job. A TCP server has its own, which hold for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one blob: 4 KiB, and at most [`Limits::MAX_BLOB_BYTES`].
    pub blob_bytes: u32,
    /// Keys of a job, with the parts of its gathers, and with its barriers that not every rank has passed: 65536.
    pub job_keys: u32,
    /// Bytes of all blobs of a job and their keys, and of barriers, with 8 for each rank that has come: 64 MiB. A directory and etcd do
    /// not add them up: there it is `job_keys` times `blob_bytes`.
    pub job_bytes: u64,
    /// Ranks of a job: 65536.
    pub ranks: u32,
}

impl Limits {
    /// As many bytes as a blob may have if the limits are raised.
    pub const MAX_BLOB_BYTES: u32 = 256 << 10;

    /// Whether these can be.
    ///
    /// # Errors
    /// `Invalid`: which cannot.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str, found: u64, max: u64| {
            Err(ExchangeError::Invalid(format!("the limit of {what} is 1 to {max}, not {found}")))
        };
        if !(1..=Self::MAX_BLOB_BYTES).contains(&self.blob_bytes) {
            return wrong("a blob's bytes", self.blob_bytes.into(), Self::MAX_BLOB_BYTES.into());
        }
        if !(1..=MAX_RANKS).contains(&self.ranks) {
            return wrong("ranks", self.ranks.into(), MAX_RANKS.into());
        }
        if self.job_keys == 0 {
            return wrong("a job's keys", 0, u32::MAX.into());
        }
        if self.job_bytes == 0 {
            return wrong("a job's bytes", 0, u64::MAX);
        }
        Ok(())
    }

    /// Whether a job may have so many ranks.
    ///
    /// # Errors
    /// `Full`.
    pub(crate) fn check_ranks(&self, ranks: u32) -> Result<()> {
        if ranks <= self.ranks {
            return Ok(());
        }
        Err(ExchangeError::full(&format!("the job has {ranks} ranks"), self.ranks))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { blob_bytes: 4 << 10, job_keys: 64 << 10, job_bytes: 64 << 20, ranks: 64 << 10 }
    }
}

/// Longer than any job; so the sum with a time always is one.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 86400);

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    begin: Instant,
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Deadline { begin: Instant::now(), timeout: timeout.min(FOREVER) }
    }

    /// The time that is left; nothing once it is over.
    pub(crate) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.begin.elapsed())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// When it is over.
    pub(crate) fn end(&self) -> Instant {
        self.begin + self.timeout
    }
}

/// The pauses of a wait that can only look: short ones first, for what is about to come.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn up_to(max: Duration) -> Self {
        Backoff { pause: Duration::from_millis(1), max }
    }

    /// The next pause, which ends with the wait.
    pub(crate) fn next(&mut self, deadline: &Deadline) -> Duration {
        let pause = self.pause.min(deadline.left());
        self.pause = (self.pause * 3 / 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_be_are_named() {
        assert_eq!(Limits::default().check(), Ok(()));
        let text = |limits: Limits| limits.check().unwrap_err().to_string();
        let default = Limits::default();
        let text_of_blob = text(Limits { blob_bytes: Limits::MAX_BLOB_BYTES + 1, ..default });
        assert_eq!(text_of_blob, "the limit of a blob's bytes is 1 to 262144, not 262145");
        assert!(text(Limits { job_keys: 0, ..default }).contains("keys"));
        assert!(text(Limits { job_bytes: 0, ..default }).contains("a job's bytes"));
        assert!(text(Limits { ranks: 0, ..default }).contains("ranks"));
        assert!(default.check_ranks(65537).is_err() && default.check_ranks(65536).is_ok());
    }

    #[test]
    fn a_wait_without_end_has_one() {
        let deadline = Deadline::after(Duration::MAX);
        assert!(!deadline.is_over() && deadline.end() > Instant::now());
        assert!(Deadline::after(Duration::ZERO).is_over());
    }

    #[test]
    fn pauses_grow_up_to_their_bound_and_end_with_the_wait() {
        let (mut backoff, deadline) =
            (Backoff::up_to(Duration::from_millis(4)), Deadline::after(Duration::MAX));
        let pauses: Vec<_> = (0..6).map(|_| backoff.next(&deadline).as_micros()).collect();
        assert_eq!(pauses, [1000, 1500, 2250, 3375, 4000, 4000]);
        assert_eq!(backoff.next(&Deadline::after(Duration::ZERO)), Duration::ZERO);
    }
}
