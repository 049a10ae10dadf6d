//! Listeners, and the requests that come to them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, Event, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::backlog::Backlog;
use fabric_util::sync::Mutex;
use fabric_util::{log_line, route};

use crate::NAME;
use crate::ffi::rdma_cm_event_type as cm;
use crate::handle::{CmEvent, CmId};
use crate::header::{self, Greeting, No};
use crate::manager::{After, Member, Shared};
use crate::rejected::Caller;

/// A listening identifier.
pub(crate) struct Door {
    name: u64,
    id: ListenerId,
    addr: SocketAddr,
    backlog: Backlog<CmId, Arc<Inbound>>,
}

/// A request that was not answered yet.
pub(crate) struct Inbound {
    /// `None` once it is answered, or the peer is gone.
    offer: Mutex<Option<Offer>>,
    caller: Caller,
    data: Box<[u8]>,
}

/// What it takes to answer a request.
pub(crate) struct Offer {
    /// The identifier's.
    pub(crate) name: u64,
    pub(crate) id: CmId,
    pub(crate) greeting: Greeting,
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<SocketAddr>,
    /// Reads and atomics that the peer wants held, and that it holds.
    pub(crate) resources: (u8, u8),
}

impl Door {
    /// A request comes; on the domain's thread.
    pub(crate) fn cm_event(&self, shared: &Arc<Shared>, event: CmEvent) {
        let Some(id) = event.request else {
            if event.kind != cm::RDMA_CM_EVENT_ADDR_CHANGE {
                log_line!(Debug, "listener {}: event {}", self.addr, event.kind);
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
                shared.stats.protocol_errors.add(1);
                if let Some(unsaid) = shared.stats.peer_lines.admit() {
                    log_line!(Warn, "listener {}: {peer} is sent away: {why}{unsaid}", self.addr);
                }
                return refuse(&id);
            }
        };
        let resources = (event.responder_resources, event.initiator_depth);
        let (local, data) = (id.local_addr(), greeting.data.clone());
        let offer = Offer { name, id, greeting, peer, local, resources };
        let inbound = Arc::new(Inbound { offer: Mutex::new(Some(offer)), caller, data });
        shared.add_id(name, Member::Inbound(inbound.clone()));
        match self.backlog.push(inbound) {
            Ok(()) => {
                shared.report(Event::ConnectRequest { listener: self.id }, After::Nothing);
            }
            Err(inbound) => inbound.answer(shared, &No::Refused),
        }
    }
}

pub(crate) fn refuse(id: &CmId) {
    // If the peer is gone, there is none to notify.
    let _ = id.reject(&header::reject(&No::Refused));
}

impl Inbound {
    /// The peer gave up before it was answered; on the domain's thread.
    pub(crate) fn cm_event(&self, event: &CmEvent) {
        log_line!(Debug, "request from {}: event {}", self.caller.peer, event.kind);
        drop(self.take());
    }

    /// What it takes to answer, once.
    pub(crate) fn take(&self) -> Option<Offer> {
        self.offer.lock().take()
    }

    fn answer(&self, shared: &Shared, no: &No) {
        if let Some(offer) = self.take() {
            let answer = header::reject(no);
            // If the peer is gone, there is none to notify.
            let _ = offer.id.reject(&answer);
            if matches!(no, No::Rejected(_)) {
                shared.rejected.lock().add(Instant::now(), self.caller, answer);
            }
            shared.forget_id(offer.name);
        }
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
        shared.check_device()?;
        let addr = route::listen_addr(&shared.info, addr)?;
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
            inbound.answer(&shared, &No::Refused);
        }
        shared.forget_id(self.door.name);
    }
}

/// Rejects a request that the application took.
pub(crate) fn reject(shared: &Shared, request: RequestId, data: &[u8]) -> Result<()> {
    shared.requests.take("reject", request)?.answer(shared, &No::Rejected(data.into()));
    Ok(())
}
