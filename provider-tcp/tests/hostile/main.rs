//! Peers that do not keep the protocol, over real sockets: each ends its own connection and nothing more.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

mod crowds;
#[cfg(feature = "encryption")]
mod encrypted;
mod frames;
mod greetings;
mod hangups;
mod listeners;
mod scene;
mod secrets;
mod stalls;
