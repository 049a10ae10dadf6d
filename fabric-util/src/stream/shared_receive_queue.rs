//! The contract's shared receive queue, for providers whose connections are links.

use std::sync::Arc;

use fabric_core::dyn_provider::downcast;
use fabric_core::{Posted, RecvWork, Result, SharedReceiveOps};

use super::shared_receives::SharedReceives;
use crate::completion_ring::CompletionRing;

/// A shared receive queue, the same for all such providers, so that their connections can share one.
pub struct SharedReceiveQueue {
    receives: Arc<SharedReceives>,
    ring: Arc<CompletionRing>,
}

impl SharedReceiveQueue {
    /// A queue whose completions go to `ring`.
    pub fn new(ring: &Arc<CompletionRing>) -> Self {
        SharedReceiveQueue { receives: Arc::default(), ring: ring.clone() }
    }

    /// The receives of another queue; the completions of those that this one's connections take go to `ring`.
    pub fn beside(other: &Self, ring: &Arc<CompletionRing>) -> Self {
        SharedReceiveQueue { receives: other.receives.clone(), ring: ring.clone() }
    }

    /// The queue behind `ops`.
    ///
    /// # Errors
    /// `InvalidArgument` if it is of another provider.
    pub fn of(ops: &dyn SharedReceiveOps) -> Result<&Self> {
        downcast(ops)
    }

    /// What a link needs of it: where its receives come from, and where their completions go.
    pub fn parts(&self) -> (Arc<SharedReceives>, Arc<CompletionRing>) {
        (self.receives.clone(), self.ring.clone())
    }
}

// SAFETY: each receive is in the queue, or with the link that took it, which completes it once and reaches its segments only
// until then (`EndpointOps` of the provider); `clear` drops what is in the queue.
unsafe impl SharedReceiveOps for SharedReceiveQueue {
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        unsafe { self.receives.post(work) };
        Posted::all(work.len())
    }

    fn quiesce(&self) -> Result<()> {
        self.receives.clear();
        Ok(())
    }
}
