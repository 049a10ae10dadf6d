//! A link and its transport under one lock: what any connection over a stream of bytes does.
//!
//! `turn`: reading, executing and writing; `ack_hold`: how long acknowledgements wait for a message; `reach`: what the transport
//! does by itself; `connect`: how it begins; `end`: how it ends, and its deadlines; `stall`: whether what is under way gets on.

mod ack_hold;
mod connect;
mod end;
mod reach;
mod stall;
mod turn;

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use ack_hold::AckHold;
use fabric_core::{EndpointAttr, Event};

use super::greeting::Initiator;
use super::link::{Link, LinkContext};
use super::liveness::Watch;
use super::transport::Transport;
use crate::stall_watch::StallWatch;
use crate::sync::{Mutex, MutexGuard};

/// What a deadline of a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The connection must be established by now.
    Connect,
    /// The peer had its time to read the last frame.
    Linger,
    /// Look whether the peer's host still answers.
    Liveness,
    /// Look whether what is under way gets on.
    Stall,
    /// Look whether the transport connects, where no event says so.
    Retry,
}

/// What a connection needs of its provider. All of it is called under the connection's lock.
pub trait Host {
    /// Has [`Locked::expired`] called with `timer` after this time.
    fn deadline(&self, after: Duration, timer: Timer);

    /// The transport is closed: no turn and no deadline has anything left to do.
    fn closed(&self);

    /// Has an event reported when no lock is held, and then [`Conn::reported`] called.
    fn report(&self, event: Event);

    /// Whether another turn follows soon by itself, so that acknowledgements may wait for a frame to ride on.
    fn may_defer(&self) -> bool {
        false
    }

    /// Whether it is known that the stream has ended: a turn then reads until there, even if the stream seemed dry before.
    fn has_ended(&self) -> bool {
        false
    }
}

/// How far the connection's making is.
enum Stage {
    /// Neither `connect` nor `accept` was called.
    Idle,
    /// The transport connects; the hello waits.
    Connecting(Initiator),
    /// The hello is out.
    AwaitingReply(Initiator),
    /// The link has the transport.
    Established,
    /// The transport is closed, or about to be.
    Closed,
}

/// The time that the peer has for what is left for it when the connection ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Linger {
    #[default]
    NotYet,
    Runs,
    Over,
}

/// What the lock of a connection guards.
pub struct ConnState<T> {
    /// The protocol.
    pub link: Link,
    /// The address of this end, for the application.
    pub local: Option<SocketAddr>,
    /// The address of the other end.
    pub peer: Option<SocketAddr>,
    /// The name that the other end has proved.
    identity: Option<Arc<str>>,
    provider: &'static str,
    connect_timeout: Duration,
    liveness: Option<Duration>,
    stage: Stage,
    transport: Option<T>,
    /// The transport takes nothing now; an event follows when it does again.
    full: bool,
    /// The transport took an event, so that the stream has to be looked at.
    looks: bool,
    /// The last frames are on their way, with a deadline; and our half of the stream is closed behind them.
    lingers: Linger,
    shut: bool,
    /// It is looked at again whether the transport connects.
    retries: bool,
    /// How long acknowledgements wait for a message that carries them.
    ack_hold: AckHold,
    /// Turns since an operation has gone that no one waits for, and that the peer was not asked for.
    unasked_turns: u32,
    /// The peer's half of the stream is read to its end.
    read_all: bool,
    /// Bytes that came since it is established.
    came: u64,
    /// The looks at the peer's host, and whether something was written that none of them found answered.
    watch: Watch,
    wrote: bool,
    /// The looks at what is under way, if what does not get on is to end the connection; and how far the stream to the peer
    /// was when one of them found that the peer had taken all of it.
    stall: Option<StallWatch<3>>,
    taken: u64,
}

/// A connection.
pub struct Conn<T>(Mutex<ConnState<T>>);

/// A connection whose lock is held. When it is released, completions go to their rings, and events to the host.
pub struct Locked<'a, T: Transport, H: Host> {
    state: MutexGuard<'a, ConnState<T>>,
    host: H,
}

