//! A provider without a wire: for tests of what is above providers, and the pattern for one of your own.
//!
//! A connection stands at once, an operation of the send queue ends at once, and a receive waits until a
//! test brings a message. There is no peer: what would be sent is read and forgotten, what would be fetched
//! is [`FILL`]. A [`Link`] is a test's way to the inside of an endpoint: it holds operations back, makes
//! them fail, brings messages, ends the connection.
//!
//! What an author of a provider finds here: who calls what and under which locks; that the memory of an
//! operation is touched only until its completion, and by `fabric_core::memory` alone; that events come
//! before the completions they cause; that the descriptor is set under the same lock as the queue it
//! tells of, so that no completion slips in between.

#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fabric_core::provider::{
    DomainOps, ListenerOps, Provider, ProviderCounters, RawRequest, RegistrationOps, RequestId,
};
use fabric_core::wakeup::Wakeup;
use fabric_core::{
    Access, Armed, Capabilities, CqAttr, CqOps, Device, DisconnectReason, EndpointAttr, EndpointId,
    EndpointOps, Error, Event, EventSink, Info, Limits, ListenerAttr, ListenerId, Posted,
    RawCompletion, RecvWork, Result, Segment, SendFlags, SendOp, SendWork, Status, Token, memory,
};
use smallvec::SmallVec;

/// What reads and fetching atomics bring.
pub const FILL: u8 = 0xA5;

// ---------------------------------------------------------------------------------------------- provider

/// The provider. Its [`Control`] gives tests a hand in it.
pub struct NullProvider {
    info: Info,
    control: Arc<Control>,
}

/// What a test reaches from outside: the endpoints, and the registrations that are alive.
#[derive(Default)]
pub struct Control {
    links: Mutex<HashMap<EndpointId, Arc<Link>>>,
    /// By local key: what may be touched.
    registered: Mutex<HashMap<u64, (usize, usize)>>,
    listeners: Mutex<HashMap<ListenerId, Arc<Backlog>>>,
    rejected: Mutex<Vec<(RequestId, Vec<u8>)>>,
    next: AtomicU64,
    /// What a test has happen in the middle of the next registration.
    on_register: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl NullProvider {
    pub fn new() -> Self {
        let mut limits = Limits::none();
        limits.message = 1 << 16;
        limits.inject = 256;
        limits.send_segments = 8;
        limits.recv_segments = 8;
        limits.send_depth = 1 << 16;
        limits.recv_depth = 1 << 16;
        limits.cq_capacity = 1 << 20;
        limits.endpoints = 1 << 12;
        limits.regions = 1 << 16;
        limits.region_len = 1 << 30;
        limits.backlog = 128;
        let mut info = Info::new("null", "null0");
        info.version = "1".to_owned();
        info.description = "no wire at all".to_owned();
        info.addresses = vec![Ipv4Addr::LOCALHOST.into()];
        info.capabilities = Capabilities::SEND
            | Capabilities::RMA
            | Capabilities::ATOMIC
            | Capabilities::UNIQUE_KEYS;
        info.limits = limits;
        NullProvider { info, control: Arc::default() }
    }

    /// With something else to offer.
    pub fn edit(mut self, edit: impl FnOnce(&mut Info)) -> Self {
        edit(&mut self.info);
        self
    }

    pub fn control(&self) -> Arc<Control> {
        self.control.clone()
    }
}

impl Provider for NullProvider {
    type Domain = NullDomain;

    fn name(&self) -> &'static str {
        self.info.provider
    }

    fn devices(&self) -> Vec<Device> {
        vec![Device { name: self.info.device.clone(), state: Ok(self.info.clone()) }]
    }

    fn open(&self, _info: &Info, events: Arc<dyn EventSink>) -> Result<NullDomain> {
        Ok(NullDomain { control: self.control.clone(), events })
    }
}

impl Control {
    /// The inside of an endpoint.
    pub fn link(&self, endpoint: EndpointId) -> Arc<Link> {
        self.links.lock().unwrap()[&endpoint].clone()
    }

    /// How many endpoints there are.
    pub fn endpoints(&self) -> usize {
        self.links.lock().unwrap().len()
    }

