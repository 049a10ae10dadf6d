//! What is known of a message that was received, and which buffers messages go from and into.

use fabric_rdm::{Completion, Peer, PostError, Status};

use crate::buffer::{Buffer, BufferSlice, SharedBuffer};
use crate::error::{Error, Result};
use crate::op_buffers::{Payload, RecvPayload};

/// What a receive says of its message.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
/// # doc::endpoints(async |a, b, to_b, from_a| {
/// use fabric_rdm::matching::Pattern;
///
/// let sent = a.send(to_b, a.pool().alloc_from(b"hello")?).tag(7).immediate(42);
/// let received = b.recv(Pattern::tagged(7), b.pool().alloc(4096)?);
/// let (sent, received) = futures_util::future::join(sent, received).await;
/// let (buffer, info) = received?;
/// assert_eq!(&buffer[..info.len], b"hello");
/// assert_eq!((info.peer, info.tag, info.immediate), (from_a, Some(7), Some(42)));
/// # drop(sent?);
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageInfo {
    /// The peer that sent it.
    pub peer: Peer,
    /// Its tag; `None`: it is untagged.
    pub tag: Option<u64>,
    /// Its bytes: all are in the buffer.
    pub len: usize,
    /// The sender's 32 bits, if it gave some.
    pub immediate: Option<u32>,
}

/// What a message goes from: one buffer, or a part of one, or a shared one. Sealed, by [`Payload`].
///
/// Not several buffers in a row: a message of a reliable datagram endpoint lies in one piece. One-sided operations take them.
pub trait MessagePayload: Payload {}

impl MessagePayload for Buffer {}
impl MessagePayload for BufferSlice {}
impl MessagePayload for SharedBuffer {}

/// What a message goes into: one buffer, or a part of one. Sealed, by [`RecvPayload`].
pub trait MessageRoom: MessagePayload + RecvPayload {}

impl MessageRoom for Buffer {}
impl MessageRoom for BufferSlice {}

/// The message of a receive.
///
/// # Errors
/// Why it has none.
pub(super) fn info(completion: &Completion) -> Result<MessageInfo> {
    match (completion.status, completion.peer) {
        (Status::Ok, Some(peer)) => {
            let Completion { tag, immediate, .. } = *completion;
            Ok(MessageInfo { peer, tag, len: completion.len as usize, immediate })
        }
        _ => Err(error(completion)),
    }
}

/// Why an operation ended badly.
pub(super) fn error(completion: &Completion) -> Error {
    match completion.status {
        Status::Truncated => {
            Error::Truncated { len: completion.message_len as usize, room: completion.len as usize }
        }
        Status::PeerLost => Error::Disconnected(fabric::DisconnectReason::PeerLost),
        Status::PeerGone => Error::PeerGone,
        Status::RemoteAccess => Error::RemoteAccess,
        Status::Canceled => Error::Failed(fabric::Status::Canceled),
        _ => Error::Failed(fabric::Status::Internal),
    }
}

/// What a post comes to: `None`, there is no room now.
pub(super) fn posted<T>(posted: Result<T, PostError>) -> Result<Option<T>> {
    match posted {
        Ok(posted) => Ok(Some(posted)),
        Err(PostError::Again(_)) => Ok(None),
        Err(PostError::PeerDown(cause)) => Err(Error::PeerDown(cause)),
        Err(PostError::Fabric(error)) => Err(error.into()),
        Err(other) => Err(fabric::Error::state("post", other.to_string()).into()),
    }
}
