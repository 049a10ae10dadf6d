//! Connections: a link and its socket, from the first system call to the last.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabric_core::{EndpointAttr, Error};
use fabric_util::log_line;
use fabric_util::progress::{Mode, Progress, ReadyFlag};

use crate::engine::{Engine, Timer};
use crate::transport::Stream;
use fabric_util::stream::{
    AckPolicy, Deferral, End, Link, LinkContext, Look, Phase, TakesReceives, Transport, Watch,
};
use fabric_util::sync::{Mutex, MutexGuard};

/// How long a peer may take to read the last frame.
const LINGER: Duration = Duration::from_secs(2);
/// Reads of one step, so that one connection does not keep the others waiting.
const READS_A_STEP: usize = 16;
/// Writes that follow each other before others have their turn, as a peer could read as fast as this side writes.
const WRITES_A_TURN: usize = 16;

/// How far the connection's making is.
pub(crate) enum ConnState {
    /// Neither `connect` nor `accept` was called.
    Idle,
    /// The kernel connects; the hello is ready.
    Connecting(Vec<u8>),
    /// The hello is out; what came of the answer so far.
    AwaitingReply(Vec<u8>),
    /// The link has the socket.
    Established,
    /// The socket is closed.
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

/// What the connection's lock guards.
pub(crate) struct State {
    pub(crate) link: Link,
    pub(crate) stage: ConnState,
    pub(crate) stream: Option<Stream>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// The socket takes nothing now; the selector reports when it does again.
    pub(crate) full: bool,
    /// The last frames are on their way, with a deadline; and our half of the stream is closed behind them.
    lingers: Linger,
    shut: bool,
    /// The peer's half of the stream is read to its end.
    read_all: bool,
    /// The looks at the peer's host, and whether something was written that none of them found answered.
    pub(crate) watch: Watch,
    wrote: bool,
}

/// A link and its socket. The engine has it as long as the socket is open, the endpoint as long as it lives.
pub(crate) struct Conn {
    pub(crate) name: usize,
    pub(crate) attr: EndpointAttr,
    state: Mutex<State>,
    pub(crate) ready: ReadyFlag,
    /// The selector saw the end of the stream: read until there.
    ended: AtomicBool,
}

/// A connection whose lock is held. When it is released, completions go to their rings, and events to the engine.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    conn: &'a Arc<Conn>,
    engine: &'a Engine,
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

impl Locked<'_> {
    #[cold]
    fn add_reports(&mut self) {
        for event in self.state.link.take_events() {
            self.engine.add_report(event, Some(self.conn));
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.state.link.deliver();
        if self.state.link.has_events() {
            self.add_reports();
        }
    }
}

impl Conn {
    #[inline]
    pub(crate) fn lock<'a>(self: &'a Arc<Self>, engine: &'a Engine) -> Locked<'a> {
        Locked { state: self.state.lock(), conn: self, engine }
    }

    /// An event of this connection has reached the application.
    pub(crate) fn reported(&self) {
        self.state.lock().link.reported();
    }

    /// The addresses of this end and of the other.
    pub(crate) fn addrs(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.state.lock();
        (state.local, state.peer)
    }

