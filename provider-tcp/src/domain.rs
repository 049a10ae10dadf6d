//! Domains: an engine and its thread.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{
    Access, CqAttr, DomainAttr, DomainOps, EndpointAttr, EndpointId, EventSink, Info, ListenerAttr,
    ListenerId, ProviderCounters, Result, SharedReceiveAttr, SharedReceiveOps,
};

use fabric_util::service_thread::ServiceThread;

use crate::conn::Conn;
use crate::cq::TcpCq;
use crate::endpoint::TcpEndpoint;
use crate::engine::Engine;
use crate::listener::{self, TcpListener};
use crate::name::NAME;
use crate::settings::Settings;
use fabric_util::completion_ring::CompletionRing;
use fabric_util::region_table::Registration;
use fabric_util::stream::{LinkContext, SharedReceiveQueue};

/// A domain.
pub struct TcpDomain {
    pub(crate) engine: Arc<Engine>,
    thread: ServiceThread,
}

impl TcpDomain {
    pub(crate) fn open(
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
        settings: Settings,
    ) -> Result<Self> {
        let engine = Engine::new(info, attr, events, settings)?;
        let thread = engine.start()?;
        Ok(TcpDomain { engine, thread })
    }

    fn context(
        &self,
        id: EndpointId,
        send_cq: &TcpCq,
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
// the entry's gate held; `deregister` closes the gate.
unsafe impl DomainOps for TcpDomain {
    type Endpoint = TcpEndpoint;
    type Cq = TcpCq;
    type Registration = Registration;
    type Listener = TcpListener;

    fn completion_queue(&self, _attr: &CqAttr) -> Result<TcpCq> {
        TcpCq::new(&self.engine)
    }

    unsafe fn register(&self, addr: *mut u8, len: usize, access: Access) -> Result<Registration> {
        // SAFETY: the caller's promise.
        unsafe { Registration::new(NAME, &self.engine.regions, (addr, len), access) }
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &TcpCq,
        recv_cq: &TcpCq,
    ) -> Result<TcpEndpoint> {
        let context = self.context(id, send_cq, recv_cq.ring.clone());
        Ok(TcpEndpoint::new(&self.engine, attr, context))
    }

    fn shared_receives(
        &self,
        _attr: &SharedReceiveAttr,
        cq: &TcpCq,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        Ok(Box::new(SharedReceiveQueue::<Conn>::new(&self.engine, &cq.ring)))
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &TcpCq,
        receives: &dyn SharedReceiveOps,
    ) -> Result<TcpEndpoint> {
        let queue = SharedReceiveQueue::<Conn>::of(receives)?;
        let (receives, ring) = queue.parts();
        let mut context = self.context(id, send_cq, ring);
        context.receives = Some(receives);
        let endpoint = TcpEndpoint::new(&self.engine, attr, context);
        queue.add(id, endpoint.conn());
        Ok(endpoint)
    }

    fn listen(&self, id: ListenerId, addr: SocketAddr, attr: &ListenerAttr) -> Result<TcpListener> {
        TcpListener::new(&self.engine, id, addr, attr)
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

impl Drop for TcpDomain {
    fn drop(&mut self) {
        self.engine.stop();
        // In an event sink it may be the thread itself that drops the domain: it ends on its return.
        self.thread.join();
    }
}
