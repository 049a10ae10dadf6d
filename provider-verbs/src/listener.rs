//! Listeners: how requests are taken in, and how they are rejected.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, Event, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::backlog::Backlog;
use fabric_util::{log_line, route};

use crate::domain::state::{After, Member, Shared};
use crate::error::NAME;
use crate::ffi::rdma_cm_event_type as cm;
use crate::handle::{CmEvent, CmId};
use crate::header::{self, No};
use crate::rejected::Caller;
use crate::request::{Door, Inbound, Offer, refuse};

/// A request comes, or something else of a listening identifier; on the domain's thread.
pub(crate) fn on_event(shared: &Shared, door: &Door, event: CmEvent) {
    let Some(id) = event.request else {
        if event.kind != cm::RDMA_CM_EVENT_ADDR_CHANGE {
            log_line!(Debug, "listener {}: event {}", door.addr, event.kind);
        }
        return;
    };
    let name = id.name();
    let Some(peer) = id.peer_addr() else { return };
    let caller = Caller { peer, queue_pair: event.queue_pair };
    if let Some(answer) = shared.rejected.lock().answer(Instant::now(), caller) {
        let _ = id.reject(answer); // as before, and as likely to be heard
        return;
    }
    let greeting = match header::parse_request(&event.data) {
        Ok(greeting) => greeting,
        Err(why) => {
            let stats = &shared.device.stats;
            stats.protocol_errors.add(1);
            if let Some(unsaid) = stats.peer_lines.admit() {
                log_line!(Warn, "listener {}: {peer} is sent away: {why}{unsaid}", door.addr);
            }
            return refuse(&id);
        }
    };
    let resources = (event.responder_resources, event.initiator_depth);
    let local = id.local_addr();
    let inbound = Inbound::new(Offer { name, id, greeting, peer, local, resources }, caller);
    shared.add_id(name, Member::Inbound(inbound.clone()));
    match door.backlog.push(inbound) {
        Ok(()) => shared.report(Event::ConnectRequest { listener: door.id }, After::Nothing),
        Err(inbound) => answer(shared, &inbound, &No::Refused),
    }
}

fn answer(shared: &Shared, inbound: &Inbound, no: &No) {
    if let Some(offer) = inbound.take() {
        let answer = header::reject(no);
        // If the peer is gone, there is none to notify.
        let _ = offer.id.reject(&answer);
        if matches!(no, No::Rejected(_)) {
            shared.rejected.lock().add(Instant::now(), inbound.caller, answer);
        }
        shared.forget_id(offer.name);
    }
}

/// A listener.
pub struct VerbsListener {
    door: Arc<Door>,
    shared: Weak<Shared>,
}

impl VerbsListener {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        shared.device.check()?;
        let addr = route::listen_addr(&shared.device.info, addr)?;
        let fail = |cause| Error::system("listen", NAME, cause);
        let name = shared.fresh_name();
        let cm_id = CmId::new(&shared.channel, name).map_err(fail)?;
        if addr.is_ipv6() {
            cm_id.set_only_own_family().map_err(fail)?;
        }
        cm_id.bind(addr).map_err(fail)?;
        let addr = cm_id.local_addr().unwrap_or(addr);
        let door = Arc::new(Door { name, id, addr, backlog: Backlog::new(attr.backlog) });
        shared.add_id(name, Member::Door(door.clone()));
        let mut listening = Ok(());
        door.backlog.open(|| {
            listening = cm_id.listen().map_err(fail);
            cm_id
        });
        let listener = VerbsListener { door, shared: Arc::downgrade(shared) };
        listening.map(|()| listener)
    }
}

impl ListenerOps for VerbsListener {
    fn local_addr(&self) -> SocketAddr {
        self.door.addr
    }

    fn next_request(&self) -> Option<RawRequest> {
        let shared = self.shared.upgrade()?;
        let inbound = self.door.backlog.pop()?;
        let id = shared.requests.insert(inbound.clone());
        Some(RawRequest::new(id, inbound.caller.peer, inbound.data.clone()))
    }
}

impl Drop for VerbsListener {
    fn drop(&mut self) {
        let (id, waiting) = self.door.backlog.close();
        drop(id);
        let Some(shared) = self.shared.upgrade() else { return };
        for inbound in waiting {
            answer(&shared, &inbound, &No::Refused);
        }
        shared.forget_id(self.door.name);
    }
}

/// Rejects a request that the application took.
pub(crate) fn reject(shared: &Shared, request: RequestId, data: &[u8]) -> Result<()> {
    let inbound = shared.requests.take("reject", request)?;
    answer(shared, &inbound, &No::Rejected(data.into()));
    Ok(())
}
