//! Connections: a link and its two pipes.

use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use fabric_core::{EndpointAttr, EndpointId, Error};
use fabric_util::stream::{
    AckPolicy, End, IoVec, Link, LinkContext, Phase, READS, TakesReceives, Transport,
};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::engine::Engine;
use crate::pipe::Pipe;

/// Turns of one call: enough for any short operation and its answer. The thread goes on with a long one.
const TURNS: usize = 32;
/// Bytes that are read at a time when they are not read where they belong.
const SCRATCH: usize = 4096;

/// One end of a connection's bytes. Dropping it closes both directions.
pub(crate) struct Wire {
    output: Arc<Pipe>,
    input: Arc<Pipe>,
    /// The other end, which is to read what is written here.
    peer: Weak<Conn>,
}

impl Wire {
    /// Two ends; the first learns its peer when that accepts.
    pub(crate) fn pair(initiator: &Arc<Conn>) -> (Wire, Wire) {
        let (out, back) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
        let near = Wire { output: out.clone(), input: back.clone(), peer: Weak::new() };
        (near, Wire { output: back, input: out, peer: Arc::downgrade(initiator) })
    }
}

impl Transport for Wire {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.output.write(from) }
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.input.read(to) }
    }

    fn shutdown_write(&mut self) {
        self.output.end();
    }

    fn has_unsent(&self) -> bool {
        // What was written stays in the pipe until it is read, even if this end is dropped.
        false
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.output.end();
        self.input.break_off();
    }
}

/// What the connection's lock guards. While it connects it has pipes, and the link is idle.
pub(crate) struct State {
    pub(crate) link: Link,
    pub(crate) wire: Option<Wire>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// The endpoint was dropped; the connection goes on until the peer has what is left for it.
    pub(crate) dropped: bool,
}

/// A link and its pipes. The engine has it until the endpoint is dropped and the pipes are closed.
pub(crate) struct Conn {
    pub(crate) id: EndpointId,
    pub(crate) attr: EndpointAttr,
    pub(crate) engine: Arc<Engine>,
    state: Mutex<State>,
}

/// A connection whose lock is held. When it is released, completions go to their rings, and events to the engine.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    conn: &'a Arc<Conn>,
}

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.state.link.deliver();
        for event in self.state.link.take_events() {
            self.conn.engine.add_report(event, Some(self.conn));
        }
        if self.state.dropped && self.state.wire.is_none() {
            self.conn.engine.remove(self.conn.id);
        }
    }
}

