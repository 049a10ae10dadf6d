//! Endpoints: the contract's view of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{
    DisconnectReason, EndpointAttr, EndpointId, EndpointOps, Posted, RecvWork, Result, SendWork,
};

use crate::conn::{CloseReason, Conn};
use crate::cq::VerbsCq;
use crate::domain::state::DomainState;
use crate::shared_queue::SharedQueue;

/// An endpoint.
pub struct VerbsEndpoint {
    pub(crate) conn: Arc<Conn>,
}

impl VerbsEndpoint {
    pub(crate) fn new(
        domain: &Arc<DomainState>,
        id: EndpointId,
        attr: &EndpointAttr,
        (send, recv): (&VerbsCq, &VerbsCq),
    ) -> Result<Self> {
        let queues = (&send.queue, &recv.queue);
        Ok(VerbsEndpoint { conn: Conn::new(domain, id, attr, queues, None)? })
    }

    /// One that takes its receives from a shared queue.
    pub(crate) fn sharing(
        domain: &Arc<DomainState>,
        id: EndpointId,
        attr: &EndpointAttr,
        send: &VerbsCq,
        shared: &Arc<SharedQueue>,
    ) -> Result<Self> {
        let queues = (&send.queue, &shared.queue);
        Ok(VerbsEndpoint { conn: Conn::new(domain, id, attr, queues, Some(shared))? })
    }
}

// SAFETY: the device completes each request that it took once; a request that failed twice is reported once
// (`complete.rs`), and the soft queue completes its operations once. Segments are reached by the device until a completion,
// or until `quiesce` has destroyed the queue pair, which says so if it cannot; by the soft queue before it completes them.
unsafe impl EndpointOps for VerbsEndpoint {
    #[inline]
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.conn.post_send(work) }
    }

    #[inline]
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.conn.post_recv(work) }
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        self.conn.connect(to, data)
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let pending = self.conn.domain.requests.take("accept", request)?;
        self.conn.accept(pending.take(), data);
        self.conn.domain.flush_reports();
        Ok(())
    }

    fn disconnect(&self) {
        self.conn.settle_reads();
        let mut state = self.conn.lock();
        self.conn.close(&mut state, CloseReason::Disconnected(DisconnectReason::Local));
        drop(state);
        self.conn.domain.flush_reports();
    }

    fn quiesce(&self) -> Result<()> {
        self.conn.quiesce()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.conn.lock().local
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.lock().peer
    }

    fn dump(&self) -> String {
        self.conn.dump()
    }
}

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        // Mostly done before, and then this says the same once more. Queues and domain must not hold what has no owner.
        let _ = self.conn.quiesce();
    }
}
