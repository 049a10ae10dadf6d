//! Endpoints: making, connecting, closing. Posting is in `post.rs`.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabric_core::attr::check_private_data;
use fabric_core::inflight::{Producer, inflight};
use fabric_core::provider::RequestId;
use fabric_core::state::StateCell;
use fabric_core::wakeup::wait_readable;
use fabric_core::{
    Armed, CqOps, DisconnectReason, EndpointAttr, EndpointId, EndpointOps, EndpointState, Error,
    Event, Result, Segment, Side, Token,
};

use crate::any::AnyEndpoint;
use crate::counters::{Counters, EndpointCounters};
use crate::cq::{CompletionQueue, CqInner};
use crate::domain::{Domain, DomainInner};
use crate::process::ParentOnly;
use crate::slot::Slot;

/// What the event hub and the completion queues know of an endpoint.
pub(crate) struct Shared {
    pub(crate) id: EndpointId,
    pub(crate) state: StateCell,
    /// Whether its one `Disconnected` was reported.
    pub(crate) ended: AtomicBool,
    pub(crate) counters: EndpointCounters,
}

/// The posting end of a queue, under its lock.
pub(crate) struct PostSide {
    pub(crate) lane: Lane,
    /// What is handed to the provider; kept for its room, so that posting allocates nothing.
    pub(crate) segments: Vec<Segment>,
}

/// What a queue knows of its posts.
pub(crate) struct Lane {
    pub(crate) ring: Producer<Slot>,
    /// The queue's tokens, all but the sequence number.
    pub(crate) token: Token,
    /// Unsignaled posts since the last one that was signaled inside.
    pub(crate) quiet: u32,
}

/// One end of a connection: a send queue and a receive queue.
///
/// Made by [`Domain::endpoint`]; connected by [`connect`](Endpoint::connect) here, or by
/// [`ConnectRequest::accept`](crate::ConnectRequest::accept).
///
/// - Any number of threads may post; each thread's order is kept.
/// - Operations of a queue complete in posting order, each exactly once.
/// - Dropping it is abortive and waits for nobody: what has not completed becomes `Canceled`, delivered by
///   later polls, and its regions are free at once. To end in order, [`shutdown`](Endpoint::shutdown) first.
/// - Whether it is dead shows in an event, in completions that are not `Ok`, and in posts that fail with
///   `NotConnected`. It never comes back: make a new one.
pub struct Endpoint {
    pub(crate) ops: ParentOnly<AnyEndpoint>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) send: Mutex<PostSide>,
    pub(crate) recv: Mutex<PostSide>,
    pub(crate) send_cq: Arc<CqInner>,
    pub(crate) recv_cq: Arc<CqInner>,
    pub(crate) attr: EndpointAttr,
    pub(crate) domain: Arc<DomainInner>,
}

impl Endpoint {
    pub(crate) fn new(
        domain: &Domain,
        attr: EndpointAttr,
        send: &CompletionQueue,
        recv: &CompletionQueue,
    ) -> Result<Self> {
        const OP: &str = "make endpoint";
        let domain = &domain.inner;
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
        let shared = Arc::new(Shared {
            id: EndpointId(domain.next_id()),
            state: StateCell::new(),
            ended: AtomicBool::new(false),
            counters: EndpointCounters::default(),
        });
        let (send_ring, send_end) = inflight(attr.send_depth);
        let (recv_ring, recv_end) = inflight(attr.recv_depth);
        let (send_cq, recv_cq) = (&send.inner, &recv.inner);
        domain.enroll(&shared)?;
        // From here on `undo` unrolls what was done.
        let undo = |tokens: &[(&Arc<CqInner>, Token)]| {
            tokens.iter().for_each(|(cq, token)| cq.unbind(*token));
            domain.hub.remove(shared.id);
            domain.strike(&shared);
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
            .endpoint(shared.id, &attr, send_cq.ops(), recv_cq.ops())
            .inspect_err(|_| undo(&[(send_cq, send_token), (recv_cq, recv_token)]))?;
        let side = |ring, token: Token, side| {
            let token = Token::new(token.member(), token.generation(), side, 0);
            Mutex::new(PostSide { lane: Lane { ring, token, quiet: 0 }, segments: Vec::new() })
        };
        Ok(Endpoint {
            ops: ParentOnly::new(ops),
            shared: shared.clone(),
            send: side(send_ring, send_token, Side::Send),
            recv: side(recv_ring, recv_token, Side::Recv),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            attr,
            domain: domain.clone(),
        })
    }

    /// By which completions and events name it.
    pub fn id(&self) -> EndpointId {
        self.shared.id
    }

    /// Where it stands.
    pub fn state(&self) -> EndpointState {
        self.shared.state.get()
    }

    /// The settings it was made with.
    pub fn attr(&self) -> &EndpointAttr {
        &self.attr
    }

    /// The address of this end, once it is connecting.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.ops.check("local_addr").ok()?;
        self.ops.local_addr()
    }

