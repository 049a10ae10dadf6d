//! The contract's shared receive queue, for providers whose connections are links.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fabric_core::{EndpointId, Error, Posted, RecvWork, Result, SharedReceiveOps};

use super::shared_receives::SharedReceives;
use crate::completion_ring::CompletionRing;
use crate::sync::Mutex;

/// A provider's connection, as a shared receive queue knows it.
pub trait TakesReceives: Send + Sync + Sized + 'static {
    /// What drives it.
    type Engine: Send + Sync + 'static;

    /// Calls [`Link::receives_posted`](super::Link::receives_posted), and has what that encoded transmitted soon. No lock of
    /// another connection is held.
    fn receives_posted(self: &Arc<Self>, engine: &Arc<Self::Engine>);
}

/// A shared receive queue.
pub struct SharedReceiveQueue<C: TakesReceives> {
    receives: Arc<SharedReceives>,
    ring: Arc<CompletionRing>,
    engine: Arc<C::Engine>,
    conns: Mutex<HashMap<EndpointId, Weak<C>>>,
}

impl<C: TakesReceives> SharedReceiveQueue<C> {
    /// A queue whose completions go to `ring`.
    pub fn new(engine: &Arc<C::Engine>, ring: &Arc<CompletionRing>) -> Self {
        let (engine, ring) = (engine.clone(), ring.clone());
        SharedReceiveQueue { receives: Arc::default(), ring, engine, conns: Mutex::default() }
    }

    /// The queue behind `ops`.
    ///
    /// # Errors
    /// `InvalidArgument` if it is of another provider.
    pub fn of(ops: &dyn SharedReceiveOps) -> Result<&Self> {
        let queue = (ops as &dyn Any).downcast_ref();
        queue.ok_or_else(|| Error::invalid("make endpoint", "the queue is of another provider"))
    }

    /// What a link needs of it: where its receives come from, and where their completions go.
    pub fn parts(&self) -> (Arc<SharedReceives>, Arc<CompletionRing>) {
        (self.receives.clone(), self.ring.clone())
    }

    /// A connection takes its receives from here.
    pub fn add(&self, id: EndpointId, conn: &Arc<C>) {
        let mut conns = self.conns.lock();
        if conns.len() == conns.capacity() {
            conns.retain(|_, conn| conn.strong_count() > 0);
        }
        conns.insert(id, Arc::downgrade(conn));
    }
}

// SAFETY: each receive is in the queue, or with the link that took it, which completes it once and reaches its segments only
// until then (`EndpointOps` of the provider); `clear` drops what is in the queue.
unsafe impl<C: TakesReceives> SharedReceiveOps for SharedReceiveQueue<C> {
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        for id in unsafe { self.receives.post(work) } {
            let conn = self.conns.lock().get(&id).and_then(Weak::upgrade);
            if let Some(conn) = conn {
                conn.receives_posted(&self.engine);
            }
        }
        Posted::all(work.len())
    }

    fn quiesce(&self) -> Result<()> {
        self.receives.clear();
        Ok(())
    }
}
