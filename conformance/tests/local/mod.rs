//! A provider inside this process, without threads or sockets: for tests of the runner.
//!
//! One lock guards everything, and posting does the work at once. It can be made wrong in ways that cases
//! must notice. It is far from complete; what it lacks, no test here needs.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use fabric::provider::work::total_len;
use fabric::provider::{
    Armed, CqOps, Device, EndpointOps, Event, EventSink, Posted, RawCompletion, RecvWork,
    RemoteAddr, Segment, SendFlags, SendOp, SendWork, memory,
};
use fabric::provider::{
    DomainOps, ListenerOps, Provider, ProviderCounters, RawRequest, RegistrationOps, RequestId,
};
use fabric::{
    Access, Capabilities, CqAttr, DisconnectReason, EndpointAttr, EndpointId, Error, Info, Limits,
    ListenerAttr, ListenerId, Result, Status,
};
use fabric_util::wakeup::Wakeup;

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Carries on with what was posted behind a refused operation.
    CarriesOn,
    /// Writes a byte more than asked.
    Overruns,
    /// Matches the newest receive first.
    Reverses,
    /// Never completes a send.
    Forgets,
    /// Takes the peer of a refused operation for lost.
    LosesRefusals,
    /// Has no RMA.
    SendsOnly,
    /// Reports a wrong reason when a connection ends.
    Misleads,
}

#[derive(Clone)]
pub(crate) struct Local {
    name: &'static str,
    flaw: Flaw,
    world: Arc<Mutex<World>>,
}

impl Local {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Local::named("local", flaw)
    }

    pub(crate) fn named(name: &'static str, flaw: Flaw) -> Self {
        Local { name, flaw, world: Arc::default() }
    }
}

#[derive(Default)]
struct World {
    next: u64,
    regions: HashMap<u64, (usize, usize, Access)>,
    ends: HashMap<u64, Half>,
    listeners: HashMap<u16, Backlog>,
}

type Backlog = (ListenerId, Arc<dyn EventSink>, VecDeque<RawRequest>);

fn ended(mut raw: RawCompletion, status: Status) -> RawCompletion {
    raw.status = status;
    raw
}

impl World {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

struct Half {
    id: EndpointId,
    events: Arc<dyn EventSink>,
    send_queue: Arc<Queue>,
    recv_queue: Arc<Queue>,
    peer: Option<u64>,
    dead: bool,
    sends: VecDeque<Pending>,
    recvs: VecDeque<Pending>,
}

struct Pending {
    raw: RawCompletion,
    op: Option<SendOp>,
    segments: Vec<Segment>,
    injected: Option<Vec<u8>>,
    signaled: bool,
}

struct Queue {
    ring: Mutex<VecDeque<RawCompletion>>,
    wakeup: Wakeup,
}

impl Queue {
    fn push(&self, raw: RawCompletion) {
        self.ring.lock().unwrap().push_back(raw);
        self.wakeup.set();
    }
}

fn gather(segments: &[Segment]) -> Vec<u8> {
    let mut bytes = vec![0; total_len(segments)];
    let mut rest = bytes.as_mut_slice();
    for segment in segments {
        let (now, later) = rest.split_at_mut(segment.len);
        // SAFETY: the poster keeps the segment valid until its completion.
        unsafe { memory::load(segment.addr, now) };
        rest = later;
    }
    bytes
}

fn scatter(segments: &[Segment], mut bytes: &[u8]) {
    for segment in segments {
        let (now, later) = bytes.split_at(segment.len.min(bytes.len()));
        // SAFETY: as in `gather`.
        unsafe { memory::store(segment.addr, now) };
        bytes = later;
    }
}

impl World {
    /// Where a peer's access goes, if it may.
    fn resolve(&self, at: RemoteAddr, len: usize, need: Access) -> Option<*mut u8> {
        let (addr, size, access) = self.regions.get(&at.key)?;
        let end = (at.addr as usize).checked_add(len)?;
        (end <= *size && access.contains(need))
            .then(|| std::ptr::with_exposed_provenance_mut(addr + at.addr as usize))
    }

