//! Endpoints: the contract's view of a connection.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{
    EndpointAttr, EndpointId, EndpointOps, Error, Posted, RecvWork, Result, SendWork,
};
use fabric_util::progress::Flush;
use fabric_util::stream::{AckPolicy, End, LinkContext, Protected, TakesReceives};
use mio::Interest;
use socket2::SockRef;

use crate::conn::{Conn, Stream};
use crate::engine::{Engine, LockedConn};
use crate::name::NAME;
use crate::transport::TcpTransport;
use crate::{device, socket};

/// An endpoint.
pub struct TcpEndpoint {
    id: EndpointId,
    attr: EndpointAttr,
    conn: Arc<Conn>,
    engine: Arc<Engine>,
}

impl TcpEndpoint {
    pub(crate) fn new(engine: &Arc<Engine>, attr: &EndpointAttr, context: LinkContext) -> Self {
        let (id, name) = (context.id, engine.name());
        let conn = Arc::new(Conn::new(name, attr, context));
        TcpEndpoint { id, attr: attr.clone(), conn, engine: engine.clone() }
    }

    pub(crate) fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    #[inline]
    fn lock(&self) -> LockedConn<'_> {
        self.engine.lock(&self.conn)
    }

    /// Has the engine watch the socket, which the connection is about to get.
    fn watch(&self, transport: Protected<TcpTransport>) -> Result<Stream> {
        let fd = transport.inner().as_raw_fd();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.engine.watch(fd, self.conn.name, self.conn.clone(), interest)?;
        Ok(self.engine.settings.stream(transport, self.conn.name))
    }

    /// Behind a flush: what it left to do, and what it found out.
    fn go_on(&self, conn: &mut LockedConn<'_>) {
        if conn.follow_up() {
            self.take_turn();
        }
    }

    /// The connection is part of the next step.
    fn take_turn(&self) {
        // Noted first: a step that is over just now may be about to cool.
        self.conn.note_event(false);
        self.engine.progress.mark_ready(&self.conn);
    }

    fn end(&self, end: End) {
        let mut conn = self.lock();
        if conn.end(end) {
            self.take_turn();
        }
    }
}

// SAFETY: the link completes each accepted operation once (`cancel` and `complete_finished` are the only ways
// out of its queues); it reaches segments only while the operation is in its queues, or in pieces that `own`
// copies before the queues are emptied; it writes only to segments of receives, reads and fetching atomics.
unsafe impl EndpointOps for TcpEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let mut conn = self.lock();
        // SAFETY: the caller's promise.
        let pending = match unsafe { conn.link.post_send(work) } {
            Ok(pending) => pending,
            Err(error) => return Posted::until(0, error),
        };
        let flush = self.engine.progress.schedule(&self.conn, &pending);
        if flush == Flush::Deferred {
            return Posted::all(work.len());
        }
        if !conn.is_full() {
            let policy = if flush == Flush::Alone { AckPolicy::Ask } else { AckPolicy::Piggyback };
            conn.flush(policy);
        }
        self.go_on(&mut conn);
        drop(conn);
        if flush == Flush::Polled {
            self.engine.progress.mark_ready(&self.conn);
        }
        Posted::all(work.len())
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut conn = self.lock();
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { conn.link.post_recv(work) } {
            return Posted::until(0, error);
        }
        // The credit rides on what is sent next, or goes with the next step; or now.
        if conn.link.owes() && !self.engine.progress.leave_to_step(&self.conn) {
            conn.flush(AckPolicy::Due);
            self.go_on(&mut conn);
        }
        Posted::all(work.len())
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let source = device::source_addr(&self.engine.info, to, self.attr.source)?;
        let socket = socket::connect(to, source, &self.attr)
            .map_err(|cause| Error::system("connect", NAME, cause))?;
        let local = SockRef::from(&socket).local_addr().ok().and_then(|addr| addr.as_socket());
        let transport = TcpTransport::connecting(socket, self.engine.stats(), &self.attr);
        let transport = self.engine.protection.initiator(transport)?;
        let mut conn = self.lock();
        let stream = self.watch(transport)?;
        (conn.local, conn.peer) = (local, Some(to));
        conn.connect(stream, data, self.engine.protection.handshake());
        Ok(())
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let inbound = self.engine.requests.take("accept", request)?;
        let mut conn = self.lock();
        let Some((mut transport, greeting)) = inbound.take() else {
            return Err(Engine::closed());
        };
        transport.inner_mut().belongs_to(inbound.peer.is_ipv6(), &self.attr);
        (conn.local, conn.peer) = (inbound.local, Some(inbound.peer));
        match self.watch(transport) {
            Ok(stream) => conn.accept(stream, &greeting, data),
            Err(_) => conn.lose(),
        }
        drop(conn);
        // What came before the socket was watched is no edge.
        self.take_turn();
        self.engine.report();
        Ok(())
    }

    fn disconnect(&self) {
        self.end(End::Local);
        self.engine.report();
    }

    fn quiesce(&self) -> Result<()> {
        self.end(End::Quiet);
        self.engine.retract_reports(self.id);
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.conn.stream.addrs().0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.stream.addrs().1
    }

    fn peer_identity(&self) -> Option<Arc<str>> {
        self.conn.stream.identity()
    }

    fn dump(&self) -> String {
        self.conn.stream.try_dump()
    }
}

impl TakesReceives for Conn {
    type Engine = Engine;

    fn receives_posted(self: &Arc<Self>, engine: &Arc<Engine>) {
        engine.lock(self).link.receives_posted();
        self.note_event(false);
        engine.progress.mark_ready(self);
    }
}

impl Drop for TcpEndpoint {
    fn drop(&mut self) {
        // The engine must not go on with an endpoint that was dropped.
        let _ = self.quiesce();
    }
}
