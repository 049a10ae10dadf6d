//! Connections: a link and its socket, from the first system call to the last.

// Long: the life of a connection, all of it under one lock.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabric_core::{EndpointAttr, Error};
use fabric_util::log_line;
use socket2::SockRef;

use crate::adversary::Whims;
use crate::engine::{Engine, Heat, Timer};
use crate::liveness::{Look, Watch};
use crate::socket;
use fabric_util::stream::{AckPolicy, End, IoVec, Link, Phase, PutOff, Surroundings};
use fabric_util::sync::{Mutex, MutexGuard};

/// How long a peer may take to read the last frame.
const LINGER: Duration = Duration::from_secs(2);
/// Reads of one step, so that one connection does not keep the others waiting.
const READS_A_STEP: usize = 16;
/// Writes that follow each other before others have their turn, as a peer could read as fast as this side writes.
const WRITES_A_TURN: usize = 16;

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing to read, nothing written.
    Quiet,
    /// Something moved, and then there was nothing more to read.
    Dry,
    /// There may be more to read.
    More,
    /// The socket is closed.
    Over,
}

/// How far the connection's making is.
pub(crate) enum Stage {
    /// Nobody called `connect` or `accept`.
    New,
    /// The kernel connects; the hello is ready.
    Connecting(Vec<u8>),
    /// The hello is out; what came of the answer so far.
    Greeted(Vec<u8>),
    /// The link has the socket.
    Linked,
    /// The socket is closed.
    Over,
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
    pub(crate) stage: Stage,
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// The socket takes nothing now; the selector tells when.
    pub(crate) full: bool,
    /// The last frames are on their way, with a deadline; and our half of the stream is closed behind them.
    lingers: Linger,
    shut: bool,
    /// The peer's half of the stream is read to its end.
    read_all: bool,
    /// The looks at the peer's host, and whether something was written that none of them found answered.
    pub(crate) watch: Watch,
    wrote: bool,
    /// Tests only: the adversary's choices.
    whims: Option<Whims>,
}

/// A link and its socket. The engine has it as long as the socket is open, the endpoint as long as it lives.
pub(crate) struct Conn {
    pub(crate) name: usize,
    pub(crate) attr: EndpointAttr,
    state: Mutex<State>,
    pub(crate) heat: Heat,
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

    /// The application was told of an event of this connection.
    pub(crate) fn reported(&self) {
        self.state.lock().link.reported();
    }

    /// The addresses of this end and of the other.
    pub(crate) fn addrs(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.state.lock();
        (state.local, state.peer)
    }

    pub(crate) fn new(
        name: usize,
        attr: &EndpointAttr,
        around: Surroundings,
        whims: Option<Whims>,
    ) -> Self {
        let state = State {
            link: Link::new(around),
            stage: Stage::New,
            socket: None,
            local: None,
            peer: None,
            full: false,
            lingers: Linger::default(),
            shut: false,
            read_all: false,
            watch: Watch::default(),
            wrote: false,
            whims,
        };
        Conn {
            name,
            attr: attr.clone(),
            state: Mutex::new(state),
            heat: Heat::new(),
            ended: AtomicBool::new(false),
        }
    }

    /// The selector named it; `ended`: as one whose stream has ended.
    pub(crate) fn note_event(&self, ended: bool) {
        if ended {
            self.ended.store(true, Ordering::Release);
        }
        self.heat.note();
    }

    /// Reads what came, executes it, writes what is due.
    pub(crate) fn step(
        self: &Arc<Self>,
        engine: &Engine,
        scratch: &mut [u8],
        background: bool,
    ) -> Step {
        let mut guard = self.lock(engine);
        let state = &mut *guard;
        if state.whims.is_some() && state.is_left_alone() {
            return Step::Quiet;
        }
        match state.stage {
            Stage::New => Step::Quiet,
            Stage::Over => {
                // What was left may be taken by now.
                if state.socket.is_some() {
                    self.settle(engine, state);
                }
                Step::Over
            }
            Stage::Connecting(_) => self.greet(engine, state),
            Stage::Greeted(_) => self.hear_answer(engine, state, scratch),
            Stage::Linked => self.exchange(engine, state, scratch, background),
        }
    }

