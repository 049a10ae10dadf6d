//! A peer on another host, or in another process.
//!
//! A [`Server`] there lends its domains; a [`Peer`] here knows them. Its domains are those of a provider
//! ([`provider`]) that forwards each call, so that cases run unchanged, one end here and the other there, and what
//! they test is the library at both ends:
//!
//! ```text
//! case -> fabric -> provider              case -> fabric -> remote provider
//!                      |                                          | calls, events
//!                      |                                       session -> fabric -> provider
//!                      +------------------- under test ------------------------------+
//! ```
//!
//! - One connection is one domain; what a client that died leaves behind closes with it.
//! - Each call waits for its answer. Completions come when they are polled for: nothing at the far end makes progress
//!   that an idle program would not.
//! - A reliable datagram endpoint is whole at the far end, with calls of its own ([`rdm`]): what it does between two calls is
//!   the library's part that is under test.
//! - Bytes are where the domain is: [`Guarded`](crate::Guarded) reads and writes them there ([`case_memory`]).

mod allocation;
pub(crate) mod case_memory;
mod frame;
mod link;
mod ops;
mod outbox;
mod peer;
mod process;
mod protocol;
#[allow(unsafe_code)] // implements the provider contract
mod provider;
pub(crate) mod rdm;
mod server;
mod session;

pub use peer::Peer;
pub use process::Process;
pub use server::Server;
