//! The provider of `fabric` for processes of one host.
//!
//! Peers have ordinary addresses, `ip:port`, of this host. They meet by sockets of the kernel's (unix(7)), whose names are in no
//! file system: nothing stays behind, whatever ends a process. What they say to each other goes through rings in memory that
//! both have mapped; the socket wakes a side that sleeps, and says when the other is gone. What a provider over sockets is, is in
//! `fabric_util::sockets`; here are the sockets:
//! - `family`: how they are made; `address`: what an address is called there, and which are free;
//! - `transport`: what carries a connection's bytes; `preface`: how both ends come to the same rings;
//! - `closer`: what peers can have close(2) sleep for is closed apart;
//! - [`near`]: whether a peer is reached so, for a domain that has another way as well;
//! - `ring`: both directions; `control`: how far both ends of one are, and who sleeps; `mapping`: the memory; `line`: one word of it.
//!
//! Memory that a domain allocates lies in files that its peers have mapped, if they are the same user's. So they write to what is
//! registered of it, read it, and change it by atomics without this process, be it asleep or stopped:
//! - `memory`: what a domain has of that kind; `pool`: the files; `windows`: what of them is registered, for peers to see;
//! - `visitors`: the peers; `user`: whose process one is; `hazard`: which window each is at, so that a window closes when none is there;
//! - `reach`: the same from the other side: what this one does to the peer's memory; `restart`: so that an access that was
//!   stopped, for however long, does nothing after its window has closed.

mod address;
mod closer;
mod control;
mod family;
mod hazard;
mod line;
mod mapping;
mod memory;
mod name;
pub mod near;
mod pool;
mod preface;
mod reach;
mod restart;
mod ring;
mod transport;
mod user;
mod visitors;
mod windows;

use fabric_util::sockets;

pub use family::{Shm, ShmSocket};
pub use memory::ShmMemory;
pub use name::NAME;
pub use transport::ShmTransport;

/// The provider. [`settings`](fabric_core::Provider::settings) has what can be set.
pub type ShmProvider = sockets::SocketProvider<Shm>;
/// A domain.
pub type ShmDomain = sockets::SocketDomain<Shm>;
/// A completion queue.
pub type ShmCq = sockets::SocketCq<Shm>;
/// An endpoint.
pub type ShmEndpoint = sockets::SocketEndpoint<Shm>;
/// A listener.
pub type ShmListener = sockets::SocketListener<Shm>;
