//! Connections: two pipes, and the turns by which two ends carry their bytes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fabric_core::{EndpointAttr, EndpointId, Event};
use fabric_util::completion_ring::Outbox;
use fabric_util::progress::Progress;
use fabric_util::refusal::RefuseReason;
use fabric_util::stream::{
    self, End, Greeting, Host, IoVec, LinkContext, Locked, Timer, Transport, refuse,
};

use crate::name::NAME;
use crate::pipe::Pipe;

/// Turns of one call: enough for any short operation and its answer. The thread goes on with a long one.
const TURNS: usize = 32;
/// Bytes that are read at a time when they are not read where they belong.
const SCRATCH: usize = 4096;

/// One end of a connection's bytes. Dropping it closes both directions.
pub(crate) struct Wire {
    output: Arc<Pipe>,
    input: Arc<Pipe>,
    /// The connection of this end, once it has one, and of the other, which is to read what is written here.
    here: Arc<OnceLock<Weak<Conn>>>,
    there: Arc<OnceLock<Weak<Conn>>>,
    /// Bytes have moved, or this end was closed, since the other had its turn.
    moved: bool,
}

impl Wire {
    /// Two ends.
    pub(crate) fn pair() -> (Wire, Wire) {
        let (out, back) = (Arc::<Pipe>::default(), Arc::<Pipe>::default());
        let (here, there) = (Arc::<OnceLock<_>>::default(), Arc::<OnceLock<_>>::default());
        let near = Wire {
            output: out.clone(),
            input: back.clone(),
            here: here.clone(),
            there: there.clone(),
            moved: false,
        };
        let far = Wire { output: back, input: out, here: there, there: here, moved: false };
        (near, far)
    }

    /// A connection gets this end.
    pub(crate) fn belongs_to(&self, conn: &Arc<Conn>) {
        let _ = self.here.set(Arc::downgrade(conn));
    }

    /// Refuses the connection to the other end, which hears of it.
    pub(crate) fn refuse(mut self) {
        refuse(&mut self, RefuseReason::Full);
        self.close();
    }

    /// Says the application's no to the other end.
    pub(crate) fn reject(mut self, greeting: &Greeting, data: &[u8]) {
        greeting.reject(&mut self, data);
        self.close();
    }

    /// Closes this end, and has the other find that.
    pub(crate) fn close(self) {
        let other = self.other();
        drop(self);
        if let Some(other) = other {
            other.drive();
        }
    }

    /// Whether the other end is closed, and all that it said is read.
    pub(crate) fn has_ended(&self) -> bool {
        self.input.has_ended()
    }

    fn other(&self) -> Option<Arc<Conn>> {
        self.there.get().and_then(Weak::upgrade)
    }
}

impl Transport for Wire {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.output.write(from) }.inspect(|_| self.moved = true)
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.input.read(to) }.inspect(|_| self.moved = true)
    }

    fn shutdown_write(&mut self) {
        self.output.end();
        self.moved = true;
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.output.end();
        self.input.break_off();
    }
}

/// What connections and acceptors need of their domain.
pub(crate) trait DomainHost: Send + Sync {
    /// Sets a deadline for a connection.
    fn deadline(&self, after: Duration, id: EndpointId, timer: Timer);

    /// Goes on with a connection that has more to carry than one call should.
    fn go_on(&self, conn: Arc<Conn>);

    /// Has an event reported, of a connection or none. Locks may be held.
    fn add_report(&self, event: Event, of: Option<&Arc<Conn>>);

    /// Counts a connection that was refused before the application heard of it.
    fn count_refused(&self);

    /// Forgets a connection whose pipes are closed and whose endpoint is dropped.
    fn forget(&self, id: EndpointId);
}

/// A connection. The engine has it until the endpoint is dropped and the pipes are closed.
pub(crate) struct Conn {
    pub(crate) id: EndpointId,
    host: Arc<dyn DomainHost>,
    pub(crate) stream: stream::Conn<Wire>,
    /// The endpoint was dropped; the connection goes on until the peer has what is left for it.
    dropped: AtomicBool,
}

/// What the domain is to a connection.
pub(crate) struct ConnHost<'a>(&'a Arc<Conn>);

impl Host for ConnHost<'_> {
    fn deadline(&self, after: Duration, timer: Timer) {
        // There is no host to look at.
        if timer != Timer::Liveness {
            self.0.host.deadline(after, self.0.id, timer);
        }
    }

    fn closed(&self) {
        if self.0.dropped.load(Ordering::Relaxed) {
            self.0.host.forget(self.0.id);
        }
    }

    fn report(&self, event: Event) {
        self.0.host.add_report(event, Some(self.0));
    }

    fn has_ended(&self) -> bool {
        // Perhaps: a pipe may have been read to its end.
        true
    }
}

impl Conn {
    pub(crate) fn new(
        host: Arc<dyn DomainHost>,
        attr: &EndpointAttr,
        context: LinkContext,
    ) -> Arc<Self> {
        let id = context.id;
        let stream = stream::Conn::new(NAME, attr, context);
        Arc::new(Conn { id, host, stream, dropped: AtomicBool::new(false) })
    }

    pub(crate) fn lock(self: &Arc<Self>) -> Locked<'_, Wire, ConnHost<'_>> {
        self.stream.lock(ConnHost(self))
    }

    /// Carries bytes to the other end and back until there are none, each end under its own lock. An end that moved
    /// bytes is followed by the other, so none are left behind.
    pub(crate) fn drive(self: &Arc<Self>) {
        let mut conn = self.clone();
        for _ in 0..TURNS {
            match conn.turn() {
                Some(next) => conn = next,
                None => return,
            }
        }
        let host = conn.host.clone();
        host.go_on(conn);
    }

    /// Has a turn; gives the end that is to have the next.
    fn turn(self: &Arc<Self>) -> Option<Arc<Conn>> {
        let mut conn = self.lock();
        let other = conn.transport()?.there.clone();
        let found = conn.turn(&mut [0; SCRATCH], &mut Outbox::none());
        if found == Progress::More {
            return Some(self.clone());
        }
        let moved = conn.transport().is_none_or(|wire| std::mem::take(&mut wire.moved));
        moved.then(|| other.get().and_then(Weak::upgrade)).flatten()
    }

    /// Ends the connection from this side.
    pub(crate) fn end(self: &Arc<Self>, end: End) {
        self.lock().end(end);
        self.drive();
    }

    /// The endpoint was dropped.
    pub(crate) fn let_go(self: &Arc<Self>) {
        let mut conn = self.lock();
        self.dropped.store(true, Ordering::Relaxed);
        if conn.transport().is_none() {
            self.host.forget(self.id);
        }
    }

    /// The domain closes. The other end finds the connection lost.
    pub(crate) fn abandon(&self) {
        if let Some(wire) = self.stream.abandon() {
            wire.close();
        }
    }
}
