//! Unreliable datagrams, asynchronous: to any address, without connections, where a lost message costs little.
//!
//! A [`DatagramEndpoint`] is [`fabric::DatagramEndpoint`] with futures that own their buffers. What holds of datagrams that type
//! says: each arrives whole or not at all, and may be lost, late, behind later ones, or there twice. It needs a device with
//! [`Capabilities::DATAGRAMS`](fabric::Capabilities::DATAGRAMS): a node's [hints](crate::NodeBuilder::hints) ask for one.
//!
//! | call | future or stream of |
//! |---|---|
//! | [`resolve`](DatagramEndpoint::resolve) | a handle to send to |
//! | [`send_to`](DatagramEndpoint::send_to) | the buffer, which is free again |
//! | [`inject_to`](DatagramEndpoint::inject_to) | nothing: some bytes were copied and posted |
//! | [`recv_from`](DatagramEndpoint::recv_from), [`datagrams`](DatagramEndpoint::datagrams) | a [`Datagram`]: a buffer, and its sender's address |
//!
//! # Receives
//! As many receives as [`DatagramAttr::recv_depth`](fabric::DatagramAttr) are posted ahead, with buffers of the pool as long as the
//! longest datagram, but no longer than [`NodeBuilder::max_message`](crate::NodeBuilder::max_message). What arrives waits in the
//! endpoint's inbox, and takes the place of a receive until it is taken. So a program that takes nothing has at most that many
//! datagrams in memory, and those that come then are dropped.
//!
//! # Drops
//! [`drops`](DatagramEndpoint::drops) counts what was dropped at this end, as far as the device says so, and
//! [`too_long`](DatagramEndpoint::too_long) those that were longer than the receives. What is lost between the two ends is not counted.
//!
//! # Dropped futures
//! Any future may be dropped at any time. A send that was posted goes on, and its buffer returns to the pool when it has ended; one
//! that was not has no effect. A receive that is dropped loses nothing.

mod endpoint;
mod inner;
mod recv;
mod send;

pub use crate::conn_state::Datagram;
pub use endpoint::DatagramEndpoint;
/// What signatures here name.
pub use fabric::{AddressHandle, DatagramAddress, DatagramAttr, DatagramDrops};
pub use recv::{DatagramStream, RecvDatagram};
pub use send::{InjectDatagram, SendDatagram};
