//! What a batch of completions leaves to do, once no lock is held.
//!
//! Buffers that go back to their pool may wake those that wait for memory, a lease whose last reference goes is given back
//! over its connection, and the last reference to a connection's parts drops wakers. None of this is done under the poller's
//! lock, or a place's: it is collected here, and done when this is dropped. So it is declared before the guards of locks.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::conn_state::ConnState;
use crate::lease::RemoteLeaseState;
use crate::op_buffers::OpBuffers;
use crate::wakers::Wakers;

/// Operations of one batch whose buffers need no allocation.
const INLINE: usize = 64;

/// See the module.
#[must_use = "it is done when this is dropped, which is to be where no lock is held"]
pub(crate) struct Deferred {
    rest: SmallVec<[DeferredDrop; INLINE]>,
    // Declared last: who is woken finds the rest done.
    pub(crate) wakers: Wakers,
}

pub(crate) enum DeferredDrop {
    /// Of an operation that has ended.
    OpBuffers(OpBuffers),
    Buffer(#[allow(dead_code)] Buffer),
    /// The last reference.
    Lease(#[allow(dead_code)] Box<RemoteLeaseState>),
    ConnState(#[allow(dead_code)] Box<ConnState>),
}

impl Deferred {
    #[inline]
    pub(crate) fn new() -> Self {
        Deferred { rest: SmallVec::new(), wakers: Wakers::new() }
    }

    /// The operation has ended; its buffers go back to the pool.
    pub(crate) fn reclaim(&mut self, buffers: OpBuffers) {
        self.rest.push(DeferredDrop::OpBuffers(buffers));
    }

    #[inline]
    pub(crate) fn buffer(&mut self, buffer: Option<Buffer>) {
        self.rest.extend(buffer.map(DeferredDrop::Buffer));
    }

    #[inline]
    pub(crate) fn lease(&mut self, lease: Option<Arc<RemoteLeaseState>>) {
        self.rest.extend(lease.and_then(Arc::into_inner).map(Box::new).map(DeferredDrop::Lease));
    }

    #[inline]
    pub(crate) fn conn_state(&mut self, conn_state: Option<Arc<ConnState>>) {
        self.rest.extend(
            conn_state.and_then(Arc::into_inner).map(Box::new).map(DeferredDrop::ConnState),
        );
    }
}

impl Drop for Deferred {
    #[inline]
    fn drop(&mut self) {
        for rest in self.rest.drain(..) {
            if let DeferredDrop::OpBuffers(buffers) = rest {
                buffers.reclaim();
            }
        }
    }
}
