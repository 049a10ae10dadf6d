//! Domains: an engine and its thread.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{
    Access, CqAttr, DatagramAttr, DatagramOps, DatagramSources, DomainOps, EndpointAttr,
    EndpointId, EventSink, Info, ListenerAttr, ListenerId, ProviderCounters, Result,
    SharedReceiveAttr, SharedReceiveOps,
};
use fabric_util::completion_ring::CompletionRing;
use fabric_util::region_table::Registration;
use fabric_util::service_thread::ServiceThread;
use fabric_util::stream::{LinkContext, SharedReceiveQueue};

use crate::cq::MemCq;
use crate::datagram::MemDatagrams;
use crate::endpoint::MemEndpoint;
use crate::engine::Engine;
use crate::listener::{self, MemListener};
use crate::name::NAME;

/// A domain.
pub struct MemDomain {
    engine: Arc<Engine>,
    thread: ServiceThread,
}

impl MemDomain {
    pub(crate) fn open(info: &Info, events: Arc<dyn EventSink>) -> Result<Self> {
        let engine = Arc::new(Engine::new(info, events));
        let thread = engine.start()?;
        Ok(MemDomain { engine, thread })
    }

    fn context(
        &self,
        id: EndpointId,
        send_cq: &MemCq,
        recv_ring: Arc<CompletionRing>,
    ) -> LinkContext {
        let (regions, stats) = (self.engine.regions.clone(), self.engine.stats.clone());
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

// SAFETY: a registration's memory is reached only through its table entry, with range and rights checked and the entry's
// gate held; `deregister` closes the gate.
unsafe impl DomainOps for MemDomain {
    type Endpoint = MemEndpoint;
    type Cq = MemCq;
    type Registration = Registration;
    type Listener = MemListener;

    fn completion_queue(&self, _attr: &CqAttr) -> Result<MemCq> {
        MemCq::new(&self.engine)
    }

    unsafe fn register(&self, addr: *mut u8, len: usize, access: Access) -> Result<Registration> {
        // SAFETY: the caller's promise.
        unsafe { Registration::new(NAME, &self.engine.regions, (addr, len), access) }
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &MemCq,
        recv_cq: &MemCq,
    ) -> Result<MemEndpoint> {
        let context = self.context(id, send_cq, recv_cq.ring.clone());
        Ok(MemEndpoint::new(&self.engine, attr, context))
    }

    fn shared_receives(
        &self,
        _attr: &SharedReceiveAttr,
        cq: &MemCq,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        Ok(Box::new(SharedReceiveQueue::new(&cq.ring)))
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &MemCq,
        receives: &dyn SharedReceiveOps,
    ) -> Result<MemEndpoint> {
        let (receives, ring) = SharedReceiveQueue::of(receives)?.parts();
        let mut context = self.context(id, send_cq, ring);
        context.receives = Some(receives);
        Ok(MemEndpoint::new(&self.engine, attr, context))
    }

    fn datagram_endpoint(
        &self,
        _id: EndpointId,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        send_cq: &MemCq,
        recv_cq: &MemCq,
    ) -> Result<Box<dyn DatagramOps>> {
        Ok(Box::new(MemDatagrams::new(&self.engine, attr, sources, (send_cq, recv_cq))?))
    }

    fn listen(&self, id: ListenerId, addr: SocketAddr, attr: &ListenerAttr) -> Result<MemListener> {
        MemListener::new(&self.engine, id, addr, attr)
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        listener::reject(&self.engine, request, data)
    }

    fn is_waiting(&self, request: RequestId) -> bool {
        self.engine.requests.with(request, |request| !request.has_left()).unwrap_or(false)
    }

    fn counters(&self) -> ProviderCounters {
        self.engine.stats.snapshot()
    }

    fn dump(&self) -> String {
        self.engine.dump()
    }
}

impl Drop for MemDomain {
    fn drop(&mut self) {
        self.engine.stop();
        // In an event sink it may be the thread itself that drops the domain: it ends on its return.
        self.thread.join();
    }
}
