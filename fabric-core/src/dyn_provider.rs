//! The object-safe twins of [`Provider`] and [`DomainOps`], which all implementations have: by these the library knows
//! providers, be they compiled in, null, doubles for tests, hooks or of third parties.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::access::Access;
use crate::attr::{CqAttr, DomainAttr, EndpointAttr, ListenerAttr, SharedReceiveAttr};
use crate::completion::EndpointId;
use crate::datagram::{DatagramAttr, DatagramOps, DatagramSources};
use crate::error::{Error, Result};
use crate::event::{EventSink, ListenerId, RequestId};
use crate::info::{Device, Info};
use crate::memory::Memory;
use crate::ops::{CqOps, EndpointOps, SharedReceiveOps};
use crate::path::Path;
use crate::provider::{DomainOps, ListenerOps, Provider, ProviderCounters, RegistrationOps};
use crate::setting::Setting;

/// The object-safe twin of [`Provider`].
pub trait DynProvider: Any + Send + Sync {
    /// See [`Provider::name`].
    fn name(&self) -> &'static str;
    /// See [`Provider::devices`].
    fn devices(&self) -> Vec<Device>;
    /// See [`Provider::settings`].
    fn settings(&self) -> &'static [Setting];
    /// See [`Provider::pools_receives`].
    fn pools_receives(&self) -> bool;
    /// See [`Provider::configure`].
    fn configure(&self, name: &str, value: &str) -> Result<Box<dyn DynProvider>>;
    /// See [`Provider::open`].
    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<Box<dyn DynDomain>>;
}

/// The object-safe twin of [`DomainOps`].
///
/// # Safety
/// As [`DomainOps`].
pub unsafe trait DynDomain: Any + Send + Sync {
    /// See [`DomainOps::completion_queue`].
    fn completion_queue(&self, attr: &CqAttr) -> Result<Box<dyn CqOps>>;
    /// See [`DomainOps::allocate`].
    fn allocate(&self, len: usize) -> Result<Memory>;
    /// See [`DomainOps::register`].
    ///
    /// # Safety
    /// As [`DomainOps::register`].
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Box<dyn RegistrationOps>>;
    /// See [`DomainOps::endpoint`]. The queues must be of this domain.
    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &dyn CqOps,
        recv_cq: &dyn CqOps,
    ) -> Result<Box<dyn EndpointOps>>;
    /// See [`DomainOps::shared_receives`]. The queue must be of this domain.
    fn shared_receives(
        &self,
        attr: &SharedReceiveAttr,
        cq: &dyn CqOps,
    ) -> Result<Box<dyn SharedReceiveOps>>;
    /// See [`DomainOps::endpoint_sharing`]. The queues must be of this domain.
    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &dyn CqOps,
        receives: &dyn SharedReceiveOps,
    ) -> Result<Box<dyn EndpointOps>>;
    /// See [`DomainOps::datagram_endpoint`]. The queues must be of this domain.
    fn datagram_endpoint(
        &self,
        id: EndpointId,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        send_cq: &dyn CqOps,
        recv_cq: &dyn CqOps,
    ) -> Result<Box<dyn DatagramOps>>;
    /// See [`DomainOps::listen`].
    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Box<dyn ListenerOps>>;
    /// See [`DomainOps::reject`].
    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()>;
    /// See [`DomainOps::is_waiting`].
    fn is_waiting(&self, request: RequestId) -> bool;
    /// See [`DomainOps::path_to`].
    fn path_to(&self, peer: SocketAddr) -> Result<Option<Path>>;
    /// See [`DomainOps::counters`].
    fn counters(&self) -> ProviderCounters;
    /// See [`DomainOps::dump`].
    fn dump(&self) -> String;
}

impl<P: Provider> DynProvider for P {
    fn name(&self) -> &'static str {
        Provider::name(self)
    }
    fn devices(&self) -> Vec<Device> {
        Provider::devices(self)
    }
    fn settings(&self) -> &'static [Setting] {
        Provider::settings(self)
    }
    fn pools_receives(&self) -> bool {
        Provider::pools_receives(self)
    }
    fn configure(&self, name: &str, value: &str) -> Result<Box<dyn DynProvider>> {
        Ok(Box::new(Provider::configure(self, name, value)?))
    }
    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<Box<dyn DynDomain>> {
        Ok(Box::new(Provider::open(self, info, attr, events)?))
    }
}

// SAFETY: forwards to an implementation that keeps the contract.
unsafe impl<D: DomainOps> DynDomain for D {
    fn completion_queue(&self, attr: &CqAttr) -> Result<Box<dyn CqOps>> {
        Ok(Box::new(DomainOps::completion_queue(self, attr)?))
    }
    fn allocate(&self, len: usize) -> Result<Memory> {
        DomainOps::allocate(self, len)
    }
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Box<dyn RegistrationOps>> {
        // SAFETY: the caller's promise is passed on.
        Ok(Box::new(unsafe { DomainOps::register(self, addr, len, access)? }))
    }
    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &dyn CqOps,
        recv_cq: &dyn CqOps,
    ) -> Result<Box<dyn EndpointOps>> {
        let (send_cq, recv_cq) = (downcast::<D::Cq>(send_cq)?, downcast::<D::Cq>(recv_cq)?);
        Ok(Box::new(DomainOps::endpoint(self, id, attr, send_cq, recv_cq)?))
    }
    fn shared_receives(
        &self,
        attr: &SharedReceiveAttr,
        cq: &dyn CqOps,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        DomainOps::shared_receives(self, attr, downcast::<D::Cq>(cq)?)
    }
    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &dyn CqOps,
        receives: &dyn SharedReceiveOps,
    ) -> Result<Box<dyn EndpointOps>> {
        let send_cq = downcast::<D::Cq>(send_cq)?;
        Ok(Box::new(DomainOps::endpoint_sharing(self, id, attr, send_cq, receives)?))
    }
    fn datagram_endpoint(
        &self,
        id: EndpointId,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        send_cq: &dyn CqOps,
        recv_cq: &dyn CqOps,
    ) -> Result<Box<dyn DatagramOps>> {
        let (send_cq, recv_cq) = (downcast::<D::Cq>(send_cq)?, downcast::<D::Cq>(recv_cq)?);
        DomainOps::datagram_endpoint(self, id, attr, sources, send_cq, recv_cq)
    }
    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Box<dyn ListenerOps>> {
        Ok(Box::new(DomainOps::listen(self, id, addr, attr)?))
    }
    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        DomainOps::reject(self, request, data)
    }
    fn is_waiting(&self, request: RequestId) -> bool {
        DomainOps::is_waiting(self, request)
    }
    fn path_to(&self, peer: SocketAddr) -> Result<Option<Path>> {
        DomainOps::path_to(self, peer)
    }
    fn counters(&self) -> ProviderCounters {
        DomainOps::counters(self)
    }
    fn dump(&self) -> String {
        DomainOps::dump(self)
    }
}

/// A completion queue, or a shared receive queue, as its provider made it.
///
/// # Errors
/// `InvalidArgument` if it is of another provider.
pub fn downcast<Q: Any>(queue: &dyn Any) -> Result<&Q> {
    queue
        .downcast_ref()
        .ok_or_else(|| Error::invalid("make endpoint", "the queue is of another provider"))
}
