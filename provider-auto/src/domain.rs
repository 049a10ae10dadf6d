//! Domains: one of each of the two.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::dyn_provider::downcast;
use fabric_core::provider::RequestId;
use fabric_core::{
    Access, Capabilities, CqAttr, DomainAttr, DomainOps, DynProvider, EndpointAttr, EndpointId,
    EventSink, Info, ListenerAttr, ListenerId, Memory, Path, Provider, ProviderCounters, Result,
    SharedReceiveAttr, SharedReceiveOps,
};
use provider_shm::ShmProvider;

use crate::cq::AutoCq;
use crate::endpoint::{AutoEndpoint, Receives};
use crate::listener::AutoListener;
use crate::region::AutoRegistration;
use crate::shared_receives::AutoSharedReceives;
use crate::ways::{FarEvents, NearEnds, NearEvents, Side, Ways, split};

/// A domain.
pub struct AutoDomain {
    ways: Arc<Ways>,
}

impl AutoDomain {
    pub(crate) fn open(
        (near, near_info): (&ShmProvider, &Info),
        (far, info): (&dyn DynProvider, &Info),
        withdrawn: Capabilities,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<Self> {
        let ends = Arc::new(NearEnds::default());
        let near_events = NearEvents { events: events.clone(), ends: ends.clone() };
        let far_events = FarEvents { events, ends: ends.clone() };
        let far = far.open(info, attr, Arc::new(far_events))?;
        let near = Provider::open(near, near_info, attr, Arc::new(near_events))?;
        let (mut near_info, mut far_info) = (near_info.clone(), info.clone());
        near_info.capabilities -= withdrawn;
        far_info.capabilities -= withdrawn;
        Ok(AutoDomain { ways: Arc::new(Ways { near, far, near_info, far_info, ends }) })
    }
}

// SAFETY: each of the two keeps the contract, and a registration is one with each.
unsafe impl DomainOps for AutoDomain {
    type Endpoint = AutoEndpoint;
    type Cq = AutoCq;
    type Registration = AutoRegistration;
    type Listener = AutoListener;

    fn completion_queue(&self, attr: &CqAttr) -> Result<AutoCq> {
        AutoCq::new(&self.ways, attr)
    }

    fn allocate(&self, len: usize) -> Result<Memory> {
        self.ways.near.allocate(len)
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<AutoRegistration> {
        // SAFETY: the caller's promise.
        unsafe { AutoRegistration::new(&self.ways, (addr, len), access) }
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &AutoCq,
        recv_cq: &AutoCq,
    ) -> Result<AutoEndpoint> {
        let receives = Receives::Own(recv_cq.queues.clone());
        Ok(AutoEndpoint::new(id, attr, &self.ways, &send_cq.queues, receives))
    }

    fn shared_receives(
        &self,
        attr: &SharedReceiveAttr,
        cq: &AutoCq,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        Ok(Box::new(AutoSharedReceives::new(&self.ways, attr, cq)?))
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &AutoCq,
        receives: &dyn SharedReceiveOps,
    ) -> Result<AutoEndpoint> {
        let pool = downcast::<AutoSharedReceives>(receives)?.pool.clone();
        Ok(AutoEndpoint::new(id, attr, &self.ways, &send_cq.queues, Receives::Pool(pool)))
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<AutoListener> {
        AutoListener::new(&self.ways, id, addr, attr)
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        match split(request) {
            (Side::Near, request) => self.ways.near.reject(request, data),
            (Side::Far, request) => self.ways.far.reject(request, data),
        }
    }

    fn is_waiting(&self, request: RequestId) -> bool {
        match split(request) {
            (Side::Near, request) => self.ways.near.is_waiting(request),
            (Side::Far, request) => self.ways.far.is_waiting(request),
        }
    }

    fn path_to(&self, peer: SocketAddr) -> Result<Option<Path>> {
        self.ways.path_to(peer).map(Some)
    }

    fn counters(&self) -> ProviderCounters {
        self.ways.near.counters() + self.ways.far.counters()
    }

    fn dump(&self) -> String {
        let Ways { near, far, far_info: info, .. } = &*self.ways;
        let (near, far) = (near.dump(), far.dump());
        format!("by shm:\n{near}\nby {}:{}:\n{far}", info.provider, info.device)
    }
}
