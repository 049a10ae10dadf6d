//! What providers of `fabric` are built from.
//!
//! The contract is in `fabric-core`. Here is what more than one provider, or a provider and the handles, would otherwise
//! each have of their own. Nothing here knows a transport.
//!
//! - threads and foreign code: [`sync`] (locks that are checked), [`callback`] (the one way to call user code),
//!   [`reports`] (events on their way to the sink), [`service_thread`], [`timers`], [`workers`] (threads for what may block),
//!   [`logging`], [`log_limiter`];
//! - the kernel: [`wakeup`] (descriptors to wait on), [`fork`] (handles in a child process), [`probe`] (is memory mapped);
//! - connections: [`stream`] (the protocol over any stream of bytes), [`sockets`] (providers over stream sockets of
//!   any kind), [`region_table`] (memory that peers may reach),
//!   [`completion_ring`] (completions until they are polled for), [`stall_watch`] (whether operations get on),
//!   [`backlog`] (requests until they are answered),
//!   [`proof`] (that both ends have the same secret), [`refusal`] (why there is no connection),
//!   [`fair_table`] and [`fair_turns`] (what strangers take and what time, shared by where they come from), [`admission`] (which of them are connected),
//!   [`byte_quota`] (how much memory they have), [`introductions`] (of those that come to a tool), [`mutual_proof`] (and their secret);
//! - datagrams: [`datagram`] (what providers in software share of them);
//! - progress: [`progress`] (which connections are served when), [`fault`] (both at their worst, for tests);
//! - queues: [`inflight`] (operations in flight and their depth), [`slots`] (those that end in any order), [`emulate`]
//!   (atomics that a device lacks), [`endpoint_map`] (what belongs to each endpoint);
//! - small things: [`stats`] (counters), [`route`] (the address to connect from), [`range`] (bounds of a slice),
//!   [`splitmix`] (random numbers for tests), [`choices`] (a fuzzer's choices).

pub mod admission;
pub mod backlog;
pub mod byte_quota;
pub mod callback;
pub mod choices;
pub mod completion_ring;
pub mod datagram;
pub mod emulate;
pub mod endpoint_map;
pub mod fair_table;
pub mod fair_turns;
pub mod fault;
pub mod fork;
// Duels would take Miri hours.
#[cfg(any(fuzzing, all(test, not(miri))))]
#[doc(hidden)]
pub mod fuzzing;
pub mod inflight;
pub mod introductions;
pub mod log_limiter;
pub mod logging;
pub mod mutual_proof;
pub mod probe;
pub mod progress;
pub mod proof;
pub mod range;
pub mod refusal;
pub mod region_table;
pub mod reports;
pub mod route;
pub mod service_thread;
pub mod slots;
pub mod sockets;
pub mod splitmix;
pub mod stall_watch;
pub mod stats;
pub mod stream;
pub mod sync;
pub mod timers;
pub mod wakeup;
pub mod workers;