    /// How many registrations are alive.
    pub fn registrations(&self) -> usize {
        self.registered.lock().unwrap().len()
    }

    /// Has something happen in the middle of the next registration.
    pub fn on_register(&self, then: impl FnOnce() + Send + 'static) {
        *self.on_register.lock().unwrap() = Some(Box::new(then));
    }

    /// How many listeners are alive.
    pub fn listeners(&self) -> usize {
        self.listeners.lock().unwrap().len()
    }

    /// Brings a connection request, as from a peer.
    pub fn request(&self, listener: ListenerId, data: &[u8]) -> RequestId {
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let backlog = self.listeners.lock().unwrap()[&listener].clone();
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        backlog.requests.lock().unwrap().push_back(RawRequest { id, peer, data: data.into() });
        backlog.events.event(Event::ConnectRequest { listener });
        id
    }

    /// The requests that were rejected, with the data for the peer.
    pub fn rejected(&self) -> Vec<(RequestId, Vec<u8>)> {
        self.rejected.lock().unwrap().clone()
    }

    /// A device would fault here: each segment must lie in a registration that is alive.
    fn check(&self, segments: &[Segment]) {
        let registered = self.registered.lock().unwrap();
        for segment in segments {
            let (addr, len) = registered[&segment.key];
            let start = segment.addr as usize;
            assert!(start >= addr && start + segment.len <= addr + len, "outside its registration");
        }
    }
}

// ------------------------------------------------------------------------------------------------ domain

pub struct NullDomain {
    control: Arc<Control>,
    events: Arc<dyn EventSink>,
}

// SAFETY: a registration touches nothing; only operations do, and those never after their completion.
unsafe impl DomainOps for NullDomain {
    type Endpoint = NullEndpoint;
    type Cq = NullCq;
    type Registration = NullRegistration;
    type Listener = NullListener;

    fn completion_queue(&self, attr: &CqAttr) -> Result<NullCq> {
        let wakeup =
            Wakeup::new().map_err(|cause| Error::system("make completion queue", "null", cause))?;
        let ring = Ring {
            completions: VecDeque::with_capacity(attr.capacity),
            armed: false,
            on_arm: None,
        };
        Ok(NullCq(Arc::new(Queue { ring: Mutex::new(ring), wakeup })))
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        _access: Access,
    ) -> Result<NullRegistration> {
        let on_register = self.control.on_register.lock().unwrap().take();
        if let Some(on_register) = on_register {
            on_register();
        }
        let key = 1 + self.control.next.fetch_add(1, Ordering::Relaxed);
        self.control.registered.lock().unwrap().insert(key, (addr as usize, len));
        Ok(NullRegistration { key, control: self.control.clone() })
    }

    fn endpoint(
        &self,
        id: EndpointId,
        _attr: &EndpointAttr,
        send_cq: &NullCq,
        recv_cq: &NullCq,
    ) -> Result<NullEndpoint> {
        let link = Arc::new(Link {
            id,
            control: self.control.clone(),
            events: self.events.clone(),
            send_queue: send_cq.0.clone(),
            recv_queue: recv_cq.0.clone(),
            state: Mutex::new(LinkState::default()),
        });
        self.control.links.lock().unwrap().insert(id, link.clone());
        Ok(NullEndpoint(link))
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        _attr: &ListenerAttr,
    ) -> Result<NullListener> {
        let port = if addr.port() == 0 { 40_000 + id.0 as u16 } else { addr.port() };
        let backlog = Arc::new(Backlog { requests: Mutex::default(), events: self.events.clone() });
        self.control.listeners.lock().unwrap().insert(id, backlog.clone());
        let addr = SocketAddr::new(addr.ip(), port);
        Ok(NullListener { id, addr, backlog, control: self.control.clone() })
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        self.control.rejected.lock().unwrap().push((request, data.to_vec()));
        Ok(())
    }

    fn counters(&self) -> ProviderCounters {
        ProviderCounters::default()
    }

    fn dump(&self) -> String {
        format!("{} endpoints", self.control.endpoints())
    }
}

pub struct NullRegistration {
    key: u64,
    control: Arc<Control>,
}

