//! Listeners: the contract's view of an acceptor.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, ListenerAttr, ListenerId, ListenerOps, Result};
use mio::Interest;

use super::acceptor::Acceptor;
use super::engine::{Engine, EngineRef};
use super::family::SocketFamily;
use super::interfaces;
use crate::backlog::Backlog;

/// A listener.
pub struct SocketListener<F: SocketFamily> {
    acceptor: Arc<Acceptor<F>>,
    engine: EngineRef<F>,
}

impl<F: SocketFamily> SocketListener<F> {
    pub(super) fn new(
        engine: &Arc<Engine<F>>,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        let addr = interfaces::listen_addr(&engine.info, addr)?;
        let listening = F::listen(addr);
        let socket = listening.map_err(|cause| Error::system("listen", F::NAME, cause))?;
        Self::over(engine, id, socket, attr)
    }

    /// By a socket that listens, and its address.
    pub(super) fn over(
        engine: &Arc<Engine<F>>,
        id: ListenerId,
        (socket, addr): (F::Listener, SocketAddr),
        attr: &ListenerAttr,
    ) -> Result<Self> {
        let fd = socket.as_fd().as_raw_fd();
        let name = engine.name();
        let backlog = Backlog::new(attr.backlog);
        backlog.open(|| socket);
        let acceptor = Acceptor::new(name, id, addr, backlog, engine.protection.clone());
        engine.watch(fd, name, acceptor.clone(), Interest::READABLE)?;
        Ok(SocketListener { acceptor, engine: Arc::downgrade(engine) })
    }
}

impl<F: SocketFamily> ListenerOps for SocketListener<F> {
    fn local_addr(&self) -> SocketAddr {
        self.acceptor.addr
    }

    fn next_request(&self) -> Option<RawRequest> {
        let engine = self.engine.upgrade()?;
        let inbound = self.acceptor.backlog.pop()?;
        inbound.taken(&*engine);
        let id = engine.requests.insert(inbound.clone());
        let request = RawRequest::new(id, inbound.peer, inbound.data());
        Some(request.with_identity(inbound.identity()))
    }
}

impl<F: SocketFamily> Drop for SocketListener<F> {
    fn drop(&mut self) {
        let refused = self.acceptor.close();
        if let Some(engine) = self.engine.upgrade() {
            refused.into_iter().for_each(|name| engine.forget(name));
            engine.forget(self.acceptor.name);
        }
    }
}

/// Rejects a request that the application took.
pub(super) fn reject<F: SocketFamily>(
    engine: &Engine<F>,
    request: RequestId,
    data: &[u8],
) -> Result<()> {
    engine.requests.take("reject", request)?.reject(data);
    Ok(())
}
