//! The RDMA verbs provider of `fabric`: reliable connected queue pairs over libibverbs and librdmacm.
//!
//! Obligations of every provider are in `fabric_core::{ops, provider}`; here the device keeps most of them, and
//! software what is left: atomics that devices lack, exact private data, time-outs, liveness, orderly ends.
//!
//! Files, from the contract inwards:
//! - [`provider`], `device`, `domain`, `region`, `cq`, `shared_receives`, `datagram`, `listener`, `endpoint`: the contract's objects; [`raw`]: the way out, to
//!   libibverbs itself;
//! - `domain/state`: what a domain's objects share; `domain/thread` and `domain/timers`: its thread; `open_device`: the device
//!   below them;
//! - `conn`: a queue pair and its connection; `connect`: how it is made; `close`: how it ends; `events`: what the domain brings
//!   to it; `liveness`: probes; `stall`: whether the send queue gets on; `request`, `rejected` and `header`: connection requests, and private data;
//! - `post` and `receive`: from operations to work requests (`chain`); `complete` and `status`: completions that are no plain success;
//!   `tokens`: what a connection remembers of its posts; `shared_queue`: what it knows of a shared receive queue; `grant` and `windows`: parts of regions for one peer;
//!   `bounce` and `scratch`: registered memory of the provider's own; `datagram_receive`: what comes before a datagram, and what does not fit;
//! - `sysfs`, `path`, `loaded`, `quirks`: what libibverbs does not report, the settings of a connection's path, what is loaded
//!   here, and where drivers depart from the specification; `softroce`: what one of them needs; `error`: errors with remedies;
//! - `handle`: libibverbs objects as values; `ffi`: all that is taken from C, and the only place that names `rdma_sys`.
//!
//! # libibverbs and librdmacm
//!
//! They are loaded when the provider first looks for devices (`libibverbs.so.1`, `librdmacm.so.1`; rdma-core 28 or newer), and stay.
//! Where one is missing, the provider has no device and says what to install. With the feature `rdma-sys` they are linked
//! instead, by the crate of that name, which needs their headers and libclang 14 to be built.
//!
//! # Registered memory
//!
//! A region's rights are the device's: `LOCAL_WRITE`, `REMOTE_READ`, `REMOTE_WRITE`, `REMOTE_ATOMIC` and `RELAXED_ORDERING` are
//! registered as `IBV_ACCESS_` of the same names, and no other flag ever is (`ibv_reg_mr(3)`, which also demands
//! `IBV_ACCESS_LOCAL_WRITE` for remote writes and atomics; the core refuses what lacks it). Local reading needs none. Queue
//! pairs allow everything remote: the regions restrict. Only the registration beneath a grant's window has
//! `IBV_ACCESS_MW_BIND`, and no remote right.
//!
//! Registered pages are locked, and count against `RLIMIT_MEMLOCK` unless the process has `CAP_IPC_LOCK`. What does not fit is
//! `NoMemory` with the limit and the remedy in its text; `fabric info` warns beforehand.
//!
//! # fork
//!
//! A child of `fork` may use none of the parent's handles: each call is an error there, and dropping them does nothing. From
//! Linux 5.13 on the kernel copies locked pages at the fork, and the parent's registrations stay whole. Before that they
//! need `ibv_fork_init(3)`, which is called before the first look at a device; registered pages are then missing in the child.
//!
//! # Descriptors
//!
//! librdmacm opens each device once for itself, when a process makes its first identifier, and keeps it: two descriptors,
//! of `/dev/infiniband/uverbs*` and of its events, stay open after the last domain, and no more.
//!
//! # Soft-RoCE, as it was seen to behave
//!
//! Seen in Debian's kernels 6.1.192 and 6.12.117, with the provider's own requests. Where the provider takes
//! another way on such a device, the switch and its reason are in `quirks.rs`; what is right on every device it always does.
//!
//! | what | seen |
//! |---|---|
//! | A send without a receive, `rnr_retry` 7, `retry_cnt` 6, time-out 14 | ends with `RETRY_EXC` after 0.9 s (6.1) or 9.6 s (6.12): a receiver-not-ready answer does not reset the retry count. With `retry_cnt` 7 it waits for ever, and so does a request to a peer that is gone. |
//! | A receive posted after the error state | is never flushed; moving the queue pair to ERR again flushes it. A late send is flushed at once. |
//! | A fenced request that has to be repeated, because there is no receive or a packet is lost | 6.1, 6.12: waits for ever where a read or atomic was sent behind it, or if it is one: the fence counts all of the queue's, not those before it. The library never sets the flag there; fenced operations wait in software. |
//! | `ibv_post_send` before RTS | is refused with `EINVAL`, but stays in the queue: the next post executes it, an error flushes it. The library posts nothing before the connection is established. |
//! | A region whose `iova` and address differ modulo the page size | is refused by both kernels. Regions use their address. |
//! | A region that goes during a read of many packets | 6.1: in 30 of 30 tries the refusal is lost, and with `retry_cnt` 7 the reader waits in silence, until the target looks at its queue pairs' states after the deregistration and ends the connection. 6.12: none of 30. |
//! | The same where a packet of the answer was lost | 6.1: the refusal comes in the midst of the repeated answer, and the read ends as if it had succeeded, its last bytes missing, its queue pair in error. 6.12: refused as it should. The library believes a read of several packets only if the queue pair is not in error. |
//! | A send or write directly before an atomic, and packets lost | 6.1: the atomic's old value never comes, though it ends well (with 1 % lost and 5 % reordered one of some hundred). A write that is repeated is acknowledged by the number of what was executed last, the atomic, whose own answer was lost. The library holds an atomic back until the sends and writes before it have ended. |
//! | A memory window bound behind a request that has to be repeated | is bound once more; that fails, and nothing of the send queue ends any more. The library binds when all before it has ended. |
//! | A connection that ends in the midst of a message, whose receive is of a shared queue | 6.1: that receive is flushed, without the event for it (`LAST_WQE_REACHED`); the library waits before it destroys the queue pair: 20 ms, and until it has looked 200 times, which takes longer where the processors are busy; 1 s at most. By the source, since commit 49dc9c1f0c7e of March 2023 (by its date in 6.4), it never ends, and no call says which it was; with the queues in use on 6.12 `shared.in_the_middle` of the suite hangs, and the others pass. No shared receive queues from 6.4 on. |
//! | A queue armed for solicited completions only | is not woken by failures either; libibverbs says it should be. The library arms for all. |
//! | A request that cannot be sent (link down, no neighbour) | ends with `LOC_QP_OP_ERR`, as if it were malformed. |
//! | After a link went down and up under a connection | 6.1 makes no new ones over it; `rping` of librdmacm cannot either. |
//! | A connection request to `::1` or `::` from one of the device's IPv6 addresses | finds no route where it is sent, and with that the queue pair fails by which the kernel makes all connections of the device: for minutes no program on the host connects, plain librdmacm included. The library refuses addresses that lead into the host. |
//! | `rdma link delete` | is reported to the connection manager's identifiers alone, and waits until every context is closed. |
//! | Hundreds of sends that wait for receives | ask again each millisecond; several hundred connections of them lock up an emulated processor. |

