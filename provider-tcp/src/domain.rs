//! Domains: an engine and its thread.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::provider::RequestId;
use fabric_core::{
    Access, CqAttr, DomainOps, EndpointAttr, EndpointId, EventSink, Info, ListenerAttr, ListenerId,
    ProviderCounters, Result,
};

use fabric_util::service_thread::ServiceThread;

use crate::cq::TcpCq;
use crate::endpoint::TcpEndpoint;
use crate::engine::Engine;
use crate::listener::{self, TcpListener};
use crate::name::NAME;
use crate::settings::Settings;
use fabric_util::region_table::Registration;
use fabric_util::stream::Surroundings;

/// A domain.
pub struct TcpDomain {
    pub(crate) engine: Arc<Engine>,
    thread: ServiceThread,
}

impl TcpDomain {
    pub(crate) fn open(
        info: &Info,
        events: Arc<dyn EventSink>,
        settings: Settings,
    ) -> Result<Self> {
        let engine = Engine::new(info, events, settings)?;
        let thread = engine.start()?;
        Ok(TcpDomain { engine, thread })
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
        let around = Surroundings {
            id,
            regions: self.engine.regions.clone(),
            send_ring: send_cq.ring.clone(),
            recv_ring: recv_cq.ring.clone(),
            stats: self.engine.stats().clone(),
        };
        Ok(TcpEndpoint::new(&self.engine, attr, around))
    }

    fn listen(&self, id: ListenerId, addr: SocketAddr, attr: &ListenerAttr) -> Result<TcpListener> {
        TcpListener::new(&self.engine, id, addr, attr)
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        listener::reject(&self.engine, request, data)
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
        self.engine.clear();
    }
}
