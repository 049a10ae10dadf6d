//! The engine of a domain: what has a socket, the thread that serves it, and what both need.
//!
//! Which thread drives the connections, and when, is `crate::progress`; what a turn of one is, `crate::stream`. Locks, in order: those
//! of `progress` (its `drive`, a connection, then leaves), tables, the event sink.

mod ending;
mod event_loop;
mod selector;

#[cfg(all(test, not(miri), not(loom)))]
mod panic_tests;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use enum_dispatch::enum_dispatch;
use fabric_core::{DomainAttr, EndpointId, Error, Event, EventSink, Failure, Info, Result};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token, Waker};

use super::acceptor::{Acceptor, AcceptorHost, AcceptorTimer, PendingConnection};
use super::conn::{SocketConn, SocketStream, socket};
use super::datagram_socket::DatagramSocket;
use super::family::{PeerMemory, Shared, SocketFamily};
use super::settings::SocketSettings;
use crate::backlog::RequestTable;
use crate::progress::ProgressEngine;
use crate::region_table::RegionTable;
use crate::reports::Reports;
use crate::service_thread::{ServiceThread, run_rounds};
use crate::stats::Stats;
use crate::stream::{self, Host, Locked, Protection};
use crate::sync::Mutex;
use crate::timers::Timers;
use selector::Selector;

/// How often the thread looks whether the application still polls.
const TICK: Duration = Duration::from_millis(1);
/// The selector's token of the waker.
const WAKE: Token = Token(0);
/// What a connection's socket is watched for.
pub(super) const CONN_EVENTS: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SocketTimer {
    /// As the connection says.
    Conn(stream::Timer),
    /// As an acceptor says, or a connection without an endpoint.
    Acceptor(AcceptorTimer),
}

/// A connection whose lock is held.
pub(super) type LockedConn<'a, F> = Locked<'a, SocketStream<F>, ConnHost<'a, F>>;

/// What the engine is to a connection.
pub(super) struct ConnHost<'a, F: SocketFamily> {
    engine: &'a Engine<F>,
    conn: &'a Arc<SocketConn<F>>,
    /// It is a poll's turn: what is due may wait for the next one.
    polled: bool,
}

impl<F: SocketFamily> Host for ConnHost<'_, F> {
    fn deadline(&self, after: Duration, timer: stream::Timer) {
        self.engine.deadline(after, self.conn.name, SocketTimer::Conn(timer));
    }

    fn closed(&self) {
        self.engine.forget(self.conn.name);
    }

    fn report(&self, event: Event) {
        self.engine.add_report(event, Some(self.conn));
    }

    fn may_defer(&self) -> bool {
        self.polled && self.engine.progress.can_defer()
    }

    fn has_ended(&self) -> bool {
        self.conn.has_ended()
    }
}

/// What has a socket that the engine watches.
#[enum_dispatch]
trait EventSource<F: SocketFamily> {
    /// The selector named its socket; `ended`: as one whose stream has ended.
    fn on_ready(&self, engine: &Engine<F>, ended: bool);
    /// A deadline has come.
    fn on_timer(&self, engine: &Engine<F>, timer: SocketTimer);
    /// The domain closes.
    fn close(&self);
}

#[enum_dispatch(EventSource<F>)]
pub(super) enum Member<F: SocketFamily> {
    Conn(Arc<SocketConn<F>>),
    Acceptor(Arc<Acceptor<F>>),
    Pending(Arc<PendingConnection<F>>),
    Datagrams(Arc<DatagramSocket>),
}

impl<F: SocketFamily> Clone for Member<F> {
    fn clone(&self) -> Self {
        match self {
            Member::Conn(conn) => Member::Conn(conn.clone()),
            Member::Acceptor(acceptor) => Member::Acceptor(acceptor.clone()),
            Member::Pending(pending) => Member::Pending(pending.clone()),
            Member::Datagrams(socket) => Member::Datagrams(socket.clone()),
        }
    }
}

