//! RDMA-style networking, modelled on libfabric: messages, one-sided reads and writes, and remote atomics over RDMA
//! verbs or plain TCP, behind one memory-safe API.
//!
//! This is the polling API, for storage engines and runtimes. Most applications want async/await and no manual memory
//! registration: that is the crate `anyfabric-async` (library name `fabric_async`), built on this one. The package of
//! this crate is `anyfabric`.
//!
//! You choose the provider at run time, by `FABRIC_PROVIDER` or by the [`Hints`] that a program passes; without a choice peers of
//! the same host are reached by shared memory. What a program may
//! rely on is the same on every provider, and written down in [`contract`].
//!
//! # The objects
//! - A [`Domain`] is an open device. Everything else is made on it.
//! - A [`Region`] is registered memory: operations use it, and peers may reach it, as far as its [`Access`] rights go.
//!   Its [`RemoteRegion`] is the descriptor that a peer needs for that.
//! - An [`Endpoint`] is one end of a connection. It is connected by [`Endpoint::connect`] on one side and by a
//!   [`Listener`] and [`ConnectRequest::accept`] on the other.
//! - Operations are posted to endpoints and end in [`Completion`]s, in a [`CompletionQueue`].
//! - The domain's [`EventQueue`] reports connection requests, established connections and disconnects.
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
//! // A receive says where a message goes; it may be posted before the connection is established.
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
//! - Errors: a call that fails had no effect ([`Error`], [`Error::class`]); a posted operation reports by
//!   [`Completion::status`].
//! - [`Error::Again`]: nothing was posted. Poll the queue, also when all operations are unsignaled: the poll finds nothing then, and
//!   makes room. Then post the same operation again; of a batch go on behind those that [`BatchError`] counts.
//! - Choosing: [`Hints`], [`Choice`], [`Catalog`], [`Domain::selection`]; for each peer: [`Endpoint::path`],
//!   [`Domain::path_to`]; environment variables: [`Catalog::variables`].
//! - Diagnosis: [`Domain::counters`], [`Domain::dump`], and the log (crate `log`), which says what was chosen and why.
//! - Providers of your own: [`provider`], [`Catalog::add`].
//!
//! # Servers
//! - *Many clients, one queue.* Accept with [`Listener::poll`] or on [`Event::ConnectRequest`]; both report the
//!   same requests; keep the endpoints in a map by [`Endpoint::id`], which [`Completion::endpoint`] names; remove one on
//!   its [`Event::Disconnected`], else it keeps its room in the queue. [`Listener`] and [`EventQueue`] have examples.
//! - *Buffers for many clients.* Receives of its own for each client are memory that mostly waits. Where
//!   [`SHARED_RECEIVES`](Capabilities::SHARED_RECEIVES) is declared, the endpoints can take them from one [`SharedReceiveQueue`]:
//!   post as many as messages may come at a time, and post each again when its message is dealt with. When there is none left, the
//!   senders wait; a client that floods can take them all, so bound what each may send before it is answered. The example `inbox` is such a server.
//! - *Size of the queue.* The sum of the depths of its endpoints, 128 + 128 each by default:
//!   [`Domain::completion_queue`].
//! - *Threads.* Any thread may use any handle, and the calls that share a queue take its lock. For throughput, give each
//!   thread a completion queue of its own, and the endpoints bound to it; share a domain where regions are shared, and
//!   open one for each thread where they are not. With TCP the thread that polls also does the work of its domain.
//! - *Ending.* A send whose completion is `Ok` has reached the peer. A process that exits before that may lose it: call
//!   [`Endpoint::shutdown`], which waits for what is in flight, before an exit or a drop.
//! - *Reconnecting.* A dead endpoint cannot be reused: make a new one, with a delay of your own between attempts. An
//!   operation that ended `Canceled` or `PeerLost` was executed at most once, so decide for each kind whether it may be
//!   repeated. Liveness ([`EndpointBuilder::liveness`]) finds dead peers; a keep-alive of your own is not needed.
//!
//! # Features
//! | feature | default | |
//! |---|---|---|
//! | `tcp` | yes | the TCP provider; without `encryption` it needs nothing but a Rust toolchain |
//! | `encryption` | yes | TCP connections can be encrypted, by TLS 1.3; needs a C compiler to build |
//! | `shm` | yes | shared memory within a host: by itself, and joined with each other provider as `auto` |
//! | `verbs` | yes | the RDMA verbs provider, which loads libibverbs and librdmacm at run time, and the module `verbs` with the way down to libibverbs |
//! | `serde` | no | descriptors of memory, [`Info`], [`Discovered`], errors, events and attributes both ways; [`Counters`] serialize |
//!
//! # Platforms and MSRV
//! Linux only; x86-64 is tested, kernel 5.14 or newer recommended. The verbs provider is tested on Soft-RoCE, not yet on RDMA
//! hardware. Rust 1.88 or newer; a new minor version may raise that, a patch version does not.
//!
//! # Safety
//! No safe code can make a device or peer access freed memory: [`safety`] says what is promised, by which mechanism, and
//! what is not. By default nothing is encrypted or authenticated: see [`Security`].

