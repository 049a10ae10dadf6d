//! Listeners: how requests are taken in, and how they are rejected.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, Event, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::backlog::Backlog;
use fabric_util::log_limiter::PeerEvent;
use fabric_util::refusal::RefuseReason;
use fabric_util::{log_line, route};

use crate::domain::state::{AfterReport, CmIdOwner, DomainState};
use crate::error::NAME;
use crate::ffi::rdma_cm_event_type as cm;
use crate::handle::{CmEvent, CmId};
use crate::handshake::{Ends, Heard};
use crate::reject_cache::RequesterId;
use crate::request::{Acceptor, ConnectOffer, PendingConnection, refuse};

/// A request comes, or something else of a listening identifier; on the domain's thread.
pub(crate) fn on_event(domain: &DomainState, acceptor: &Acceptor, event: CmEvent) {
    let Some(id) = event.request else {
        if event.kind != cm::RDMA_CM_EVENT_ADDR_CHANGE {
            log_line!(Debug, "listener {}: event {}", acceptor.addr, event.kind);
        }
        return;
    };
    let context = id.context();
    let (Some(peer), Some(local)) = (id.peer_addr(), id.local_addr()) else { return };
    let requester = RequesterId { peer, queue_pair: event.queue_pair };
    if let Some(answer) = domain.reject_cache.lock().answer(Instant::now(), requester) {
        let _ = id.reject(answer); // as before, and as likely to be heard
        return;
    }
    let ends = Ends::new(peer.ip(), local.ip(), event.queue_pair);
    let heard = domain.challenges.lock().hear(Instant::now(), ends, &event.data);
    let (params, acceptance) = match heard {
        Ok(Heard::Whole(params, acceptance)) => (params, acceptance),
        Ok(Heard::Challenge(answer)) => {
            // If the peer is gone, there is none to challenge.
            let _ = id.reject(&answer);
            return;
        }
        Err((reason, unwelcome)) => {
            let stats = &domain.device.stats;
            unwelcome.count(stats);
            stats.peers_refused.add(1);
            if let Some(suppressed) = stats.peer_log.check(PeerEvent::Admission, Some(peer)) {
                let why = unwelcome.why;
                log_line!(Warn, "listener {}: {peer} {why}{suppressed}", acceptor.addr);
            }
            return refuse(&id, reason);
        }
    };
    let resources = (event.responder_resources, event.initiator_depth);
    let pending = PendingConnection::new(
        ConnectOffer { context, id, params, acceptance, peer, local, resources },
        requester,
    );
    domain.add_id(context, CmIdOwner::Pending(pending.clone()));
    let refused = match acceptor.backlog.push(context, peer, pending) {
        Ok(displaced) => {
            domain.report(Event::ConnectRequest { listener: acceptor.id }, AfterReport::Nothing);
            displaced
        }
        Err(pending) => Some(pending),
    };
    if let Some(pending) = refused {
        domain.device.stats.peers_refused.add(1);
        drop_request(domain, &pending);
    }
}

/// Refuses a request that waits: there is no place for it.
fn drop_request(domain: &DomainState, pending: &PendingConnection) {
    if let Some(offer) = pending.take() {
        refuse(&offer.id, RefuseReason::Full);
        domain.forget_id(offer.context);
    }
}

/// A listener.
pub struct VerbsListener {
    acceptor: Arc<Acceptor>,
    domain: Weak<DomainState>,
}

impl VerbsListener {
    pub(crate) fn new(
        domain: &Arc<DomainState>,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        domain.device.check()?;
        let addr = route::listen_addr(&domain.device.info, addr)?;
        let fail = |cause| Error::system("listen", NAME, cause);
        let context = domain.next_number();
        let cm_id = CmId::new(&domain.channel, context).map_err(fail)?;
        if addr.is_ipv6() {
            cm_id.set_only_own_family().map_err(fail)?;
        }
        cm_id.bind(addr).map_err(fail)?;
        let addr = cm_id.local_addr().unwrap_or(addr);
        let acceptor =
            Arc::new(Acceptor { context, id, addr, backlog: Backlog::new(attr.backlog) });
        domain.add_id(context, CmIdOwner::Acceptor(acceptor.clone()));
        let mut listening = Ok(());
        acceptor.backlog.open(|| {
            listening = cm_id.listen().map_err(fail);
            cm_id
        });
        let listener = VerbsListener { acceptor, domain: Arc::downgrade(domain) };
        listening.map(|()| listener)
    }
}

impl ListenerOps for VerbsListener {
    fn local_addr(&self) -> SocketAddr {
        self.acceptor.addr
    }

    fn next_request(&self) -> Option<RawRequest> {
        let domain = self.domain.upgrade()?;
        let pending = self.acceptor.backlog.pop()?;
        let id = domain.requests.insert(pending.clone());
        Some(RawRequest::new(id, pending.requester.peer, pending.data.clone()))
    }
}

impl Drop for VerbsListener {
    fn drop(&mut self) {
        let (id, waiting) = self.acceptor.backlog.close();
        drop(id);
        let Some(domain) = self.domain.upgrade() else { return };
        for pending in waiting {
            drop_request(&domain, &pending);
        }
        domain.forget_id(self.acceptor.context);
    }
}

/// Rejects a request that the application took.
pub(crate) fn reject(domain: &DomainState, request: RequestId, data: &[u8]) -> Result<()> {
    let pending = domain.requests.take("reject", request)?;
    if let Some(offer) = pending.take() {
        let answer = offer.acceptance.reject(data);
        // If the peer is gone, there is none to notify.
        let _ = offer.id.reject(&answer);
        domain.reject_cache.lock().add(Instant::now(), pending.requester, answer);
        domain.forget_id(offer.context);
    }
    Ok(())
}