impl<F: SocketFamily> EventSource<F> for Arc<SocketConn<F>> {
    fn on_ready(&self, engine: &Engine<F>, ended: bool) {
        self.note_event(ended);
        engine.progress.mark_ready_in_poll(self);
    }

    fn on_timer(&self, engine: &Engine<F>, timer: SocketTimer) {
        if let SocketTimer::Conn(timer) = timer {
            let wants_turn = engine.lock(self).expired(timer);
            if wants_turn {
                self.note_event(false);
                engine.progress.mark_ready(self);
            }
        }
    }

    fn close(&self) {
        drop(self.stream.abandon());
    }
}

impl<F: SocketFamily> EventSource<F> for Arc<Acceptor<F>> {
    fn on_ready(&self, engine: &Engine<F>, _ended: bool) {
        self.ready(engine);
    }

    fn on_timer(&self, engine: &Engine<F>, timer: SocketTimer) {
        if let SocketTimer::Acceptor(timer) = timer {
            self.expired(engine, timer);
        }
    }

    fn close(&self) {
        // The domain forgets all at once.
        let _ = Acceptor::close(self);
    }
}

impl<F: SocketFamily> EventSource<F> for Arc<PendingConnection<F>> {
    fn on_ready(&self, engine: &Engine<F>, _ended: bool) {
        self.ready(engine);
    }

    fn on_timer(&self, engine: &Engine<F>, _timer: SocketTimer) {
        self.expired(engine);
    }

    fn close(&self) {
        self.drop_socket();
    }
}

impl<F: SocketFamily> EventSource<F> for Arc<DatagramSocket> {
    fn on_ready(&self, engine: &Engine<F>, _ended: bool) {
        self.turn(|waits| engine.watch_datagrams(self, waits));
    }

    fn on_timer(&self, _engine: &Engine<F>, _timer: SocketTimer) {}

    fn close(&self) {
        self.end();
    }
}

impl<F: SocketFamily> AcceptorHost<F> for Engine<F> {
    fn name(&self) -> usize {
        self.next_member.fetch_add(1, Ordering::Relaxed)
    }

    fn watch(&self, fd: RawFd, pending: &Arc<PendingConnection<F>>) -> Result<()> {
        Engine::watch(self, fd, pending.name, pending.clone(), Interest::READABLE)
    }

    fn unwatch(&self, fd: RawFd, name: usize) {
        // It fails only for a socket that is not watched.
        let _ = self.registry.deregister(&mut SourceFd(&fd));
        self.forget(name);
    }

    fn forget(&self, name: usize) {
        Engine::forget(self, name);
    }

    fn deadline(&self, after: Duration, name: usize, timer: AcceptorTimer) {
        Engine::deadline(self, after, name, SocketTimer::Acceptor(timer));
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    fn report(&self, event: Event) {
        self.add_report(event, None);
    }

    fn shared(&self) -> &Shared<F::Memory> {
        &self.shared
    }
}

/// The engine of a domain.
pub(super) struct Engine<F: SocketFamily> {
    pub(crate) info: Info,
    reports: Reports<Option<Arc<SocketConn<F>>>>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) shared: Shared<F::Memory>,
    members: Mutex<HashMap<usize, Member<F>>>,
    next_member: AtomicUsize,
    pub(crate) requests: RequestTable<Arc<PendingConnection<F>>>,
    pub(crate) progress: ProgressEngine<Engine<F>>,
    registry: Registry,
    /// Readable while a socket has a change that was not taken yet.
    pub(crate) sockets: OwnedFd,
    /// Queues that watch it.
    pub(crate) driven: AtomicUsize,
    /// Turns of connections that had something to do.
    turns: AtomicU64,
    pub(crate) settings: SocketSettings,
    /// Of every connection.
    pub(crate) protection: Protection,
    timers: Mutex<Timers<usize, SocketTimer>>,
    /// The thread is to panic in its next turn.
    #[cfg(test)]
    panics: std::sync::atomic::AtomicBool,
}