    /// Does what can be done of an endpoint's sends.
    fn progress(&mut self, uid: u64, flaw: Flaw) {
        while let Some(mut pending) = self.ends.get_mut(&uid).and_then(|end| end.sends.pop_front())
        {
            let peer = self.ends[&uid].peer.unwrap_or_default();
            let bytes = pending.injected.take().unwrap_or_else(|| gather(&pending.segments));
            let status = match pending.op {
                Some(SendOp::Send { imm }) => {
                    let Some(end) = self.ends.get_mut(&peer) else { return };
                    let next = if flaw == Flaw::Reverses {
                        end.recvs.pop_back()
                    } else {
                        end.recvs.pop_front()
                    };
                    let Some(mut recv) = next else {
                        pending.injected = Some(bytes);
                        if let Some(end) = self.ends.get_mut(&uid) {
                            end.sends.push_front(pending);
                        }
                        return;
                    };
                    scatter(&recv.segments, &bytes);
                    recv.raw.len = bytes.len() as u64;
                    recv.raw.immediate = imm;
                    end.recv_queue.push(recv.raw);
                    if flaw == Flaw::Forgets {
                        continue;
                    }
                    Status::Ok
                }
                Some(SendOp::Write { .. }) if bytes.is_empty() => Status::Ok,
                Some(SendOp::Write { to, .. }) => {
                    match self.resolve(to, bytes.len(), Access::REMOTE_WRITE) {
                        Some(at) => {
                            let extra = usize::from(flaw == Flaw::Overruns);
                            let bytes = [&bytes[..], &[0][..extra]].concat();
                            // SAFETY: inside a registration; the overrun goes into the test's guard bytes.
                            unsafe { memory::store(at, &bytes) };
                            Status::Ok
                        }
                        None if flaw == Flaw::LosesRefusals => Status::PeerLost,
                        None => Status::RemoteAccess,
                    }
                }
                _ => Status::Internal,
            };
            let end = &self.ends[&uid];
            if pending.signaled || status != Status::Ok {
                end.send_queue.push(ended(pending.raw, status));
            }
            if status != Status::Ok && flaw != Flaw::CarriesOn {
                self.kill(uid, DisconnectReason::OperationFailed, flaw);
                self.kill(peer, DisconnectReason::OperationFailed, flaw);
            }
        }
    }

    fn kill(&mut self, uid: u64, reason: DisconnectReason, flaw: Flaw) {
        let Some(end) = self.ends.get_mut(&uid).filter(|end| !end.dead) else { return };
        end.dead = true;
        let reason = if flaw == Flaw::Misleads { DisconnectReason::Remote } else { reason };
        end.events.event(Event::Disconnected { endpoint: end.id, reason });
        let status = Status::Canceled;
        end.sends.drain(..).for_each(|p| end.send_queue.push(ended(p.raw, status)));
        end.recvs.drain(..).for_each(|p| end.recv_queue.push(ended(p.raw, status)));
    }
}

impl Provider for Local {
    type Domain = LocalDomain;

    fn name(&self) -> &'static str {
        self.name
    }

    fn devices(&self) -> Vec<Device> {
        let mut info = Info::new(self.name, "here");
        info.addresses = vec![Ipv4Addr::LOCALHOST.into()];
        info.capabilities = Capabilities::SEND;
        if self.flaw != Flaw::SendsOnly {
            info.capabilities |= Capabilities::RMA | Capabilities::ATOMIC;
        }
        let mut limits = Limits::none();
        (limits.message, limits.region_len) = (1 << 20, 1 << 24);
        (limits.send_depth, limits.recv_depth, limits.cq_capacity) = (1024, 1024, 4096);
        (limits.send_segments, limits.recv_segments) = (4, 4);
        limits.completion_queues = 64;
        (limits.inject, limits.endpoints, limits.regions, limits.backlog) = (128, 64, 64, 128);
        info.limits = limits;
        vec![Device { name: "here".to_owned(), state: Ok(info) }]
    }

    fn open(&self, _info: &Info, events: Arc<dyn EventSink>) -> Result<LocalDomain> {
        Ok(LocalDomain { local: self.clone(), events })
    }
}

pub(crate) struct LocalDomain {
    local: Local,
    events: Arc<dyn EventSink>,
}

impl LocalDomain {
    fn world(&self) -> MutexGuard<'_, World> {
        self.local.world.lock().unwrap()
    }
}

// SAFETY: regions are reached while registered only, under the lock that unregisters them.
unsafe impl DomainOps for LocalDomain {
    type Endpoint = LocalEndpoint;
    type Cq = LocalCq;
    type Registration = LocalRegistration;
    type Listener = LocalListener;

