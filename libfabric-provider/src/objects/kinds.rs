//! What the kinds of endpoints have in common for C: message endpoints, passive ones, and those of reliable datagrams.

use std::net::SocketAddr;
use std::sync::Arc;

use super::av::AddressVector;
use super::counter::Counter;
use super::domain::Queue;
use super::event::Owner;
use super::event_queue::Events;
use super::shared_context::{SharedReceives, SharedTransmits};
use super::transfer::Transfers;
use crate::errno::Errno;
use crate::handle::{Name, Object};

/// Of every kind.
pub(crate) trait AnyEndpoint: Object {
    /// Where it is.
    fn address(&self) -> Result<SocketAddr, Errno>;

    /// Where it is to be. An active endpoint of messages connects from where its info says, and listens to no peer.
    fn set_address(&self, _: SocketAddr) -> Result<(), Errno> {
        Err(Errno::NOT_THERE)
    }

    /// Ends all of it: nothing is reported any more of the endpoint with this handle.
    fn end(&self, name: Name);
}

/// Of those that transfer.
pub(crate) trait ActiveEndpoint: AnyEndpoint + Transfers {
    fn bind_queue(&self, queue: &Arc<Queue>, flags: u64) -> Result<(), Errno>;
    fn bind_counter(&self, counter: &Arc<Counter>, flags: u64) -> Result<(), Errno>;
    fn bind_events(&self, events: &Arc<Events>) -> Result<(), Errno>;

    /// A connection has one peer, and no addresses.
    fn bind_vector(&self, _: &Arc<AddressVector>) -> Result<(), Errno> {
        Err(Errno::INVALID)
    }

    /// Of reliable datagrams each endpoint has its own, that all peers share.
    fn bind_receives(&self, _: &Arc<SharedReceives>) -> Result<(), Errno> {
        Err(Errno::INVALID)
    }

    /// As above.
    fn bind_transmits(&self, _: &Arc<SharedTransmits>) -> Result<(), Errno> {
        Err(Errno::INVALID)
    }

    /// Makes the endpoint of ours: from now on it transfers, or receives may be posted.
    fn enable(&self, owner: Owner) -> Result<(), Errno>;
}
