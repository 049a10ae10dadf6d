//! Endpoints: making, connecting, closing. Posting is in `post.rs` and `recv.rs`.

mod inner;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_core::attr::check_private_data;
use fabric_core::provider::RequestId;
use fabric_core::{
    Armed, DisconnectReason, EndpointAttr, EndpointId, EndpointState, Error, Event, Path, Result,
    Side, Token,
};
use fabric_util::inflight::inflight;
use fabric_util::sync::{Mutex, MutexGuard};
use fabric_util::wakeup::wait_readable;

use crate::counters::Counters;
use crate::cq::{CompletionQueue, CqInner};
use crate::domain::DomainInner;
use crate::eq::EventQueue;
use crate::inflight::Fate;
use crate::process::ForkChecked;
use crate::registry::{EndpointShared, Settle};
use crate::shared_receives::SharedReceiveQueue;
pub(crate) use inner::{EndpointInner, PostQueue, PostState};

/// One end of a connection: a send queue and a receive queue.
///
/// Made by [`Domain::endpoint`](crate::Domain::endpoint); connected by [`connect`](Endpoint::connect) here, or by
/// [`ConnectRequest::accept`](crate::ConnectRequest::accept).
///
/// - Any number of threads may post; each thread's order is kept.
/// - Operations of a queue complete in posting order, each exactly once.
/// - Dropping it is abortive and does not wait: what has not completed becomes `Canceled`, delivered by
///   later polls, and its regions are free at once. To end in order, [`shutdown`](Endpoint::shutdown) first.
/// - Whether it is dead shows in an event, in completions that are not `Ok`, and in posts that fail with
///   `NotConnected`. It never comes back: make a new one.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
/// # let (peer, timeout) = (&b, doc::TIMEOUT);
/// use std::time::Duration;
///
/// # let listener = peer.domain.listen((peer.domain.info().addresses[0], 0).into())?;
/// # let address = listener.local_addr();
/// # let theirs = peer.domain.endpoint().build(&peer.queue)?;
/// # let inbox = peer.domain.alloc(64, fabric::Access::LOCAL_WRITE)?;
/// # theirs.recv(&inbox, 0)?;
/// let queue = domain.completion_queue(256)?; // room for the default depths, 128 each way
/// let endpoint = domain.endpoint().connect_timeout(Duration::from_secs(2)).build(&queue)?;
///
/// endpoint.connect(address, b"who I am")?; // returns at once
/// # listener.accept(timeout)?.accept(&theirs, b"welcome")?;
/// assert_eq!(&*endpoint.wait_connected(timeout)?, b"welcome");
///
/// endpoint.inject(b"a message", 7)?;
/// assert_eq!(queue.wait_one(timeout)?.context, 7);
/// endpoint.shutdown(Duration::from_secs(5))?; // orderly; a drop would cancel what is in flight
/// # Ok(()) }
/// ```
pub struct Endpoint {
    pub(crate) inner: Arc<EndpointInner>,
}

