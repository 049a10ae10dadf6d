//! How operations of an endpoint end, as the application sees it.

use std::fmt;

use crate::peers::Peer;

/// What a completed operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Kind {
    /// A message to a peer.
    Send,
    /// A receive: a message was taken, or it ended without one.
    Recv,
    /// A receive of many messages is over: its buffer is the application's again. Comes once, as the last of it.
    Released,
    /// A one-sided write.
    Write,
    /// A one-sided read.
    Read,
    /// A peer's write with immediate data to memory here: its bytes are there. It takes no receive, and its context is 0.
    RecvWrite,
    /// A one-sided atomic operation.
    Atomic,
}

/// How an operation ended; the same on every provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Status {
    /// A send: the target's library has the message, and it survives the sender; with
    /// [`Send::matched`](crate::Send::matched), it has met a receive as well. A receive: it has its message.
    #[default]
    Ok,
    /// A receive: the message was longer than the room for it. What fits is there, [`Completion::message_len`] says how long
    /// it was. Its sender ends with `Ok`, and nothing else is changed.
    Truncated,
    /// It was canceled by the application, or its peer was lost or removed before it. In the first case it was certainly not
    /// executed; else at most once.
    Canceled,
    /// The peer, or the way to it, is lost; the effect is unknown. The oldest operation of a lost peer ends so, and receives
    /// from it alone.
    PeerLost,
    /// Another incarnation is at the peer's address: it was certainly not executed.
    PeerGone,
    /// The target refused a one-sided operation: bad or stale key, out of bounds, or no such right. Nothing was changed there,
    /// and the peer is lost with it, as a connected endpoint would be.
    RemoteAccess,
    /// The provider failed in a way that it does not expect.
    Internal,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Ok => "ok",
            Status::Truncated => "the message is longer than the receive",
            Status::Canceled => "canceled",
            Status::PeerLost => "the peer is lost",
            Status::PeerGone => "another incarnation is at the peer's address",
            Status::RemoteAccess => "the target refused the access",
            Status::Internal => "internal error of the provider",
        })
    }
}

/// The end of one operation. `Default` is for room to take some. Operations end in the order in which they are finished, which is not always that of their posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Completion {
    /// The value given when the operation was posted.
    pub context: u64,
    /// What it was.
    pub kind: Kind,
    /// How it ended.
    pub status: Status,
    /// The peer of the operation; of a receive, the peer whose message it took; of a peer's write, that peer. `None`: a receive
    /// that took none.
    pub peer: Option<Peer>,
    /// The tag of the message; `None` if it is untagged, or there is none.
    pub tag: Option<u64>,
    /// Bytes: of what this side initiated, those that it was posted with; of a receive, those that are in its buffer; of
    /// a peer's write, those that it wrote; of `Released`, those that messages took. 0 unless the status is `Ok` or `Truncated`, or it is `Released`.
    pub len: u64,
    /// Bytes of the message as it was sent.
    pub message_len: u64,
    /// Where in the receive's buffer the message begins: 0 unless that is for many messages.
    pub offset: u64,
    /// Immediate data, in host order, on receives of messages that carry some, and on peers' writes.
    pub immediate: Option<u32>,
}

impl Default for Completion {
    fn default() -> Self {
        Completion::new(0, Kind::Send, Status::Ok)
    }
}

impl Completion {
    pub(super) fn new(context: u64, kind: Kind, status: Status) -> Self {
        let (peer, tag, immediate) = (None, None, None);
        Completion {
            context,
            kind,
            status,
            peer,
            tag,
            len: 0,
            message_len: 0,
            offset: 0,
            immediate,
        }
    }

    /// Whether it ended well.
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }
}
