//! A provider whose domains are domains of another process: each call is made there.
//!
//! The memory that is registered here only lends its addresses; the bytes are there. Cases reach them by
//! [`Guarded`](crate::Guarded), which knows where its bytes are.

use std::any::Any;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, Weak};

use fabric::provider::{
    Armed, CqOps, Device, DomainAttr, DomainOps, EndpointOps, EventSink, Failure, Posted, Provider,
    ProviderCounters, RawCompletion, RecvWork, RemoteAddr, Segment, SendFlags, SendWork,
    SharedReceiveOps, Unusable, memory,
};
use fabric::provider::{GrantOps, ListenerOps, RawRequest, RegistrationOps, RequestId};
use fabric::{
    Access, CqAttr, Discovered, EndpointAttr, EndpointId, Error, Info, ListenerAttr, ListenerId,
    Result, SharedReceiveAttr,
};
use fabric_util::wakeup::Wakeup;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

use super::case_memory::{CaseMemory, RemoteAlloc};
use super::link::Link;
use super::protocol::{
    Call, EndpointCall, ListenerCall, LocalBytes, MemoryCall, Piece, QueueCall, Receives, RecvMsg,
    SendMsg, SharedCall,
};

/// One provider of a server.
pub(super) struct RemoteProvider {
    pub(super) name: &'static str,
    pub(super) addr: SocketAddr,
    pub(super) devices: Vec<Discovered>,
    pub(super) opened: Opened,
}

/// The way to the first domain that a provider opens.
pub(super) type Opened = Arc<OnceLock<Weak<Link>>>;

impl Provider for RemoteProvider {
    type Domain = RemoteDomain;

    fn name(&self) -> &'static str {
        self.name
    }

    fn devices(&self) -> Vec<Device> {
        let device = |found: &Discovered| Device {
            name: found.device.clone(),
            state: found.usable.clone().map_err(|reason| {
                let remedy = format!("at {}", self.addr);
                Unusable { reason, remedy }
            }),
        };
        self.devices.iter().map(device).collect()
    }

    fn open(
        &self,
        info: &Info,
        _attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<RemoteDomain> {
        // Its security is that of the server's environment: no secret goes over this link.
        let lost = |text: String| {
            let text = format!("no connection to {}: {text}", self.addr);
            Error::Unreachable(Failure::new("open domain", text).of(self.name))
        };
        let link = Arc::new(Link::to(self.addr, events).map_err(lost)?);
        let (provider, device) = (info.provider.to_owned(), info.device.clone());
        link.call::<()>(Call::Open { provider, device })?;
        let _ = self.opened.set(Arc::downgrade(&link));
        Ok(RemoteDomain { link })
    }
}

pub(super) struct RemoteDomain {
    link: Arc<Link>,
}

// SAFETY: nothing touches the memory that is registered here, and no peer of this process reaches it.
unsafe impl DomainOps for RemoteDomain {
    type Endpoint = RemoteEndpoint;
    type Cq = RemoteQueue;
    type Registration = RemoteRegistration;
    type Listener = RemoteListener;

