//! Endpoints: making, connecting, closing. Posting is in `post.rs` and `recv.rs`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric_core::attr::check_private_data;
use fabric_core::provider::RequestId;
use fabric_core::{
    Armed, DisconnectReason, EndpointAttr, EndpointId, EndpointState, Error, Event, OpKind,
    RemoteAddr, Result, Segment, SendFlags, SendOp, SendWork, Side, Token,
};
use fabric_util::inflight::{Producer, inflight};
use fabric_util::sync::{Mutex, MutexGuard};
use fabric_util::wakeup::wait_readable;
use fabric_util::{callback, log_line};

use crate::counters::Counters;
use crate::cq::{CompletionQueue, CqInner};
use crate::dispatch::{AnyEndpoint, CqDispatch, EndpointDispatch};
use crate::domain::DomainInner;
use crate::inflight::{Fate, InFlightOp, RegionRefs, ReportMode};
use crate::process::ForkChecked;
use crate::registry::{EndpointShared, Settle};
use crate::unopened::Unopened;

/// The posting end of a queue, under its lock.
pub(crate) struct PostState {
    pub(crate) queue: PostQueue,
    /// What is handed to the provider; kept for its room, so that posting allocates nothing.
    pub(crate) segments: Vec<Segment>,
}

/// What a queue knows of its posts.
pub(crate) struct PostQueue {
    pub(crate) ring: Producer<InFlightOp>,
    /// The queue's tokens, all but the sequence number.
    pub(crate) token: Token,
    /// Unsignaled posts since the last one that was signaled inside.
    pub(crate) unsignaled_run: u32,
    /// The handle is dropped: the library posts nothing of its own any more.
    pub(crate) closed: bool,
}

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

/// What an endpoint is made of. Reclaiming regions (`reclaim.rs`) borrows it now and then, never beyond the handle's drop
/// for long.
pub(crate) struct EndpointInner {
    pub(crate) ops: ForkChecked<AnyEndpoint>,
    pub(crate) shared: Arc<EndpointShared>,
    send: Mutex<PostState>,
    recv: Mutex<PostState>,
    pub(crate) send_cq: Arc<CqInner>,
    pub(crate) recv_cq: Arc<CqInner>,
    /// Grants that were given up before they were open, until they can be revoked.
    late_grants: Mutex<Vec<Unopened>>,
    pub(crate) attr: EndpointAttr,
    pub(crate) domain: Arc<DomainInner>,
}

