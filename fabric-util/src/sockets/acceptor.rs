//! The connections that come to a listener.
//!
//! A connection is half-open until its hello is there and its peer has proved the domain's secret and who it is, as far as the domain asks for them;
//! half-open ones are bounded in number and time, and shared by the network that they come from. So is the time of their
//! handshakes, which can cost a signature. A request then waits for the application, at most as many as the backlog says, and as
//! long as its peer does.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric_core::{Event, ListenerId, Result};

use super::descriptors::{Descriptors, stop_listening};
use super::family::{Arrival, Shared, SocketFamily, SocketTransport};
use crate::backlog::Backlog;
use crate::fair_table::FairTable;
use crate::fair_turns::FairTurns;
use crate::log_limiter::PeerEvent;
use crate::log_line;
use crate::refusal::RefuseReason;
use crate::stream::{Greeting, Protected, Protection, refuse};
use crate::sync::{Mutex, MutexGuard};
use crate::wakeup::wait_readable;

/// How long a hello may take, with the proof.
const HELLO: Duration = Duration::from_secs(5);
/// Half-open connections of one listener, and of all that this process may open an eighth at most; for the next ones the
/// oldest of the network that has most is closed.
const HALF_OPEN: usize = 1024;
/// Connections taken at a time.
const AT_A_TIME: usize = 16;
/// While more of them wait, others have the time between, if they had something to do: so many times what it took to take these,
/// and at most [`RETRY`]. A crowd has a quarter of the thread for it.
const REST: u32 = 3;
/// How long to wait when descriptors have run out.
const RETRY: Duration = Duration::from_millis(50);

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AcceptorTimer {
    /// A hello, or the next look at what waits in the kernel.
    Hello,
    /// The handshakes that wait for their turn.
    Handshakes,
}

/// What an acceptor and its half-open connections need of the engine.
pub(super) trait AcceptorHost<F: SocketFamily> {
    /// A new name for something with a socket.
    fn name(&self) -> usize;

    /// Has [`PendingConnection::ready`] called when something has come.
    fn watch(&self, fd: RawFd, pending: &Arc<PendingConnection<F>>) -> Result<()>;

    /// Stops watching a socket that stays open.
    fn unwatch(&self, fd: RawFd, name: usize);

    /// Forgets one that is closed.
    fn forget(&self, name: usize);

    /// Sets a deadline for one.
    fn deadline(&self, after: Duration, name: usize, timer: AcceptorTimer);

    /// How often connections had something to do.
    fn turns(&self) -> u64;

    /// Has an event reported.
    fn report(&self, event: Event);

    /// What the domain's connections share.
    fn shared(&self) -> &Shared<F::Memory>;
}

/// What there is too little of for one more half-open connection.
#[derive(Clone, Copy)]
enum Short {
    OfPlaces,
    OfDescriptors,
}

/// Whether the thread had nothing else to do since this was last asked.
fn is_alone<F: SocketFamily>(host: &impl AcceptorHost<F>, seen: &AtomicU64) -> bool {
    let turns = host.turns();
    seen.swap(turns, Ordering::Relaxed) == turns
}

/// A listening socket.
pub(super) struct Acceptor<F: SocketFamily> {
    pub(crate) name: usize,
    id: ListenerId,
    pub(crate) addr: SocketAddr,
    pub(crate) backlog: Backlog<F::Listener, Arc<PendingConnection<F>>>,
    half_open: Mutex<FairTable<Weak<PendingConnection<F>>>>,
    max_half_open: usize,
    descriptors: Descriptors,
    /// Of the connections that come.
    protection: Protection,
    /// It will look again by itself.
    looks_again: AtomicBool,
    /// The host's turns when it last took connections, and when handshakes last rested.
    turns_at_take: AtomicU64,
    turns_at_rest: AtomicU64,
    /// Handshakes that can go on, until the listener is closed.
    handshakes: FairTurns<Arc<PendingConnection<F>>>,
}

impl<F: SocketFamily> Acceptor<F> {
    pub(crate) fn new(
        name: usize,
        id: ListenerId,
        addr: SocketAddr,
        backlog: Backlog<F::Listener, Arc<PendingConnection<F>>>,
        protection: Protection,
    ) -> Arc<Self> {
        let descriptors = Descriptors::of_process();
        Arc::new(Acceptor {
            name,
            id,
            addr,
            backlog,
            half_open: Mutex::default(),
            max_half_open: descriptors.half_open(HALF_OPEN),
            descriptors,
            protection,
            looks_again: AtomicBool::new(false),
            turns_at_take: AtomicU64::new(0),
            turns_at_rest: AtomicU64::new(0),
            handshakes: FairTurns::default(),
        })
    }

