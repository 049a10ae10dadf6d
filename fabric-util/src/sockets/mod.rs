//! A provider whose connections are stream sockets: everything but the sockets themselves.
//!
//! Obligations of every provider are in `fabric_core::{ops, provider}`; this keeps them over any [`SocketFamily`], without
//! help from the peer's application: one engine a domain executes what peers ask for. The protocol is
//! [`stream`](crate::stream), which knows no sockets.
//!
//! Files, from the contract inwards:
//! - `provider`, `domain`, `cq`, `listener`, `endpoint`, `datagram`: the contract's objects;
//! - `conn`: a link and its socket; `datagram_socket`: that of a datagram endpoint; `acceptor`: connections that strangers ask for; `descriptors`: how many of them;
//! - `engine`: the domain's sockets, timers and thread, driven by [`progress`](crate::progress);
//! - `family`: what is different from one kind of sockets to the other; `interfaces`: the devices, which all kinds share;
//! - `transfer`: system calls on memory that is not a Rust slice;
//! - `settings`: what a user can set, and for tests the choice of faults ([`fault`](crate::fault)).

mod acceptor;
mod conn;
mod cq;
mod datagram;
mod datagram_socket;
mod descriptors;
mod domain;
mod endpoint;
mod engine;
mod family;
mod interfaces;
mod listener;
mod provider;
mod settings;
mod transfer;
// Miri and loom have no sockets.
#[cfg(all(test, not(miri), not(loom)))]
mod testing;

pub use cq::SocketCq;
pub use descriptors::Accepted;
pub use domain::SocketDomain;
pub use endpoint::SocketEndpoint;
pub use family::{Arrival, PeerMemory, Shared, SocketFamily, SocketTransport, Trust};
pub use listener::SocketListener;
pub use provider::SocketProvider;
pub use transfer::{receive, transmit};
