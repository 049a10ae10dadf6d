//! Connection events, as providers report them.

use crate::completion::EndpointId;
use crate::error::Error;
use crate::state::DisconnectReason;

/// Names a listener within its domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u64);

/// Something that happened to an endpoint, a listener or the domain.
#[derive(Debug)]
#[non_exhaustive]
pub enum RawEvent {
    /// The connection stands; with the acceptor's private data on the connecting side.
    Connected {
        /// Whose.
        endpoint: EndpointId,
        /// The private data given to `accept`; empty on the accepting side.
        data: Box<[u8]>,
    },
    /// The connection did not come about.
    ConnectFailed {
        /// Whose.
        endpoint: EndpointId,
        /// `Rejected`, `Refused`, `Unreachable`, `TimedOut` or what else went wrong.
        error: Error,
    },
    /// The connection ended. Reported before the completions that it cancels.
    Disconnected {
        /// Whose.
        endpoint: EndpointId,
        /// Why.
        reason: DisconnectReason,
    },
    /// A listener has one more request.
    ConnectRequest {
        /// Which.
        listener: ListenerId,
    },
    /// The device is gone: every endpoint is dead.
    DeviceLost,
}

/// Where a provider reports events. It may be called from any thread and under the provider's locks; it
/// never calls back and never blocks.
pub trait EventSink: Send + Sync + 'static {
    /// Takes an event.
    fn event(&self, event: RawEvent);
}
