//! The safe handles, over the null provider.

#[path = "../null/mod.rs"]
mod null;
#[path = "../rig/mod.rs"]
mod rig;

mod accounting;
mod arguments;
mod capacity;
mod connecting;
mod events;
mod lifetimes;
mod model;
mod regions;
mod selection;
mod sharing;
mod teardown;
mod unsignaled;
mod waiting;