    pub(crate) fn new(name: usize, attr: &EndpointAttr, context: LinkContext) -> Self {
        let state = State {
            link: Link::new(context),
            stage: ConnState::Idle,
            stream: None,
            local: None,
            peer: None,
            full: false,
            lingers: Linger::default(),
            shut: false,
            read_all: false,
            watch: Watch::default(),
            wrote: false,
        };
        Conn {
            name,
            attr: attr.clone(),
            state: Mutex::new(state),
            ready: ReadyFlag::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// The selector named it; `ended`: as one whose stream has ended.
    pub(crate) fn note_event(&self, ended: bool) {
        if ended {
            self.ended.store(true, Ordering::Release);
        }
        self.ready.note();
    }

    /// Reads what came, executes it, writes what is due but for what is put off.
    pub(crate) fn step(
        self: &Arc<Self>,
        engine: &Engine,
        scratch: &mut [u8],
        mode: Mode,
        deferral: Deferral,
    ) -> Progress {
        let mut guard = self.lock(engine);
        let state = &mut *guard;
        state.link.defer(deferral);
        match state.stage {
            ConnState::Idle => Progress::Idle,
            ConnState::Closed => {
                // What was left may be taken by now.
                if state.stream.is_some() {
                    self.settle(engine, state);
                }
                Progress::Closed
            }
            ConnState::Connecting(_) => self.greet(engine, state),
            ConnState::AwaitingReply(_) => self.hear_answer(engine, state, scratch),
            ConnState::Established => self.exchange(engine, state, scratch, mode),
        }
    }

    fn exchange(
        &self,
        engine: &Engine,
        state: &mut State,
        scratch: &mut [u8],
        mode: Mode,
    ) -> Progress {
        // An acknowledgement from the last step that no frame has carried since.
        let wrote = state.flush(engine, AckPolicy::Due);
        let mut step = if wrote { Progress::Drained } else { Progress::Idle };
        for turn in 0.. {
            if turn == READS_A_STEP {
                step = Progress::More;
                break;
            }
            let Some(stream) = &mut state.stream else { return Progress::Closed };
            engine.stats().system_calls.add(1);
            match state.link.recv_from(scratch, stream) {
                Ok((0, _)) => {
                    state.read_all = true;
                    self.lost(engine, state);
                    return Progress::Closed;
                }
                Ok((_, more)) => {
                    step = Progress::Drained;
                    if !more && !self.ended.load(Ordering::Acquire) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.lost(engine, state);
                    return Progress::Closed;
                }
            }
        }
        let policy = if mode == Mode::Unattended || !engine.can_defer() {
            // Without a poller nothing else would send it. If the socket is full, an edge leads back here.
            AckPolicy::Now
        } else if step == Progress::Idle {
            AckPolicy::Ask
        } else {
            AckPolicy::Piggyback
        };
        state.flush(engine, policy);
        self.settle(engine, state);
        match state.stage {
            ConnState::Closed => Progress::Closed,
            _ if state.wants_turn() => Progress::More,
            _ => step,
        }
    }

    /// The stream from the peer has ended.
    fn lost(&self, engine: &Engine, state: &mut State) {
        // The peer may still read: what was executed for it just now, or refused, is answered.
        state.link.defer(Deferral::default());
        state.flush_last(engine);
        state.link.end(End::Lost);
        self.settle(engine, state);
    }

    /// Does what the link's phase asks of the socket.
    pub(crate) fn settle(&self, engine: &Engine, state: &mut State) {
        match state.link.phase() {
            Phase::Closed => {
                state.stage = ConnState::Closed;
                if state.is_owed() {
                    self.linger(engine, state);
                } else {
                    state.close_socket();
                    engine.forget(self.name);
                }
            }
            Phase::Ending => {
                self.linger(engine, state);
                if !state.shut && state.link.fully_sent() {
                    state.shut = true;
                    if let Some(stream) = &mut state.stream {
                        stream.shutdown_write();
                    }
                }
            }
            Phase::Open if state.wrote && !state.watch.is_on() => self.watch(engine, state),
            _ => {}
        }
    }

    fn linger(&self, engine: &Engine, state: &mut State) {
        if state.lingers == Linger::NotYet {
            state.lingers = Linger::Runs;
            engine.deadline(LINGER, self.name, Timer::Linger);
        }
    }

    /// A deadline has come.
    pub(crate) fn expired(self: &Arc<Self>, engine: &Engine, timer: Timer) {
        let mut guard = self.lock(engine);
        let state = &mut *guard;
        match timer {
            Timer::Connect => match state.stage {
                ConnState::Connecting(_) | ConnState::AwaitingReply(_) => {
                    self.fail_connect(engine, state, Error::TimedOut(None));
                }
                ConnState::Established if !state.link.is_announced() => {
                    if let Some(suppressed) = engine.stats().peer_log.check() {
                        let id = state.link.id();
                        log_line!(
                            Warn,
                            "{id}: the peer did not finish the handshake in time{suppressed}"
                        );
                    }
                    self.lost(engine, state);
                }
                _ => {}
            },
            Timer::Linger => {
                state.lingers = Linger::Over;
                state.link.close();
                self.settle(engine, state);
            }
            Timer::Liveness => self.look(engine, state),
            Timer::Accept => {}
        }
    }

    /// Something was written, so the peer's host owes an answer.
    fn watch(&self, engine: &Engine, state: &mut State) {
        let (Some(interval), Some(stream)) = (self.attr.liveness, &state.stream) else { return };
        if let Some(silence) = stream.silence() {
            let after = state.watch.begin(Instant::now(), silence, interval);
            engine.deadline(after, self.name, Timer::Liveness);
        }
    }

    /// Looks whether the peer's host still answers.
    fn look(&self, engine: &Engine, state: &mut State) {
        let (Some(interval), Some(stream)) = (self.attr.liveness, &state.stream) else { return };
        if state.link.phase() != Phase::Open {
            // What is left for the peer has its own deadline.
            return;
        }
        // A socket without a connection is one whose end the next read finds.
        let Some(silence) = stream.silence() else { return };
        match state.watch.look(Instant::now(), silence, interval) {
            Look::Rest => state.wrote = false,
            Look::Again(after) => engine.deadline(after, self.name, Timer::Liveness),
            Look::Lost => {
                if let Some(suppressed) = engine.stats().peer_log.check() {
                    let id = state.link.id();
                    log_line!(
                        Warn,
                        "{id}: the peer's host has not answered for {:?}{suppressed}",
                        silence.lasts
                    );
                }
                self.lost(engine, state);
            }
        }
    }

    /// The engine panicked.
    pub(crate) fn fail(self: &Arc<Self>, engine: &Engine) {
        let mut state = self.lock(engine);
        state.close_socket();
        state.stage = ConnState::Closed;
        state.link.end(End::Internal);
    }

    /// The domain closes.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.link.close();
        state.close_socket();
        state.stage = ConnState::Closed;
    }

    pub(crate) fn try_dump(&self) -> String {
        match self.state.try_lock() {
            Some(state) => state.dump(),
            None => "(a connection that is busy)".to_owned(),
        }
    }
}

impl TakesReceives for Conn {
    type Engine = Engine;

