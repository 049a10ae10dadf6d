//! Listeners: the contract's view of an acceptor.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::route;

use crate::acceptor::Acceptor;
use crate::engine::Engine;
use crate::name::NAME;
use crate::network;

/// A listener.
pub struct MemListener {
    acceptor: Arc<Acceptor>,
    engine: Weak<Engine>,
}

impl MemListener {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        let addr = route::listen_addr(&engine.info, addr)?;
        let engine = Arc::downgrade(engine);
        let make = |addr| Acceptor::new(id, addr, attr.backlog, engine.clone());
        let acceptor =
            network::listen(addr, make).map_err(|cause| Error::system("listen", NAME, cause))?;
        Ok(MemListener { acceptor, engine })
    }
}

impl ListenerOps for MemListener {
    fn local_addr(&self) -> SocketAddr {
        self.acceptor.addr
    }

    fn next_request(&self) -> Option<RawRequest> {
        let engine = self.engine.upgrade()?;
        let request = self.acceptor.next_request()?;
        let id = engine.requests.insert(request.clone());
        Some(RawRequest::new(id, request.from, request.greeting.data().into()))
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        network::close(&self.acceptor);
    }
}

/// Rejects a request that the application took.
pub(crate) fn reject(engine: &Engine, request: RequestId, data: &[u8]) -> Result<()> {
    let request = engine.requests.take("reject", request)?;
    let wire = request.wire.lock().take();
    if let Some(wire) = wire {
        wire.reject(&request.greeting, data);
    }
    Ok(())
}
