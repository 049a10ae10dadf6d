//! Endpoints: the contract's view of a connection.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use fabric_core::provider::RequestId;
use fabric_core::{EndpointAttr, EndpointOps, Error, Posted, RecvWork, Result, SendWork};
use fabric_util::route;
use fabric_util::stream::{End, LinkContext, TakesReceives};

use crate::conn::{Conn, Wire};
use crate::engine::Engine;
use crate::name::NAME;
use crate::{device, network};

/// An endpoint.
pub struct MemEndpoint {
    engine: Arc<Engine>,
    conn: Arc<Conn>,
    attr: EndpointAttr,
}

impl MemEndpoint {
    pub(crate) fn new(engine: &Arc<Engine>, attr: &EndpointAttr, context: LinkContext) -> Self {
        let engine = engine.clone();
        let (id, receives) = (context.id, context.receives.clone());
        let conn = Conn::new(engine.clone(), attr, context);
        if let Some(receives) = receives {
            let known: Weak<Conn> = Arc::downgrade(&conn);
            receives.add(id, known);
        }
        engine.add(&conn);
        MemEndpoint { engine, conn, attr: attr.clone() }
    }
}

// SAFETY: the link completes each accepted operation once (`cancel` and `complete_finished` are the only ways out of its
// queues); it reaches segments only while the operation is in its queues, or in pieces that `own` copies before the queues
// are emptied; it writes only to segments of receives, reads and fetching atomics.
unsafe impl EndpointOps for MemEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        let posted = unsafe { self.conn.lock().link.post_send(work) };
        if let Err(error) = posted {
            return Posted::until(0, error);
        }
        self.conn.drive();
        Posted::all(work.len())
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut conn = self.conn.lock();
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { conn.link.post_recv(work) } {
            return Posted::until(0, error);
        }
        let owes = conn.link.owes();
        drop(conn);
        if owes {
            self.conn.drive();
        }
        Posted::all(work.len())
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let info = &self.engine.info;
        device::check_peer(info, to)?;
        let source = route::source_addr(info, to, self.attr.source)?;
        let from = network::source(source, self.attr.source_port)
            .map_err(|cause| Error::system("connect", NAME, cause))?;
        let (near, far) = Wire::pair();
        near.belongs_to(&self.conn);
        let mut conn = self.conn.lock();
        (conn.local, conn.peer) = (Some(from), Some(to));
        conn.connect(near, data, None);
        drop(conn);
        self.conn.drive();
        match network::find(to) {
            Some(listener) => listener.offer(far, from),
            None => far.close(),
        }
        Ok(())
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let request = self.engine.requests.take("accept", request)?;
        let wire = request.wire.lock().take();
        if let Some(wire) = wire {
            wire.belongs_to(&self.conn);
            let mut conn = self.conn.lock();
            (conn.local, conn.peer) = (Some(request.to), Some(request.from));
            conn.accept(wire, &request.greeting, data);
        }
        self.conn.drive();
        self.engine.report();
        Ok(())
    }

    fn disconnect(&self) {
        self.conn.end(End::Local);
        self.engine.report();
    }

    fn quiesce(&self) -> Result<()> {
        self.conn.end(End::Quiet);
        self.engine.retract_reports(self.conn.id);
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.conn.stream.addrs().0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.stream.addrs().1
    }

    fn dump(&self) -> String {
        self.conn.stream.try_dump()
    }
}

impl TakesReceives for Conn {
    fn receives_posted(self: Arc<Self>) {
        self.lock().link.receives_posted();
        self.drive();
    }
}

impl Drop for MemEndpoint {
    fn drop(&mut self) {
        let _ = self.quiesce();
        self.conn.let_go();
    }
}
