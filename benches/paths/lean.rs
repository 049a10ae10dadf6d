//! The null provider with a data path as thin as the contract allows: posting stores tokens in a ring,
//! polling loads them. One endpoint a queue.

#![allow(unreachable_pub)] // the traits name these types in public

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_core::provider::{DomainOps, Provider, ProviderCounters, RequestId};
use fabric_core::{
    Access, Armed, CqAttr, CqOps, Device, DomainAttr, EndpointAttr, EndpointId, EndpointOps, Error,
    EventSink, Info, ListenerAttr, ListenerId, Posted, RawCompletion, RecvWork, Result, SendFlags,
    SendWork, Status, Token,
};

use crate::null::NullProvider;
use crate::null::cq::NullCq;
use crate::null::domain::{NullDomain, NullListener, NullRegistration};
use crate::null::endpoint::NullEndpoint;

const SLOTS: usize = 256;

/// Tokens on their way from the one poster to the one poller.
struct Ring {
    tokens: [AtomicU64; SLOTS],
    head: CachePadded,
    tail: CachePadded,
}

/// An index on a cache line of its own.
#[repr(align(128))]
struct CachePadded(AtomicU64);

pub struct LeanProvider(pub NullProvider);
pub struct LeanDomain(NullDomain);
pub struct LeanCq(NullCq, Arc<Ring>);
pub struct LeanEndpoint(NullEndpoint, Arc<Ring>);

impl Provider for LeanProvider {
    type Domain = LeanDomain;
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn devices(&self) -> Vec<Device> {
        self.0.devices()
    }
    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<LeanDomain> {
        self.0.open(info, attr, events).map(LeanDomain)
    }
}

// SAFETY: forwards to an implementation that keeps the contract.
unsafe impl DomainOps for LeanDomain {
    type Endpoint = LeanEndpoint;
    type Cq = LeanCq;
    type Registration = NullRegistration;
    type Listener = NullListener;

    fn completion_queue(&self, attr: &CqAttr) -> Result<LeanCq> {
        let index = || CachePadded(AtomicU64::new(0));
        let tokens = std::array::from_fn(|_| AtomicU64::new(0));
        let ring = Ring { tokens, head: index(), tail: index() };
        Ok(LeanCq(self.0.completion_queue(attr)?, Arc::new(ring)))
    }
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<NullRegistration> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.register(addr, len, access) }
    }
    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &LeanCq,
        recv_cq: &LeanCq,
    ) -> Result<LeanEndpoint> {
        assert!(attr.send_depth <= SLOTS);
        let inner = self.0.endpoint(id, attr, &send_cq.0, &recv_cq.0)?;
        Ok(LeanEndpoint(inner, send_cq.1.clone()))
    }
    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<NullListener> {
        self.0.listen(id, addr, attr)
    }
    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        self.0.reject(request, data)
    }
    fn counters(&self) -> ProviderCounters {
        self.0.counters()
    }
    fn dump(&self) -> String {
        self.0.dump()
    }
}

// SAFETY: each token posted as signaled comes out once, in order; segments are never touched.
unsafe impl EndpointOps for LeanEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let ring = &*self.1;
        let mut head = ring.head.0.load(Ordering::Relaxed);
        for one in work.iter().filter(|one| one.flags.contains(SendFlags::SIGNALED)) {
            ring.tokens[head as usize % SLOTS].store(one.token.to_bits(), Ordering::Relaxed);
            head += 1;
        }
        ring.head.0.store(head, Ordering::Release);
        Posted::all(work.len())
    }
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.post_recv(work) }
    }
    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        self.0.connect(to, data)
    }
    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        self.0.accept(request, data)
    }
    fn disconnect(&self) {
        self.0.disconnect();
    }
    fn quiesce(&self) -> Result<()> {
        self.0.quiesce()
    }
    fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local_addr()
    }
    fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.peer_addr()
    }
    fn dump(&self) -> String {
        self.0.dump()
    }
}

// SAFETY: what the endpoint posted comes out once, in order; the descriptor is the inner queue's.
unsafe impl CqOps for LeanCq {
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let ring = &*self.1;
        let (tail, head) =
            (ring.tail.0.load(Ordering::Relaxed), ring.head.0.load(Ordering::Acquire));
        let count = out.len().min((head - tail) as usize);
        for (out, at) in out[..count].iter_mut().zip(tail..) {
            let bits = ring.tokens[at as usize % SLOTS].load(Ordering::Relaxed);
            *out = RawCompletion::new(Token::from_bits(bits), Status::Ok);
        }
        ring.tail.0.store(tail + count as u64, Ordering::Release);
        count
    }
    fn arm(&self) -> Result<Armed, Error> {
        self.0.arm()
    }
    fn wake(&self) {
        self.0.wake();
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}
