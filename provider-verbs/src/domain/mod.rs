//! Domains: an open device and its thread.

mod proof;
pub(crate) mod state;
mod thread;
pub(crate) mod timers;

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::dyn_provider::downcast;
use fabric_core::provider::RequestId;
use fabric_core::{
    Access, CqAttr, DatagramAttr, DatagramOps, DatagramSources, DomainAttr, DomainOps,
    EndpointAttr, EndpointId, EventSink, Info, ListenerAttr, ListenerId, ProviderCounters, Result,
    SharedReceiveAttr, SharedReceiveOps,
};

use fabric_util::service_thread::ServiceThread;

use self::state::DomainState;
use crate::cq::VerbsCq;
use crate::datagram::VerbsDatagrams;
use crate::endpoint::VerbsEndpoint;
use crate::listener::{self, VerbsListener};
use crate::open_device::TestLimits;
use crate::region::VerbsRegistration;
use crate::shared_receives::VerbsSharedReceives;

/// A domain.
pub struct VerbsDomain {
    pub(crate) domain: Arc<DomainState>,
    thread: ServiceThread,
}

impl VerbsDomain {
    pub(crate) fn open(
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
        test_limits: TestLimits,
    ) -> Result<Self> {
        let domain = DomainState::open(info, attr, events, test_limits)?;
        let thread = thread::start(&domain)?;
        Ok(VerbsDomain { domain, thread })
    }
}

// SAFETY: the device reaches a registration's range only, by its key and with its rights (ibv_reg_mr(3)), and not
// after ibv_dereg_mr has returned.
unsafe impl DomainOps for VerbsDomain {
    type Endpoint = VerbsEndpoint;
    type Cq = VerbsCq;
    type Registration = VerbsRegistration;
    type Listener = VerbsListener;

    fn completion_queue(&self, attr: &CqAttr) -> Result<VerbsCq> {
        VerbsCq::new(&self.domain.device, attr)
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<VerbsRegistration> {
        // SAFETY: the caller's promise is passed on.
        unsafe { VerbsRegistration::new(&self.domain, (addr, len), access) }
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &VerbsCq,
        recv_cq: &VerbsCq,
    ) -> Result<VerbsEndpoint> {
        VerbsEndpoint::new(&self.domain, id, attr, (send_cq, recv_cq))
    }

    fn shared_receives(
        &self,
        attr: &SharedReceiveAttr,
        cq: &VerbsCq,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        Ok(Box::new(VerbsSharedReceives::new(&self.domain, attr, cq)?))
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &VerbsCq,
        receives: &dyn SharedReceiveOps,
    ) -> Result<VerbsEndpoint> {
        let receives = downcast::<VerbsSharedReceives>(receives)?;
        VerbsEndpoint::sharing(&self.domain, id, attr, send_cq, &receives.shared)
    }

    fn datagram_endpoint(
        &self,
        _id: EndpointId,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        send_cq: &VerbsCq,
        recv_cq: &VerbsCq,
    ) -> Result<Box<dyn DatagramOps>> {
        Ok(Box::new(VerbsDatagrams::new(&self.domain, attr, sources, (send_cq, recv_cq))?))
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<VerbsListener> {
        VerbsListener::new(&self.domain, id, addr, attr)
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        listener::reject(&self.domain, request, data)
    }

    fn counters(&self) -> ProviderCounters {
        self.domain.device.stats.snapshot()
    }

    fn dump(&self) -> String {
        self.domain.dump()
    }
}

impl Drop for VerbsDomain {
    fn drop(&mut self) {
        self.domain.stop(&mut self.thread);
    }
}
