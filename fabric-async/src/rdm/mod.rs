//! Reliable datagram endpoints, asynchronous: messages to peers by address, without connections that the application would make.
//!
//! An [`Endpoint`] is [`fabric_rdm::Endpoint`] with futures that own their buffers. Its package, `anyfabric-rdm`, has the types of
//! addresses, peers, patterns and settings, and says what holds.
//!
//! | call | future or stream of |
//! |---|---|
//! | [`send`](Endpoint::send), [`send_tagged`](Endpoint::send_tagged) | the buffer; [`matched`](SendMessage::matched): when a receive has met the message |
//! | [`inject`](Endpoint::inject) | nothing: a short message was copied and posted |
//! | [`recv`](Endpoint::recv) | the buffer, and a [`MessageInfo`] |
//! | [`recv_many`](Endpoint::recv_many) | messages, one behind the other in one buffer |
//! | [`claim`](Endpoint::claim), [`recv_alloc`](Endpoint::recv_alloc) | a message of unknown size |
//! | [`write`](Endpoint::write), [`read`](Endpoint::read), [`fetch_add`](Endpoint::fetch_add), ... | the buffer; the old value |
//! | [`write_notify`](Endpoint::write_notify); [`notified`](Endpoint::notified), [`notifications`](Endpoint::notifications) | the buffer of a write that notifies the peer; notifications of peers |
//! | [`reached`](Endpoint::reached), [`flush`](Endpoint::flush), [`next_event`](Endpoint::next_event) | counters, the end of all sends, events of peers |
//!
//! # Room
//! A send waits, and never fails, while its peer has no place for one more message without a receive, or the endpoint's depth is
//! reached: for each peer in the order of the first polls. So a receiver that posts no receives holds up those that send to it, and
//! no other.
//!
//! # Dropped futures
//! Any future may be dropped at any time, and no memory is reused while a device or a peer may touch it. Not posted: nothing has
//! happened. A send, read, write or atomic that was posted goes on. A receive that was posted is canceled; if it has met a message
//! that moment, the message is lost: see [`RecvMessage`]. All others lose nothing.
//!
//! # Progress
//! Futures that are polled, and those who watch the endpoint's descriptor for futures that sleep (the tokio runtime, or the node's
//! thread), do the endpoint's work. Where none of them does, for 2 ms, `fabric-rdm`'s thread takes over: receives that were posted get
//! their messages though no future is polled. An endpoint where nothing happens wakes no thread.

mod claim;
mod conditions;
mod endpoint;
mod inner;
mod many;
mod message;
mod one_sided;
mod recv;
mod room;
mod send;
mod source;
mod waits;

pub use claim::{ClaimNext, ClaimedMessage, ReceiveClaimed};
pub use endpoint::Endpoint;
/// The layer below: what signatures here name.
pub use fabric_rdm;
pub use many::{MessageInMany, RecvMany};
pub use message::{MessageInfo, MessagePayload, MessageRoom};
pub use one_sided::{FetchAtomic, OneSided};
pub use recv::RecvMessage;
pub use send::{Inject, SendMessage};
pub use waits::{
    CounterReached, NextEvent, NextNotification, NotificationStream, WriteNotification,
};
