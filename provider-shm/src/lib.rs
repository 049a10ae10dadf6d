//! The provider of `fabric` for processes of one host.
//!
//! Peers have ordinary addresses, `ip:port`, of this host. What they say to each other goes over sockets of the kernel's
//! (unix(7)), whose names are in no file system: nothing stays behind, whatever ends a process. What a provider over sockets
//! is, is in `fabric_util::sockets`; here are the sockets:
//! - `family`: how they are made;
//! - `address`: what an address is called there, and which are free;
//! - `transport`: the socket under a connection.

mod address;
mod family;
mod name;
mod transport;

use fabric_util::sockets;

pub use family::{Shm, ShmSocket};
pub use name::NAME;
pub use transport::ShmTransport;

/// The provider. [`settings`](fabric_core::Provider::settings) has what can be set.
pub type ShmProvider = sockets::SocketProvider<Shm>;
/// A domain.
pub type ShmDomain = sockets::SocketDomain<Shm>;
/// A completion queue.
pub type ShmCq = sockets::SocketCq<Shm>;
/// An endpoint.
pub type ShmEndpoint = sockets::SocketEndpoint<Shm>;
/// A listener.
pub type ShmListener = sockets::SocketListener<Shm>;
