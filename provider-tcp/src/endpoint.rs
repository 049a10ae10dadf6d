//! Endpoints: the contract's view of a connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{
    EndpointAttr, EndpointId, EndpointOps, Error, Posted, RecvWork, Result, SendWork,
};
use fabric_util::progress::Flush;
use mio::Interest;
use mio::unix::SourceFd;
use socket2::SockRef;

use crate::conn::{Conn, ConnState, State};
use crate::engine::{Engine, EventSource, Timer};
use crate::name::NAME;
use crate::{device, socket};
use fabric_util::stream::wire::handshake::{Handshake, HandshakeKind};
use fabric_util::stream::{AckPolicy, End, LinkContext, Phase, READS};

/// An endpoint.
pub struct TcpEndpoint {
    id: EndpointId,
    conn: Arc<Conn>,
    engine: Arc<Engine>,
}

impl TcpEndpoint {
    pub(crate) fn new(engine: &Arc<Engine>, attr: &EndpointAttr, context: LinkContext) -> Self {
        let (id, name) = (context.id, engine.name());
        let conn = Arc::new(Conn::new(name, attr, context));
        TcpEndpoint { id, conn, engine: engine.clone() }
    }

    pub(crate) fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    fn hello(state: &mut State, kind: HandshakeKind, data: &[u8]) -> Vec<u8> {
        let credit = state.link.credit();
        // Private data was checked to be short.
        Handshake { kind, data: data.len() as u16, reads: READS, credit }.encode(data)
    }

    /// Gives the socket to the connection and to the engine.
    fn attach(&self, state: &mut State, socket: OwnedFd) -> Result<()> {
        let fd = socket.as_raw_fd();
        let member = EventSource::Conn(self.conn.clone());
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.engine.watch(&mut SourceFd(&fd), self.conn.name, member, interest)?;
        state.stream = Some(self.engine.settings.stream(socket, self.conn.name));
        self.engine.deadline(self.conn.attr.connect_timeout, self.conn.name, Timer::Connect);
        Ok(())
    }

    /// Behind a flush: what it left to do, and what it found out.
    fn go_on(&self, state: &mut State) {
        if !state.watch.is_on() || state.link.phase() != Phase::Open {
            self.conn.settle(&self.engine, state);
        }
        if state.wants_turn() {
            // Noted first: a step that is over just now may be about to cool.
            self.conn.note_event(false);
            self.engine.mark_ready(&self.conn);
        }
    }

    fn leave(&self, end: End) {
        let mut guard = self.conn.lock(&self.engine);
        let state = &mut *guard;
        let connecting =
            matches!(state.stage, ConnState::Connecting(_) | ConnState::AwaitingReply(_));
        let end = if connecting && matches!(end, End::Local) {
            End::Failed(Error::Canceled)
        } else {
            end
        };
        state.link.end(end);
        state.flush_last(&self.engine);
        self.go_on(state);
    }
}

// SAFETY: the link completes each accepted operation once (`cancel` and `complete_finished` are the only ways
// out of its queues); it reaches segments only while the operation is in its queues, or in pieces that `own`
// copies before the queues are emptied; it writes only to segments of receives, reads and fetching atomics.
unsafe impl EndpointOps for TcpEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let mut guard = self.conn.lock(&self.engine);
        let state = &mut *guard;
        // SAFETY: the caller's promise.
        let pending = match unsafe { state.link.post_send(work) } {
            Ok(pending) => pending,
            Err(error) => return Posted::until(0, error),
        };
        let flush = self.engine.schedule(&self.conn, &pending);
        if flush == Flush::Deferred {
            return Posted::all(work.len());
        }
        if !state.full {
            let policy = if flush == Flush::Alone { AckPolicy::Ask } else { AckPolicy::Piggyback };
            state.flush(&self.engine, policy);
        }
        self.go_on(state);
        drop(guard);
        if flush == Flush::Polled {
            self.engine.mark_ready(&self.conn);
        }
        Posted::all(work.len())
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut guard = self.conn.lock(&self.engine);
        let state = &mut *guard;
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { state.link.post_recv(work) } {
            return Posted::until(0, error);
        }
        // The credit rides on what is sent next, or goes with the next step; or now.
        if state.link.owes() && !self.engine.leave_to_step(&self.conn) {
            state.flush(&self.engine, AckPolicy::Due);
            self.go_on(state);
        }
        Posted::all(work.len())
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let attr = &self.conn.attr;
        let source = device::source_addr(&self.engine.info, to, attr.source)?;
        let socket = socket::connect(to, source, attr)
            .map_err(|cause| Error::system("connect", NAME, cause))?;
        let mut state = self.conn.lock(&self.engine);
        state.peer = Some(to);
        state.local = SockRef::from(&socket).local_addr().ok().and_then(|addr| addr.as_socket());
        let hello = Self::hello(&mut state, HandshakeKind::Hello, data);
        state.stage = ConnState::Connecting(hello);
        self.attach(&mut state, socket).inspect_err(|_| state.stage = ConnState::Idle)
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let inbound = self.engine.requests.take("accept", request)?;
        let mut guard = self.conn.lock(&self.engine);
        let state = &mut *guard;
        let Some((socket, hello)) = inbound.take() else {
            return Err(Engine::closed());
        };
        // It fails only for a socket whose peer is gone, which the first read finds.
        let _ = socket::tune(&SockRef::from(&socket), inbound.peer.is_ipv6(), &self.conn.attr);
        if let Some(interval) = self.conn.attr.liveness {
            socket::ask_often(socket.as_fd(), interval);
        }
        (state.peer, state.local) = (Some(inbound.peer), inbound.local);
        let answer = Self::hello(state, HandshakeKind::Accept, data);
        state.link.open(hello.reads, hello.credit);
        state.link.say(&answer);
        state.stage = ConnState::Established;
        let attached = self.attach(state, socket);
        if attached.is_err() {
            state.link.end(End::Lost);
            self.conn.settle(&self.engine, state);
            drop(guard);
            self.engine.report();
            return Ok(());
        }
        state.flush(&self.engine, AckPolicy::Piggyback);
        drop(guard);
        // What came before the socket was watched is no edge.
        self.conn.note_event(false);
        self.engine.mark_ready(&self.conn);
        Ok(())
    }

    fn disconnect(&self) {
        self.leave(End::Local);
        self.engine.report();
    }

    fn quiesce(&self) -> Result<()> {
        self.leave(End::Quiet);
        self.engine.retract_reports(self.id);
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.conn.addrs().0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.addrs().1
    }

    fn dump(&self) -> String {
        self.conn.try_dump()
    }
}

impl Drop for TcpEndpoint {
    fn drop(&mut self) {
        // The engine must not go on with an endpoint that was dropped.
        let _ = self.quiesce();
    }
}