    fn exchange(
        &self,
        engine: &Engine,
        state: &mut State,
        scratch: &mut [u8],
        background: bool,
    ) -> Step {
        // An acknowledgement from the last step that no frame has carried since.
        let wrote = state.flush(engine, AckPolicy::Due);
        let mut step = if wrote { Step::Dry } else { Step::Quiet };
        for turn in 0.. {
            if turn == READS_A_STEP {
                step = Step::More;
                break;
            }
            let Some(fd) = state.socket.as_ref().map(AsFd::as_fd) else { return Step::Over };
            engine.stats().system_calls.add(1);
            let most = state.whims.as_mut().map_or(usize::MAX, Whims::most);
            // SAFETY: the link gives memory of operations in flight, of a region that it holds open during the
            // call, and the scratch buffer, to which only this call writes.
            let read = |runs: &[IoVec]| unsafe { socket::receive(fd, &within(most, runs)) };
            match state.link.receive(scratch, read) {
                Ok((0, _)) => {
                    state.read_all = true;
                    self.lost(engine, state);
                    return Step::Over;
                }
                Ok((got, filled)) => {
                    step = Step::Dry;
                    if !filled && got < most && !self.ended.load(Ordering::Acquire) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.lost(engine, state);
                    return Step::Over;
                }
            }
        }
        let policy = if background || !engine.can_wait() {
            // Without a poller nothing else would send it. If the socket is full, an edge leads back here.
            AckPolicy::Now
        } else if step == Step::Quiet {
            AckPolicy::Ask
        } else {
            AckPolicy::Piggyback
        };
        state.flush(engine, policy);
        self.settle(engine, state);
        if state.whims.is_some() && step != Step::Quiet {
            state.put_off(engine);
        }
        match state.stage {
            Stage::Over => Step::Over,
            _ if state.wants_turn() => Step::More,
            _ => step,
        }
    }

    /// The stream from the peer has ended.
    fn lost(&self, engine: &Engine, state: &mut State) {
        // The peer may still read: what was executed for it just now, or refused, is answered.
        state.link.put_off(PutOff::default());
        state.flush(engine, AckPolicy::Piggyback);
        state.link.end(End::Lost);
        self.settle(engine, state);
    }

