//! The TCP provider of `fabric`.
//!
//! Obligations of every provider are in `fabric_core::{ops, provider}`; this crate keeps them over the
//! kernel's TCP, without help from the peer's application: one engine a domain executes what peers ask for.
//! The protocol is `fabric_util::stream`, which knows no sockets; regions and completions are kept in `fabric_util` too.
//!
//! Files, from the contract inwards:
//! - [`provider`], `device`, `domain`, `cq`, `listener`, `endpoint`: the contract's objects;
//! - `conn`: a link and its socket; `acceptor`: connections that strangers ask for; `descriptors`: how many of them;
//! - `engine`: the domain's sockets, timers and thread, driven by `fabric_util::progress`;
//! - `transport`: the socket under a link; `socket`: system calls on memory that is not a Rust slice;
//! - `settings`: what a user can set, and for tests the choice of faults (`fabric_util::fault`).

mod acceptor;
mod conn;
mod cq;
mod descriptors;
mod device;
mod domain;
mod endpoint;
mod engine;
mod listener;
mod name;
pub mod provider;
mod settings;
mod socket;
mod transport;

pub use cq::TcpCq;
pub use domain::TcpDomain;
pub use endpoint::TcpEndpoint;
pub use listener::TcpListener;
pub use provider::TcpProvider;

pub use name::NAME;
