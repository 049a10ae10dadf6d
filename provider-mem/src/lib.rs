//! The reference provider of `fabric`: the whole contract inside one process, without sockets.
//!
//! Obligations of every provider are in `fabric_core::{ops, provider}`. This crate keeps them with as little code as
//! possible: a connection is two pipes in memory, and a post carries its operation to the other end at once. What
//! every provider over a stream of bytes needs is in `fabric_util`: the protocol, regions, completions, requests.
//!
//! Files, from the contract inwards:
//! - [`provider`], `domain`, `cq`, `listener`, `endpoint`, `datagram`, `device`: the contract's objects;
//! - `engine`: what a domain has, and its thread, for events and time limits;
//! - `network`: the addresses of this process that are listened on; `acceptor`: the requests that come to one;
//! - `conn`: a link and its two pipes; `pipe`: bytes in one direction.
//!
//! Uses go down this list. What connections and acceptors need of the engine, above them, is `conn::DomainHost`.
#![doc = include_str!("../README.md")]

mod acceptor;
mod conn;
mod cq;
mod datagram;
mod device;
mod domain;
mod endpoint;
mod engine;
mod listener;
mod name;
mod network;
mod pipe;
pub mod provider;

pub use cq::MemCq;
pub use domain::MemDomain;
pub use endpoint::MemEndpoint;
pub use listener::MemListener;
pub use provider::MemProvider;

pub use name::NAME;
