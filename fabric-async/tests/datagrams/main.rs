//! Unreliable datagrams, asynchronous: each test over every provider that runs here, by `block_on` and on tokio.

#![cfg(all(feature = "tokio", not(miri)))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod drops;
#[path = "../common/everywhere.rs"]
mod everywhere;
mod futures;
mod passing;
mod rig;
mod room;
