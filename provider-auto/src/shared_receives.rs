//! Shared receive queues: one pool, from which connections of both ways take.

use std::sync::Arc;

use fabric_core::{Posted, RecvWork, Result, SharedReceiveAttr, SharedReceiveOps};
use fabric_util::stream::SharedReceiveQueue;

use crate::cq::{AutoCq, Queues};
use crate::ways::Ways;

/// The queue of each of the two, with the same receives in it.
pub(crate) struct Pool {
    pub(crate) near: SharedReceiveQueue,
    pub(crate) far: Box<dyn SharedReceiveOps>,
    /// Where their completions go.
    pub(crate) cq: Arc<Queues>,
}

/// A shared receive queue.
pub(crate) struct AutoSharedReceives {
    pub(crate) pool: Arc<Pool>,
}

impl AutoSharedReceives {
    pub(crate) fn new(ways: &Ways, attr: &SharedReceiveAttr, cq: &AutoCq) -> Result<Self> {
        let queues = &cq.queues;
        let far = ways.far.shared_receives(attr, &*queues.far)?;
        let near = ways.near.receives_beside(SharedReceiveQueue::of(&*far)?, &queues.near);
        Ok(AutoSharedReceives { pool: Arc::new(Pool { near, far, cq: queues.clone() }) })
    }
}

// SAFETY: the far queue keeps the contract for all that is in the pool; connections of both ways take from it alone.
unsafe impl SharedReceiveOps for AutoSharedReceives {
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        unsafe { self.pool.far.post_recv(work) }
    }

    fn quiesce(&self) -> Result<()> {
        self.pool.far.quiesce()
    }
}
