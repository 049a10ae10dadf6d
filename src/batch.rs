//! Posting several operations at once.

use fabric_core::Error;
use smallvec::SmallVec;

/// Operations that go to the provider in one call.
pub(crate) const CHUNK: usize = 32;

/// For a chunk, without a trip to the heap.
pub(crate) type Chunk<T> = SmallVec<[T; CHUNK]>;

/// A batch that stopped half-way.
#[derive(Debug)]
pub struct BatchError {
    /// How many operations, from the first on, were posted.
    pub posted: usize,
    /// Why the next one was not. It and all after it had no effect.
    pub error: Error,
}

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} operations were posted, then: {}", self.posted, self.error)
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
