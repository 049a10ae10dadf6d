//! Reliable datagram endpoints: messages to peers by address, without connections that the application would have to make.
//!
//! An [`Endpoint`] is made on a domain of `fabric`, and is the same over every provider. The package is `anyfabric-rdm`.
//!
//! | module or type | what it is |
//! |---|---|
//! | [`Endpoint`], [`RdmAttr`] | the endpoint, and how it is made |
//! | [`Send`], [`Recv`], [`Completion`], [`Counter`] | what is posted, and how it ends |
//! | [`Address`], [`EndpointIdentity`], [`HostIdentity`] | what peers need to reach an endpoint, in 64 bytes or a text, and which incarnation is meant |
//! | [`Peers`], [`Peer`] | the peers of an endpoint, by handles that never name another peer |
//! | [`matching`] | which receive takes which message, by tag and source |
//! | [`window`] | how many messages may be posted to a peer, so that each has a place there |
//! | [`connection`] | when to connect to a peer, which of two attempts wins, parking, and a peer's death |
//!
//! [`matching`], [`window`] and [`connection`] need no I/O: data structures and state machines that are driven by calls and know
//! no clock. Tests run them against each other, and against models, in every order of events. The endpoint drives them. They
//! are public for those who make an endpoint of their own.
//!
//! # How a message goes
//! - A *short* one, that fits a slot of the receiver with its header, is sent in one piece: into its receive, or, if none is
//!   there, into memory of its own there.
//! - A *middle* one is sent in pieces, as long as the receiver has granted bytes for it.
//! - A *long* one, and each that no bytes are granted for, stays at its sender. Its envelope takes part in matching as any
//!   other; when it has met a receive, the receiver reads it from the sender's memory by a grant on exactly its bytes, or has it
//!   sent in pieces where there are no grants, or its region lacks [`REMOTE_READ`](fabric::Access::REMOTE_READ).
//!
//! An endpoint may be its own peer. Messages to itself are copied once, when they have met a receive. One-sided operations to
//! itself go by a connection of the provider to itself, so that they do what they do to any other peer.
//!
//! # Unreliable datagrams
//! Datagrams that may be lost are another kind of endpoint: [`fabric::DatagramEndpoint`].

#![forbid(unsafe_code)]

mod address;
mod address_error;
pub mod connection;
mod endpoint;
mod hash;
mod identity;
pub mod matching;
mod peers;
mod rail;
pub mod window;

pub use address::{Address, MAX_ADDRESS_BYTES, MAX_RAILS};
pub use address_error::AddressError;
pub use connection::DeathCause;
pub use endpoint::{
    Claimed, Completion, Counter, Endpoint, Full, Kind, OpId, PayloadRef, PeerEvent, PostError,
    Probed, RdmAttr, Recv, Send, Status,
};
pub use identity::{EndpointIdentity, HostIdentity};
pub use peers::{Peer, Peers};