    /// A deadline has come.
    pub(crate) fn expired(self: &Arc<Self>, host: &impl AcceptorHost<F>, timer: AcceptorTimer) {
        match timer {
            AcceptorTimer::Hello => {
                self.looks_again.store(false, Ordering::Relaxed);
                self.take(host);
            }
            AcceptorTimer::Handshakes => {
                self.handshakes.rested();
                self.shake_hands(host);
            }
        }
    }

    /// Connections have come.
    pub(crate) fn ready(self: &Arc<Self>, host: &impl AcceptorHost<F>) {
        // Else it takes them when it looks again.
        if !self.looks_again.load(Ordering::Relaxed) {
            self.take(host);
        }
    }

    /// No edge comes for what waits in the kernel already. Once, however many edges come for others meanwhile.
    fn look_again(&self, host: &impl AcceptorHost<F>, after: Duration) {
        if !self.looks_again.swap(true, Ordering::Relaxed) {
            host.deadline(after, self.name, AcceptorTimer::Hello);
        }
    }

    /// Takes the connections that wait in the kernel.
    fn take(self: &Arc<Self>, host: &impl AcceptorHost<F>) {
        let begun = Instant::now();
        for _ in 0..AT_A_TIME {
            let Some(accepted) = self.backlog.with(|socket| F::accept(socket, host.shared()))
            else {
                return;
            };
            match accepted {
                Ok(arrival) => PendingConnection::open(self, host, arrival),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    // Out of descriptors or memory.
                    if let Some(suppressed) =
                        host.shared().stats.peer_log.check(PeerEvent::Resources, None)
                    {
                        let addr = self.addr;
                        log_line!(Warn, "listener {addr}: {error}; trying again{suppressed}");
                    }
                    // The error comes whether a connection waits or not.
                    if !self.has_waiting() || !self.displace(host, Short::OfDescriptors) {
                        return self.look_again(host, RETRY);
                    }
                }
            }
        }
        let rest = match is_alone(host, &self.turns_at_take) {
            true => Duration::ZERO,
            false => begun.elapsed().saturating_mul(REST).min(RETRY),
        };
        self.look_again(host, rest);
    }

    /// Has a handshake go on when its turn comes.
    fn wait_for_turn(&self, host: &impl AcceptorHost<F>, pending: &Arc<PendingConnection<F>>) {
        match self.handshakes.push(pending.peer.ip(), pending.clone()) {
            Ok(()) => self.shake_hands(host),
            // The listener is closed: it is refused when it has said all.
            Err(pending) => pending.shake_hands(host),
        }
    }

    /// Handshakes go on until none waits, or others have the time.
    fn shake_hands(&self, host: &impl AcceptorHost<F>) {
        let is_alone = || is_alone(host, &self.turns_at_rest);
        let rest = self.handshakes.run(is_alone, |pending| pending.shake_hands(host));
        if let Some(rest) = rest {
            host.deadline(rest, self.name, AcceptorTimer::Handshakes);
        }
    }

    /// Whether a connection waits in the kernel.
    fn has_waiting(&self) -> bool {
        let now = Some(Instant::now());
        self.backlog
            .with(|socket| wait_readable(socket.as_fd(), now))
            .is_some_and(|is| is.unwrap_or(false))
    }

    /// A half-open connection has come; another may have to leave for it.
    fn add_half_open(&self, host: &impl AcceptorHost<F>, pending: &Arc<PendingConnection<F>>) {
        let mut half_open = self.half_open.lock();
        half_open.insert(pending.key(), pending.peer.ip(), Arc::downgrade(pending));
        let is_over = half_open.len() > self.max_half_open;
        drop(half_open);
        if is_over {
            self.displace(host, Short::OfPlaces);
        } else if self.descriptors.are_short() {
            self.displace(host, Short::OfDescriptors);
        }
    }

    /// Connections whose hello is not whole yet.
    pub(crate) fn half_open(&self) -> usize {
        self.half_open.lock().len()
    }

    fn remove_half_open(&self, pending: &PendingConnection<F>) {
        self.half_open.lock().remove(pending.key());
    }

    /// Closes the oldest half-open connection of the network that has most; false: there is none.
    fn displace(&self, host: &impl AcceptorHost<F>, short: Short) -> bool {
        let displaced = self.half_open.lock().displace();
        let Some((network, pending)) = displaced else { return false };
        if let Some(pending) = pending.upgrade() {
            match short {
                Short::OfPlaces => pending
                    .abort(host, format_args!("of {network}, which has most, made room for others")),
                Short::OfDescriptors => pending.abort(
                    host,
                    format_args!(
                        "is closed, for descriptors are short: this process may have {} (RLIMIT_NOFILE), and peers three quarters of \
                         them",
                        self.descriptors.limit
                    ),
                ),
            }
        }
        true
    }

    /// A hello is there: the request waits for the application. Gives the request that is to be refused for it, which may be
    /// this one.
    fn offer(
        &self,
        host: &impl AcceptorHost<F>,
        pending: &Arc<PendingConnection<F>>,
    ) -> Option<Arc<PendingConnection<F>>> {
        if self.descriptors.are_short() {
            if let Some(suppressed) = host.shared().stats.peer_log.check(PeerEvent::Resources, None)
            {
                let (addr, peer, limit) = (self.addr, pending.peer, self.descriptors.limit);
                log_line!(
                    Warn,
                    "listener {addr}: {peer} is refused: connections have three quarters of this process's {limit} \
                     descriptors (RLIMIT_NOFILE){suppressed}"
                );
            }
            return Some(pending.clone());
        }
        match self.backlog.push(pending.key(), pending.peer, pending.clone()) {
            Ok(displaced) => {
                host.report(Event::ConnectRequest { listener: self.id });
                displaced
            }
            Err(pending) => Some(pending),
        }
    }

    /// Closes the socket and refuses what waits; gives the names of that.
    pub(crate) fn close(&self) -> Vec<usize> {
        let (socket, waiting) = self.backlog.close();
        socket.into_iter().for_each(stop_listening);
        let unfinished = self.handshakes.close().inspect(|pending| pending.drop_socket());
        let refused = waiting.inspect(|pending| pending.refuse());
        refused.chain(unfinished).map(|pending| pending.name).collect()
    }
}

