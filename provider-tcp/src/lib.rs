//! The TCP provider of `fabric`.
//!
//! What a provider over sockets is, is in `fabric_util::sockets`; here are the sockets:
//! - `family`: how they are made;
//! - `transport`: the socket under a connection; `socket`: what is set of it, and asked;
//! - `udp`: the socket of a datagram endpoint.

mod family;
mod name;
mod socket;
mod transport;
mod udp;

use fabric_util::sockets;

pub use family::Tcp;
pub use name::NAME;
pub use transport::TcpTransport;

/// The TCP provider. [`settings`](fabric_core::Provider::settings) has what can be set.
pub type TcpProvider = sockets::SocketProvider<Tcp>;
/// A domain.
pub type TcpDomain = sockets::SocketDomain<Tcp>;
/// A completion queue.
pub type TcpCq = sockets::SocketCq<Tcp>;
/// An endpoint.
pub type TcpEndpoint = sockets::SocketEndpoint<Tcp>;
/// A listener.
pub type TcpListener = sockets::SocketListener<Tcp>;