impl<T: Transport, H: Host> Deref for Locked<'_, T, H> {
    type Target = ConnState<T>;
    fn deref(&self) -> &ConnState<T> {
        &self.state
    }
}

impl<T: Transport, H: Host> DerefMut for Locked<'_, T, H> {
    fn deref_mut(&mut self) -> &mut ConnState<T> {
        &mut self.state
    }
}

impl<T: Transport, H: Host> Locked<'_, T, H> {
    #[cold]
    fn report(&mut self) {
        for event in self.state.link.take_events() {
            self.host.report(event);
        }
    }
}

impl<T: Transport, H: Host> Drop for Locked<'_, T, H> {
    #[inline]
    fn drop(&mut self) {
        self.state.link.deliver();
        if self.state.link.has_events() {
            self.report();
        }
    }
}

impl<T: Transport> Conn<T> {
    /// An endpoint's part of a connection, which is not made yet.
    pub fn new(provider: &'static str, attr: &EndpointAttr, context: LinkContext) -> Self {
        Conn(Mutex::new(ConnState {
            link: Link::new(context),
            local: None,
            peer: None,
            identity: None,
            provider,
            connect_timeout: attr.connect_timeout,
            liveness: attr.liveness,
            stage: Stage::Idle,
            transport: None,
            full: false,
            looks: false,
            lingers: Linger::default(),
            shut: false,
            retries: false,
            ack_hold: AckHold::new(),
            unasked_turns: 0,
            read_all: false,
            came: 0,
            watch: Watch::default(),
            wrote: false,
            stall: attr.stall.map(StallWatch::new),
            taken: 0,
        }))
    }

    /// Locks it.
    #[inline]
    pub fn lock<H: Host>(&self, host: H) -> Locked<'_, T, H> {
        Locked { state: self.0.lock(), host }
    }

    /// The same, unless another thread has it.
    #[inline]
    pub fn try_lock<H: Host>(&self, host: H) -> Option<Locked<'_, T, H>> {
        Some(Locked { state: self.0.try_lock()?, host })
    }

    /// An event of this connection has reached the application.
    pub fn reported(&self) {
        self.0.lock().link.reported();
    }

    /// The domain closes: nothing more is completed or reported. Gives the transport, to be dropped.
    pub fn abandon(&self) -> Option<T> {
        let mut state = self.0.lock();
        state.link.close();
        state.stage = Stage::Closed;
        state.transport.take()
    }

    /// Whether it was ended from here, and the peer has still to take some of the last frames, and has time left for that.
    pub fn lingers(&self) -> bool {
        self.0.lock().lingers()
    }

    /// The addresses of this end and of the other.
    pub fn addrs(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.0.lock();
        (state.local, state.peer)
    }

    /// The name that the other end has proved, from `accept` on, or from the answer on.
    pub fn identity(&self) -> Option<Arc<str>> {
        self.0.lock().identity.clone()
    }

    /// Its state, for a bug report, which may be about a lock that is never released.
    pub fn try_dump(&self) -> String {
        match self.0.try_lock() {
            Some(state) => state.dump(),
            None => "(a connection that is busy)".to_owned(),
        }
    }
}

impl<T: Transport> ConnState<T> {
    /// What carries its bytes, as long as that is open.
    pub fn transport(&mut self) -> Option<&mut T> {
        self.transport.as_mut()
    }

    fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting(_) | Stage::AwaitingReply(_))
    }

    fn dump(&self) -> String {
        let stage = match self.stage {
            Stage::Idle => "new",
            Stage::Connecting(_) => "connecting",
            Stage::AwaitingReply(_) => "waits for the listener's answer",
            Stage::Established => "linked",
            Stage::Closed => "over",
        };
        let full = if self.full { ", the stream is full" } else { "" };
        let by_itself = self.transport.as_ref().and_then(T::dump);
        let by_itself = by_itself.map_or_else(String::new, |text| format!("; {text}"));
        let link = self.link.dump();
        format!("{link}; {stage} {:?} -> {:?}{full}{by_itself}", self.local, self.peer)
    }
}
