//! The connections that come to a listener.
//!
//! A connection is half-open until its hello is there; half-open ones are bounded in number and time. A
//! request then waits for the application, at most as many as the backlog says.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fabric_core::{Event, ListenerId, Result};
use fabric_util::backlog::Backlog;
use fabric_util::log_line;
use fabric_util::stats::Stats;
use fabric_util::stream::wire::handshake::HandshakeKind;
use fabric_util::stream::{Greeting, decline};
use fabric_util::sync::Mutex;

use crate::transport::TcpTransport;

/// How long a hello may take.
const HELLO: Duration = Duration::from_secs(5);
/// Half-open connections of one listener, and of all that this process may open a quarter at most; the next ones wait in
/// the kernel.
const HALF_OPEN: usize = 1024;
/// Connections taken at a time, before others have their turn.
const AT_A_TIME: usize = 64;
/// How long to wait when descriptors have run out.
const RETRY: Duration = Duration::from_millis(50);

/// What an acceptor and its half-open connections need of the engine.
pub(crate) trait AcceptorHost {
    /// A new name for something with a socket.
    fn name(&self) -> usize;

    /// Has the hello of a connection read when there is some of it.
    fn watch(&self, fd: RawFd, pending: &Arc<PendingConnection>) -> Result<()>;

    /// Stops watching a socket that stays open.
    fn unwatch(&self, fd: RawFd, name: usize);

    /// Forgets one that is closed.
    fn forget(&self, name: usize);

    /// Sets a deadline for one.
    fn deadline(&self, after: Duration, name: usize);

    /// Has an event reported.
    fn report(&self, event: Event);

    /// The domain's counters.
    fn stats(&self) -> &Arc<Stats>;
}

/// A listening socket.
pub(crate) struct Acceptor {
    pub(crate) name: usize,
    id: ListenerId,
    pub(crate) addr: SocketAddr,
    pub(crate) backlog: Backlog<std::net::TcpListener, Arc<PendingConnection>>,
    half_open: AtomicUsize,
    max_half_open: usize,
    /// It will look again by itself.
    looks_again: AtomicBool,
}

impl Acceptor {
    pub(crate) fn new(
        name: usize,
        id: ListenerId,
        addr: SocketAddr,
        backlog: Backlog<std::net::TcpListener, Arc<PendingConnection>>,
    ) -> Arc<Self> {
        Arc::new(Acceptor {
            name,
            id,
            addr,
            backlog,
            half_open: AtomicUsize::new(0),
            max_half_open: max_half_open(),
            looks_again: AtomicBool::new(false),
        })
    }

    /// It was to look again now.
    pub(crate) fn expired(self: &Arc<Self>, host: &impl AcceptorHost) {
        self.looks_again.store(false, Ordering::Relaxed);
        self.ready(host);
    }

    /// No edge comes for what waits in the kernel already. Once, however many edges come for others meanwhile.
    fn look_again(&self, host: &impl AcceptorHost, after: Duration) {
        if !self.looks_again.swap(true, Ordering::Relaxed) {
            host.deadline(after, self.name);
        }
    }

    /// Takes the connections that wait in the kernel.
    pub(crate) fn ready(self: &Arc<Self>, host: &impl AcceptorHost) {
        for _ in 0..AT_A_TIME {
            if self.half_open.load(Ordering::Relaxed) >= self.max_half_open {
                return self.look_again(host, RETRY);
            }
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
                    if let Some(suppressed) = host.stats().peer_log.check() {
                        let addr = self.addr;
                        log_line!(Warn, "listener {addr}: {error}; trying again{suppressed}");
                    }
                    return self.look_again(host, RETRY);
                }
            }
        }
        self.look_again(host, Duration::ZERO);
    }

    /// A hello is there: the request waits for the application, or is refused.
    fn offer(&self, host: &impl AcceptorHost, inbound: &Arc<PendingConnection>) {
        match self.backlog.push(inbound.clone()) {
            Ok(()) => host.report(Event::ConnectRequest { listener: self.id }),
            Err(inbound) => inbound.answer(HandshakeKind::Refuse, &[]),
        }
    }

    /// Closes the socket and refuses what waits.
    pub(crate) fn close(&self) {
        let (socket, waiting) = self.backlog.close();
        for inbound in waiting {
            inbound.answer(HandshakeKind::Refuse, &[]);
        }
        drop(socket);
    }
}