impl RegistrationOps for NullRegistration {
    fn local_key(&self) -> u64 {
        self.key
    }
    fn remote_key(&self) -> u64 {
        self.key
    }
    fn remote_base(&self) -> u64 {
        0
    }
}

impl Drop for NullRegistration {
    fn drop(&mut self) {
        self.control.registered.lock().unwrap().remove(&self.key);
    }
}

struct Backlog {
    requests: Mutex<VecDeque<RawRequest>>,
    events: Arc<dyn EventSink>,
}

pub struct NullListener {
    id: ListenerId,
    addr: SocketAddr,
    backlog: Arc<Backlog>,
    control: Arc<Control>,
}

impl ListenerOps for NullListener {
    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
    fn next_request(&self) -> Option<RawRequest> {
        self.backlog.requests.lock().unwrap().pop_front()
    }
}

impl Drop for NullListener {
    fn drop(&mut self) {
        self.control.listeners.lock().unwrap().remove(&self.id);
    }
}

// ------------------------------------------------------------------------------------- completion queue

pub struct NullCq(Arc<Queue>);

/// What the queue and the endpoints bound to it share.
struct Queue {
    ring: Mutex<Ring>,
    wakeup: Wakeup,
}

struct Ring {
    completions: VecDeque<RawCompletion>,
    /// Somebody sleeps, or is about to.
    armed: bool,
    /// What a test has happen in the middle of the next `arm`.
    on_arm: Option<Box<dyn FnOnce() + Send>>,
}

impl Queue {
    fn push(&self, completions: impl IntoIterator<Item = RawCompletion>) {
        let mut ring = self.ring.lock().unwrap();
        let before = ring.completions.len();
        ring.completions.extend(completions);
        if ring.armed && ring.completions.len() > before {
            ring.armed = false;
            self.wakeup.set();
        }
    }
}