mod bounce;
mod chain;
mod close;
mod complete;
mod conn;
mod connect;
mod cq;
mod datagram;
mod datagram_receive;
mod device;
mod domain;
mod endpoint;
mod error;
mod events;
mod ffi;
mod grant;
mod handle;
mod handshake;
mod header;
mod listener;
mod liveness;
mod loaded;
mod open_device;
mod path;
mod post;
pub mod provider;
mod quirks;
pub mod raw;
mod receive;
mod region;
mod reject_cache;
mod request;
mod scratch;
mod shared_queue;
mod shared_receives;
mod softroce;
mod stall;
mod status;
mod sysfs;
mod tokens;
mod windows;

/// Entry points of the fuzzers in `fuzz/`.
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::handshake::fuzzing::{greeting, greeting_seeds};
}

pub use cq::VerbsCq;
pub use domain::VerbsDomain;
pub use endpoint::VerbsEndpoint;
pub use error::NAME;
#[cfg(not(feature = "rdma-sys"))]
#[doc(hidden)]
pub use ffi::interpose;
pub use listener::VerbsListener;
#[doc(hidden)]
pub use open_device::TestLimits;
pub use provider::VerbsProvider;
pub use region::VerbsRegistration;
pub use shared_receives::VerbsSharedReceives;