    fn completion_queue(&self, attr: &CqAttr) -> Result<RemoteQueue> {
        let wakeup = Wakeup::new().map_err(|e| Error::system("make queue", "remote", e))?;
        let (queue, wakeup) = (self.link.next_id(), Arc::new(wakeup));
        self.link.call::<()>(Call::Queue(QueueCall::Make { queue, attr: attr.clone() }))?;
        self.link.watch(queue, &wakeup);
        Ok(RemoteQueue { queue, wakeup, link: self.link.clone() })
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<RemoteRegistration> {
        let region = self.link.next_id();
        let (alloc, at) = CaseMemory::alloc_at(addr.addr(), len, &self.link)?;
        let start: RemoteAddr = self.link.call(Call::Memory(MemoryCall::Register {
            region,
            memory: alloc.memory(),
            at,
            len: len as u64,
            access: access.bits(),
            start: addr.addr() as u64,
        }))?;
        Ok(RemoteRegistration { region, start, link: self.link.clone(), _alloc: alloc })
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &RemoteQueue,
        recv_cq: &RemoteQueue,
    ) -> Result<RemoteEndpoint> {
        self.make_endpoint(id, attr, send_cq, Receives::Own(recv_cq.queue))
    }

    fn shared_receives(
        &self,
        attr: &SharedReceiveAttr,
        cq: &RemoteQueue,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        let receives = self.link.next_id();
        let (attr, queue) = (attr.clone(), cq.queue);
        self.link.call::<()>(Call::Shared(SharedCall::Make { receives, attr, queue }))?;
        Ok(Box::new(RemoteReceives { receives, link: self.link.clone() }))
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &RemoteQueue,
        receives: &dyn SharedReceiveOps,
    ) -> Result<RemoteEndpoint> {
        let shared = (receives as &dyn Any).downcast_ref::<RemoteReceives>();
        let other = || Error::invalid("make endpoint", "the queue is of another provider");
        let receives = Receives::Shared(shared.ok_or_else(other)?.receives);
        self.make_endpoint(id, attr, send_cq, receives)
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<RemoteListener> {
        let (listener, attr) = (id.0, attr.clone());
        let addr = self.link.call(Call::Listener(ListenerCall::Listen { listener, addr, attr }))?;
        Ok(RemoteListener { listener, addr, link: self.link.clone() })
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let (request, data) = (request.0, ByteBuf::from(data));
        self.link.call(Call::Listener(ListenerCall::Reject { request, data }))
    }

    fn is_waiting(&self, request: RequestId) -> bool {
        let call = ListenerCall::IsWaiting { request: request.0 };
        self.link.call(Call::Listener(call)).unwrap_or(false)
    }

    fn counters(&self) -> ProviderCounters {
        self.link.call(Call::Counters).unwrap_or_default()
    }

    fn dump(&self) -> String {
        text(self.link.call(Call::Dump { endpoint: None }))
    }
}

impl RemoteDomain {
    fn make_endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &RemoteQueue,
        receives: Receives,
    ) -> Result<RemoteEndpoint> {
        let (endpoint, attr, send_queue) = (id.0, attr.clone(), send_cq.queue);
        let call = EndpointCall::Make { endpoint, attr, send_queue, receives };
        self.link.call::<()>(Call::Endpoint(call))?;
        Ok(RemoteEndpoint { endpoint, link: self.link.clone() })
    }
}

fn text(dump: Result<String>) -> String {
    dump.unwrap_or_else(|error| format!("nothing from the other host: {error}"))
}

pub(super) struct RemoteRegistration {
    region: u64,
    /// Its remote key and base.
    start: RemoteAddr,
    link: Arc<Link>,
    /// Keeps the memory there as long as it is registered.
    _alloc: RemoteAlloc,
}

// SAFETY: it touches no memory of this process; the other host's library keeps the contract there.
unsafe impl RegistrationOps for RemoteRegistration {
    fn local_key(&self) -> u64 {
        self.region
    }
    fn remote_key(&self) -> u64 {
        self.start.key
    }
    fn remote_base(&self) -> u64 {
        self.start.addr
    }

    unsafe fn grant(
        &self,
        endpoint: EndpointId,
        range: Range<usize>,
        access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        let grant = self.link.next_id();
        let start = self.link.call(Call::Memory(MemoryCall::Grant {
            grant,
            region: self.region,
            endpoint: endpoint.0,
            range,
            access: access.bits(),
        }))?;
        Ok(Box::new(RemoteGrant { grant, start, revoked: false, link: self.link.clone() }))
    }

    fn deregister(&mut self) -> Result<()> {
        // A server that is gone has closed it; otherwise it closes.
        let call = Call::Memory(MemoryCall::Deregister { region: self.region });
        if let Err(error) = self.link.call::<()>(call) {
            log::debug!("deregistering at the other host: {error}");
        }
        Ok(())
    }
}

struct RemoteGrant {
    grant: u64,
    /// Its remote key and base.
    start: RemoteAddr,
    revoked: bool,
    link: Arc<Link>,
}

// SAFETY: as for a registration.
unsafe impl GrantOps for RemoteGrant {
    fn remote_key(&self) -> u64 {
        self.start.key
    }
    fn remote_base(&self) -> u64 {
        self.start.addr
    }

    fn revoke(&mut self) -> Result<()> {
        // A server that is gone has ended it.
        let call = Call::Memory(MemoryCall::Revoke { grant: self.grant });
        if !self.revoked && self.link.call::<()>(call).is_ok() {
            self.revoked = true;
        }
        Ok(())
    }
}

pub(super) struct RemoteListener {
    listener: u64,
    addr: SocketAddr,
    link: Arc<Link>,
}

impl ListenerOps for RemoteListener {
    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn next_request(&self) -> Option<RawRequest> {
        let call = ListenerCall::NextRequest { listener: self.listener };
        self.link.call(Call::Listener(call)).ok()?
    }
}

impl Drop for RemoteListener {
    fn drop(&mut self) {
        // As for a registration.
        let call = ListenerCall::Drop { listener: self.listener };
        let _ = self.link.call::<()>(Call::Listener(call));
    }
}

pub(super) struct RemoteQueue {
    queue: u64,
    wakeup: Arc<Wakeup>,
    link: Arc<Link>,
}

// SAFETY: passes on what a queue of this library delivers. The descriptor lives as long as the queue.
unsafe impl CqOps for RemoteQueue {
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let call = Call::Queue(QueueCall::Poll { queue: self.queue, max: out.len() });
        let Ok(polled) = self.link.call::<Vec<RawCompletion>>(call) else { return 0 };
        let count = polled.len().min(out.len());
        out[..count].copy_from_slice(&polled[..count]);
        count
    }