/// A connection that came in and has no endpoint yet.
pub(super) struct PendingConnection<F: SocketFamily> {
    pub(crate) name: usize,
    acceptor: Arc<Acceptor<F>>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<SocketAddr>,
    /// Its handshake waits for its turn.
    waits: AtomicBool,
    state: Mutex<PendingState<F::Transport>>,
}

struct PendingState<T> {
    transport: Option<Protected<T>>,
    greeting: Greeting,
}

impl<F: SocketFamily> PendingConnection<F> {
    fn open(
        acceptor: &Arc<Acceptor<F>>,
        host: &impl AcceptorHost<F>,
        arrival: Arrival<F::Transport>,
    ) {
        let Arrival { transport, peer, local } = arrival;
        let name = host.name();
        // If it cannot be encrypted it is closed.
        let transport = acceptor.protection.acceptor(transport).ok();
        let greeting = Greeting::new(acceptor.protection.handshake());
        let state = Mutex::new(PendingState { transport, greeting });
        let (acceptor, waits) = (acceptor.clone(), AtomicBool::new(false));
        let pending = Arc::new(PendingConnection { name, acceptor, peer, local, waits, state });
        pending.acceptor.add_half_open(host, &pending);
        if !pending.watch(host) {
            return pending.drop_socket();
        }
        host.deadline(HELLO, name, AcceptorTimer::Hello);
        // What came before the socket was watched is no edge.
        pending.ready(host);
    }

    /// Has its socket watched; false: it cannot be, or it had to make room itself.
    fn watch(self: &Arc<Self>, host: &impl AcceptorHost<F>) -> bool {
        // Under the lock, with which the socket could be closed, and its number be another's.
        let state = self.state.lock();
        let socket =
            state.transport.as_ref().map(|transport| transport.inner().as_fd().as_raw_fd());
        socket.is_some_and(|socket| host.watch(socket, self).is_ok())
    }

    /// The least is the oldest.
    fn key(&self) -> u64 {
        self.name as u64
    }

    /// Something has come: more of its handshake, or the end.
    pub(crate) fn ready(self: &Arc<Self>, host: &impl AcceptorHost<F>) {
        let state = self.state.lock();
        if state.transport.is_none() {
            return;
        }
        if state.greeting.is_whole() {
            return self.look_for_end(host, state);
        }
        drop(state);
        if !self.waits.swap(true, Ordering::AcqRel) {
            self.acceptor.wait_for_turn(host, self);
        }
    }

