//! Acceptors, and the requests that come to them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fabric_core::{Event, ListenerId};
use fabric_util::backlog::Backlog;
use fabric_util::stream::Greeting;
use fabric_util::sync::Mutex;

use crate::conn::{DomainHost, Wire};

/// What other ends find at the address of a listener.
pub(crate) struct Acceptor {
    id: ListenerId,
    pub(crate) addr: SocketAddr,
    backlog: Backlog<(), Arc<Request>>,
    /// The key of the next request.
    next: AtomicU64,
    host: Weak<dyn DomainHost>,
}

impl Acceptor {
    pub(crate) fn new(
        id: ListenerId,
        addr: SocketAddr,
        max_waiting: usize,
        host: Weak<dyn DomainHost>,
    ) -> Arc<Self> {
        let backlog = Backlog::new(max_waiting);
        backlog.open(|| ());
        Arc::new(Acceptor { id, addr, backlog, next: AtomicU64::new(0), host })
    }

    /// A connection has come, with its hello: it waits for the application, or is refused.
    pub(crate) fn offer(&self, mut wire: Wire, from: SocketAddr) {
        let mut greeting = Greeting::default();
        if !matches!(greeting.read(&mut wire), Ok(true)) {
            return wire.close();
        }
        let wire = Mutex::new(Some(wire));
        let request = Arc::new(Request { from, to: self.addr, greeting, wire });
        let Some(host) = self.host.upgrade() else { return };
        self.drop_left();
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let refused = self.backlog.push(key, from, request);
        if !matches!(refused, Ok(None)) {
            host.count_refused();
        }
        if refused.is_ok() {
            host.add_report(Event::ConnectRequest { listener: self.id }, None);
        }
    }

    /// The oldest request.
    pub(crate) fn next_request(&self) -> Option<Arc<Request>> {
        self.drop_left();
        self.backlog.pop()
    }

    /// Drops the requests whose peers have left.
    fn drop_left(&self) {
        drop(self.backlog.extract_if(|request| request.has_left()));
    }

    pub(crate) fn belongs_to(&self, host: &Arc<impl DomainHost>) -> bool {
        std::ptr::addr_eq(self.host.as_ptr(), Arc::as_ptr(host))
    }

    /// Refuses what waits, and what comes from now on.
    pub(crate) fn close(&self) {
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

impl Request {
    pub(crate) fn has_left(&self) -> bool {
        self.wire.lock().as_ref().is_some_and(Wire::has_ended)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.get_mut().take() {
            wire.refuse();
        }
    }
}