    fn receives_posted(self: &Arc<Self>, engine: &Arc<Engine>) {
        self.lock(engine).link.receives_posted();
        self.note_event(false);
        engine.mark_ready(self);
    }
}

impl State {
    /// Whether a peer that said all that it had to say has not taken yet what was said to it, and has time left.
    fn is_owed(&self) -> bool {
        self.read_all
            && self.lingers != Linger::Over
            && self.stream.as_ref().is_some_and(Stream::has_unsent)
    }

    fn close_socket(&mut self) {
        self.stream = None;
    }

    /// Whether it could write more, if it had its turn.
    pub(crate) fn wants_turn(&self) -> bool {
        !self.full && self.stream.is_some() && self.link.has_output()
    }

    /// Encodes and writes what waits, as long as the socket takes it, but not for ever; says whether anything went.
    pub(crate) fn flush(&mut self, engine: &Engine, policy: AckPolicy) -> bool {
        let mut wrote = false;
        self.full = false;
        self.link.encode(policy);
        for _ in 0..WRITES_A_TURN {
            if !self.link.has_output() {
                break;
            }
            let Some(stream) = &mut self.stream else { return wrote };
            engine.stats().system_calls.add(1);
            match self.link.send_to(stream) {
                Ok(_) => (wrote, self.wrote) = (true, true),
                // Full, or the peer is gone. What it sent before is still to be read, and then the read reports that.
                Err(_) => {
                    self.full = !stream.gave_up();
                    return wrote;
                }
            }
            self.link.encode(policy);
        }
        wrote
    }

    /// Writes what is left for the peer, which gets no other turn for it.
    pub(crate) fn flush_last(&mut self, engine: &Engine) {
        for _ in 0..WRITES_A_TURN {
            self.flush(engine, AckPolicy::Piggyback);
            if !self.stream.as_ref().is_some_and(Stream::gave_up) {
                break;
            }
        }
    }

    fn dump(&self) -> String {
        let stage = match self.stage {
            ConnState::Idle => "new",
            ConnState::Connecting(_) => "connecting",
            ConnState::AwaitingReply(_) => "waits for the listener's answer",
            ConnState::Established => "linked",
            ConnState::Closed => "over",
        };
        let full = if self.full { ", the socket is full" } else { "" };
        format!("{}; {stage} {:?} -> {:?}{full}", self.link.dump(), self.local, self.peer)
    }
}
