//! Listeners, and the requests that come to them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use fabric_core::provider::{RawRequest, RequestId};
use fabric_core::{Error, Event, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::backlog::Backlog;
use fabric_util::route;
use fabric_util::stream::Greeting;
use fabric_util::stream::wire::handshake::HandshakeKind;
use fabric_util::sync::Mutex;

use crate::conn::Wire;
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
    /// A connection has come, with its hello: it waits for the application, or is refused.
    pub(crate) fn offer(&self, mut wire: Wire, from: SocketAddr) {
        let mut greeting = Greeting::default();
        if !matches!(greeting.read(&mut wire), Ok(true)) {
            return wire.close();
        }
        let wire = Mutex::new(Some(wire));
        let request = Arc::new(Request { from, to: self.addr, greeting, wire });
        if let Some(engine) = self.engine.upgrade()
            && self.backlog.push(request).is_ok()
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
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) greeting: Greeting,
    /// This end of the bytes, until an endpoint takes it.
    pub(crate) wire: Mutex<Option<Wire>>,
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.get_mut().take() {
            wire.decline(HandshakeKind::Refuse, &[]);
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
        Some(RawRequest::new(id, request.from, request.greeting.data().into()))
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
    if let Some(wire) = wire {
        wire.decline(HandshakeKind::Reject, data);
    }
    Ok(())
}