    fn arm(&self) -> Result<Armed, Error> {
        // Before the call: what happens from now on makes it readable again.
        self.wakeup.clear();
        let ready = self.link.call(Call::Queue(QueueCall::Arm { queue: self.queue }))?;
        Ok(if ready { Armed::Ready } else { Armed::Waiting })
    }

    fn wake(&self) {
        self.wakeup.set();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

impl Drop for RemoteQueue {
    fn drop(&mut self) {
        self.link.unwatch(self.queue);
        let _ = self.link.call::<()>(Call::Queue(QueueCall::Drop { queue: self.queue }));
    }
}

struct RemoteReceives {
    receives: u64,
    link: Arc<Link>,
}

// SAFETY: as for an endpoint.
unsafe impl SharedReceiveOps for RemoteReceives {
    unsafe fn post_recv(&self, batch: &[RecvWork<'_>]) -> Posted {
        let call = SharedCall::PostRecv { receives: self.receives, work: receives(batch) };
        self.link.call(Call::Shared(call)).unwrap_or_else(|error| Posted::until(0, error))
    }

    fn quiesce(&self) -> Result<()> {
        // As for an endpoint.
        let call = SharedCall::Drop { receives: self.receives };
        let _ = self.link.call::<()>(Call::Shared(call));
        Ok(())
    }
}

pub(super) struct RemoteEndpoint {
    endpoint: u64,
    link: Arc<Link>,
}

fn piece(segment: &Segment) -> Piece {
    Piece { region: segment.key, start: segment.addr.addr() as u64, len: segment.len as u64 }
}

fn receives(batch: &[RecvWork<'_>]) -> Vec<RecvMsg> {
    let message = |work: &RecvWork<'_>| RecvMsg {
        token: work.token,
        pieces: work.segments.iter().map(piece).collect(),
    };
    batch.iter().map(message).collect()
}

/// The operation for the far end.
///
/// # Safety
/// The bytes of an inject are readable, as `post_send` demands.
unsafe fn message(work: &SendWork<'_>) -> SendMsg {
    let local = if work.flags.contains(SendFlags::INJECT) {
        let mut bytes = Vec::new();
        for segment in work.segments {
            let from = bytes.len();
            bytes.resize(from + segment.len, 0);
            // SAFETY: the caller answers for the segment, until the post returns.
            unsafe { memory::load(segment.addr, &mut bytes[from..]) };
        }
        LocalBytes::Inject(ByteBuf::from(bytes))
    } else {
        LocalBytes::Pieces(work.segments.iter().map(piece).collect())
    };
    SendMsg { token: work.token, flags: work.flags.bits(), op: work.op, local }
}

// SAFETY: the far end posts to an endpoint of this library and passes on what its queue delivers; no segment of this
// process is touched but those of an inject, during the post.
unsafe impl EndpointOps for RemoteEndpoint {
    unsafe fn post_send(&self, batch: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        let work = batch.iter().map(|work| unsafe { message(work) }).collect();
        self.post(EndpointCall::PostSend { endpoint: self.endpoint, work })
    }

    unsafe fn post_recv(&self, batch: &[RecvWork<'_>]) -> Posted {
        self.post(EndpointCall::PostRecv { endpoint: self.endpoint, work: receives(batch) })
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let data = ByteBuf::from(data);
        self.call(EndpointCall::Connect { endpoint: self.endpoint, to, data })
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let (request, data) = (request.0, ByteBuf::from(data));
        self.call(EndpointCall::Accept { endpoint: self.endpoint, request, data })
    }

    fn disconnect(&self) {
        // A server that is gone has ended the connection, here and in what follows.
        let _ = self.call::<()>(EndpointCall::Disconnect { endpoint: self.endpoint });
    }

    fn quiesce(&self) -> Result<()> {
        // The memory is at the other host, and nothing here is touched.
        let _ = self.call::<()>(EndpointCall::Drop { endpoint: self.endpoint });
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses().0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.addresses().1
    }

    fn dump(&self) -> String {
        text(self.link.call(Call::Dump { endpoint: Some(self.endpoint) }))
    }
}

impl RemoteEndpoint {
    fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.call(EndpointCall::Addresses { endpoint: self.endpoint }).unwrap_or_default()
    }

    fn call<T: DeserializeOwned>(&self, call: EndpointCall) -> Result<T> {
        self.link.call(Call::Endpoint(call))
    }

    fn post(&self, call: EndpointCall) -> Posted {
        self.call(call).unwrap_or_else(|error| Posted::until(0, error))
    }
}
