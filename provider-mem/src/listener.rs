//! Listeners, and the requests that come to them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, Event, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::backlog::Backlog;
use fabric_util::route;
use fabric_util::sync::Mutex;

use crate::conn::{Conn, Wire};
use crate::engine::Engine;
use crate::{NAME, network};

/// What other ends find at the address of a listener.
pub(crate) struct Acceptor {
    id: ListenerId,
    addr: SocketAddr,
    backlog: Backlog<(), Arc<Request>>,
    engine: Weak<Engine>,
}

impl Acceptor {
    /// A request has come: it waits for the application, or is refused.
    pub(crate) fn offer(&self, request: Request) {
        if let Some(engine) = self.engine.upgrade()
            && self.backlog.push(Arc::new(request)).is_ok()
        {
            engine.add_report(Event::ConnectRequest { listener: self.id }, None);
        }
    }

    pub(crate) fn belongs_to(&self, engine: &Arc<Engine>) -> bool {
        self.engine.as_ptr() == Arc::as_ptr(engine)
    }

    /// Refuses what waits, and what comes from now on.
    pub(crate) fn close(&self) {
        network::remove(self.addr);
        drop(self.backlog.close());
    }
}

/// A connection that has no endpoint here yet. Dropped without an answer, it is refused.
pub(crate) struct Request {
    /// The end that connects.
    pub(crate) initiator: Arc<Conn>,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) data: Box<[u8]>,
    /// Receives that the initiator had posted.
    pub(crate) credit: u32,
    /// The pipes of this end, until an endpoint takes them.
    pub(crate) wire: Mutex<Option<Wire>>,
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.wire.get_mut().is_some() {
            self.initiator.fail(Error::Refused(None));
        }
    }
}

/// A listener.
pub struct MemListener {
    acceptor: Arc<Acceptor>,
}

impl MemListener {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        let addr = route::listen_addr(&engine.info, addr)?;
        let backlog = Backlog::new(attr.backlog);
        backlog.open(|| ());
        let engine = Arc::downgrade(engine);
        let acceptor =
            network::listen(addr, |addr| Arc::new(Acceptor { id, addr, backlog, engine }))
                .map_err(|cause| Error::system("listen", NAME, cause))?;
        Ok(MemListener { acceptor })
    }
}

impl ListenerOps for MemListener {
    fn local_addr(&self) -> SocketAddr {
        self.acceptor.addr
    }

    fn next_request(&self) -> Option<RawRequest> {
        let engine = self.acceptor.engine.upgrade()?;
        let request = self.acceptor.backlog.pop()?;
        let id = engine.requests.insert(request.clone());
        Some(RawRequest::new(id, request.from, request.data.clone()))
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        self.acceptor.close();
    }
}

/// Rejects a request that the application took.
pub(crate) fn reject(engine: &Engine, request: RequestId, data: &[u8]) -> Result<()> {
    let request = engine.requests.take("reject", request)?;
    let wire = request.wire.lock().take();
    request.initiator.fail(Error::Rejected(Box::new(data.into())));
    drop(wire);
    Ok(())
}
