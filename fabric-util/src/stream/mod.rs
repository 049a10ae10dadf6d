//! One connection's protocol over any stream of bytes, without sockets.
//!
//! Posts and received bytes go in; bytes to transmit, completions and events come out. A link knows no
//! socket, no clock and no thread, so tests drive two of them against each other byte by byte.
//!
//! What a link consists of:
//!
//! - `liveness`: whether the peer's host still answers; `transport`: what carries the bytes; `io_vec`: memory for one call of it;
//! - `sends`: the send queue and what of it is on its way; `receives`: posted receives; `recv_queue`: the receive queue; `segments` of both;
//! - `outgoing`: the stream to the peer, as runs of memory; `payload`: what of a frame from the peer is still to come;
//! - `shared_receives`: a receive queue of several links; `shared_receive_queue`: what providers make of it;
//! - `requests`: the peer's requests that are under way, and the answers they still get;
//! - `acks`: when the peer is asked for acknowledgements, and when it gets them;
//! - `phase`: from the handshake to the end; `protocol_error`: a peer that breaks the protocol;
//! - [`wire`]: the format of the bytes.
//!
//! What [`Link`], in `link`, does with them:
//!
//! - `transmit`: cutting requests and answers into frames;
//! - `short`: the same of short messages, in fewer steps; `beside`: what goes beside the stream;
//! - `incoming`: frames from the peer; `target`: executing its requests; `initiator`: taking its answers;
//! - `close`: how a connection ends.
//!
//! And how a stream carries it:
//!
//! - `conn`: a link and its transport under one lock; `greeting`: the bytes by which both ends come to an open link, and `proof`:
//!   by what they prove in them that they have the same secret;
//! - `protection`: what a domain's level of security makes of its transports; `tls`: one that encrypts.
//!
//! A provider calls a [`Conn`], and that calls the link in this order:
//!
//! ```text
//!  provider                        Conn                                 Link
//!  connect, an initiator's    ──▶  hello, sent ahead of all    ──▶  say
//!  accept, an acceptor's      ──▶  answer                      ──▶  say, open
//!  turn, on an event          ──▶  until established: answer   ──▶  open, push_ack, announce, consume
//!                                  then: write, read, write    ──▶  complete_finished, (encode, send_to)*, recv_from*,
//!                                                                   complete_finished, (encode, send_to)*
//!                                  the phase: Ending, and fully_sent: shut down; Closed: close
//!  reach, flush               ──▶  what the transport can do   ──▶  is_clear, complete_reached, reach_next
//!  post_send, post_recv       ─────────────────────────────────▶  post_send, post_recv
//!  flush, follow_up           ──▶  write; the phase            ──▶  (encode, send_to)*
//!  end                        ──▶  write; the phase            ──▶  end, (encode, send_to)*
//!  drop of the lock           ──▶  completions, events         ──▶  deliver, take_events
//!  reported, without the lock ─────────────────────────────────▶  reported
//! ```

mod acks;
mod beside;
mod close;
mod conn;
mod greeting;
mod incoming;
mod initiator;
mod io_vec;
mod limits;
mod link;
mod liveness;
mod outgoing;
mod payload;
mod phase;
mod protection;
mod protocol_error;
mod receives;
mod recv_queue;
mod requests;
mod segments;
mod sends;
mod shared_receive_queue;
mod shared_receives;
mod short;
mod target;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
// Miri has no madvise(2), by which registrations probe.
#[cfg(not(miri))]
#[cfg(test)]
mod tests;
#[cfg(feature = "encryption")]
mod tls;
mod transmit;
mod transport;
pub mod wire;

pub use conn::{Conn, ConnState, Host, Locked, Timer};
pub use greeting::{Greeting, Initiator, refuse};
pub use io_vec::{IoVec, MAX_IO_VECS, store_value};
pub use limits::limits;
pub use link::{Deferral, Link, LinkContext, Pending};
pub use phase::{End, Phase};
pub use protection::{Protected, Protection};
pub use requests::READS;
pub use shared_receive_queue::SharedReceiveQueue;
pub use shared_receives::{SharedReceives, TakesReceives};
#[cfg(feature = "encryption")]
pub use tls::{TlsKeys, TlsTransport};
pub use transmit::AckPolicy;
pub use transport::{Reached, Silence, Transport};
