//! Asynchronous RDMA, simple by default: owned buffers, registered pools, leased remote memory.
//!
//! ```
//! use std::time::Duration;
//! use fabric_async::{Connection, Listener};
//!
//! # async fn client(address: std::net::SocketAddr) -> Result<(), fabric_async::Error> {
//! let conn = Connection::connect(address).await?; // or "10.0.0.7:7471"; provider by FABRIC_PROVIDER
//! let mut buf = conn.alloc(4096)?; // registered, zeroed, from the pool, exclusive
//! buf[..5].copy_from_slice(b"hello");
//! let remote = conn.request_lease(4096, Duration::from_secs(30)).await?; // leased by the peer
//! let buf = conn.write(buf, remote.at(0)).await?; // the buffer goes in and comes back
//! let old = conn.fetch_add(remote.at(8), 1).await?;
//! conn.send(buf).await?;
//! # drop(old);
//! # assert_eq!(&*conn.recv().await?, b"done");
//! # Ok(()) }
//!
//! # async fn server(listener: Listener) -> Result<(), fabric_async::Error> {
//! // The other side. It takes no part in the lease, the write and the atomic.
//! let conn = listener.accept().await?;
//! let message = conn.recv().await?;
//! assert_eq!(&message[..5], b"hello");
//! # conn.send(conn.node().pool().alloc_from(b"done")?).await?;
//! # conn.closed().await;
//! # Ok(()) }
//! # fabric_async::block_on(async {
//! #     let listener = Listener::bind("127.0.0.1:0").await?;
//! #     let address = listener.local_addr();
//! #     let other = std::thread::spawn(move || fabric_async::block_on(server(listener)));
//! #     client(address).await?;
//! #     other.join().unwrap()
//! # }).unwrap();
//! ```
//!
//! You choose RDMA or TCP at run time (`FABRIC_PROVIDER`). What may be relied on is the contract of [`fabric`], the same on
//! every provider. The package of this crate is `anyfabric-async`.
//!
//! # Guide
//! [`guide`] covers every feature, with a runnable program in each chapter, and pictures of the life of an operation and of a
//! lease.
//! In short:
//!
//! - *Memory.* A [`Buffer`] is yours alone, and a `[u8]`. Operations take it and give it back; an error ([`OpError`]) has it
//!   too. All come from the node's [`Pool`], which is registered and bounded.
//! - *Messages.* [`Connection::send`] is done when the peer has the message; [`Connection::recv`] brings the next one.
//! - *One-sided.* [`Connection::write`], [`read`](Connection::read) and the atomics reach memory that the peer lends:
//!   [`Connection::request_lease`] asks, [`Connection::lend`] offers. Once a lease has ended, the peer can no longer
//!   change the memory.
//! - *Cancellation.* All futures are cancel-safe: any may be dropped at any time. One that is held and not polled, or
//!   forgotten, keeps what it has, and its turn for at most 50 ms: others go on.
//! - *Many peers.* [`datagram::DatagramEndpoint`] sends unreliable datagrams to any address; reliable ones have the feature `rdm`.
//! - *Failure.* The end of a connection is an [`Error::Disconnected`] with the reason, everywhere.
//! - *Executors.* Works with any executor; a minimal [`block_on`] is included.
//! - *Trust.* By default nothing is encrypted or authenticated: see [`fabric::Security`].
//!
//! # Features
//! | feature | default | |
//! |---|---|---|
//! | `tcp` | yes | the TCP provider |
//! | `shm` | yes | shared memory within a host: by itself, and joined with each other provider as `auto` |
//! | `encryption` | yes | TCP connections can be encrypted, by TLS 1.3; needs a C compiler to build |
//! | `tokio` | yes | tasks of a tokio runtime are woken by its event loop; `Stream` |
//! | `rdm` | no | reliable datagram endpoints, in the module `rdm` |
//! | `serde` | no | as of the crate `fabric`; `PoolMetrics` serialize |
//! | `verbs` | yes | the RDMA verbs provider; loads libibverbs and librdmacm at run time |
//!
//! # Platforms and MSRV
//! Linux only. Rust 1.88 or newer; a new minor version may raise that, a patch version does not.
//!
//! # Design
//! - *Buffers own their memory.* The [`Pool`] registers memory in extents, once, without rights for peers, and cuts
//!   them into blocks; a [`Buffer`] is a block with one owner. That alone makes `Deref<[u8]>` sound;
//!   `block.rs` has the whole argument and all of this crate's unsafe code.
//! - *Operations own their buffers.* An operation takes its buffer by value, and from the post to its completion a slot
//!   in the node's slab of operations owns it. The future has the number of the slot, no memory. So futures may be
//!   dropped (the slot is abandoned, and its completion frees it), forgotten (it stays taken), or outlive their
//!   runtime; the device never touches memory that somebody else has.
//! - *Polling tasks drive progress.* A future that is polled takes completions off the node's queue, for everybody; one that
//!   sleeps arms the queue's descriptor, and a task of its tokio runtime watches that, or, on any other executor, the
//!   node's thread. There is no task that everything goes through, and no lock is held across an await.
//! - *Wakers are user code.* They are called, cloned and dropped where no lock is held, each panic caught, and not on the
//!   node's thread, which serves leases.
//! - *Messages arrive in the inbox.* Receives are posted ahead; what arrives waits there. A dropped `recv` loses
//!   nothing.
//! - *Beside the data path* the node's one thread takes connection events and serves leases, whatever the application does.
//!
//! What it costs: an operation is one uncontended lock of its slot at the post, at the completion and when the future
//! takes the result, two of the list of free slots, and nothing allocated. A buffer from the cache of its thread is one
//! uncontended lock.

