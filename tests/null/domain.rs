//! A domain: regions that only this process reaches, and listeners for requests that tests bring.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use fabric_core::provider::{
    DomainOps, GrantOps, ListenerOps, ProviderCounters, RawRequest, RegistrationOps, RequestId,
};
use fabric_core::{
    Access, CqAttr, EndpointAttr, EndpointId, Error, EventSink, ListenerAttr, ListenerId, Result,
    SharedReceiveAttr, SharedReceiveOps,
};

use super::Control;
use super::cq::NullCq;
use super::endpoint::{Link, NullEndpoint};
use super::shared::{NullReceives, Receives};

pub struct NullDomain {
    pub(super) control: Arc<Control>,
    pub(super) events: Arc<dyn EventSink>,
}

// SAFETY: a registration touches nothing; only operations do, and those never after their completion.
unsafe impl DomainOps for NullDomain {
    type Endpoint = NullEndpoint;
    type Cq = NullCq;
    type Registration = NullRegistration;
    type Listener = NullListener;

    fn completion_queue(&self, attr: &CqAttr) -> Result<NullCq> {
        NullCq::new(attr.capacity)
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        _access: Access,
    ) -> Result<NullRegistration> {
        let on_register = self.control.on_register.lock().unwrap().take();
        if let Some(on_register) = on_register {
            on_register();
        }
        let key = 1 + self.control.next.fetch_add(1, Ordering::Relaxed);
        self.control.registered.lock().unwrap().insert(key, (addr as usize, len));
        Ok(NullRegistration { key, control: self.control.clone() })
    }

    fn endpoint(
        &self,
        id: EndpointId,
        _attr: &EndpointAttr,
        send_cq: &NullCq,
        recv_cq: &NullCq,
    ) -> Result<NullEndpoint> {
        if self.control.makes_none.load(Ordering::Relaxed) {
            return Err(Error::invalid("make endpoint", "this device makes none"));
        }
        let (control, events) = (self.control.clone(), self.events.clone());
        let link = Arc::new(Link::new(id, control, events, [send_cq, recv_cq]));
        self.control.links.lock().unwrap().insert(id, link.clone());
        Ok(NullEndpoint(link))
    }

    fn shared_receives(
        &self,
        _attr: &SharedReceiveAttr,
        cq: &NullCq,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        let receives = Receives::new(&self.control, cq);
        *self.control.receives.lock().unwrap() = Arc::downgrade(&receives);
        Ok(Box::new(NullReceives(receives)))
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &NullCq,
        _receives: &dyn SharedReceiveOps,
    ) -> Result<NullEndpoint> {
        // It has no receives of its own, so their queue does not matter.
        self.endpoint(id, attr, send_cq, send_cq)
    }

    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        _attr: &ListenerAttr,
    ) -> Result<NullListener> {
        let port = if addr.port() == 0 { 40_000 + id.0 as u16 } else { addr.port() };
        let backlog = Arc::new(Backlog { requests: Mutex::default(), events: self.events.clone() });
        self.control.listeners.lock().unwrap().insert(id, backlog.clone());
        let addr = SocketAddr::new(addr.ip(), port);
        Ok(NullListener { id, addr, backlog, control: self.control.clone() })
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        self.control.rejected.lock().unwrap().push((request, data.to_vec()));
        Ok(())
    }

    fn counters(&self) -> ProviderCounters {
        ProviderCounters::default()
    }

    fn dump(&self) -> String {
        format!("{} endpoints", self.control.endpoints())
    }
}

pub struct NullRegistration {
    key: u64,
    control: Arc<Control>,
}

// SAFETY: nothing reaches the range but operations of this process, whose memory the handles keep.
unsafe impl RegistrationOps for NullRegistration {
    fn local_key(&self) -> u64 {
        self.key
    }
    fn remote_key(&self) -> u64 {
        self.key
    }
    fn remote_base(&self) -> u64 {
        0
    }
    unsafe fn grant(
        &self,
        _endpoint: EndpointId,
        _range: Range<usize>,
        _access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        let key = 1 + self.control.next.fetch_add(1, Ordering::Relaxed);
        self.control.grants.lock().unwrap().insert(key, self.key);
        Ok(Box::new(NullGrant { key, control: self.control.clone() }))
    }
    fn deregister(&mut self) -> Result<()> {
        let granted = self.control.grants.lock().unwrap().values().any(|of| *of == self.key);
        assert!(!granted, "a registration ends before its grants");
        if self.control.holds_on.load(Ordering::Relaxed) {
            return Err(Error::system(
                "deregister",
                "null",
                std::io::ErrorKind::ResourceBusy.into(),
            ));
        }
        self.control.registered.lock().unwrap().remove(&self.key);
        Ok(())
    }
}

struct NullGrant {
    key: u64,
    control: Arc<Control>,
}

// SAFETY: there is no peer.
unsafe impl GrantOps for NullGrant {
    fn remote_key(&self) -> u64 {
        self.key
    }
    fn remote_base(&self) -> u64 {
        0
    }
    fn is_open(&self) -> Result<bool> {
        if self.control.never_opens.load(Ordering::Relaxed) {
            return Err(Error::NotConnected);
        }
        Ok(!self.control.stays_shut.load(Ordering::Relaxed))
    }
    fn revoke(&mut self) -> Result<()> {
        if self.control.holds_on.load(Ordering::Relaxed)
            || self.control.stays_shut.load(Ordering::Relaxed)
        {
            return Err(Error::Busy);
        }
        self.control.grants.lock().unwrap().remove(&self.key);
        Ok(())
    }
}

pub(super) struct Backlog {
    pub(super) requests: Mutex<VecDeque<RawRequest>>,
    pub(super) events: Arc<dyn EventSink>,
}

pub struct NullListener {
    id: ListenerId,
    addr: SocketAddr,
    backlog: Arc<Backlog>,
    control: Arc<Control>,
}

impl ListenerOps for NullListener {
    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
    fn next_request(&self) -> Option<RawRequest> {
        self.backlog.requests.lock().unwrap().pop_front()
    }
}

impl Drop for NullListener {
    fn drop(&mut self) {
        self.control.listeners.lock().unwrap().remove(&self.id);
    }
}