impl<F: SocketFamily> Engine<F> {
    pub(crate) fn new(
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
        settings: SocketSettings,
    ) -> Result<Arc<Self>> {
        let fail = |cause| Error::system("open domain", F::NAME, cause);
        let selector = Selector::new().map_err(fail)?;
        let registry = selector.registry().map_err(fail)?;
        let waker = Waker::new(&registry, WAKE).map_err(fail)?;
        let sockets = selector.descriptor().map_err(fail)?;
        let shared = Shared { stats: Arc::default(), memory: F::Memory::new(settings.trust) };
        Ok(Arc::new(Engine {
            info: info.clone(),
            reports: Reports::new(events),
            regions: Arc::new(RegionTable::with_windows(shared.memory.windows())),
            shared,
            members: Mutex::default(),
            next_member: AtomicUsize::new(1),
            requests: RequestTable::default(),
            progress: ProgressEngine::new(selector, waker, settings.hold, settings.schedule()),
            registry,
            sockets,
            driven: AtomicUsize::new(0),
            turns: AtomicU64::new(0),
            settings,
            protection: Protection::new(attr)?,
            timers: Mutex::default(),
            #[cfg(test)]
            panics: std::sync::atomic::AtomicBool::new(false),
        }))
    }

    /// Starts the domain's thread.
    pub(crate) fn start(self: &Arc<Self>) -> Result<ServiceThread> {
        let engine = self.clone();
        ServiceThread::start(F::THREAD, move || engine.run())
            .map_err(|cause| Error::system("open domain", F::NAME, cause))
    }

    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.shared.stats
    }

    /// A new name for something with a socket.
    pub(crate) fn name(&self) -> usize {
        self.next_member.fetch_add(1, Ordering::Relaxed)
    }

    /// Watches a socket, edge-triggered, in the name of a member.
    pub(crate) fn watch(
        &self,
        fd: RawFd,
        name: usize,
        member: impl Into<Member<F>>,
        interest: Interest,
    ) -> Result<()> {
        self.members.lock().insert(name, member.into());
        self.registry.register(&mut SourceFd(&fd), Token(name), interest).map_err(|cause| {
            self.forget(name);
            Error::system("watch socket", F::NAME, cause)
        })
    }

    /// Has the selector do without the events of a connection.
    #[cold]
    fn watch_no_longer(&self, conn: &Arc<SocketConn<F>>) {
        if let Some(stream) = self.lock(conn).transport() {
            self.shared.stats.system_calls.add(1);
            let gone = self.registry.deregister(&mut SourceFd(&socket::<F>(stream)));
            conn.set_disarmed(gone.is_ok());
        }
    }

    /// The reverse: what is there already is a new event.
    #[cold]
    fn watch_again(&self, conn: &Arc<SocketConn<F>>) -> std::io::Result<()> {
        if let Some(stream) = self.lock(conn).transport() {
            self.shared.stats.system_calls.add(1);
            let (fd, name) = (socket::<F>(stream), Token(conn.name));
            self.registry.register(&mut SourceFd(&fd), name, CONN_EVENTS)?;
            conn.set_disarmed(false);
        }
        Ok(())
    }

    /// Watches a socket for datagrams on: what is there already is a new event.
    pub(super) fn watch_datagrams(&self, socket: &DatagramSocket, waits: bool) {
        let (fd, interest) = (socket.raw_fd(), DatagramSocket::interest(waits));
        // It fails only for a socket that is not watched any more.
        let _ = self.registry.reregister(&mut SourceFd(&fd), Token(socket.name), interest);
    }

    /// Watches a socket for datagrams no more.
    pub(super) fn forget_datagrams(&self, socket: &DatagramSocket) {
        // As above.
        let _ = self.registry.deregister(&mut SourceFd(&socket.raw_fd()));
        self.forget(socket.name);
    }

    /// Forgets a member whose socket is closed.
    pub(crate) fn forget(&self, name: usize) {
        let gone = self.members.lock().remove(&name);
        drop(gone);
        self.timers.lock().cancel(name);
    }

    fn member(&self, name: usize) -> Option<Member<F>> {
        self.members.lock().get(&name).cloned()
    }

    /// Sets a deadline for a member.
    pub(crate) fn deadline(&self, after: Duration, name: usize, timer: SocketTimer) {
        let nearest = self.timers.lock().add(Instant::now() + after, name, timer);
        if nearest {
            // The thread may be asleep in the selector until a later deadline.
            self.progress.wake();
        }
    }

    /// Locks a connection.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, conn: &'a Arc<SocketConn<F>>) -> LockedConn<'a, F> {
        conn.stream.lock(ConnHost { engine: self, conn, polled: false })
    }

    fn run(&self) {
        if let Some(hold) = self.settings.hold {
            // Naps are as short as a post may be held, and by default the kernel adds 50 us (PR_SET_TIMERSLACK(2const)).
            // Without it posts are only held for longer.
            let slack = NonZeroU64::new(hold.as_nanos() as u64 / 16);
            let _ = rustix::thread::set_current_timer_slack(slack.or(NonZeroU64::new(1)));
        }
        run_rounds(|| self.turn(), || self.fail());
        self.report();
        self.clear();
    }

    /// One turn of the thread; false: it was stopped, and nothing lingers.
    fn turn(&self) -> bool {
        if self.progress.is_stopped() {
            if !self.lingers() {
                return false;
            }
            // No event says that the kernel has sent everything.
            std::thread::sleep(TICK);
        }
        #[cfg(test)]
        assert!(!self.panics.swap(false, Ordering::Relaxed), "as a bug of the engine would");
        self.expire();
        self.progress.run_once(self, TICK);
        self.report();
        true
    }

    /// Has an event reported, by the thread unless who adds it sees to that itself. Locks may be held.
    pub(crate) fn add_report(&self, event: Event, of: Option<&Arc<SocketConn<F>>>) {
        self.reports.push(event, of.cloned());
        self.progress.interrupt();
    }

    /// Reports the events that came up to the application. No lock may be held.
    #[inline]
    pub(crate) fn report(&self) {
        self.reports.flush(|conn| {
            if let Some(conn) = conn {
                conn.stream.reported();
            }
        });
    }

    /// Reports nothing more of an endpoint that the application has dropped.
    pub(crate) fn retract_reports(&self, endpoint: EndpointId) {
        drop(self.reports.retract(endpoint));
    }

    fn expire(&self) {
        // What is added meanwhile waits for the next turn.
        let now = Instant::now();
        loop {
            let expired = self.timers.lock().pop_due(now, |_| Duration::ZERO);
            let Some((name, timer)) = expired else { break };
            if let Some(member) = self.member(name) {
                member.on_timer(self, timer);
            }
        }
    }

    pub(crate) fn dump(&self) -> String {
        let members = self.members.lock();
        let (mut acceptors, mut pending, mut half_open, mut datagrams) = (0, 0, 0, 0);
        let mut lines = Vec::new();
        for member in members.values() {
            match member {
                Member::Conn(conn) => lines.push(conn.stream.try_dump()),
                Member::Acceptor(acceptor) => {
                    acceptors += 1;
                    half_open += acceptor.half_open();
                }
                Member::Pending(_) => pending += 1,
                Member::Datagrams(_) => datagrams += 1,
            }
        }
        drop(members);
        lines.sort();
        format!(
            "engine: {} connections, {acceptors} listeners, {half_open} half-open, {} requests, {} regions, polled: {}, {datagrams} datagram sockets\n{}",
            lines.len(),
            usize::saturating_sub(pending, half_open),
            self.regions.len(),
            self.progress.is_polled(),
            lines.join("\n")
        )
    }

    pub(crate) fn closed() -> Error {
        Error::InvalidState(Failure::new("use domain", "the domain is closing").of(F::NAME))
    }
}

/// For what must not keep the engine alive.
pub(super) type EngineRef<F> = Weak<Engine<F>>;