/// Where an endpoint's receives come from.
#[derive(Clone, Copy)]
pub(crate) enum Receives<'a> {
    /// Its own queue, whose completions go here.
    Own(&'a CompletionQueue),
    Shared(&'a SharedReceiveQueue),
}

impl Endpoint {
    pub(crate) fn new(
        domain: &Arc<DomainInner>,
        attr: EndpointAttr,
        send: &CompletionQueue,
        receives: Receives<'_>,
        events: Option<&EventQueue>,
    ) -> Result<Self> {
        const OP: &str = "make endpoint";
        domain.ops.check(OP)?;
        let hub = domain.events.choose(OP, events)?;
        if hub.device_lost() {
            return Err(Error::DeviceLost);
        }
        attr.check(&domain.info)?;
        let (recv_cq, receives) = match receives {
            Receives::Own(queue) => (&queue.inner, None),
            Receives::Shared(receives) => (&receives.inner.cq, Some(&receives.inner)),
        };
        let send_cq = &send.inner;
        for cq in [send_cq, recv_cq] {
            if !Arc::ptr_eq(&cq.domain, domain) {
                return Err(Error::invalid(OP, "the completion queue is of another domain"));
            }
        }
        let shared = Arc::new(EndpointShared::new(EndpointId(domain.next_id())));
        let (send_ring, send_end) = inflight(attr.send_depth);
        let (recv_ring, recv_end) = inflight(attr.recv_depth);
        domain.endpoints.add(&shared)?;
        // From here on `undo` unrolls what was done.
        let undo = |tokens: &[(&Arc<CqInner>, Token)]| {
            if let Some(receives) = receives {
                receives.cq.remove_endpoint_of_receives(receives.token, shared.id, Fate::Free);
            }
            for (cq, token) in tokens {
                cq.unbind(*token, Fate::Free);
            }
            domain.events.forget_endpoint(shared.id);
            hub.remove(shared.id);
            domain.endpoints.remove(&shared);
        };
        domain.events.route_endpoint(shared.id, &hub);
        hub.add(&shared);
        let sends = Some((send_end, attr.send_depth));
        let recvs = Some((recv_end, attr.recv_depth));
        if let Some(receives) = receives {
            receives.cq.add_endpoint_of_receives(receives.token, &shared);
        }
        let (send_token, recv_token) = if receives.is_some() {
            let token = send_cq.bind(&shared, sends, None).inspect_err(|_| undo(&[]))?;
            (token, token)
        } else if Arc::ptr_eq(send_cq, recv_cq) {
            let token = send_cq.bind(&shared, sends, recvs).inspect_err(|_| undo(&[]))?;
            (token, token)
        } else {
            let send = send_cq.bind(&shared, sends, None).inspect_err(|_| undo(&[]))?;
            let recv =
                recv_cq.bind(&shared, None, recvs).inspect_err(|_| undo(&[(send_cq, send)]))?;
            (send, recv)
        };
        let (id, send_ops) = (shared.id, send_cq.ops());
        let ops = match receives {
            None => domain.ops.endpoint(id, &attr, send_ops, recv_cq.ops()),
            Some(receives) => domain.ops.endpoint_sharing(id, &attr, send_ops, &**receives.ops),
        };
        // The queue of shared receives is another one's, where the token may be that of an endpoint that lives.
        let has_one = receives.is_some() || Arc::ptr_eq(send_cq, recv_cq);
        let bound = [(send_cq, send_token), (recv_cq, recv_token)];
        let ops = ops.inspect_err(|_| undo(if has_one { &bound[..1] } else { &bound }))?;
        let side = |ring, token: Token, side| {
            let token = Token::new(token.slot(), token.generation(), side, 0);
            let queue = PostQueue { ring, token, unsignaled_run: 0, closed: false };
            PostState { queue, segments: Vec::new() }
        };
        let inner = Arc::new(EndpointInner {
            ops: ForkChecked::new(ops.into()),
            shared: shared.clone(),
            send: Mutex::new(side(send_ring, send_token, Side::Send)),
            recv: Mutex::new(side(recv_ring, recv_token, Side::Recv)),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            late_grants: Mutex::default(),
            max_unsignaled_run: (attr.send_depth / 4).clamp(1, 64) as u32,
            attr,
            domain: domain.clone(),
            hub,
            receives: receives.cloned(),
        });
        domain.endpoints.made(shared.id, Arc::<EndpointInner>::downgrade(&inner));
        Ok(Endpoint { inner })
    }

    /// By which completions and events name it.
    pub fn id(&self) -> EndpointId {
        self.inner.shared.id
    }

    /// Its state.
    pub fn state(&self) -> EndpointState {
        self.inner.shared.state.get()
    }

    /// The settings it was made with.
    pub fn attr(&self) -> &EndpointAttr {
        &self.inner.attr
    }

    /// The address of this end, once it is connecting.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.ops.check("local_addr").ok()?;
        self.inner.ops.local_addr()
    }

    /// The address of the other end, once it is connecting.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.ops.check("peer_addr").ok()?;
        self.inner.ops.peer_addr()
    }

    /// The name that the other end has proved by its certificate ([`Hints::identity`](crate::Hints::identity)): its first URI, or
    /// else its first DNS name. Once it is connected, or accepted; `None` where there are no certificates, or no name is in it.
    pub fn peer_identity(&self) -> Option<Arc<str>> {
        self.inner.ops.check("peer_identity").ok()?;
        self.inner.ops.peer_identity()
    }

    /// Which way its connection goes, and why no other, once it is connecting; constant from then on.
    pub fn path(&self) -> Option<Path> {
        self.inner.ops.check("path").ok()?;
        if self.state() == EndpointState::Idle {
            return None;
        }
        self.inner.ops.path().or_else(|| Some(Path::new(&self.inner.domain.info)))
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.inner.shared.counters.snapshot()
    }

    /// Its state, in a few lines for a bug report.
    pub fn dump(&self) -> String {
        let state = self.state();
        let provider = if self.inner.ops.is_current_process() {
            self.inner.ops.dump()
        } else {
            "in a fork".to_owned()
        };
        format!("{} {state:?}: {}\n{provider}", self.id(), self.counters())
    }

    /// Starts to connect, with up to 48 bytes of private data for the peer's application. Returns at once;
    /// [`wait_connected`](Endpoint::wait_connected) or an event reports the outcome, exactly once, within the
    /// connect time-out.
    ///
    /// # Errors
    /// `InvalidArgument` for too much data, and for an address that is no peer's (unspecified, broadcast, multicast);
    /// `InvalidState` if it was connected before, `Unreachable` if that is known at once, `AddrInUse` for a
    /// [`source_port`](crate::EndpointBuilder::source_port) that is.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// # let closed = peer.domain.listen((peer.domain.info().addresses[0], 0).into())?.local_addr();
    /// let endpoint = domain.endpoint().build(queue)?;
    /// endpoint.connect(closed, b"")?;
    /// match endpoint.wait_connected(timeout) {
    ///     Err(fabric::Error::Refused(_)) => {} // no listener; an endpoint is used once: make a new one to try again
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        self.inner.ops.check("connect")?;
        fabric_util::route::check_peer(to)?;
        self.begin("connect", data, to)?;
        self.inner.ops.connect(to, data).map_err(|error| {
            self.inner.shared.state.replace(EndpointState::Connecting, EndpointState::Idle);
            error.at(to)
        })
    }

    pub(crate) fn accept(
        &self,
        of: &Arc<DomainInner>,
        request: RequestId,
        peer: SocketAddr,
        data: &[u8],
    ) -> Result<()> {
        if !Arc::ptr_eq(of, &self.inner.domain) {
            return Err(Error::invalid("accept", "endpoint and listener are of different domains"));
        }
        self.begin("accept", data, peer)?;
        self.inner.ops.accept(request, data).inspect_err(|_| {
            self.inner.shared.state.replace(EndpointState::Connecting, EndpointState::Idle);
        })
    }

    fn begin(&self, operation: &'static str, data: &[u8], peer: SocketAddr) -> Result<()> {
        self.inner.ops.check(operation)?;
        check_private_data(operation, data)?;
        if self.inner.shared.state.replace(EndpointState::Idle, EndpointState::Connecting) {
            self.inner.hub.set_peer(self.id(), peer);
            return Ok(());
        }
        if self.inner.hub.device_lost() {
            return Err(Error::DeviceLost);
        }
        let state = self.state();
        Err(Error::state(operation, format!("the endpoint is {state:?}; it connects once")))
    }

    /// Waits until the connection is established; gives the private data of the peer's `accept`.
    ///
    /// It takes this endpoint's `Connected` or `ConnectFailed` event, which then does not appear in the
    /// domain's event queue.
    ///
    /// # Errors
    /// How the attempt ended: `Rejected(data)`, `Refused`, `Unreachable`, `TimedOut` (by the endpoint's own
    /// connect time-out, or because `timeout` has passed: then the attempt goes on), `NotConnected` (the
    /// connecting peer was gone), `Unauthenticated` (the ends do not have the same level of security, the same secret, or
    /// identities that each trusts), `Canceled` by [`disconnect`](Endpoint::disconnect), `DeviceLost`. `InvalidState` if the outcome
    /// was taken before, if no connect is under way, or in a forked child.
    pub fn wait_connected(&self, timeout: Option<Duration>) -> Result<Box<[u8]>> {
        const OP: &str = "wait_connected";
        self.inner.ops.check(OP)?;
        let hub = &self.inner.hub;
        let look = || {
            // The state first: an outcome that is reported in between is found by the second look.
            let state = self.state();
            match hub.take_outcome(self.id()) {
                Some(Event::Connected { data, .. }) => return Some(Ok(data)),
                Some(Event::ConnectFailed { error, .. }) => return Some(Err(error)),
                _ => {}
            }
            match state {
                EndpointState::Connecting => None,
                EndpointState::Idle => Some(Err(Error::state(
                    OP,
                    "the endpoint was never connected: call connect or accept first",
                ))),
                EndpointState::Connected => {
                    Some(Err(Error::state(OP, "the outcome was taken before")))
                }
                _ => Some(Err(self.inner.not_connected())),
            }
        };
        hub.wait_for(self.id(), timeout, look).unwrap_or_else(|| Err(hub.timed_out(self.id())))
    }

    /// Waits until the connection has ended; says why. It takes this endpoint's `Disconnected` event.
    ///
    /// # Errors
    /// `TimedOut`; `InvalidState` in a forked child.
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> Result<DisconnectReason> {
        self.inner.ops.check("wait_disconnected")?;
        let hub = &self.inner.hub;
        hub.wait_for(self.id(), timeout, || hub.take_disconnected(self.id()))
            .ok_or_else(|| hub.timed_out(self.id()))
    }

    /// Ends the connection now, without waiting: what has not completed becomes `Canceled`, and one
    /// `Disconnected(Local)` event comes. Harmless when repeated.
    pub fn disconnect(&self) {
        if self.inner.ops.is_current_process() {
            self.inner.ops.disconnect();
        }
    }

    /// Waits until everything in the send queue has finished, then disconnects. Completions stay to be
    /// taken; receives that are left become `Canceled`.
    ///
    /// # Errors
    /// `TimedOut` if the operations did not finish in time: then it is still connected, and can be dropped.
    /// `NotConnected` if it is dead, `DeviceLost` if the device is gone.
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.inner.ops.check("shutdown")?;
        let drained = self.drain(Instant::now().checked_add(timeout));
        // This armed and cleared the descriptor: threads that sleep on it look again.
        self.inner.send_cq.ops().wake();
        drained.map(|()| self.disconnect())
    }

    /// Waits until nothing of the send queue is in flight.
    fn drain(&self, deadline: Option<Instant>) -> Result<()> {
        let cq = &self.inner.send_cq;
        loop {
            if self.state() != EndpointState::Connected {
                return Err(self.inner.not_connected());
            }
            if self.inner.settle() {
                return Ok(());
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return Err(self.inner.hub.timed_out(self.id()));
            }
            // Other threads may take what would wake this one, so it also looks from time to time.
            let tick = Instant::now() + Duration::from_millis(5);
            let until = deadline.map_or(tick, |at| at.min(tick));
            if cq.arm(false)? == Armed::Waiting {
                let provider = self.inner.domain.info.provider;
                wait_readable(cq.ops().fd(), Some(until))
                    .map_err(|cause| Error::system("shutdown", provider, cause))?;
            }
        }
    }

    #[inline]
    pub(crate) fn lock_recv(&self) -> MutexGuard<'_, PostState> {
        self.inner.recv.lock()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.inner.ops.is_current_process() {
            self.inner.close();
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({}, {:?})", self.id(), self.state())
    }
}
