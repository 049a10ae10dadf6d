//! Reliable datagram endpoints, asynchronous: each test over every provider that runs here, by `block_on` and on tokio.

#![cfg(all(feature = "rdm", feature = "tokio", not(miri)))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod cancel;
#[path = "../common/everywhere.rs"]
mod everywhere;
mod idle;
mod messages;
mod notified;
mod peers;
mod rig;
mod room;
mod tasks;