impl Conn {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        attr: &EndpointAttr,
        context: LinkContext,
    ) -> Arc<Self> {
        let (id, link) = (context.id, Link::new(context));
        let state = Mutex::new(State { link, wire: None, local: None, peer: None, dropped: false });
        Arc::new(Conn { id, attr: attr.clone(), engine: engine.clone(), state })
    }

    pub(crate) fn lock(self: &Arc<Self>) -> Locked<'_> {
        Locked { state: self.state.lock(), conn: self }
    }

    /// Carries bytes to the other end and back until there are none, each end under its own lock. An end that moved
    /// bytes is followed by the other, so none are left behind.
    pub(crate) fn drive(self: &Arc<Self>) {
        let mut conn = self.clone();
        for _ in 0..TURNS {
            match conn.turn() {
                Some(peer) => conn = peer,
                None => return,
            }
        }
        let engine = conn.engine.clone();
        engine.go_on(conn);
    }

    /// Writes what is due and reads what came; gives the other end if there is something for it now.
    fn turn(self: &Arc<Self>) -> Option<Arc<Conn>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let peer = state.wire.as_ref()?.peer.clone();
        if state.link.phase() == Phase::Idle {
            return None;
        }
        let wrote = state.flush();
        let read = state.receive();
        let answered = state.flush();
        let closed = state.settle();
        (wrote || read || answered || closed).then(|| peer.upgrade()).flatten()
    }

    /// The listener's application has accepted: the connection is established, unless this end has given up.
    pub(crate) fn accepted(self: &Arc<Self>, by: &Arc<Conn>, credit: u32, data: &[u8]) -> bool {
        let mut state = self.lock();
        if !state.is_connecting() {
            return false;
        }
        if let Some(wire) = &mut state.wire {
            wire.peer = Arc::downgrade(by);
        }
        state.link.open(READS, credit);
        state.link.announce(data);
        true
    }

    /// The attempt to connect has failed, unless it is over.
    pub(crate) fn fail(self: &Arc<Self>, error: Error) {
        let mut state = self.lock();
        if state.is_connecting() {
            state.link.end(End::Failed(error));
            state.settle();
        }
    }

    /// Ends the connection from this side.
    pub(crate) fn end(self: &Arc<Self>, end: End) {
        let mut state = self.lock();
        let end = match end {
            End::Local if state.is_connecting() => End::Failed(Error::Canceled),
            end => end,
        };
        state.link.end(end);
        drop(state);
        self.drive();
        // Of a connection that was never established nothing was driven.
        self.lock().settle();
    }

    /// The application has heard of an event of this connection.
    pub(crate) fn reported(&self) {
        self.state.lock().link.reported();
    }

    /// The engine panicked.
    pub(crate) fn break_down(self: &Arc<Self>) {
        let mut state = self.lock();
        state.link.end(End::Internal);
        state.settle();
    }

    /// The domain closes: nothing more is completed or reported. The other end finds the connection lost.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.link.close();
        let wire = state.wire.take();
        drop(state);
        let peer = wire.as_ref().and_then(|wire| wire.peer.upgrade());
        drop(wire);
        if let Some(peer) = peer {
            peer.drive();
        }
    }

    pub(crate) fn addrs(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.state.lock();
        (state.local, state.peer)
    }

    pub(crate) fn try_dump(&self) -> String {
        match self.state.try_lock() {
            Some(state) => {
                format!("{} {:?} -> {:?}", state.link.dump(), state.local, state.peer)
            }
            None => "(a connection that is busy)".to_owned(),
        }
    }
}

impl TakesReceives for Conn {
    type Engine = Engine;

    fn receives_posted(self: &Arc<Self>, _engine: &Arc<Engine>) {
        self.lock().link.receives_posted();
        self.drive();
    }
}

impl State {
    fn is_connecting(&self) -> bool {
        self.wire.is_some() && self.link.phase() == Phase::Idle
    }

    /// Encodes and writes what waits, as long as there is room; says whether anything went.
    fn flush(&mut self) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        let mut wrote = false;
        loop {
            self.link.encode(AckPolicy::Now);
            if !self.link.has_output() {
                return wrote;
            }
            match self.link.send_to(wire) {
                Ok(_) => wrote = true,
                // Full; or the other end has closed, which reading finds.
                Err(_) => return wrote,
            }
        }
    }

    /// Reads what came, and executes it; says whether there was anything.
    fn receive(&mut self) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        let mut scratch = [0; SCRATCH];
        let mut read = false;
        loop {
            match self.link.recv_from(&mut scratch, wire) {
                Ok((0, _)) => {
                    self.lose();
                    return true;
                }
                Ok(_) => read = true,
                // Dry. A pipe has no other error; a stream that has ends here as at its end.
                Err(_) => return read,
            }
        }
    }

    /// The other end has closed. It may still read: what was executed for it, or refused, is answered.
    fn lose(&mut self) {
        self.flush();
        self.link.end(End::Lost);
    }

    /// Does what the link's phase asks of the pipes; says whether that closed any.
    fn settle(&mut self) -> bool {
        match self.link.phase() {
            Phase::Closed => self.wire.take().is_some(),
            Phase::Ending if self.link.fully_sent() => {
                self.wire.as_ref().is_some_and(|wire| wire.output.end())
            }
            _ => false,
        }
    }
}
