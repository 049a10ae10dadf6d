//! A connection that came in and has no endpoint yet: half-open until its hello is there, with what its peer is to prove, and
//! then a request that waits for the application.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabric_util::log_limiter::PeerEvent;
use fabric_util::log_line;
use fabric_util::refusal::RefuseReason;
use fabric_util::stream::{Greeting, Protected, refuse};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::acceptor::{Acceptor, AcceptorHost, Timer};
use crate::transport::TcpTransport;

/// How long a hello may take, with the proof.
const HELLO: Duration = Duration::from_secs(5);

/// A connection that came in and has no endpoint yet.
pub(crate) struct PendingConnection {
    pub(crate) name: usize,
    acceptor: Arc<Acceptor>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<SocketAddr>,
    /// Its handshake waits for its turn.
    waits: AtomicBool,
    state: Mutex<PendingState>,
}

struct PendingState {
    transport: Option<Protected<TcpTransport>>,
    greeting: Greeting,
}

impl PendingConnection {
    pub(crate) fn open(
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
        let name = host.name();
        let transport = TcpTransport::accepted(socket, host.stats());
        // If it cannot be encrypted it is closed.
        let transport = acceptor.protection().acceptor(transport).ok();
        let greeting = Greeting::new(acceptor.protection().handshake());
        let state = Mutex::new(PendingState { transport, greeting });
        let (acceptor, waits) = (acceptor.clone(), AtomicBool::new(false));
        let pending = Arc::new(PendingConnection { name, acceptor, peer, local, waits, state });
        pending.acceptor.add_half_open(host, &pending);
        if !pending.watch(host) {
            return pending.drop_socket();
        }
        host.deadline(HELLO, name, Timer::Hello);
        // What came before the socket was watched is no edge.
        pending.ready(host);
    }

    /// Has its socket watched; false: it cannot be, or it had to make room itself.
    fn watch(self: &Arc<Self>, host: &impl AcceptorHost) -> bool {
        // Under the lock, with which the socket could be closed, and its number be another's.
        let state = self.state.lock();
        let socket = state.transport.as_ref().map(|transport| transport.inner().as_raw_fd());
        socket.is_some_and(|socket| host.watch(socket, self).is_ok())
    }

    /// The least is the oldest.
    pub(crate) fn key(&self) -> u64 {
        self.name as u64
    }

    /// Something has come: more of its handshake, or the end.
    pub(crate) fn ready(self: &Arc<Self>, host: &impl AcceptorHost) {
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
    pub(crate) fn shake_hands(self: &Arc<Self>, host: &impl AcceptorHost) {
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
                unwelcome.count(host.stats());
                return self.abort(host, format_args!("{}", unwelcome.why));
            }
        }
        self.acceptor.remove_half_open(self);
        transport.inner().keep_alive();
        let refused = self.acceptor.offer(host, self);
        self.look_for_end(host, guard);
        if let Some(refused) = refused {
            host.stats().peers_refused.add(1);
            refused.refuse();
            host.forget(refused.name);
        }
    }

    /// Its peer may have left while it waits for the application; behind that the endpoint finds out.
    fn look_for_end(&self, host: &impl AcceptorHost, mut state: MutexGuard<'_, PendingState>) {
        let is_quiet =
            state.transport.as_ref().is_none_or(|transport| transport.inner().is_quiet());
        if !is_quiet && self.acceptor.backlog.remove(self.key()).is_some() {
            state.transport = None;
            host.forget(self.name);
        }
    }

    /// Closes a half-open connection.
    pub(crate) fn abort(&self, host: &impl AcceptorHost, why: fmt::Arguments<'_>) {
        let mut state = self.state.lock();
        if state.greeting.is_whole() || state.transport.take().is_none() {
            return;
        }
        drop(state);
        self.acceptor.remove_half_open(self);
        host.forget(self.name);
        let (addr, peer, stats) = (self.acceptor.addr, self.peer, host.stats());
        stats.peers_refused.add(1);
        if let Some(suppressed) = stats.peer_log.check(PeerEvent::Admission, Some(peer)) {
            log_line!(Warn, "listener {addr}: {peer} {why}{suppressed}");
        }
    }

    /// The hello's time is over.
    pub(crate) fn expired(&self, host: &impl AcceptorHost) {
        self.abort(host, format_args!("sent no whole hello in {HELLO:?}"));
    }

    /// The application took the request: whether the peer is still there is found by the endpoint that accepts it.
    pub(crate) fn taken(&self, host: &impl AcceptorHost) {
        if let Some(transport) = &self.state.lock().transport {
            host.unwatch(transport.inner().as_raw_fd(), self.name);
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
    pub(crate) fn take(&self) -> Option<(Protected<TcpTransport>, Greeting)> {
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