// SAFETY: what endpoints pushed comes out once, in order; the descriptor is the wakeup's.
unsafe impl CqOps for NullCq {
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let completions = &mut self.0.ring.lock().unwrap().completions;
        let count = out.len().min(completions.len());
        out.iter_mut().zip(completions.drain(..count)).for_each(|(out, raw)| *out = raw);
        count
    }

    fn arm(&self) -> Result<Armed, Error> {
        let on_arm = self.0.ring.lock().unwrap().on_arm.take();
        if let Some(on_arm) = on_arm {
            on_arm();
        }
        let mut ring = self.0.ring.lock().unwrap();
        self.0.wakeup.clear();
        ring.armed = ring.completions.is_empty();
        Ok(if ring.armed { Armed::Waiting } else { Armed::Ready })
    }

    fn wake(&self) {
        self.0.wakeup.set();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.wakeup.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

// ---------------------------------------------------------------------------------------------- endpoint

pub struct NullEndpoint(Arc<Link>);

/// The inside of an endpoint.
pub struct Link {
    id: EndpointId,
    control: Arc<Control>,
    events: Arc<dyn EventSink>,
    send_queue: Arc<Queue>,
    recv_queue: Arc<Queue>,
    /// Locked before a queue's ring.
    state: Mutex<LinkState>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Connecting,
    Connected,
    Dead,
}

#[derive(Default)]
struct LinkState {
    phase: Phase,
    sends: VecDeque<Pending>,
    recvs: VecDeque<Pending>,
    /// Operations wait for [`Link::release`].
    hold: bool,
    /// Connecting waits for [`Link::finish_connect`].
    slow: bool,
    /// How the next operation ends.
    failure: Option<Status>,
    /// Most operations that one post takes.
    most: Option<usize>,
    /// Operations taken so far, and how many posts brought them.
    posted: (usize, usize),
}

/// An operation that was taken and has not ended.
struct Pending {
    token: Token,
    /// Operations borrow their segments only for the post.
    segments: SmallVec<[Segment; 8]>,
    places: bool,
    signaled: bool,
}

impl Pending {
    /// Does to memory what the wire would do: bytes go out, or come in.
    fn touch(&self) {
        for segment in &self.segments {
            let mut scratch = [FILL; 64];
            for offset in (0..segment.len).step_by(scratch.len()) {
                let part = &mut scratch[..(segment.len - offset).min(64)];
                let at = segment.addr.wrapping_add(offset);
                // SAFETY: the poster keeps the segment valid until the completion, which comes after this;
                // `at` and the part stay inside it.
                unsafe {
                    if self.places { memory::store(at, part) } else { memory::load(at, part) }
                }
            }
        }
    }
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap()
    }

    /// Ends up to `most` operations of the send queue, in order.
    fn progress(&self, state: &mut LinkState, most: usize) {
        let mut completions: SmallVec<[RawCompletion; 32]> = SmallVec::new();
        let mut failed = false;
        for _ in 0..most {
            let Some(pending) = state.sends.pop_front() else { break };
            let status = state.failure.take().unwrap_or_default();
            failed = status != Status::Ok;
            if !failed {
                pending.touch();
            }
            if failed || pending.signaled {
                completions.push(RawCompletion::new(pending.token, status));
            }
            if failed {
                break;
            }
        }
        self.send_queue.push(completions);
        if failed {
            self.die(state, DisconnectReason::OperationFailed);
        }
    }

    /// Ends the connection: the event first, then everything that it cancels.
    fn die(&self, state: &mut LinkState, reason: DisconnectReason) {
        let was = std::mem::replace(&mut state.phase, Phase::Dead);
        let endpoint = self.id;
        match was {
            Phase::Dead => return,
            Phase::Connecting => {
                self.events.event(Event::ConnectFailed { endpoint, error: Error::Canceled });
            }
            _ => self.events.event(Event::Disconnected { endpoint, reason }),
        }
        let canceled = |pending: Pending| RawCompletion::new(pending.token, Status::Canceled);
        self.send_queue.push(state.sends.drain(..).map(canceled));
        self.recv_queue.push(state.recvs.drain(..).map(canceled));
    }

    fn connected(&self, state: &mut LinkState, data: &[u8]) {
        state.phase = Phase::Connected;
        self.events.event(Event::Connected { endpoint: self.id, data: data.into() });
    }

    /// From now on nothing of the send queue ends before it is released.
    pub fn hold(&self) {
        self.lock().hold = true;
    }

    /// Ends up to `most` operations that are held, oldest first.
    pub fn release(&self, most: usize) {
        let mut state = self.lock();
        state.sends.iter().take(most).for_each(|pending| self.control.check(&pending.segments));
        self.progress(&mut state, most);
    }

    /// The next operation of the send queue to end fails, and the connection with it.
    pub fn fail_next(&self, status: Status) {
        self.lock().failure = Some(status);
    }

    /// One post takes at most so many operations and refuses the rest with `Again`.
    pub fn take_at_most(&self, most: usize) {
        self.lock().most = Some(most);
    }

    /// Operations taken so far, and the number of posts that brought them.
    pub fn posted(&self) -> (usize, usize) {
        self.lock().posted
    }

    /// A message for the oldest receive; false if there is none.
    pub fn bring(&self, len: usize, immediate: Option<u32>) -> bool {
        let mut state = self.lock();
        let Some(pending) = state.recvs.pop_front() else { return false };
        self.control.check(&pending.segments);
        pending.touch();
        let len = len as u64;
        let raw = RawCompletion { len, immediate, ..RawCompletion::new(pending.token, Status::Ok) };
        self.recv_queue.push([raw]);
        true
    }

    /// Connecting takes until [`finish_connect`](Link::finish_connect).
    pub fn connect_slowly(&self) {
        self.lock().slow = true;
    }

    /// The outcome of connecting.
    pub fn finish_connect(&self, outcome: Result<&[u8]>) {
        let mut state = self.lock();
        match outcome {
            Ok(data) => self.connected(&mut state, data),
            Err(error) => {
                state.phase = Phase::Dead;
                self.events.event(Event::ConnectFailed { endpoint: self.id, error });
                let canceled = |p: Pending| RawCompletion::new(p.token, Status::Canceled);
                self.recv_queue.push(state.recvs.drain(..).map(canceled));
            }
        }
    }

    /// Connecting failed, and what that cancels is seen before it is told.
    pub fn finish_connect_late(&self, error: Error, before: impl FnOnce()) {
        let mut state = self.lock();
        state.phase = Phase::Dead;
        let canceled = |p: Pending| RawCompletion::new(p.token, Status::Canceled);
        self.recv_queue.push(state.recvs.drain(..).map(canceled));
        drop(state);
        before();
        self.events.event(Event::ConnectFailed { endpoint: self.id, error });
    }

    /// The connection ends.
    pub fn lose(&self, reason: DisconnectReason) {
        self.die(&mut self.lock(), reason);
    }

    /// Reports an event, as often and as late as the test likes.
    pub fn report(&self, event: Event) {
        self.events.event(event);
    }

    /// Delivers a completion that no operation has, or had: a provider's mistake.
    pub fn forge(&self, raw: RawCompletion) {
        self.send_queue.push([raw]);
    }

    /// The tokens of the send queue's operations that are held.
    pub fn held(&self) -> Vec<Token> {
        self.lock().sends.iter().map(|pending| pending.token).collect()
    }

    /// Has something happen in the middle of the next `arm` of the send queue's completion queue.
    pub fn on_arm(&self, then: impl FnOnce() + Send + 'static) {
        self.send_queue.ring.lock().unwrap().on_arm = Some(Box::new(then));
    }
}

