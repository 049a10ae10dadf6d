//! Reliable datagram endpoints: messages to peers by address, without connections that the application would have to make.
//!
//! This crate has the parts that need no I/O: data structures, and state machines that are driven by calls and know no
//! clock. They are the same whatever carries the bytes, and tests run them against each other, and against models, in every
//! order of events.
//!
//! | module or type | what it decides |
//! |---|---|
//! | [`EndpointIdentity`], [`HostIdentity`] | which incarnation of an endpoint is meant, and whether it is on this host |
//! | [`Address`] | what peers need to reach an endpoint, in 64 bytes or a text |
//! | [`Peers`], [`Peer`] | the peers of an endpoint, by handles that never name another peer |
//! | [`matching`] | which receive takes which message, by tag and source |
//! | [`window`] | how many messages may be posted to a peer, so that each has a place there |
//! | [`connection`] | when to connect to a peer, which of two attempts wins, parking, and a peer's death |
//!
//! Together they are most of an endpoint. A message is posted if [`window::SendWindow::post`] lets it; it waits for
//! [`connection::Action::Ready`], and gets its number from [`connection::PeerConnection::next_number`]. At the other side
//! [`connection::PeerConnection::on_message`] checks that number, [`window::ReceiveWindows::on_message`] that it was granted,
//! and [`matching::Matcher::arrive`] finds its receive; that frees its place by [`window::ReceiveWindows::on_matched`].
//!
//! Not here yet: the endpoint itself, over connected endpoints of `fabric`; the format of what its connections carry, which
//! is [`connection::Hello`] and [`connection::Refusal`], the numbers of [`window`] and the messages themselves; long
//! messages by rendezvous; which connections to park when there are too many; counters; the exchange of addresses between
//! the processes of a job. So the crate is not published.

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
    Claimed, Completion, Counter, Endpoint, Full, Kind, OpId, PeerEvent, PostError, Probed,
    RdmAttr, Recv, Send, Status,
};
pub use identity::{EndpointIdentity, HostIdentity};
pub use peers::{Peer, Peers};
