//! A provider whose domains are domains of another process: each call is made there.
//!
//! The memory that is registered here only lends its addresses; the bytes are there. Cases reach them by
//! [`Guarded`](crate::Guarded), which knows where its bytes are.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fabric::provider::{
    Armed, CqOps, Device, DomainOps, EndpointOps, EventSink, Failure, Posted, Provider,
    ProviderCounters, RawCompletion, RecvWork, RemoteAddr, Segment, SendFlags, SendOp, SendWork,
    Token, Unusable, memory,
};
use fabric::provider::{GrantOps, ListenerOps, RawRequest, RegistrationOps, RequestId};
use fabric::{
    Access, CqAttr, EndpointAttr, EndpointId, Error, Info, ListenerAttr, ListenerId, Result,
};
use fabric_util::wakeup::Wakeup;
use serde_bytes::ByteBuf;

use super::home::{Home, Tenancy};
use super::link::Link;
use super::protocol::{
    Asking, Call, Done, Local, Piece, Place, Receive, Registered, Surveyed, Taken, WireCounters,
    WireOp, Work,
};
use super::wire::{self, kept};

/// One provider of a server.
pub(super) struct Remote {
    pub(super) name: &'static str,
    pub(super) addr: SocketAddr,
    pub(super) devices: Vec<Surveyed>,
}

impl Provider for Remote {
    type Domain = RemoteDomain;