    /// Does what the link's phase asks of the socket.
    pub(crate) fn settle(&self, engine: &Engine, state: &mut State) {
        match state.link.phase() {
            Phase::Closed => {
                state.stage = Stage::Over;
                if state.is_owed() {
                    self.linger(engine, state);
                } else {
                    state.close_socket();
                    engine.forget(self.name);
                }
            }
            Phase::Ending => {
                self.linger(engine, state);
                if !state.shut && state.link.said_all() {
                    state.shut = true;
                    if let Some(socket) = &state.socket {
                        // It fails only when the peer is gone, which the next read tells.
                        let _ = SockRef::from(socket).shutdown(std::net::Shutdown::Write);
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
                Stage::Connecting(_) | Stage::Greeted(_) => {
                    self.fail_connect(engine, state, Error::TimedOut(None));
                }
                Stage::Linked if !state.link.is_announced() => {
                    if let Some(unsaid) = engine.stats().peer_lines.admit() {
                        let id = state.link.id();
                        log_line!(
                            Warn,
                            "{id}: the peer did not finish the handshake in time{unsaid}"
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
            Timer::Accept | Timer::PutOff => {}
        }
    }

    /// Something was written, so the peer's host owes an answer.
    fn watch(&self, engine: &Engine, state: &mut State) {
        let (Some(interval), Some(socket)) = (self.attr.liveness, &state.socket) else { return };
        if let Some(silence) = socket::silence(socket.as_fd()) {
            let after = state.watch.begin(Instant::now(), silence, interval);
            engine.deadline(after, self.name, Timer::Liveness);
        }
    }

    /// Looks whether the peer's host still answers.
    fn look(&self, engine: &Engine, state: &mut State) {
        let (Some(interval), Some(socket)) = (self.attr.liveness, &state.socket) else { return };
        if state.link.phase() != Phase::Open {
            // What is left for the peer has its own deadline.
            return;
        }
        // A socket without a connection is one whose end the next read tells.
        let Some(silence) = socket::silence(socket.as_fd()) else { return };
        match state.watch.look(Instant::now(), silence, interval) {
            Look::Rest => state.wrote = false,
            Look::Again(after) => engine.deadline(after, self.name, Timer::Liveness),
            Look::Lost => {
                if let Some(unsaid) = engine.stats().peer_lines.admit() {
                    let id = state.link.id();
                    log_line!(
                        Warn,
                        "{id}: the peer's host has not answered for {:?}{unsaid}",
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
        state.stage = Stage::Over;
        state.link.end(End::Internal);
    }

    /// The domain closes.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.link.close();
        state.close_socket();
        state.stage = Stage::Over;
    }

    pub(crate) fn try_dump(&self) -> String {
        match self.state.try_lock() {
            Some(state) => state.dump(),
            None => "(a connection that is busy)".to_owned(),
        }
    }
}

/// The first `most` bytes of `runs`.
fn within(most: usize, runs: &[IoVec]) -> Cow<'_, [IoVec]> {
    if most == usize::MAX {
        return Cow::Borrowed(runs);
    }
    let mut left = most;
    let cut = runs.iter().map(|&(base, len)| {
        let part = len.min(left);
        left -= part;
        (base, part)
    });
    cut.take_while(|&(_, part)| part > 0).collect()
}

impl State {
    /// Whether a peer that said all that it had to say has not taken yet what was said to it, and has time left.
    fn is_owed(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        self.read_all
            && self.lingers != Linger::Over
            && socket::unsent(socket.as_fd()) > 0
            && socket::take_error(socket.as_fd()).is_ok()
    }

    fn close_socket(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket::close(socket);
        }
    }

    /// Whether it could write more, if it had its turn.
    pub(crate) fn wants_turn(&self) -> bool {
        !self.full && self.socket.is_some() && self.link.has_output()
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
            let Some(fd) = self.socket.as_ref().map(AsFd::as_fd) else { return wrote };
            engine.stats().system_calls.add(1);
            let most = self.whims.as_mut().map_or(usize::MAX, Whims::most);
            // SAFETY: the link gives memory of operations in flight, of regions that it holds open during the
            // call, and its own.
            let write = |runs: &[IoVec]| unsafe { socket::transmit(fd, &within(most, runs)) };
            match self.link.transmit(write) {
                Ok(_) => (wrote, self.wrote) = (true, true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.full = true;
                    return wrote;
                }
                // The peer is gone. What it sent before is still to be read, and then the read tells.
                Err(_) => {
                    self.full = true;
                    return wrote;
                }
            }
            self.link.encode(policy);
            if self.whims.is_some() && self.pretends_full(engine) {
                self.full = true;
                return wrote;
            }
        }
        wrote
    }

    /// Tests only: the socket takes no more for a while, so to speak.
    #[cold]
    fn pretends_full(&mut self, engine: &Engine) -> bool {
        let Some(whims) = &mut self.whims else { return false };
        let pretends = self.link.phase() == Phase::Open && whims.once_in(16);
        if pretends {
            whims.wait(engine);
        }
        pretends
    }

    /// Tests only: puts off something, perhaps, until the next step that finds it due.
    #[cold]
    fn put_off(&mut self, engine: &Engine) {
        let Some(whims) = &mut self.whims else { return };
        if whims.waits() || self.link.phase() != Phase::Open {
            return;
        }
        if let Some(put_off) = whims.put_off() {
            self.link.put_off(put_off);
            whims.wait(engine);
        }
    }

    /// Tests only: does now what was put off, if it is due; says whether the connection is still left alone.
    #[cold]
    fn is_left_alone(&mut self) -> bool {
        let Some(whims) = &mut self.whims else { return false };
        if whims.due() {
            self.link.put_off(PutOff::default());
        }
        whims.away && self.link.phase() == Phase::Open
    }

    fn dump(&self) -> String {
        let stage = match self.stage {
            Stage::New => "new",
            Stage::Connecting(_) => "connecting",
            Stage::Greeted(_) => "waits for the listener's answer",
            Stage::Linked => "linked",
            Stage::Over => "over",
        };
        let full = if self.full { ", the socket is full" } else { "" };
        format!("{}; {stage} {:?} -> {:?}{full}", self.link.dump(), self.local, self.peer)
    }
}