    fn completion_queue(&self, _attr: &CqAttr) -> Result<LocalCq> {
        let wakeup = Wakeup::new().map_err(|cause| Error::system("make queue", "local", cause))?;
        Ok(LocalCq(Arc::new(Queue { ring: Mutex::default(), wakeup })))
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<LocalRegistration> {
        let mut world = self.world();
        let key = world.next();
        world.regions.insert(key, (addr.expose_provenance(), len, access));
        Ok(LocalRegistration { key, world: self.local.world.clone() })
    }

    fn endpoint(
        &self,
        id: EndpointId,
        _attr: &EndpointAttr,
        send_cq: &LocalCq,
        recv_cq: &LocalCq,
    ) -> Result<LocalEndpoint> {
        let mut world = self.world();
        let uid = world.next();
        let half = Half {
            id,
            events: self.events.clone(),
            send_queue: send_cq.0.clone(),
            recv_queue: recv_cq.0.clone(),
            peer: None,
            dead: false,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
        };
        world.ends.insert(uid, half);
        Ok(LocalEndpoint { uid, local: self.local.clone() })
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        _attr: &ListenerAttr,
    ) -> Result<LocalListener> {
        let mut world = self.world();
        let port = if addr.port() == 0 { 1000 + world.next() as u16 } else { addr.port() };
        world.listeners.insert(port, (id, self.events.clone(), VecDeque::new()));
        Ok(LocalListener { addr: SocketAddr::new(addr.ip(), port), local: self.local.clone() })
    }

    fn reject(&self, _request: RequestId, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> ProviderCounters {
        ProviderCounters::default()
    }

    fn dump(&self) -> String {
        format!("{} endpoints, flaw {:?}", self.world().ends.len(), self.local.flaw)
    }
}

pub(crate) struct LocalRegistration {
    key: u64,
    world: Arc<Mutex<World>>,
}

// SAFETY: what reaches the range looks the registration up first, and `deregister` takes it out.
unsafe impl RegistrationOps for LocalRegistration {
    fn local_key(&self) -> u64 {
        self.key
    }
    fn remote_key(&self) -> u64 {
        self.key
    }
    fn remote_base(&self) -> u64 {
        0
    }

    fn deregister(&mut self) -> Result<()> {
        self.world.lock().unwrap().regions.remove(&self.key);
        Ok(())
    }
}

pub(crate) struct LocalListener {
    addr: SocketAddr,
    local: Local,
}

impl ListenerOps for LocalListener {
    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
    fn next_request(&self) -> Option<RawRequest> {
        let mut world = self.local.world.lock().unwrap();
        world.listeners.get_mut(&self.addr.port())?.2.pop_front()
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        self.local.world.lock().unwrap().listeners.remove(&self.addr.port());
    }
}

pub(crate) struct LocalCq(Arc<Queue>);

// SAFETY: what was pushed comes out once, in order.
unsafe impl CqOps for LocalCq {
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let mut ring = self.0.ring.lock().unwrap();
        let count = out.len().min(ring.len());
        out.iter_mut().zip(ring.drain(..count)).for_each(|(out, raw)| *out = raw);
        count
    }
    fn arm(&self) -> Result<Armed, Error> {
        let ring = self.0.ring.lock().unwrap();
        self.0.wakeup.clear();
        Ok(if ring.is_empty() { Armed::Waiting } else { Armed::Ready })
    }
    fn wake(&self) {
        self.0.wakeup.set();
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.wakeup.as_fd()
    }
}

pub(crate) struct LocalEndpoint {
    uid: u64,
    local: Local,
}

impl LocalEndpoint {
    fn world(&self) -> MutexGuard<'_, World> {
        self.local.world.lock().unwrap()
    }
}

// SAFETY: what is pending goes with the endpoint or with its completion; segments are touched before either.
unsafe impl EndpointOps for LocalEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let mut world = self.world();
        let Some(end) = world.ends.get_mut(&self.uid).filter(|end| !end.dead) else {
            return Posted::until(0, Error::NotConnected);
        };
        end.sends.extend(work.iter().map(|work| Pending {
            raw: RawCompletion::new(work.token, Status::Ok),
            op: Some(work.op),
            segments: work.segments.to_vec(),
            injected: work.flags.contains(SendFlags::INJECT).then(|| gather(work.segments)),
            signaled: work.flags.contains(SendFlags::SIGNALED),
        }));
        world.progress(self.uid, self.local.flaw);
        Posted::all(work.len())
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut world = self.world();
        let Some(end) = world.ends.get_mut(&self.uid) else { return Posted::all(0) };
        end.recvs.extend(work.iter().map(|work| Pending {
            raw: RawCompletion::new(work.token, Status::Ok),
            op: None,
            segments: work.segments.to_vec(),
            injected: None,
            signaled: true,
        }));
        if let Some(peer) = end.peer {
            world.progress(peer, self.local.flaw);
        }
        Posted::all(work.len())
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let mut world = self.world();
        let id = RequestId(self.uid);
        let Some((listener, events, requests)) = world.listeners.get_mut(&to.port()) else {
            return Err(Error::Refused(None));
        };
        requests.push_back(RawRequest::new(id, to, data.into()));
        events.event(Event::ConnectRequest { listener: *listener });
        Ok(())
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let mut world = self.world();
        for (own, other, data) in [(request.0, self.uid, data), (self.uid, request.0, &[][..])] {
            let Some(end) = world.ends.get_mut(&own) else { continue };
            end.peer = Some(other);
            end.events.event(Event::Connected { endpoint: end.id, data: data.into() });
        }
        Ok(())
    }

    fn disconnect(&self) {
        let mut world = self.world();
        let peer = world.ends.get(&self.uid).and_then(|end| end.peer).unwrap_or_default();
        world.kill(self.uid, DisconnectReason::Local, self.local.flaw);
        world.kill(peer, DisconnectReason::Remote, self.local.flaw);
    }

    fn quiesce(&self) -> Result<()> {
        self.disconnect();
        self.world().ends.remove(&self.uid);
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }
    fn dump(&self) -> String {
        let world = self.world();
        let pending =
            world.ends.get(&self.uid).map_or((0, 0), |end| (end.sends.len(), end.recvs.len()));
        format!("{} sends and {} receives pending", pending.0, pending.1)
    }
}
