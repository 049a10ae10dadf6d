//! Endpoints: the contract's view of a connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Weak};

use fabric_core::provider::RequestId;
use fabric_core::{
    EndpointAttr, EndpointId, EndpointOps, Error, Posted, RecvWork, Result, SendFlags, SendWork,
};

use super::conn::{SocketConn, SocketStream};
use super::engine::{CONN_EVENTS, Engine, LockedConn};
use super::family::{PeerMemory, SocketFamily, SocketTransport};
use super::interfaces;
use crate::progress::Flush;
use crate::stream::{AckPolicy, End, LinkContext, Protected, TakesReceives};

/// An endpoint.
pub struct SocketEndpoint<F: SocketFamily> {
    id: EndpointId,
    attr: EndpointAttr,
    conn: Arc<SocketConn<F>>,
    engine: Arc<Engine<F>>,
    /// What a shared queue knows of it, as long as there is the endpoint.
    _taker: Option<Arc<Taker<F>>>,
}

impl<F: SocketFamily> SocketEndpoint<F> {
    pub(super) fn new(engine: &Arc<Engine<F>>, attr: &EndpointAttr, context: LinkContext) -> Self {
        let (id, name) = (context.id, engine.name());
        let receives = context.receives.clone();
        let (conn, engine) = (Arc::new(SocketConn::new(name, attr, context)), engine.clone());
        let taker = receives.map(|receives| {
            let taker = Arc::new(Taker { conn: conn.clone(), engine: engine.clone() });
            let known: Weak<Taker<F>> = Arc::downgrade(&taker);
            receives.add(id, known);
            taker
        });
        SocketEndpoint { id, attr: attr.clone(), conn, engine, _taker: taker }
    }

    /// As [`connect`](EndpointOps::connect), by a socket that is connected or becomes so, whose local address is known or not.
    ///
    /// # Errors
    /// As there.
    pub fn connect_by(
        &self,
        (transport, local): (F::Transport, Option<SocketAddr>),
        to: SocketAddr,
        data: &[u8],
    ) -> Result<()> {
        let transport = self.engine.protection.initiator(transport)?;
        let mut conn = self.lock();
        let stream = self.watch(transport)?;
        (conn.local, conn.peer) = (local, Some(to));
        conn.connect(stream, data, self.engine.protection.handshake());
        Ok(())
    }

    #[inline]
    fn lock(&self) -> LockedConn<'_, F> {
        self.engine.lock(&self.conn)
    }

    /// Has the engine watch the socket, which the connection is about to get.
    fn watch(&self, transport: Protected<F::Transport>) -> Result<SocketStream<F>> {
        let fd = transport.inner().as_fd().as_raw_fd();
        self.engine.watch(fd, self.conn.name, self.conn.clone(), CONN_EVENTS)?;
        Ok(self.engine.settings.stream::<F>(transport, self.conn.name))
    }

    /// Behind a flush: what it left to do, and what it found out.
    fn go_on(&self, conn: &mut LockedConn<'_, F>) {
        if conn.follow_up() {
            self.take_turn();
        }
    }

    /// Whether an operation may go by itself. A lazy one asks for no acknowledgement: a turn has to follow that does in the end.
    #[inline]
    fn may_go_alone(&self, work: &SendWork<'_>) -> bool {
        !is_lazy(work) || self.engine.progress.can_defer()
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

#[inline]
fn is_lazy(work: &SendWork<'_>) -> bool {
    work.flags.contains(SendFlags::LAZY)
}

// SAFETY: the link completes each accepted operation once (`cancel` and `complete_finished` are the only ways
// out of its queues); it reaches segments only while the operation is in its queues, or in pieces that `own`
// copies before the queues are emptied; it writes only to segments of receives, reads and fetching atomics.
unsafe impl<F: SocketFamily> EndpointOps for SocketEndpoint<F> {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let mut conn = self.lock();
        let mut first = 0;
        if let [one] = work
            && self.may_go_alone(one)
        {
            // SAFETY: the caller's promise.
            let posted = unsafe { conn.post_short(one) };
            if posted {
                self.go_on(&mut conn);
                if is_lazy(one) {
                    self.take_turn();
                }
                drop(conn);
                self.engine.progress.mark_if_polled(&self.conn);
                return Posted::all(1);
            }
        }
        if F::Memory::SHARED {
            // SAFETY: the caller's promise.
            let (done, look) = unsafe { conn.reach(work) };
            if look {
                self.take_turn();
            }
            if done == work.len() {
                return Posted::all(done);
            }
            first = done;
        }
        // SAFETY: the caller's promise.
        let pending = match unsafe { conn.post(&work[first..]) } {
            Ok(pending) => pending,
            Err(error) => return Posted::until(first, error),
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
        let source = interfaces::source_addr(&self.engine.info, to, self.attr.source)?;
        let connected = F::connect(to, source, &self.attr, &self.engine.shared)
            .map_err(|cause| Error::system("connect", F::NAME, cause))?;
        self.connect_by(connected, to, data)
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let inbound = self.engine.requests.take("accept", request)?;
        let mut conn = self.lock();
        let Some((mut transport, greeting)) = inbound.take() else {
            return Err(Engine::<F>::closed());
        };
        transport.inner_mut().belongs_to(inbound.peer, &self.attr);
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

/// An endpoint, as the shared queue that it takes its receives from knows it.
struct Taker<F: SocketFamily> {
    conn: Arc<SocketConn<F>>,
    engine: Arc<Engine<F>>,
}

impl<F: SocketFamily> TakesReceives for Taker<F> {
    fn receives_posted(self: Arc<Self>) {
        let Taker { conn, engine } = &*self;
        engine.lock(conn).link.receives_posted();
        conn.note_event(false);
        engine.progress.mark_ready(conn);
    }
}

impl<F: SocketFamily> Drop for SocketEndpoint<F> {
    fn drop(&mut self) {
        // The engine must not go on with an endpoint that was dropped.
        let _ = self.quiesce();
    }
}
