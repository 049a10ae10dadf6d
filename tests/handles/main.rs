//! The safe handles, over the null provider.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "../null/mod.rs"]
mod null;
#[path = "../rig/mod.rs"]
mod rig;

mod accounting;
#[cfg(not(miri))] // what is refused before memory is touched shows Miri nothing
mod arguments;
mod capacity;
mod connecting;
mod events;
mod grants;
mod held;
mod lifetimes;
mod model;
mod regions;
#[cfg(not(miri))] // no memory is touched
mod selection;
mod settings;
mod shared;
mod sharing;
mod teardown;
mod unsignaled;
mod waiting;