    /// Its handshake goes on as far as it can now.
    fn shake_hands(self: &Arc<Self>, host: &impl AcceptorHost<F>) {
        // What comes from here on is for another turn.
        self.waits.store(false, Ordering::Release);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(transport) = &mut state.transport else { return };
        if state.greeting.is_whole() {
            return self.look_for_end(host, guard);
        }
        match state.greeting.read(transport) {
            Ok(false) => return,
            Ok(true) => {}
            Err(unwelcome) => {
                drop(guard);
                // Before the peer can see that it was cut off.
                unwelcome.count(&host.shared().stats);
                return self.abort(host, format_args!("{}", unwelcome.why));
            }
        }
        self.acceptor.remove_half_open(self);
        transport.inner().keep_alive();
        let refused = self.acceptor.offer(host, self);
        self.look_for_end(host, guard);
        if let Some(refused) = refused {
            host.shared().stats.peers_refused.add(1);
            refused.refuse();
            host.forget(refused.name);
        }
    }

    /// Its peer may have left while it waits for the application; behind that the endpoint finds out.
    fn look_for_end(
        &self,
        host: &impl AcceptorHost<F>,
        mut state: MutexGuard<'_, PendingState<F::Transport>>,
    ) {
        let is_quiet =
            state.transport.as_ref().is_none_or(|transport| transport.inner().is_quiet());
        if !is_quiet && self.acceptor.backlog.remove(self.key()).is_some() {
            state.transport = None;
            host.forget(self.name);
        }
    }

    /// Closes a half-open connection.
    fn abort(&self, host: &impl AcceptorHost<F>, why: fmt::Arguments<'_>) {
        let mut state = self.state.lock();
        if state.greeting.is_whole() || state.transport.take().is_none() {
            return;
        }
        drop(state);
        self.acceptor.remove_half_open(self);
        host.forget(self.name);
        let (addr, peer, stats) = (self.acceptor.addr, self.peer, &host.shared().stats);
        stats.peers_refused.add(1);
        if let Some(suppressed) = stats.peer_log.check(PeerEvent::Admission, Some(peer)) {
            log_line!(Warn, "listener {addr}: {peer} {why}{suppressed}");
        }
    }

    /// The hello's time is over.
    pub(crate) fn expired(&self, host: &impl AcceptorHost<F>) {
        self.abort(host, format_args!("sent no whole hello in {HELLO:?}"));
    }

    /// The application took the request: whether the peer is still there is found by the endpoint that accepts it.
    pub(crate) fn taken(&self, host: &impl AcceptorHost<F>) {
        if let Some(transport) = &self.state.lock().transport {
            host.unwatch(transport.inner().as_fd().as_raw_fd(), self.name);
        }
    }

    /// Whether the peer waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        let state = self.state.lock();
        state.transport.as_ref().is_some_and(|transport| transport.inner().is_quiet())
    }

    /// Says that there is no place, and closes.
    pub(crate) fn refuse(&self) {
        if let Some((mut transport, _)) = self.take() {
            refuse(&mut transport, RefuseReason::Full);
        }
    }

    /// Says the application's no, and closes.
    pub(crate) fn reject(&self, data: &[u8]) {
        if let Some((mut transport, greeting)) = self.take() {
            greeting.reject(&mut transport, data);
        }
    }

    /// Takes the socket and the hello.
    pub(crate) fn take(&self) -> Option<(Protected<F::Transport>, Greeting)> {
        let mut state = self.state.lock();
        if !state.greeting.is_whole() {
            return None;
        }
        state.transport.take().map(|transport| (transport, std::mem::take(&mut state.greeting)))
    }

    pub(crate) fn drop_socket(&self) {
        let socket = self.state.lock().transport.take();
        drop(socket);
        self.acceptor.remove_half_open(self);
    }

    pub(crate) fn data(&self) -> Box<[u8]> {
        self.state.lock().greeting.data().into()
    }

    /// The name that the peer has proved.
    pub(crate) fn identity(&self) -> Option<Box<str>> {
        self.state.lock().greeting.identity().as_deref().map(Box::from)
    }
}

#[cfg(all(test, not(miri), not(loom), feature = "encryption"))]
mod tests;
