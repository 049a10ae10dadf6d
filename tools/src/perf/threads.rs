//! The threads of an end: what they share, and what they come to.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use super::problem::Outcome;

/// What a thread says that ends because of another one.
pub(crate) const GIVEN_UP: &str = "another thread failed";

/// What the threads of the initiator share.
#[derive(Default)]
pub(crate) struct Shared {
    /// Operations measured so far: for the live line.
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicBool,
    ready: AtomicUsize,
}

impl Shared {
    /// Waits until so many threads have come here, unless one has failed.
    pub(crate) fn meet(&self, threads: usize) -> Outcome {
        self.ready.fetch_add(1, Ordering::AcqRel);
        while self.ready.load(Ordering::Acquire) < threads {
            if self.failed.load(Ordering::Relaxed) {
                return Err(GIVEN_UP.into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// What a thread came to.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, Result<T, String>>) -> Result<T, String> {
    thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
}

/// All that came out, or why not: of several reasons the one that made the others give up.
pub(crate) fn first_failure<T>(outcomes: Vec<Result<T, String>>) -> Outcome<Vec<T>> {
    let failure = |outcome: &Result<T, String>| outcome.as_ref().err().cloned();
    let mut failures = outcomes.iter().filter_map(failure).collect::<Vec<_>>();
    failures.sort_by_key(|failure| failure == GIVEN_UP);
    match failures.into_iter().next() {
        Some(first) => Err(first.into()),
        None => Ok(outcomes.into_iter().flatten().collect()),
    }
}
