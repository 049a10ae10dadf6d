//! Completion queues: a ring that endpoints push to.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fabric_core::{Armed, CqOps, Error, RawCompletion, Result};
use fabric_util::completion_ring::CompletionRing;

use crate::engine::Engine;
use crate::name::NAME;

/// A completion queue.
pub struct MemCq {
    pub(crate) ring: Arc<CompletionRing>,
}

impl MemCq {
    pub(crate) fn new(engine: &Engine) -> Result<Self> {
        let ring = CompletionRing::new(&engine.stats)
            .map_err(|cause| Error::system("make completion queue", NAME, cause))?;
        Ok(MemCq { ring })
    }
}

// SAFETY: the ring holds what endpoints pushed, each once, and the descriptor lives in the ring.
unsafe impl CqOps for MemCq {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        self.ring.take(out)
    }

    fn arm(&self) -> Result<Armed, Error> {
        Ok(self.ring.arm())
    }

    fn wake(&self) {
        self.ring.wake();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
