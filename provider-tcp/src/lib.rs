//! The TCP provider of `fabric`.
//!
//! Obligations of every provider are in `fabric_core::{ops, provider}`; this crate keeps them over the
//! kernel's TCP, without help from the peer's application: one engine a domain executes what peers ask for.
//!
//! Files, from the contract inwards:
//! - [`provider`], `device`, `domain`, `region`, `cq`, `listener`, `endpoint`: the contract's objects;
//! - `conn`: a link and its socket; `connect`: how it comes to be;
//! - `engine`: who drives the connections, the polling application or the domain's thread;
//! - `adversary`: for tests, the liberties that the contract leaves to an engine;
//! - `link`: one connection's protocol, without sockets: bytes and posts in, bytes and completions out;
//! - [`wire`]: the format of the bytes;
//! - `socket`: system calls on memory that is not a Rust slice.

mod adversary;
mod conn;
mod connect;
mod cq;
mod device;
mod domain;
mod endpoint;
mod engine;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod link;
mod listener;
mod liveness;
pub mod provider;
mod region;
mod socket;
pub mod wire;

pub use cq::TcpCq;
pub use domain::TcpDomain;
pub use endpoint::TcpEndpoint;
pub use listener::TcpListener;
pub use provider::TcpProvider;
pub use region::TcpRegistration;

/// The provider's name.
pub const NAME: &str = "tcp";