impl Endpoint {
    pub(crate) fn new(
        domain: &Arc<DomainInner>,
        attr: EndpointAttr,
        send: &CompletionQueue,
        recv: &CompletionQueue,
    ) -> Result<Self> {
        const OP: &str = "make endpoint";
        domain.ops.check(OP)?;
        if domain.hub.device_lost() {
            return Err(Error::DeviceLost);
        }
        attr.check(&domain.info)?;
        for queue in [send, recv] {
            if !Arc::ptr_eq(&queue.inner.domain, domain) {
                return Err(Error::invalid(OP, "the completion queue is of another domain"));
            }
        }
        let shared = Arc::new(EndpointShared::new(EndpointId(domain.next_id())));
        let (send_ring, send_end) = inflight(attr.send_depth);
        let (recv_ring, recv_end) = inflight(attr.recv_depth);
        let (send_cq, recv_cq) = (&send.inner, &recv.inner);
        domain.endpoints.add(&shared)?;
        // From here on `undo` unrolls what was done.
        let undo = |tokens: &[(&Arc<CqInner>, Token)]| {
            for (cq, token) in tokens {
                cq.unbind(*token, Fate::Free);
            }
            domain.hub.remove(shared.id);
            domain.endpoints.remove(&shared);
        };
        domain.hub.add(&shared);
        let sends = Some((send_end, attr.send_depth));
        let recvs = Some((recv_end, attr.recv_depth));
        let (send_token, recv_token) = if Arc::ptr_eq(send_cq, recv_cq) {
            let token = send_cq.bind(&shared, sends, recvs).inspect_err(|_| undo(&[]))?;
            (token, token)
        } else {
            let send = send_cq.bind(&shared, sends, None).inspect_err(|_| undo(&[]))?;
            let recv =
                recv_cq.bind(&shared, None, recvs).inspect_err(|_| undo(&[(send_cq, send)]))?;
            (send, recv)
        };
        let ops = domain
            .ops
            .endpoint(shared.id, &attr, send_cq.ops().ops(), recv_cq.ops().ops())
            .inspect_err(|_| undo(&[(send_cq, send_token), (recv_cq, recv_token)]))?;
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
            attr,
            domain: domain.clone(),
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
    /// `InvalidState` if it was connected before, `Unreachable` if that is known at once.
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
            self.inner.domain.hub.set_peer(self.id(), peer);
            return Ok(());
        }
        if self.inner.domain.hub.device_lost() {
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
    /// connecting peer was gone). `InvalidState` if the outcome was taken before or no connect is under way.
    pub fn wait_connected(&self, timeout: Option<Duration>) -> Result<Box<[u8]>> {
        const OP: &str = "wait_connected";
        self.inner.ops.check(OP)?;
        let hub = &self.inner.domain.hub;
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
        let hub = &self.inner.domain.hub;
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
                return Err(self.inner.domain.hub.timed_out(self.id()));
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

impl EndpointInner {
    #[inline]
    pub(crate) fn lock_send(&self) -> MutexGuard<'_, PostState> {
        self.send.lock()
    }

    /// What a call gets that only a living endpoint can serve.
    #[cold]
    pub(crate) fn not_connected(&self) -> Error {
        if self.domain.hub.device_lost() { Error::DeviceLost } else { Error::NotConnected }
    }

    pub(crate) fn check_connected(&self) -> Result<()> {
        match self.shared.state.get() {
            EndpointState::Connected => Ok(()),
            _ => Err(self.not_connected()),
        }
    }

    /// Keeps a grant that is not open in time, and with it its region, until it can be revoked.
    pub(crate) fn keep_until_open(&self, grant: Unopened) {
        self.late_grants.lock().push(grant);
        // After a drop of the region a thread has to look as well.
        self.domain.reclaim.needed.store(true, Ordering::Relaxed);
    }

    /// True if none is left.
    fn revoke_late_grants(&self) -> bool {
        let mut late = self.late_grants.lock();
        late.retain_mut(|grant| !grant.is_revoked());
        late.is_empty()
    }

    /// Makes sure that the end of the unsignaled operations posted so far becomes known: unless the last post was
    /// signaled, posts a signaled empty write whose completion is hidden. False if there is no room yet.
    fn flush(&self, queue: &mut PostQueue) -> bool {
        let PostQueue { ring, token, unsignaled_run, closed } = queue;
        // A dead endpoint reports its last operation by itself.
        if *unsignaled_run == 0 || *closed || self.shared.state.get() != EndpointState::Connected {
            return true;
        }
        let token = token.with_sequence(ring.next());
        let Some(vacancy) = ring.reserve() else { return false };
        let (kind, report, regions) = (OpKind::Write, ReportMode::Internal, RegionRefs::default());
        vacancy.insert(InFlightOp { context: 0, len: 0, kind, report, regions });
        let op = SendOp::Write { to: RemoteAddr::default(), imm: None };
        let work = [SendWork::new(token, op, &[], SendFlags::SIGNALED)];
        // SAFETY: there are no segments.
        let taken = unsafe { self.ops.post_send(&work) }.accepted > 0;
        if taken {
            *unsignaled_run = 0;
        } else {
            // SAFETY: the provider never completes what it refused.
            unsafe { ring.unpush(1) };
        }
        taken
    }

    /// Ends all that is in flight. Its regions go only if the provider has proven that nothing touches them any more.
    fn close(&self) {
        let (send, recv) = {
            let queue = &mut self.send.lock().queue;
            // From here on the provider is asked for nothing but the end.
            queue.closed = true;
            (queue.token, self.recv.lock().queue.token)
        };
        let quiesced = callback::caught(|| self.ops.quiesce());
        let fate = if matches!(quiesced, Some(Ok(()))) { Fate::Free } else { Fate::Leak };
        // What cannot be revoked now stays, and says so.
        self.late_grants.lock().clear();
        let mut leaked = self.send_cq.unbind(send, fate);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            leaked += self.recv_cq.unbind(recv, fate);
        }
        self.domain.hub.remove(self.shared.id);
        self.domain.endpoints.remove(&self.shared);
        if fate == Fate::Leak {
            let why = match quiesced {
                Some(Err(error)) => error.to_string(),
                _ => "the provider panicked".to_owned(),
            };
            self.domain.count_leaked(leaked);
            let id = self.shared.id;
            log_line!(
                Error,
                "{id}: {why}; {leaked} regions in flight stay registered until the process ends"
            );
        }
    }
}

impl Settle for EndpointInner {
    fn settle(&self) -> bool {
        let (flushed, token) = {
            let mut side = self.send.lock();
            (self.flush(&mut side.queue), side.queue.token)
        };
        self.send_cq.reap();
        let granted = self.revoke_late_grants();
        flushed && granted && self.send_cq.outstanding(token, Side::Send) == 0
    }

    fn hand_over(&self) {
        // Arming clears the descriptor, so sleepers on it look again.
        let _ = self.send_cq.arm(false);
        self.send_cq.ops().wake();
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
