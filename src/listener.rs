//! Listening, and connection requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric_core::attr::check_private_data;
use fabric_core::provider::{ListenerOps, RawRequest};
use fabric_core::{Error, ListenerAttr, ListenerId, Result};
use fabric_util::sync::assert_none_held;

use crate::domain::DomainInner;
use crate::endpoint::Endpoint;
use crate::eq::{EventHub, EventQueue};
use crate::process::ForkChecked;

/// Listens on an address for connections to its domain.
///
/// Dropping it refuses the requests that were not taken; a [`ConnectRequest`] that was taken can still be
/// answered. Any thread may use it.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
/// # let (peer, timeout) = (&b, doc::TIMEOUT);
/// # let mut clients = Vec::new();
/// let listener = domain.listen((domain.info().addresses[0], 0).into())?;
/// # for name in ["anna", "unwanted", "carl"] {
/// #     let client = peer.domain.endpoint().build(&peer.queue)?;
/// #     client.connect(listener.local_addr(), name.as_bytes())?;
/// #     clients.push(client);
/// # }
///
/// // One queue for all clients: each endpoint reserves its depths of it.
/// let max_clients = 100;
/// let queue = domain.completion_queue(max_clients * (16 + 16))?;
/// let mut endpoints = std::collections::HashMap::new();
/// # for _ in 0..3 {
/// let mut request = listener.accept(timeout)?;
/// if request.private_data() == b"unwanted" || endpoints.len() == max_clients {
///     request.reject(b"not today")?;
/// } else {
///     let endpoint = domain.endpoint().send_depth(16).recv_depth(16).build(&queue)?;
///     request.accept(&endpoint, b"welcome")?;
///     endpoints.insert(endpoint.id(), endpoint); // until its `Disconnected` event
/// }
/// # }
/// # assert_eq!(endpoints.len(), 2);
/// # assert!(matches!(clients[1].wait_connected(timeout), Err(fabric::Error::Rejected { .. })));
/// # Ok(()) }
/// ```
pub struct Listener {
    // Declared first: closes before the domain can.
    ops: ForkChecked<Box<dyn ListenerOps>>,
    domain: Arc<DomainInner>,
    /// Where its events go.
    hub: Arc<EventHub>,
    id: ListenerId,
}

impl Listener {
    pub(crate) fn new(
        domain: &Arc<DomainInner>,
        addr: SocketAddr,
        attr: &ListenerAttr,
        events: Option<&EventQueue>,
    ) -> Result<Self> {
        domain.ops.check("listen")?;
        attr.check(&domain.info)?;
        let hub = domain.events.choose("listen", events)?;
        let id = ListenerId(domain.next_id());
        domain.events.route_listener(id, &hub);
        hub.add_listener(id);
        let ops = domain.ops.listen(id, addr, attr);
        let ops = ForkChecked::new(ops.map_err(|error| {
            domain.events.forget_listener(id);
            hub.remove_listener(id);
            error.at(addr)
        })?);
        Ok(Listener { ops, domain: domain.clone(), hub, id })
    }

    /// By which events name it.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.ops.local_addr()
    }

    /// Takes the oldest request, if there is one. Never blocks.
    pub fn poll(&self) -> Option<ConnectRequest> {
        self.ops.check("accept").ok()?;
        // It may be of a provider of the application's own.
        assert_none_held("a listener is called");
        let raw = self.ops.next_request()?;
        Some(ConnectRequest { raw, domain: self.domain.clone(), answered: false })
    }

    /// Takes the oldest request, waiting for one as long as `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// `TimedOut`; `DeviceLost`: no more requests come; `InvalidState` in a forked child.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<ConnectRequest> {
        self.ops.check("accept")?;
        let hub = &self.hub;
        let look = || match self.poll() {
            Some(request) => Some(Ok(request)),
            None => hub.device_lost().then_some(Err(Error::DeviceLost)),
        };
        hub.wait_for(self.id, timeout, look)
            .unwrap_or_else(|| Err(Error::TimedOut(None).at(self.local_addr())))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.ops.is_current_process() {
            self.domain.events.forget_listener(self.id);
            self.hub.remove_listener(self.id);
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}

/// A peer that wants to connect. Dropping it unanswered rejects it, without data.
pub struct ConnectRequest {
    raw: RawRequest,
    domain: Arc<DomainInner>,
    answered: bool,
}

impl ConnectRequest {
    /// The address of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.raw.peer
    }

    /// The private data given to `connect`, at its exact length.
    pub fn private_data(&self) -> &[u8] {
        &self.raw.data
    }

    /// Whether the peer still waits for an answer, as far as is known: always, but where
    /// [`REQUEST_CANCEL`](crate::Capabilities::REQUEST_CANCEL) is declared, and until it is answered. It is a system call over TCP.
    pub fn is_waiting(&self) -> bool {
        !self.answered
            && self.domain.ops.check("is_waiting").is_ok()
            && self.domain.ops.is_waiting(self.raw.id)
    }

    /// The name that the peer has proved by its certificate ([`Hints::identity`](crate::Hints::identity)): its first URI, or else
    /// its first DNS name. `None` where there are no certificates, or no name is in it.
    pub fn identity(&self) -> Option<&str> {
        self.raw.identity.as_deref()
    }

    /// Connects the peer to `endpoint`, which must be new. Returns at once; the endpoint's `Connected` event
    /// follows, or one `Disconnected` if the peer is gone: accepting never fails for the peer's reasons.
    ///
    /// # Errors
    /// `InvalidArgument` for more than [`MAX_ACCEPT_DATA`](crate::MAX_ACCEPT_DATA) bytes of private data or an endpoint
    /// of another domain, `InvalidState` for an endpoint that is connecting or connected, or a request that was answered.
    /// The request can be answered again.
    pub fn accept(&mut self, endpoint: &Endpoint, data: &[u8]) -> Result<()> {
        self.answer("accept", data)?;
        endpoint.accept(&self.domain, self.raw.id, self.raw.peer, data)?;
        self.answered = true;
        Ok(())
    }

    /// Sends the peer away, with data for it.
    ///
    /// # Errors
    /// `InvalidArgument` for more than [`MAX_REJECT_DATA`](crate::MAX_REJECT_DATA) bytes, `InvalidState` if the request was answered.
    pub fn reject(&mut self, data: &[u8]) -> Result<()> {
        self.answer("reject", data)?;
        self.domain.ops.reject(self.raw.id, data)?;
        self.answered = true;
        Ok(())
    }

    fn answer(&self, operation: &'static str, data: &[u8]) -> Result<()> {
        self.domain.ops.check(operation)?;
        if self.answered {
            return Err(Error::state(operation, "the request was answered before"));
        }
        check_private_data(operation, data)
    }
}

impl Drop for ConnectRequest {
    fn drop(&mut self) {
        if !self.answered && self.domain.ops.is_current_process() {
            // The peer may be gone, and needs no answer then.
            let _ = self.domain.ops.reject(self.raw.id, &[]);
        }
    }
}

impl std::fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConnectRequest(from {})", self.raw.peer)
    }
}
