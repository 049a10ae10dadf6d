//! Listeners, and the requests that come to them.
//!
//! A connection is half-open until its hello is there; half-open ones are bounded in number and time. A
//! request then waits for the application, at most as many as the backlog says.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, Event, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::backlog::Backlog;
use fabric_util::log_line;
use mio::Interest;
use mio::unix::SourceFd;

use crate::engine::{Engine, EngineRef, EventSource, Timer};
use crate::name::NAME;
use crate::transport::TcpTransport;
use crate::{device, socket};
use fabric_util::stream::wire::handshake::HandshakeKind;
use fabric_util::stream::{Greeting, decline};
use fabric_util::sync::Mutex;

/// How long a hello may take.
const HELLO: Duration = Duration::from_secs(5);
/// Half-open connections of one listener, and of all that this process may open a quarter at most; the next ones wait in
/// the kernel.
const HALF_OPEN: usize = 1024;
/// Connections taken at a time, before others have their turn.
const AT_A_TIME: usize = 64;
/// How long to wait when descriptors have run out.
const RETRY: Duration = Duration::from_millis(50);

/// A listening socket.
pub(crate) struct Acceptor {
    name: usize,
    id: ListenerId,
    addr: SocketAddr,
    backlog: Backlog<std::net::TcpListener, Arc<PendingConnection>>,
    half_open: AtomicUsize,
    max_half_open: usize,
    /// It will look again by itself.
    looks_again: AtomicBool,
}

impl Acceptor {
    /// It was to look again now.
    pub(crate) fn expired(self: &Arc<Self>, engine: &Engine) {
        self.looks_again.store(false, Ordering::Relaxed);
        self.ready(engine);
    }

    /// No edge comes for what waits in the kernel already. Once, however many edges come for others meanwhile.
    fn look_again(&self, engine: &Engine, after: Duration) {
        if !self.looks_again.swap(true, Ordering::Relaxed) {
            engine.deadline(after, self.name, Timer::Accept);
        }
    }

    /// Takes the connections that wait in the kernel.
    pub(crate) fn ready(self: &Arc<Self>, engine: &Engine) {
        for _ in 0..AT_A_TIME {
            if self.half_open.load(Ordering::Relaxed) >= self.max_half_open {
                return self.look_again(engine, RETRY);
            }
            let Some(accepted) = self.backlog.with(std::net::TcpListener::accept) else { return };
            match accepted {
                Ok((stream, peer)) => PendingConnection::open(self, engine, stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    // Out of descriptors or memory.
                    if let Some(suppressed) = engine.stats().peer_log.check() {
                        let addr = self.addr;
                        log_line!(Warn, "listener {addr}: {error}; trying again{suppressed}");
                    }
                    return self.look_again(engine, RETRY);
                }
            }
        }
        self.look_again(engine, Duration::ZERO);
    }

    /// A hello is there: the request waits for the application, or is refused.
    fn offer(&self, engine: &Engine, inbound: &Arc<PendingConnection>) {
        match self.backlog.push(inbound.clone()) {
            Ok(()) => engine.add_report(Event::ConnectRequest { listener: self.id }, None),
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
    name: usize,
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
        engine: &Engine,
        stream: std::net::TcpStream,
        peer: SocketAddr,
    ) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let local = stream.local_addr().ok();
        let socket = OwnedFd::from(stream);
        let fd = socket.as_raw_fd();
        let name = engine.name();
        let transport = Some(TcpTransport::accepted(socket, engine.stats()));
        let state = PendingState { transport, greeting: Greeting::default() };
        let acceptor = acceptor.clone();
        acceptor.half_open.fetch_add(1, Ordering::Relaxed);
        let inbound =
            Arc::new(PendingConnection { name, acceptor, peer, local, state: Mutex::new(state) });
        let member = EventSource::Pending(inbound.clone());
        if engine.watch(&mut SourceFd(&fd), name, member, Interest::READABLE).is_err() {
            inbound.drop_socket();
            return;
        }
        engine.deadline(HELLO, name, Timer::Hello);
        // What came before the socket was watched is no edge.
        inbound.ready(engine);
    }

    /// Reads the hello.
    pub(crate) fn ready(self: &Arc<Self>, engine: &Engine) {
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
                engine.unwatch(&mut SourceFd(&transport.as_raw_fd()), self.name);
                drop(guard);
                self.acceptor.half_open.fetch_sub(1, Ordering::Relaxed);
                self.acceptor.offer(engine, self);
            }
            Err(why) => {
                // Before the peer can see that it was cut off.
                engine.stats().protocol_errors.add(1);
                state.transport = None;
                drop(guard);
                self.acceptor.half_open.fetch_sub(1, Ordering::Relaxed);
                engine.forget(self.name);
                self.log(engine, &format!("sent no valid handshake: {why}"));
            }
        }
    }

    fn log(&self, engine: &Engine, what: &str) {
        if let Some(suppressed) = engine.stats().peer_log.check() {
            let (addr, peer) = (self.acceptor.addr, self.peer);
            log_line!(Warn, "listener {addr}: {peer} {what}{suppressed}");
        }
    }

    /// The hello's time is over.
    pub(crate) fn expired(&self, engine: &Engine) {
        let mut state = self.state.lock();
        if !state.greeting.is_whole() && state.transport.take().is_some() {
            drop(state);
            self.acceptor.half_open.fetch_sub(1, Ordering::Relaxed);
            engine.forget(self.name);
            self.log(engine, &format!("sent no hello in {HELLO:?}"));
        }
    }

    /// Says no, and closes.
    fn answer(&self, kind: HandshakeKind, data: &[u8]) {
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

    fn data(&self) -> Box<[u8]> {
        self.state.lock().greeting.data().into()
    }
}

/// A listener.
pub struct TcpListener {
    acceptor: Arc<Acceptor>,
    engine: EngineRef,
}

impl TcpListener {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        let fail = |cause| Error::system("listen", NAME, cause);
        let socket = socket::listen(device::listen_addr(&engine.info, addr)?).map_err(fail)?;
        let addr = socket.local_addr().map_err(fail)?;
        let fd = socket.as_raw_fd();
        let name = engine.name();
        let backlog = Backlog::new(attr.backlog);
        backlog.open(|| socket);
        let acceptor = Arc::new(Acceptor {
            name,
            id,
            addr,
            backlog,
            half_open: AtomicUsize::new(0),
            max_half_open: max_half_open(),
            looks_again: AtomicBool::new(false),
        });
        engine.watch(
            &mut SourceFd(&fd),
            name,
            EventSource::Acceptor(acceptor.clone()),
            Interest::READABLE,
        )?;
        Ok(TcpListener { acceptor, engine: Arc::downgrade(engine) })
    }
}

impl ListenerOps for TcpListener {
    fn local_addr(&self) -> SocketAddr {
        self.acceptor.addr
    }

    fn next_request(&self) -> Option<RawRequest> {
        let engine = self.engine.upgrade()?;
        let inbound = self.acceptor.backlog.pop()?;
        let id = engine.requests.insert(inbound.clone());
        Some(RawRequest::new(id, inbound.peer, inbound.data()))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.acceptor.close();
        if let Some(engine) = self.engine.upgrade() {
            engine.forget(self.acceptor.name);
        }
    }
}

/// Rejects a request that the application took.
pub(crate) fn reject(engine: &Engine, request: RequestId, data: &[u8]) -> Result<()> {
    engine.requests.take("reject", request)?.answer(HandshakeKind::Reject, data);
    Ok(())
}
