//! Passive endpoints: they listen.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use fabric::ListenerAttr;

use super::devices::{Device, Fabric};
use super::domain::Domain;
use super::event::{Listening, Owner};
use super::event_queue::Events;
use super::kinds::AnyEndpoint;
use crate::abi::FidPep;
use crate::abi::flags::{FI_CLASS_PEP, FI_EDOMAIN, FI_ENOEQ};
use crate::discovery::owned::OwnedInfo;
use crate::errno::Errno;
use crate::handle::{Name, Object};
use crate::sync::lock;

/// A passive endpoint.
pub(crate) struct Passive {
    fabric: Arc<Fabric>,
    device: Arc<Device>,
    state: Mutex<PassiveState>,
}

// SAFETY: `FidPep` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for Passive {
    type C = FidPep;
    const CLASS: usize = FI_CLASS_PEP;
}

struct PassiveState {
    template: OwnedInfo,
    address: SocketAddr,
    backlog: Option<usize>,
    events: Option<Arc<Events>>,
    listening: Option<Arc<Listening>>,
}

impl Passive {
    /// One on a device, with the info that its requests are made from.
    pub(crate) fn new(
        fabric: &Arc<Fabric>,
        device: Arc<Device>,
        template: OwnedInfo,
    ) -> Result<Self, Errno> {
        let first = device.domain.info().addresses.first().map(|ip| SocketAddr::new(*ip, 0));
        let address = template.source().or(first).ok_or(Errno::INVALID)?;
        let (backlog, events, listening) = (None, None, None);
        let state = Mutex::new(PassiveState { template, address, backlog, events, listening });
        Ok(Passive { fabric: fabric.clone(), device, state })
    }

    pub(crate) fn bind(&self, events: &Arc<Events>) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        state.check_idle()?;
        state.events = Some(events.clone());
        Ok(())
    }

    pub(crate) fn set_backlog(&self, backlog: usize) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        state.check_idle()?;
        // Zero leaves it to the provider, and more than there can be is as much as there can be (listen(2)).
        let max = self.device.domain.info().limits.backlog;
        state.backlog = (backlog > 0).then_some(backlog.min(max));
        Ok(())
    }

    pub(crate) fn listen(&self, owner: Owner) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        state.check_idle()?;
        let events = state.events.clone().ok_or(Errno(FI_ENOEQ))?;
        let queue = events.queue(&self.device)?;
        let mut attr = ListenerAttr::default();
        attr.backlog = state.backlog.unwrap_or(attr.backlog);
        let listener = self.device.domain.listen_into(state.address, &attr, &queue)?;
        let mut template = state.template.duplicate()?;
        // Endpoints that answer connect from this address, and from any port.
        template.set_source(SocketAddr::new(listener.local_addr().ip(), 0))?;
        let device = self.device.clone();
        let listening = Arc::new(Listening { listener, owner, template, device });
        events.add_listener(&listening);
        state.listening = Some(listening);
        Ok(())
    }

    /// Its address for an active endpoint that is made from it, which takes its place.
    pub(crate) fn give_address(&self, domain: &Domain) -> Result<SocketAddr, Errno> {
        if !Arc::ptr_eq(&self.device, &domain.device) {
            return Err(Errno(FI_EDOMAIN));
        }
        let state = lock(&self.state);
        state.check_idle()?;
        Ok(state.address)
    }

    /// Sends the peer of a request away.
    pub(crate) fn reject(&self, request: Name, data: &[u8]) -> Result<(), Errno> {
        let (mut request, _device) = self.fabric.requests.take(request).ok_or(Errno::INVALID)?;
        Ok(request.reject(data)?)
    }
}

impl AnyEndpoint for Passive {
    /// Where it listens, with the port once it does.
    fn address(&self) -> Result<SocketAddr, Errno> {
        let state = lock(&self.state);
        Ok(state.listening.as_ref().map_or(state.address, |on| on.listener.local_addr()))
    }

    fn set_address(&self, address: SocketAddr) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        state.check_idle()?;
        state.address = address;
        Ok(())
    }

    /// Stops listening; what waits is refused.
    fn end(&self, name: Name) {
        let mut state = lock(&self.state);
        if let Some(events) = state.events.take() {
            events.remove(name);
        }
        state.listening = None;
    }
}

impl PassiveState {
    fn check_idle(&self) -> Result<(), Errno> {
        if self.listening.is_some() { Err(Errno::BAD_STATE) } else { Ok(()) }
    }
}
