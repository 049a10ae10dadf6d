//! Reliable datagram endpoints, the parts that need no I/O.

#![forbid(unsafe_code)]

mod address;
mod address_error;
pub mod connection;
mod hash;
mod identity;
pub mod matching;
mod peers;
mod rail;
pub mod window;

pub use address::{Address, MAX_ADDRESS_BYTES, MAX_RAILS};
pub use address_error::AddressError;
pub use identity::{EndpointIdentity, HostIdentity};
pub use peers::{Peer, Peers};