/// Strangers leave descriptors for the application's files.
fn max_half_open() -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let quarter = descriptors.map_or(HALF_OPEN, |max| max as usize / 4);
    quarter.clamp(16, HALF_OPEN)
}

/// A connection that came in and has no endpoint yet.
pub(crate) struct PendingConnection {
    pub(crate) name: usize,
    acceptor: Arc<Acceptor>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<SocketAddr>,
    state: Mutex<PendingState>,
}

struct PendingState {
    transport: Option<TcpTransport>,
    greeting: Greeting,
}

impl PendingConnection {
    fn open(
        acceptor: &Arc<Acceptor>,
        host: &impl AcceptorHost,
        stream: std::net::TcpStream,
        peer: SocketAddr,
    ) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let local = stream.local_addr().ok();
        let socket = OwnedFd::from(stream);
        let fd = socket.as_raw_fd();
        let name = host.name();
        let transport = Some(TcpTransport::accepted(socket, host.stats()));
        let state = PendingState { transport, greeting: Greeting::default() };
        let acceptor = acceptor.clone();
        acceptor.half_open.fetch_add(1, Ordering::Relaxed);
        let inbound =
            Arc::new(PendingConnection { name, acceptor, peer, local, state: Mutex::new(state) });
        if host.watch(fd, &inbound).is_err() {
            inbound.drop_socket();
            return;
        }
        host.deadline(HELLO, name);
        // What came before the socket was watched is no edge.
        inbound.ready(host);
    }

    /// Reads the hello.
    pub(crate) fn ready(self: &Arc<Self>, host: &impl AcceptorHost) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(transport) = &mut state.transport else { return };
        if state.greeting.is_whole() {
            // It waits for the application; if the peer leaves, the endpoint that accepts it finds out.
            return;
        }
        match state.greeting.read(transport) {
            Ok(false) => {}
            Ok(true) => {
                host.unwatch(transport.as_raw_fd(), self.name);
                drop(guard);
                self.acceptor.half_open.fetch_sub(1, Ordering::Relaxed);
                self.acceptor.offer(host, self);
            }
            Err(why) => {
                // Before the peer can see that it was cut off.
                host.stats().protocol_errors.add(1);
                state.transport = None;
                drop(guard);
                self.acceptor.half_open.fetch_sub(1, Ordering::Relaxed);
                host.forget(self.name);
                self.log(host, &format!("sent no valid handshake: {why}"));
            }
        }
    }

    fn log(&self, host: &impl AcceptorHost, what: &str) {
        if let Some(suppressed) = host.stats().peer_log.check() {
            let (addr, peer) = (self.acceptor.addr, self.peer);
            log_line!(Warn, "listener {addr}: {peer} {what}{suppressed}");
        }
    }

    /// The hello's time is over.
    pub(crate) fn expired(&self, host: &impl AcceptorHost) {
        let mut state = self.state.lock();
        if !state.greeting.is_whole() && state.transport.take().is_some() {
            drop(state);
            self.acceptor.half_open.fetch_sub(1, Ordering::Relaxed);
            host.forget(self.name);
            self.log(host, &format!("sent no hello in {HELLO:?}"));
        }
    }

    /// Says no, and closes.
    pub(crate) fn answer(&self, kind: HandshakeKind, data: &[u8]) {
        if let Some((mut transport, _)) = self.take() {
            decline(&mut transport, kind, data);
        }
    }

    /// Takes the socket and the hello.
    pub(crate) fn take(&self) -> Option<(TcpTransport, Greeting)> {
        let mut state = self.state.lock();
        if !state.greeting.is_whole() {
            return None;
        }
        state.transport.take().map(|transport| (transport, std::mem::take(&mut state.greeting)))
    }

    pub(crate) fn drop_socket(&self) {
        let mut state = self.state.lock();
        if state.transport.take().is_some() && !state.greeting.is_whole() {
            self.acceptor.half_open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn data(&self) -> Box<[u8]> {
        self.state.lock().greeting.data().into()
    }
}
