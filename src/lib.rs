//! A libfabric-style fabric library: one API for endpoints, memory regions and completion queues, several
//! providers beneath it.
//!
//! A program is written once; `FABRIC_PROVIDER`, or the [`Hints`] it passes, decide what it runs on. What it may
//! rely on is the same everywhere and written down in [`contract`].
//!
//! # The objects
//! - A [`Domain`] is an open device. Everything else is made on it.
//! - A [`Region`] is memory that operations use and that peers may reach, as far as its [`Access`] rights go.
//!   Its [`RemoteRegion`] is what a peer needs to know to reach it.
//! - An [`Endpoint`] is one end of a connection. It is connected by [`Endpoint::connect`] on one side and by a
//!   [`Listener`] and [`ConnectRequest::accept`] on the other.
//! - Operations are posted to endpoints and end in [`Completion`]s, in a [`CompletionQueue`].
//! - Connections that come, stand and go are told by the domain's [`EventQueue`].
//!
//! Handles are `Send + Sync`, need no particular drop order, and keep alive what they need.
//!
//! # A message
//! Both sides here are in one process; nothing would change if they were not.
//!
//! ```
//! use std::time::Duration;
//! use fabric::{Access, Domain, Hints, OpKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let timeout = Some(Duration::from_secs(5));
//! let (a, b) = (Domain::open(&Hints::default())?, Domain::open(&Hints::default())?);
//! let (queue_a, queue_b) = (a.completion_queue(256)?, b.completion_queue(256)?);
//! let (end_a, end_b) = (a.endpoint().build(&queue_a)?, b.endpoint().build(&queue_b)?);
//!
//! // A receive says where a message goes; it may be posted before the connection stands.
//! let inbox = b.alloc(4096, Access::LOCAL_WRITE)?;
//! end_b.recv(inbox.slice(..1024), 7)?;
//!
//! let listener = b.listen((b.info().addresses[0], 0).into())?;
//! end_a.connect(listener.local_addr(), b"who I am")?;
//! let mut request = listener.accept(timeout)?;
//! assert_eq!(request.private_data(), b"who I am");
//! request.accept(&end_b, b"welcome")?;
//! assert_eq!(&*end_a.wait_connected(timeout)?, b"welcome");
//!
//! let outbox = a.alloc(4096, Access::empty())?;
//! outbox.write_at(0, b"a message")?;
//! end_a.send(outbox.slice(..9), 1)?;
//!
//! let received = queue_b.wait_one(timeout)?;
//! assert!(received.is_ok() && received.kind == OpKind::Recv);
//! assert_eq!((received.context, received.len), (7, 9));
//! assert_eq!(inbox.to_vec(..9)?, b"a message");
//! // The sender learns that the peer has it, not merely that it was sent.
//! assert!(queue_a.wait_one(timeout)?.is_ok());
//! end_a.shutdown(Duration::from_secs(5))?;
//! # Ok(()) }
//! ```
//!
//! # Where to go on
//! - One-sided operations: [`Endpoint::write`], [`Endpoint::read`], [`Endpoint::fetch_add`],
//!   [`Endpoint::compare_swap`]. All operations and their options: [`Op`], [`Endpoint::post`],
//!   [`Endpoint::post_batch`].
//! - Waiting: poll the queue for the least delay, [`CompletionQueue::wait`] to sleep, or drive everything from an
//!   event loop by [`CompletionQueue::arm`] and `AsFd`.
//! - Errors: a call that fails had no effect ([`Error`], [`Error::class`]); what was posted reports by
//!   [`Completion::status`].
//! - Choosing: [`Hints`], [`Choice`], [`Catalog`], [`Domain::selection`]; environment variables: [`VARIABLES`].
//! - Trouble: [`Domain::counters`], [`Domain::dump`], and the log (crate `log`), which tells what was chosen and why.
//! - Safety: what is promised, by which mechanism, and what is not: [`safety`].
//! - Providers of one's own: [`provider`], [`Catalog::add`].

#![deny(unsafe_op_in_unsafe_fn)]

mod any;
mod builder;
mod catalog;
mod check;
mod choice;
mod counters;
mod cq;
mod domain;
mod endpoint;
mod env;
mod eq;
mod listener;
mod op;
mod post;
mod process;
mod reclaim;
mod region;
mod slot;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use builder::EndpointBuilder;
pub use catalog::{Catalog, Found, Selection};
pub use choice::{Choice, Named};
pub use counters::Counters;
pub use cq::CompletionQueue;
pub use domain::Domain;
pub use endpoint::Endpoint;
pub use env::{VARIABLES, Variable};
pub use eq::EventQueue;
pub use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA, MIN_INJECT};
pub use fabric_core::{
    Access, Armed, AtomicOp, AtomicScalar, AtomicScope, AtomicType, AtomicValue, Capabilities,
    Completion, CqAttr, DisconnectReason, EndpointAttr, EndpointId, EndpointState, Error,
    ErrorClass, Event, Failure, Hints, Info, Limits, ListenerAttr, ListenerId, Memory, OpKind,
    PathAttr, ProviderCounters, RemoteRegion, RemoteSlice, Result, Status, Unmet,
};
pub use listener::{ConnectRequest, Listener};
pub use op::{Op, Recv, Slices};
pub use post::BatchError;
pub use region::{AtomicElement, Region, Slice};
/// The crate by which regions hold plain values ([`Region::get`], [`Region::put`]). It is a part of this API: a version of this
/// crate goes with `zerocopy` 0.8, and a change of that is a breaking change.
pub use zerocopy;

/// What an author of a provider needs: the traits to implement, and the rules that all providers share. It is the crate
/// `fabric-core`.
pub mod provider {
    pub use fabric_core::provider::*;
    pub use fabric_core::*;
}

#[doc = include_str!("../docs/contract.md")]
pub mod contract {}

#[doc = include_str!("../docs/safety.md")]
pub mod safety {}

/// Compiles and runs the programs in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
