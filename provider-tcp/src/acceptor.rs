//! The connections that come to a listener.
//!
//! A connection is half-open until its hello is there and its peer has proved the domain's secret and who it is, as far as the domain asks for them;
//! half-open ones are bounded in number and time, and shared by the network that they come from. So is the time of their
//! handshakes, which can cost a signature. A request then waits for the application, at most as many as the backlog says, and as
//! long as its peer does.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric_core::{Event, ListenerId, Result};
use fabric_util::backlog::Backlog;
use fabric_util::fair_table::FairTable;
use fabric_util::fair_turns::{FairTurns, Turn};
use fabric_util::log_limiter::PeerEvent;
use fabric_util::log_line;
use fabric_util::stats::Stats;
use fabric_util::stream::Protection;
use fabric_util::sync::Mutex;
use fabric_util::wakeup::wait_readable;

use crate::descriptors::Descriptors;
use crate::pending::PendingConnection;

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
pub(crate) enum Timer {
    /// A hello, or the next look at what waits in the kernel.
    Hello,
    /// The handshakes that wait for their turn.
    Handshakes,
}

/// What an acceptor and its half-open connections need of the engine.
pub(crate) trait AcceptorHost {
    /// A new name for something with a socket.
    fn name(&self) -> usize;

    /// Has [`PendingConnection::ready`] called when something has come.
    fn watch(&self, fd: RawFd, pending: &Arc<PendingConnection>) -> Result<()>;

    /// Stops watching a socket that stays open.
    fn unwatch(&self, fd: RawFd, name: usize);

    /// Forgets one that is closed.
    fn forget(&self, name: usize);

    /// Sets a deadline for one.
    fn deadline(&self, after: Duration, name: usize, timer: Timer);

    /// How often connections had something to do.
    fn turns(&self) -> u64;

    /// Has an event reported.
    fn report(&self, event: Event);

    /// The domain's counters.
    fn stats(&self) -> &Arc<Stats>;
}

/// What there is too little of for one more half-open connection.
#[derive(Clone, Copy)]
enum Short {
    OfPlaces,
    OfDescriptors,
}

/// Whether the thread had nothing else to do since this was last asked.
fn is_alone(host: &impl AcceptorHost, seen: &AtomicU64) -> bool {
    let turns = host.turns();
    seen.swap(turns, Ordering::Relaxed) == turns
}

/// A listening socket.
pub(crate) struct Acceptor {
    pub(crate) name: usize,
    id: ListenerId,
    pub(crate) addr: SocketAddr,
    pub(crate) backlog: Backlog<std::net::TcpListener, Arc<PendingConnection>>,
    half_open: Mutex<FairTable<Weak<PendingConnection>>>,
    max_half_open: usize,
    descriptors: Descriptors,
    /// Of the connections that come.
    protection: Protection,
    /// It will look again by itself.
    looks_again: AtomicBool,
    /// The host's turns when it last took connections, and when handshakes last rested.
    turns_at_take: AtomicU64,
    turns_at_rest: AtomicU64,
    /// Handshakes that can go on; `None` once the listener is closed.
    handshakes: Mutex<Option<FairTurns<Arc<PendingConnection>>>>,
}

impl Acceptor {
    pub(crate) fn new(
        name: usize,
        id: ListenerId,
        addr: SocketAddr,
        backlog: Backlog<std::net::TcpListener, Arc<PendingConnection>>,
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
            handshakes: Mutex::new(Some(FairTurns::default())),
        })
    }

    /// A deadline has come.
    pub(crate) fn expired(self: &Arc<Self>, host: &impl AcceptorHost, timer: Timer) {
        match timer {
            Timer::Hello => {
                self.looks_again.store(false, Ordering::Relaxed);
                self.take(host);
            }
            Timer::Handshakes => {
                if let Some(turns) = &mut *self.handshakes.lock() {
                    turns.rested();
                }
                self.shake_hands(host);
            }
        }
    }

    /// Connections have come.
    pub(crate) fn ready(self: &Arc<Self>, host: &impl AcceptorHost) {
        // Else it takes them when it looks again.
        if !self.looks_again.load(Ordering::Relaxed) {
            self.take(host);
        }
    }

    /// No edge comes for what waits in the kernel already. Once, however many edges come for others meanwhile.
    fn look_again(&self, host: &impl AcceptorHost, after: Duration) {
        if !self.looks_again.swap(true, Ordering::Relaxed) {
            host.deadline(after, self.name, Timer::Hello);
        }
    }

    /// Takes the connections that wait in the kernel.
    fn take(self: &Arc<Self>, host: &impl AcceptorHost) {
        let begun = Instant::now();
        for _ in 0..AT_A_TIME {
            let Some(accepted) = self.backlog.with(std::net::TcpListener::accept) else { return };
            match accepted {
                Ok((stream, peer)) => PendingConnection::open(self, host, stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    // Out of descriptors or memory.
                    if let Some(suppressed) =
                        host.stats().peer_log.check(PeerEvent::Resources, None)
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
    pub(crate) fn wait_for_turn(&self, host: &impl AcceptorHost, pending: &Arc<PendingConnection>) {
        let push = |turns: &mut FairTurns<_>| turns.push(pending.peer.ip(), pending.clone());
        let is_open = self.handshakes.lock().as_mut().map(push).is_some();
        // Else it is refused when it has said all.
        if is_open { self.shake_hands(host) } else { pending.shake_hands(host) }
    }

    /// Handshakes go on until none waits, or others have the time.
    fn shake_hands(&self, host: &impl AcceptorHost) {
        loop {
            let begun = Instant::now();
            let is_alone = || is_alone(host, &self.turns_at_rest);
            let next = |turns: &mut FairTurns<_>| turns.next(begun, is_alone);
            let turn = self.handshakes.lock().as_mut().map_or(Turn::Done, next);
            match turn {
                Turn::Work(pending) => pending.shake_hands(host),
                Turn::Rest(rest) => return host.deadline(rest, self.name, Timer::Handshakes),
                Turn::Done => return,
            }
            if let Some(turns) = &mut *self.handshakes.lock() {
                turns.took(begun.elapsed());
            }
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
    pub(crate) fn add_half_open(&self, host: &impl AcceptorHost, pending: &Arc<PendingConnection>) {
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

    pub(crate) fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Connections whose hello is not whole yet.
    pub(crate) fn half_open(&self) -> usize {
        self.half_open.lock().len()
    }

    pub(crate) fn remove_half_open(&self, pending: &PendingConnection) {
        self.half_open.lock().remove(pending.key());
    }

    /// Closes the oldest half-open connection of the network that has most; false: there is none.
    fn displace(&self, host: &impl AcceptorHost, short: Short) -> bool {
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
    pub(crate) fn offer(
        &self,
        host: &impl AcceptorHost,
        pending: &Arc<PendingConnection>,
    ) -> Option<Arc<PendingConnection>> {
        if self.descriptors.are_short() {
            if let Some(suppressed) = host.stats().peer_log.check(PeerEvent::Resources, None) {
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
        drop(socket);
        let handshakes = self.handshakes.lock().take();
        let unfinished = handshakes.into_iter().flat_map(FairTurns::into_waiting);
        let unfinished = unfinished.inspect(|pending| pending.drop_socket());
        let refused = waiting.inspect(|pending| pending.refuse());
        refused.chain(unfinished).map(|pending| pending.name).collect()
    }
}

#[cfg(all(test, feature = "encryption"))]
mod tests;