#![deny(unsafe_op_in_unsafe_fn)]
// docs.rs shows which items need which feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod builder;
mod catalog;
mod check;
mod choice;
mod counters;
mod cq;
mod datagram;
mod datagram_post;
mod dispatch;
mod domain;
mod element;
mod endpoint;
mod env;
mod eq;
mod event_router;
mod grant;
mod inflight;
mod listener;
mod op;
mod owned_op;
mod post;
mod process;
mod reclaim;
mod recv;
mod region;
mod region_core;
mod registry;
mod search;
mod segments;
mod shared_receives;
mod shorthand;
mod slice;
mod unopened;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use batch::BatchError;
pub use builder::EndpointBuilder;
pub use catalog::Catalog;
pub use choice::{Choice, ProviderSpec, Selection};
pub use counters::Counters;
pub use cq::CompletionQueue;
pub use datagram::{AddressHandle, DatagramEndpoint};
pub use domain::Domain;
pub use element::AtomicElement;
pub use endpoint::Endpoint;
pub use eq::EventQueue;
pub use fabric_core::Variable;
pub use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA, MIN_INJECT};
pub use fabric_core::{
    Access, Armed, AtomicOp, AtomicScalar, AtomicScope, AtomicType, AtomicValue, Capabilities,
    Completion, CqAttr, DatagramAddress, DatagramAttr, DatagramDrops, DatagramKind,
    DisconnectReason, EndpointAttr, EndpointId, EndpointState, Error, ErrorClass, Event, Failure,
    Hints, Identity, Info, Limits, ListenerAttr, ListenerId, Memory, OpKind, Path, PathAttr,
    ProviderCounters, RemoteRegion, RemoteSlice, Result, Secret, Security, SharedReceiveAttr,
    Status, Unmet,
};
pub use fabric_util::logging::flush as flush_logs;
pub use grant::{Grant, PendingGrant};
pub use listener::{ConnectRequest, Listener};
pub use op::{Op, Recv, Slices};
pub use owned_op::OwnedOp;
pub use region::Region;
pub use search::Discovered;
pub use shared_receives::SharedReceiveQueue;
pub use slice::{OwnedSlice, Slice};
/// The crate by which regions hold plain values ([`Region::get`], [`Region::put`]). It is a part of this API: a version of this
/// crate goes with `zerocopy` 0.8, and a change of that is a breaking change.
pub use zerocopy;

/// What an author of a provider needs: the traits to implement, and the rules that all providers share. It is the crate
/// `fabric-core`.
pub mod provider {
    pub use fabric_core::provider::*;
    pub use fabric_core::*;
}

// Of two definitions of a link the first one counts: those in the files are for who reads them there.
#[doc = "[safety]: crate::safety\n[security]: crate::security\n[datagrams]: DatagramEndpoint\n[datagram endpoints]: https://docs.rs/anyfabric-rdm\n"]
#[doc = include_str!("../docs/contract.md")]
pub mod contract {}

#[doc = "[security]: crate::security\n"]
#[doc = include_str!("../docs/safety.md")]
pub mod safety {}

#[doc = "[strangers]: crate::strangers\n[performance]: https://docs.rs/crate/anyfabric/latest/source/docs/performance.md\n"]
#[doc = include_str!("../docs/security.md")]
pub mod security {}

#[doc = "[secret]: crate::security\n[limits of exchange]: https://docs.rs/anyfabric-exchange\n"]
#[doc = include_str!("../docs/strangers.md")]
pub mod strangers {}