    fn name(&self) -> &'static str {
        self.name
    }

    fn devices(&self) -> Vec<Device> {
        let device = |surveyed: &Surveyed| Device {
            name: surveyed.device.clone(),
            state: match &surveyed.state {
                Ok(info) => Ok(info.into()),
                Err(reason) => {
                    Err(Unusable { reason: reason.clone(), remedy: format!("at {}", self.addr) })
                }
            },
        };
        self.devices.iter().map(device).collect()
    }

    fn open(&self, info: &Info, events: Arc<dyn EventSink>) -> Result<RemoteDomain> {
        let lost = |text: String| {
            let text = format!("no connection to {}: {text}", self.addr);
            Error::Unreachable(Failure::new("open domain", text).of(self.name))
        };
        let link = Arc::new(Link::to(self.addr, events).map_err(lost)?);
        let (provider, device) = (info.provider.to_owned(), info.device.clone());
        link.call::<()>(Call::Open { provider, device })?;
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
        let (queue, wakeup) = (self.link.number(), Arc::new(wakeup));
        let CqAttr { capacity, vector, .. } = *attr;
        self.link.call::<()>(Call::MakeQueue { queue, capacity, vector })?;
        self.link.watch(queue, &wakeup);
        Ok(RemoteQueue { queue, wakeup, link: self.link.clone() })
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<RemoteRegistration> {
        let region = self.link.number();
        let (tenancy, at) = Home::lodge(addr.addr(), len, &self.link)?;
        let registered: Registered = self.link.call(Call::Register {
            region,
            memory: tenancy.memory(),
            at,
            len: len as u64,
            access: access.bits(),
            start: addr.addr() as u64,
        })?;
        Ok(RemoteRegistration { region, registered, link: self.link.clone(), _tenancy: tenancy })
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &RemoteQueue,
        recv_cq: &RemoteQueue,
    ) -> Result<RemoteEndpoint> {
        self.link.call::<()>(Call::MakeEndpoint {
            endpoint: id.0,
            attr: attr.into(),
            send_queue: send_cq.queue,
            recv_queue: recv_cq.queue,
        })?;
        Ok(RemoteEndpoint { endpoint: id.0, link: self.link.clone() })
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<RemoteListener> {
        let (listener, backlog) = (id.0, attr.backlog);
        let addr = self.link.call(Call::Listen { listener, addr, backlog })?;
        Ok(RemoteListener { listener, addr, link: self.link.clone() })
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        self.link.call(Call::Reject { request: request.0, data: ByteBuf::from(data) })
    }

    fn counters(&self) -> ProviderCounters {
        let mut counters = ProviderCounters::default();
        if let Ok(theirs) = self.link.call::<WireCounters>(Call::Counters) {
            counters.copied_bytes = theirs.copied_bytes;
            counters.wakeups = theirs.wakeups;
            counters.system_calls = theirs.system_calls;
            counters.protocol_errors = theirs.protocol_errors;
        }
        counters
    }

    fn dump(&self) -> String {
        told(self.link.call(Call::Dump { endpoint: None }))
    }
}

fn told(dump: Result<String>) -> String {
    dump.unwrap_or_else(|error| format!("nothing from the other host: {error}"))
}

pub(super) struct RemoteRegistration {
    region: u64,
    registered: Registered,
    link: Arc<Link>,
    /// Keeps the memory there as long as it is registered.
    _tenancy: Tenancy,
}

// SAFETY: it touches no memory of this process; the other host's library keeps the contract there.
unsafe impl RegistrationOps for RemoteRegistration {
    fn local_key(&self) -> u64 {
        self.region
    }
    fn remote_key(&self) -> u64 {
        self.registered.key
    }
    fn remote_base(&self) -> u64 {
        self.registered.base
    }

    unsafe fn grant(
        &self,
        endpoint: EndpointId,
        range: Range<usize>,
        access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        let grant = self.link.number();
        let granted: Registered = self.link.call(Call::Grant {
            grant,
            region: self.region,
            endpoint: endpoint.0,
            from: range.start as u64,
            to: range.end as u64,
            access: access.bits(),
        })?;
        Ok(Box::new(RemoteGrant { grant, granted, revoked: false, link: self.link.clone() }))
    }

    fn deregister(&mut self) -> Result<()> {
        // A server that is gone has closed it; otherwise it closes.
        if let Err(error) = self.link.call::<()>(Call::Deregister { region: self.region }) {
            log::debug!("deregistering at the other host: {error}");
        }
        Ok(())
    }
}

struct RemoteGrant {
    grant: u64,
    granted: Registered,
    revoked: bool,
    link: Arc<Link>,
}

// SAFETY: as for a registration.
unsafe impl GrantOps for RemoteGrant {
    fn remote_key(&self) -> u64 {
        self.granted.key
    }
    fn remote_base(&self) -> u64 {
        self.granted.base
    }

    fn revoke(&mut self) -> Result<()> {
        // A server that is gone has ended it.
        if !self.revoked && self.link.call::<()>(Call::Revoke { grant: self.grant }).is_ok() {
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
        let call = Call::NextRequest { listener: self.listener };
        let Asking { request, peer, data } = self.link.call::<Option<Asking>>(call).ok()??;
        Some(RawRequest::new(RequestId(request), peer, data.into_vec().into()))
    }
}

impl Drop for RemoteListener {
    fn drop(&mut self) {
        // As for a registration.
        let _ = self.link.call::<()>(Call::DropListener { listener: self.listener });
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
        let call = Call::Poll { queue: self.queue, most: out.len() };
        let Ok(done) = self.link.call::<Vec<Done>>(call) else { return 0 };
        for (out, done) in out.iter_mut().zip(&done) {
            let mut raw =
                RawCompletion::new(Token::from_bits(done.token), wire::status(done.status));
            raw.remote_write = done.remote_write;
            (raw.len, raw.immediate) = (done.len, done.immediate);
            raw.provider_code = done.provider_code;
            *out = raw;
        }
        done.len().min(out.len())
    }

    fn arm(&self) -> Result<Armed, Error> {
        // Before the call: what happens from now on makes it readable again.
        self.wakeup.clear();
        let ready = self.link.call(Call::Arm { queue: self.queue })?;
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
        let _ = self.link.call::<()>(Call::DropQueue { queue: self.queue });
    }
}

pub(super) struct RemoteEndpoint {
    endpoint: u64,
    link: Arc<Link>,
}

fn piece(segment: &Segment) -> Piece {
    Piece { region: segment.key, start: segment.addr.addr() as u64, len: segment.len as u64 }
}

/// The operation for the far end; `None` for one that the messages between the hosts do not have.
///
/// # Safety
/// The bytes of an inject are readable, as `post_send` demands.
unsafe fn work(work: &SendWork<'_>) -> Option<Work> {
    let local = if work.flags.contains(SendFlags::INJECT) {
        let mut bytes = Vec::new();
        for segment in work.segments {
            let from = bytes.len();
            bytes.resize(from + segment.len, 0);
            // SAFETY: the caller answers for the segment, until the post returns.
            unsafe { memory::load(segment.addr, &mut bytes[from..]) };
        }
        Local::Inject(ByteBuf::from(bytes))
    } else {
        Local::Pieces(work.segments.iter().map(piece).collect())
    };
    let place = |RemoteAddr { key, addr }| Place { key, addr };
    let op = match work.op {
        SendOp::Send { imm } => WireOp::Send { imm },
        SendOp::Write { to, imm } => WireOp::Write { to: place(to), imm },
        SendOp::Read { from } => WireOp::Read { from: place(from) },
        SendOp::Atomic { at, call, fetch } => WireOp::Atomic {
            at: place(at),
            op: call.op as u8,
            ty: call.ty as u8,
            operand: call.operand,
            compare: call.compare,
            fetch,
        },
        _ => return None,
    };
    Some(Work { token: work.token.to_bits(), flags: work.flags.bits(), op, local })
}

fn posted(taken: Result<Taken>) -> Posted {
    match taken {
        Ok(Taken { accepted, refusal: None }) => Posted::all(accepted),
        Ok(Taken { accepted, refusal: Some(fault) }) => Posted::until(accepted, fault.into()),
        Err(error) => Posted::until(0, error),
    }
}

// SAFETY: the far end posts to an endpoint of this library and passes on what its queue delivers; no segment of this
// process is touched but those of an inject, during the post.
unsafe impl EndpointOps for RemoteEndpoint {
    unsafe fn post_send(&self, batch: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        let Some(work) = batch.iter().map(|one| unsafe { work(one) }).collect() else {
            let error = Error::unsupported("post", "remote", "an operation of a later version");
            return Posted::until(0, error);
        };
        posted(self.link.call(Call::PostSend { endpoint: self.endpoint, work }))
    }

    unsafe fn post_recv(&self, batch: &[RecvWork<'_>]) -> Posted {
        let receive = |work: &RecvWork<'_>| Receive {
            token: work.token.to_bits(),
            pieces: work.segments.iter().map(piece).collect(),
        };
        let work = batch.iter().map(receive).collect();
        posted(self.link.call(Call::PostRecv { endpoint: self.endpoint, work }))
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let data = ByteBuf::from(data);
        self.link.call(Call::Connect { endpoint: self.endpoint, to, data })
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let (request, data) = (request.0, ByteBuf::from(data));
        self.link.call(Call::Accept { endpoint: self.endpoint, request, data })
    }

    fn disconnect(&self) {
        // A server that is gone has ended the connection, here and in what follows.
        let _ = self.link.call::<()>(Call::Disconnect { endpoint: self.endpoint });
    }

    fn quiesce(&self) -> Result<()> {
        // The memory is at the other host, and nothing here is touched.
        let _ = self.link.call::<()>(Call::DropEndpoint { endpoint: self.endpoint });
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses().0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.addresses().1
    }

    fn dump(&self) -> String {
        told(self.link.call(Call::Dump { endpoint: Some(self.endpoint) }))
    }
}

impl RemoteEndpoint {
    fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let call = Call::Addresses { endpoint: self.endpoint };
        self.link.call(call).unwrap_or_default()
    }
}

/// The name under which a server's provider is known here.
pub(super) fn name_of(provider: &str) -> &'static str {
    kept(provider)
}