// SAFETY: each operation taken is in `sends` or `recvs` until it gets its one completion in `progress`, `bring`
// or `die`, or until `quiesce` forgets it; its segments are touched only while it is there, and written only
// if it is a receive, a read or a fetching atomic.
unsafe impl EndpointOps for NullEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let mut state = self.0.lock();
        if state.phase != Phase::Connected {
            return Posted::until(0, Error::NotConnected);
        }
        let taken = state.most.unwrap_or(work.len()).min(work.len());
        for one in &work[..taken] {
            let mut pending = Pending {
                token: one.token,
                segments: SmallVec::from_slice(one.segments),
                places: matches!(one.op, SendOp::Read { .. } | SendOp::Atomic { fetch: true, .. }),
                signaled: one.flags.contains(SendFlags::SIGNALED),
            };
            if one.flags.contains(SendFlags::INJECT) {
                pending.touch();
                pending.segments.clear();
            }
            state.sends.push_back(pending);
        }
        state.posted = (state.posted.0 + taken, state.posted.1 + 1);
        if !state.hold {
            self.0.progress(&mut state, usize::MAX);
        }
        if taken < work.len() { Posted::until(taken, Error::Again) } else { Posted::all(taken) }
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut state = self.0.lock();
        if state.phase == Phase::Dead {
            return Posted::until(0, Error::NotConnected);
        }
        state.recvs.extend(work.iter().map(|one| Pending {
            token: one.token,
            segments: SmallVec::from_slice(one.segments),
            places: true,
            signaled: true,
        }));
        Posted::all(work.len())
    }

    fn connect(&self, _to: SocketAddr, data: &[u8]) -> Result<()> {
        let mut state = self.0.lock();
        state.phase = Phase::Connecting;
        if !state.slow {
            // The peer that is not there echoes the private data.
            self.0.connected(&mut state, data);
        }
        Ok(())
    }

    fn accept(&self, _request: RequestId, _data: &[u8]) -> Result<()> {
        let mut state = self.0.lock();
        state.phase = Phase::Connecting;
        if !state.slow {
            self.0.connected(&mut state, &[]);
        }
        Ok(())
    }

    fn disconnect(&self) {
        self.0.die(&mut self.0.lock(), DisconnectReason::Local);
    }

    fn quiesce(&self) {
        let mut state = self.0.lock();
        state.phase = Phase::Dead;
        state.sends.clear();
        state.recvs.clear();
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, 1).into())
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, 2).into())
    }

    fn dump(&self) -> String {
        let state = self.0.lock();
        format!("{} sends and {} receives pending", state.sends.len(), state.recvs.len())
    }
}

impl Drop for NullEndpoint {
    fn drop(&mut self) {
        self.0.control.links.lock().unwrap().remove(&self.0.id);
    }
}