    /// The address of the other end, once it is connecting.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.ops.check("peer_addr").ok()?;
        self.ops.peer_addr()
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.shared.counters.snapshot()
    }

    /// Where it stands, in a few lines for a bug report.
    pub fn dump(&self) -> String {
        let state = self.state();
        let provider = if self.ops.is_here() { self.ops.dump() } else { "in a fork".to_owned() };
        format!("{} {state:?}: {}\n{provider}", self.id(), self.counters())
    }

    /// Starts to connect, with up to 48 bytes of private data for the peer's application. Returns at once;
    /// [`wait_connected`](Endpoint::wait_connected) or an event tells the outcome, exactly once, within the
    /// connect time-out.
    ///
    /// # Errors
    /// `InvalidArgument` for too much data, `InvalidState` if it was connected before, `Unreachable` if
    /// that is known at once.
    pub fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        self.begin("connect", data)?;
        self.ops.connect(to, data).inspect_err(|_| {
            self.shared.state.replace(EndpointState::Connecting, EndpointState::Idle);
        })
    }

    pub(crate) fn accept(
        &self,
        of: &Arc<DomainInner>,
        request: RequestId,
        data: &[u8],
    ) -> Result<()> {
        if !Arc::ptr_eq(of, &self.domain) {
            return Err(Error::invalid("accept", "endpoint and listener are of different domains"));
        }
        self.begin("accept", data)?;
        self.ops.accept(request, data).inspect_err(|_| {
            self.shared.state.replace(EndpointState::Connecting, EndpointState::Idle);
        })
    }

    fn begin(&self, operation: &'static str, data: &[u8]) -> Result<()> {
        self.ops.check(operation)?;
        check_private_data(operation, data)?;
        if self.shared.state.replace(EndpointState::Idle, EndpointState::Connecting) {
            return Ok(());
        }
        if self.domain.hub.device_lost() {
            return Err(Error::DeviceLost);
        }
        let state = self.state();
        Err(Error::state(operation, format!("the endpoint is {state:?}; it connects once")))
    }

    /// What a call gets that only a living endpoint can serve.
    #[cold]
    pub(crate) fn not_connected(&self) -> Error {
        if self.domain.hub.device_lost() { Error::DeviceLost } else { Error::NotConnected }
    }

    /// Waits until the connection stands; gives the private data of the peer's `accept`.
    ///
    /// It takes this endpoint's `Connected` or `ConnectFailed` event, which then does not appear in the
    /// domain's event queue.
    ///
    /// # Errors
    /// How the attempt ended: `Rejected(data)`, `Refused`, `Unreachable`, `TimedOut` (by the endpoint's own
    /// connect time-out, or because `timeout` has passed: then the attempt goes on), `NotConnected` (the
    /// connecting peer was gone). `InvalidState` if the outcome was taken before or nobody connects.
    pub fn wait_connected(&self, timeout: Option<Duration>) -> Result<Box<[u8]>> {
        const OP: &str = "wait_connected";
        self.ops.check(OP)?;
        let hub = &self.domain.hub;
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
                EndpointState::Idle => {
                    Some(Err(Error::state(OP, "nobody called connect or accept")))
                }
                EndpointState::Connected => {
                    Some(Err(Error::state(OP, "the outcome was taken before")))
                }
                _ => Some(Err(self.not_connected())),
            }
        };
        hub.wait_for(timeout, look).unwrap_or(Err(Error::TimedOut))
    }

    /// Waits until the connection has ended; says why. It takes this endpoint's `Disconnected` event.
    ///
    /// # Errors
    /// `TimedOut`; `InvalidState` in a forked child.
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> Result<DisconnectReason> {
        self.ops.check("wait_disconnected")?;
        let hub = &self.domain.hub;
        hub.wait_for(timeout, || hub.take_disconnected(self.id())).ok_or(Error::TimedOut)
    }

    /// Ends the connection now, without waiting: what has not completed becomes `Canceled`, and one
    /// `Disconnected(Local)` event comes. Harmless when repeated.
    pub fn disconnect(&self) {
        if self.ops.is_here() {
            self.ops.disconnect();
        }
    }

    /// Waits until everything in the send queue has finished, then disconnects. Completions stay to be
    /// taken; receives that are left become `Canceled`.
    ///
    /// # Errors
    /// `TimedOut` if the operations did not finish in time: then it is still connected, and can be dropped.
    /// `NotConnected` if it is dead, `DeviceLost` if the device is gone.
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.ops.check("shutdown")?;
        let drained = self.drain(Instant::now().checked_add(timeout));
        // It armed and cleared the descriptor: whoever sleeps on it looks again.
        self.send_cq.ops().wake();
        drained.map(|()| self.disconnect())
    }

    /// Waits until nothing of the send queue is in flight.
    fn drain(&self, deadline: Option<Instant>) -> Result<()> {
        let (cq, token) = (&self.send_cq, self.lock_send().lane.token);
        loop {
            if self.state() != EndpointState::Connected {
                return Err(self.not_connected());
            }
            let flushed = self.flush();
            cq.reap();
            if flushed && cq.outstanding(token, Side::Send) == 0 {
                return Ok(());
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return Err(Error::TimedOut);
            }
            // Other threads may take what would wake this one, so it also looks from time to time.
            let tick = Instant::now() + Duration::from_millis(5);
            let until = deadline.map_or(tick, |at| at.min(tick));
            if cq.ops().arm()? == Armed::Waiting {
                let provider = self.domain.info.provider;
                wait_readable(cq.ops().fd(), Some(until))
                    .map_err(|cause| Error::system("shutdown", provider, cause))?;
            }
        }
    }

    #[inline]
    pub(crate) fn lock_send(&self) -> std::sync::MutexGuard<'_, PostSide> {
        self.send.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn lock_recv(&self) -> std::sync::MutexGuard<'_, PostSide> {
        self.recv.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.ops.is_here() {
            return;
        }
        // What finished until now keeps its real status.
        self.send_cq.reap();
        self.recv_cq.reap();
        if self.ops.quiesce().is_err() {
            // Its memory may still be written to: the queues keep it for good.
            std::mem::forget((self.send_cq.clone(), self.recv_cq.clone()));
            return;
        }
        let (send, recv) = (self.lock_send().lane.token, self.lock_recv().lane.token);
        self.send_cq.unbind(send);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.unbind(recv);
        }
        self.domain.hub.remove(self.id());
        self.domain.strike(&self.shared);
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({}, {:?})", self.id(), self.state())
    }
}
