//! Connection requests, from their arrival to their answer, and the identifiers that listen for them.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::ListenerId;
use fabric_util::backlog::Backlog;
use fabric_util::refusal::RefuseReason;
use fabric_util::sync::Mutex;

use crate::handle::CmId;
use crate::handshake::Acceptance;
use crate::header::{self, ConnectParams, Rejection};
use crate::reject_cache::RequesterId;

/// A listening identifier.
pub(crate) struct Acceptor {
    pub(crate) context: u64,
    pub(crate) id: ListenerId,
    pub(crate) addr: SocketAddr,
    pub(crate) backlog: Backlog<CmId, Arc<PendingConnection>>,
}

/// A request that was not answered yet.
pub(crate) struct PendingConnection {
    /// `None` once it is answered, or the peer is gone.
    offer: Mutex<Option<ConnectOffer>>,
    pub(crate) requester: RequesterId,
    pub(crate) data: Box<[u8]>,
}

/// What it takes to answer a request.
pub(crate) struct ConnectOffer {
    /// The identifier's.
    pub(crate) context: u64,
    pub(crate) id: CmId,
    pub(crate) params: ConnectParams,
    pub(crate) acceptance: Acceptance,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// Reads and atomics that the peer wants held, and that it holds.
    pub(crate) resources: (u8, u8),
}

impl PendingConnection {
    pub(crate) fn new(offer: ConnectOffer, requester: RequesterId) -> Arc<Self> {
        let data = offer.params.data.clone();
        Arc::new(PendingConnection { offer: Mutex::new(Some(offer)), requester, data })
    }

    /// What it takes to answer, once.
    pub(crate) fn take(&self) -> Option<ConnectOffer> {
        self.offer.lock().take()
    }
}

/// Rejects a request for the library's own reasons.
pub(crate) fn refuse(id: &CmId, reason: RefuseReason) {
    // If the peer is gone, there is none to notify.
    let _ = id.reject(&header::reject(&Rejection::Refused(reason)));
}