#![deny(unsafe_code)]
// docs.rs shows which items need which feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[forbid(unsafe_code)]
mod accept;
#[forbid(unsafe_code)]
mod acceptors;
#[forbid(unsafe_code)]
mod address;
#[forbid(unsafe_code)]
mod admission;
#[forbid(unsafe_code)]
mod agenda;
#[forbid(unsafe_code)]
mod atomic;
#[forbid(unsafe_code)]
mod backoff;
mod block;
#[forbid(unsafe_code)]
mod block_on;
#[forbid(unsafe_code)]
mod buffer;
#[forbid(unsafe_code)]
mod builder;
#[forbid(unsafe_code)]
mod conn;
#[forbid(unsafe_code)]
mod conn_port;
#[forbid(unsafe_code)]
mod conn_source;
#[forbid(unsafe_code)]
mod conn_state;
#[forbid(unsafe_code)]
mod connect;
#[forbid(unsafe_code)]
mod connection;
#[forbid(unsafe_code)]
pub mod datagram;
#[forbid(unsafe_code)]
mod deferred;
#[forbid(unsafe_code)]
mod driver;
#[forbid(unsafe_code)]
mod error;
#[forbid(unsafe_code)]
mod fetch;
#[forbid(unsafe_code)]
mod following;
#[forbid(unsafe_code)]
mod grant;
mod handshake;
#[forbid(unsafe_code)]
mod lease;
#[forbid(unsafe_code)]
mod listener;
#[forbid(unsafe_code)]
mod node;
#[forbid(unsafe_code)]
mod oneshot;
#[forbid(unsafe_code)]
mod op_buffers;
#[forbid(unsafe_code)]
mod op_future;
#[forbid(unsafe_code)]
mod op_slab;
#[forbid(unsafe_code)]
mod operation;
#[forbid(unsafe_code)]
mod options;
#[forbid(unsafe_code)]
mod peer_log;
#[forbid(unsafe_code)]
mod pool;
#[cfg(feature = "rdm")]
#[cfg_attr(docsrs, doc(cfg(feature = "rdm")))]
#[forbid(unsafe_code)]
pub mod rdm;
#[forbid(unsafe_code)]
mod reactor;
#[forbid(unsafe_code)]
mod receives;
#[forbid(unsafe_code)]
mod recv;
#[forbid(unsafe_code)]
mod relay;
#[forbid(unsafe_code)]
mod request;
#[forbid(unsafe_code)]
mod router;
#[forbid(unsafe_code)]
mod source;
#[cfg(feature = "tokio")]
#[forbid(unsafe_code)]
mod stream;
#[forbid(unsafe_code)]
mod timers;
#[cfg(feature = "tokio")]
#[forbid(unsafe_code)]
mod tokio_driver;
#[forbid(unsafe_code)]
mod transfer;
#[forbid(unsafe_code)]
mod wait_queue;
#[forbid(unsafe_code)]
mod wakers;

/// Entry points of the fuzzers in `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::lease::fuzzing::{LeaseFuzzer, leases_seeds};
}

#[doc = include_str!("../doc/guide.md")]
pub mod guide {}

/// Compiles and runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// Compiles and runs the programs in the README of the repository, which use both crates. By a link below `doc/`, so that the
/// package has it too.
#[cfg(doctest)]
#[doc = include_str!("../doc/README-of-the-repository.md")]
pub struct RepositoryReadme;

pub use accept::Incoming;
pub use address::Address;
pub use atomic::Atomic;
pub use block_on::block_on;
pub use buffer::{Buffer, BufferSlice, SharedBuffer};
pub use builder::NodeBuilder;
pub use conn_state::{Message, Notification};
pub use connection::Connection;
pub use error::{Error, LeaseEnd, OpError, Refusal, Result};
pub use handshake::{MAX_ACCEPT_BYTES, MAX_CONNECT_BYTES};
pub use lease::{LeasePolicy, LeaseRequest, LocalLease, RemoteLease, RemoteTarget};
pub use listener::Listener;
pub use node::Node;
pub use op_buffers::{Payload, RecvPayload};
pub use operation::Operation;
pub use options::WaitStrategy;
pub use pool::{AllocWait, Pool, PoolMetrics};
pub use recv::{Notifications, Notified, Receive};
pub use request::{NextRequest, Request};
#[cfg(feature = "tokio")]
pub use stream::Stream;

/// The layer below, for what this one does not cover: providers, hints, counters, its own regions and endpoints.
pub use fabric;
// What signatures here name.
pub use fabric::{
    Access, AtomicOp, AtomicScalar, Catalog, Choice, DisconnectReason, Domain, EndpointAttr,
    EndpointId, Hints, RemoteRegion, RemoteSlice, Status,
};
/// The crate by which buffers are viewed as plain values ([`Buffer::view`]). It is a part of this API: a version of this crate
/// goes with `zerocopy` 0.8, and a change of that is a breaking change.
pub use zerocopy;

/// 64 bits of the system's randomness: a token that cannot be guessed.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64().map_err(|cause| {
        let cause = std::io::Error::other(cause.to_string());
        fabric::Error::system("connect", "fabric-async", cause).into()
    })
}
