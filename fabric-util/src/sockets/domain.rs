//! Domains: an engine and its thread.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{
    Access, CqAttr, DatagramAttr, DatagramOps, DatagramSources, DomainAttr, DomainOps,
    EndpointAttr, EndpointId, EventSink, Info, ListenerAttr, ListenerId, Memory, ProviderCounters,
    RemoteAddr, Result, SharedReceiveAttr, SharedReceiveOps,
};

use super::cq::SocketCq;
use super::datagram::SocketDatagrams;
use super::endpoint::SocketEndpoint;
use super::engine::Engine;
use super::family::{PeerMemory, Shared, SocketFamily};
use super::listener::{self, SocketListener};
use super::settings::SocketSettings;
use crate::completion_ring::CompletionRing;
use crate::region_table::Registration;
use crate::service_thread::ServiceThread;
use crate::stream::{LinkContext, SharedReceiveQueue};

/// A domain.
pub struct SocketDomain<F: SocketFamily> {
    pub(super) engine: Arc<Engine<F>>,
    thread: ServiceThread,
}

/// For a provider that is made of several, whose connections go one way or the other.
impl<F: SocketFamily> SocketDomain<F> {
    /// What its connections share.
    pub fn shared(&self) -> &Shared<F::Memory> {
        &self.engine.shared
    }

    /// As [`register`](DomainOps::register), of memory that another provider of the device has registered: see
    /// [`Registration::new_at`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As of [`register`](DomainOps::register).
    pub unsafe fn register_at(
        &self,
        range: (*mut u8, usize),
        access: Access,
        remote: Option<RemoteAddr>,
    ) -> Result<Registration> {
        // SAFETY: the caller's promise.
        unsafe { Registration::new_at(F::NAME, &self.engine.regions, range, access, remote) }
    }

    /// A queue with the receives of another one, of a provider whose connections are links too; their completions go to `cq`
    /// where a connection of this domain takes them.
    pub fn receives_beside(
        &self,
        other: &SharedReceiveQueue,
        cq: &SocketCq<F>,
    ) -> SharedReceiveQueue {
        SharedReceiveQueue::beside(other, &cq.ring)
    }

    /// As [`listen`](DomainOps::listen), by a socket that listens.
    ///
    /// # Errors
    /// As there.
    pub fn listen_by(
        &self,
        id: ListenerId,
        socket: (F::Listener, SocketAddr),
        attr: &ListenerAttr,
    ) -> Result<SocketListener<F>> {
        SocketListener::over(&self.engine, id, socket, attr)
    }
}

impl<F: SocketFamily> SocketDomain<F> {
    pub(super) fn open(
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
        settings: SocketSettings,
    ) -> Result<Self> {
        let engine = Engine::new(info, attr, events, settings)?;
        let thread = engine.start()?;
        Ok(SocketDomain { engine, thread })
    }

    fn context(
        &self,
        id: EndpointId,
        send_cq: &SocketCq<F>,
        recv_ring: Arc<CompletionRing>,
    ) -> LinkContext {
        let (regions, stats) = (self.engine.regions.clone(), self.engine.stats().clone());
        LinkContext {
            id,
            regions,
            send_ring: send_cq.ring.clone(),
            recv_ring,
            receives: None,
            stats,
        }
    }
}

// SAFETY: a registration's memory is reached only through its table entry, with range and rights checked and
// the entry's gate held, or by its window; `deregister` closes both.
unsafe impl<F: SocketFamily> DomainOps for SocketDomain<F> {
    type Endpoint = SocketEndpoint<F>;
    type Cq = SocketCq<F>;
    type Registration = Registration;
    type Listener = SocketListener<F>;

    fn completion_queue(&self, _attr: &CqAttr) -> Result<SocketCq<F>> {
        SocketCq::new(&self.engine)
    }

    fn allocate(&self, len: usize) -> Result<Memory> {
        self.engine.shared.memory.allocate(len)
    }

    unsafe fn register(&self, addr: *mut u8, len: usize, access: Access) -> Result<Registration> {
        // SAFETY: the caller's promise.
        unsafe { Registration::new(F::NAME, &self.engine.regions, (addr, len), access) }
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &SocketCq<F>,
        recv_cq: &SocketCq<F>,
    ) -> Result<SocketEndpoint<F>> {
        let context = self.context(id, send_cq, recv_cq.ring.clone());
        Ok(SocketEndpoint::new(&self.engine, attr, context))
    }

    fn shared_receives(
        &self,
        _attr: &SharedReceiveAttr,
        cq: &SocketCq<F>,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        Ok(Box::new(SharedReceiveQueue::new(&cq.ring)))
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &SocketCq<F>,
        receives: &dyn SharedReceiveOps,
    ) -> Result<SocketEndpoint<F>> {
        let (receives, ring) = SharedReceiveQueue::of(receives)?.parts();
        let mut context = self.context(id, send_cq, ring);
        context.receives = Some(receives);
        Ok(SocketEndpoint::new(&self.engine, attr, context))
    }

    fn datagram_endpoint(
        &self,
        _id: EndpointId,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        send_cq: &SocketCq<F>,
        recv_cq: &SocketCq<F>,
    ) -> Result<Box<dyn DatagramOps>> {
        Ok(Box::new(SocketDatagrams::new(&self.engine, attr, sources, (send_cq, recv_cq))?))
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<SocketListener<F>> {
        SocketListener::new(&self.engine, id, addr, attr)
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        listener::reject(&self.engine, request, data)
    }

    fn is_waiting(&self, request: RequestId) -> bool {
        self.engine.requests.with(request, |pending| pending.is_waiting()).unwrap_or(false)
    }

    fn counters(&self) -> ProviderCounters {
        self.engine.stats().snapshot()
    }

    fn dump(&self) -> String {
        self.engine.dump()
    }
}

impl<F: SocketFamily> Drop for SocketDomain<F> {
    fn drop(&mut self) {
        self.engine.stop();
        // In an event sink it may be the thread itself that drops the domain: it ends on its return.
        self.thread.join();
    }
}
