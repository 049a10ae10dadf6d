//! Connection events, and requests.

use std::net::SocketAddr;

use crate::completion::EndpointId;
use crate::error::Error;
use crate::state::DisconnectReason;

/// Names a listener within its domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ListenerId(pub u64);

/// Names a connection request of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestId(pub u64);

/// A connection request, in plain words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct RawRequest {
    /// Its name, for `accept` and `reject`.
    pub id: RequestId,
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The private data given to `connect`.
    pub data: Box<[u8]>,
    /// The name that the peer has proved by a certificate of a trusted authority, where it has done so and has one.
    pub identity: Option<Box<str>>,
}

impl RawRequest {
    /// A request of `peer`, with the private data that it gave to `connect`.
    pub fn new(id: RequestId, peer: SocketAddr, data: Box<[u8]>) -> Self {
        RawRequest { id, peer, data, identity: None }
    }

    /// The same, of a peer that has proved this name.
    pub fn with_identity(mut self, identity: Option<Box<str>>) -> Self {
        self.identity = identity;
        self
    }
}

/// Something that happened to an endpoint, a listener or the domain.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Event {
    /// The connection is established.
    Connected {
        /// Whose.
        endpoint: EndpointId,
        /// The private data given to `accept`; empty on the accepting side.
        data: Box<[u8]>,
    },
    /// The connection could not be established.
    ConnectFailed {
        /// Whose.
        endpoint: EndpointId,
        /// `Rejected`, `Refused`, `Unreachable`, `TimedOut`, `Canceled`, or what else went wrong.
        error: Error,
    },
    /// The connection ended. Comes once, after `Connected` or instead of it on the accepting side; a provider
    /// reports it before the completions that it cancels.
    Disconnected {
        /// Whose.
        endpoint: EndpointId,
        /// Why.
        reason: DisconnectReason,
    },
    /// Requests wait at a listener; take them until there are none. A provider reports each.
    ConnectRequest {
        /// Which.
        listener: ListenerId,
    },
    /// The device is gone: every endpoint is dead.
    DeviceLost,
    /// The link of the domain's port is down. Connections stay: they go on if it comes back soon, else liveness ends
    /// them. Reported where there is [`Capabilities::PORT_EVENTS`](crate::Capabilities::PORT_EVENTS); of both events
    /// of the port only the newest waits.
    PortDown,
    /// It is up again.
    PortActive,
}

impl Event {
    /// Whose it is, if it is an endpoint's.
    pub fn endpoint(&self) -> Option<EndpointId> {
        match self {
            Event::Connected { endpoint, .. }
            | Event::ConnectFailed { endpoint, .. }
            | Event::Disconnected { endpoint, .. } => Some(*endpoint),
            Event::ConnectRequest { .. }
            | Event::DeviceLost
            | Event::PortDown
            | Event::PortActive => None,
        }
    }
}

/// Where a provider reports events. It may be called from any thread, but with no lock of the library held: providers
/// report through `fabric_util::reports`. It may call back. It should not block: events that come after
/// wait for it, and with them what they announce. A panic loses the event.
pub trait EventSink: Send + Sync + 'static {
    /// Takes an event.
    ///
    /// - Events of one endpoint are taken in the order they are reported; what comes too late or twice is
    ///   dropped.
    fn event(&self, event: Event);
}
