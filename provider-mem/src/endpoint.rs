//! Endpoints: the contract's view of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{EndpointAttr, EndpointOps, Posted, RecvWork, Result, SendWork};
use fabric_util::route;
use fabric_util::stream::{End, LinkContext, READS};
use fabric_util::sync::Mutex;

use crate::conn::{Conn, Wire};
use crate::engine::Engine;
use crate::listener::Request;
use crate::{device, network};

/// An endpoint.
pub struct MemEndpoint(Arc<Conn>);

impl MemEndpoint {
    pub(crate) fn new(engine: &Arc<Engine>, attr: &EndpointAttr, context: LinkContext) -> Self {
        let conn = Conn::new(engine, attr, context);
        engine.add(&conn);
        MemEndpoint(conn)
    }

    pub(crate) fn conn(&self) -> &Arc<Conn> {
        &self.0
    }
}

// SAFETY: the link completes each accepted operation once (`cancel` and `complete_finished` are the only ways out of its
// queues); it reaches segments only while the operation is in its queues, or in pieces that `own` copies before the queues
// are emptied; it writes only to segments of receives, reads and fetching atomics.
unsafe impl EndpointOps for MemEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        let posted = unsafe { self.0.lock().link.post_send(work) };
        if let Err(error) = posted {
            return Posted::until(0, error);
        }
        self.0.drive();
        Posted::all(work.len())
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut state = self.0.lock();
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { state.link.post_recv(work) } {
            return Posted::until(0, error);
        }
        let owes = state.link.owes();
        drop(state);
        if owes {
            self.0.drive();
        }
        Posted::all(work.len())
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let (conn, engine) = (&self.0, &self.0.engine);
        device::check_peer(&engine.info, to)?;
        let source = route::source_addr(&engine.info, to, conn.attr.source)?;
        let from = SocketAddr::new(source, network::next_port());
        let (near, far) = Wire::pair(conn);
        let mut state = conn.lock();
        (state.local, state.peer, state.wire) = (Some(from), Some(to), Some(near));
        let credit = state.link.credit();
        drop(state);
        engine.deadline(conn.attr.connect_timeout, conn.id);
        let (initiator, data) = (conn.clone(), data.into());
        let request = Request { initiator, from, to, data, credit, wire: Mutex::new(Some(far)) };
        if let Some(listener) = network::find(to) {
            listener.offer(request);
        }
        Ok(())
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let (conn, engine) = (&self.0, &self.0.engine);
        let request = engine.requests.take("accept", request)?;
        let wire = request.wire.lock().take();
        let mut state = conn.lock();
        (state.local, state.peer, state.wire) = (Some(request.to), Some(request.from), wire);
        // First: the other end may send as soon as it knows.
        state.link.open(READS, request.credit);
        let credit = state.link.credit();
        drop(state);
        let established = request.initiator.accepted(conn, credit, data);
        let mut state = conn.lock();
        match established {
            true => state.link.announce(&[]),
            false => state.link.end(End::Lost),
        }
        drop(state);
        conn.drive();
        engine.report();
        Ok(())
    }

    fn disconnect(&self) {
        self.0.end(End::Local);
        self.0.engine.report();
    }

    fn quiesce(&self) -> Result<()> {
        self.0.end(End::Quiet);
        self.0.engine.retract_reports(self.0.id);
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.0.addrs().0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.addrs().1
    }

    fn dump(&self) -> String {
        self.0.try_dump()
    }
}

impl Drop for MemEndpoint {
    fn drop(&mut self) {
        let _ = self.quiesce();
        self.0.lock().dropped = true;
    }
}
