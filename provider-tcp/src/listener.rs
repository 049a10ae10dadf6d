//! Listeners: the contract's view of an acceptor.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::backlog::Backlog;
use mio::Interest;

use crate::acceptor::Acceptor;
use crate::engine::{Engine, EngineRef};
use crate::name::NAME;
use crate::{device, socket};

/// A listener.
pub struct TcpListener {
    acceptor: Arc<Acceptor>,
    engine: EngineRef,
}

impl TcpListener {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        let fail = |cause| Error::system("listen", NAME, cause);
        let socket = socket::listen(device::listen_addr(&engine.info, addr)?).map_err(fail)?;
        let addr = socket.local_addr().map_err(fail)?;
        let fd = socket.as_raw_fd();
        let name = engine.name();
        let backlog = Backlog::new(attr.backlog);
        backlog.open(|| socket);
        let acceptor = Acceptor::new(name, id, addr, backlog, engine.protection.clone());
        engine.watch(fd, name, acceptor.clone(), Interest::READABLE)?;
        Ok(TcpListener { acceptor, engine: Arc::downgrade(engine) })
    }
}

impl ListenerOps for TcpListener {
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

impl Drop for TcpListener {
    fn drop(&mut self) {
        let refused = self.acceptor.close();
        if let Some(engine) = self.engine.upgrade() {
            refused.into_iter().for_each(|name| engine.forget(name));
            engine.forget(self.acceptor.name);
        }
    }
}

/// Rejects a request that the application took.
pub(crate) fn reject(engine: &Engine, request: RequestId, data: &[u8]) -> Result<()> {
    engine.requests.take("reject", request)?.reject(data);
    Ok(())
}
