//! Completions and their canonical statuses.

use std::fmt;

use crate::datagram_address::DatagramAddress;
use crate::token::Token;

/// How an operation ended; the same on every provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// The peer accepted the operation; a receive holds its message. Of a datagram that was sent: the network has it, or lost it.
    #[default]
    Ok,
    /// The message did not fit the receive it met. Both sides see this; both endpoints are dead. Of a datagram: only the receiver
    /// sees this, and no endpoint is dead.
    TooLong,
    /// The target refused: bad or stale key, out of bounds, or no such right. Nothing was changed.
    RemoteAccess,
    /// The peer, or the way to it, is lost; the effect is unknown.
    PeerLost,
    /// The endpoint died or was closed first: executed at most once, effect unknown.
    Canceled,
    /// The provider failed in a way it does not expect; see [`Completion::provider_code`].
    Internal,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Ok => "ok",
            Status::TooLong => "the message is longer than the receive",
            Status::RemoteAccess => "the target refused the access",
            Status::PeerLost => "the peer is lost",
            Status::Canceled => "canceled",
            Status::Internal => "internal error of the provider",
        })
    }
}

/// What a completed operation was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum OpKind {
    /// A send, with or without immediate data.
    #[default]
    Send,
    /// A one-sided write, with or without immediate data.
    Write,
    /// A one-sided read.
    Read,
    /// A one-sided atomic operation, plain or fetching.
    Atomic,
    /// A receive that took a message.
    Recv,
    /// A receive that a peer's write with immediate consumed; its buffer is untouched.
    RecvWrite,
}

impl OpKind {
    /// Whether the operation was posted to the receive queue.
    pub fn is_receive(self) -> bool {
        matches!(self, OpKind::Recv | OpKind::RecvWrite)
    }
}

/// Names an endpoint within its domain, for as long as the domain lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EndpointId(pub u64);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ep{}", self.0)
    }
}

/// The end of one operation, as an application sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The value given when the operation was posted.
    pub context: u64,
    /// The endpoint it was posted to. Of a receive from a shared queue: the endpoint whose message took it; if none did,
    /// the queue's own name.
    pub endpoint: EndpointId,
    /// What it was.
    pub kind: OpKind,
    /// How it ended.
    pub status: Status,
    /// Bytes received, or written by the peer's write with immediate; for what this side initiated,
    /// the bytes it was posted with. Zero unless the status is `Ok`.
    pub len: usize,
    /// Immediate data, in host order, on receives that carry some.
    pub immediate: Option<u32>,
    /// The provider's own code, for diagnosis only: a verbs `ibv_wc_status`, a wire status of tcp.
    pub provider_code: u32,
    /// On receives of datagrams that ended well: the address of the endpoint that sent it, as the network has it.
    pub source: Option<DatagramAddress>,
}

impl Completion {
    /// An operation that ended with `status` and nothing more to report.
    #[inline]
    pub fn new(context: u64, endpoint: EndpointId, kind: OpKind, status: Status) -> Self {
        let (len, immediate, provider_code, source) = (0, None, 0, None);
        Completion { context, endpoint, kind, status, len, immediate, provider_code, source }
    }

    /// Whether it ended well.
    #[inline]
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }
}

/// The end of one operation, as a provider reports it: made by [`RawCompletion::new`], and completed field by field.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct RawCompletion {
    /// The token the operation was posted with.
    pub token: Token,
    /// On receives of a shared queue: the endpoint whose peer's message took it; of the others the token says it.
    pub endpoint: Option<EndpointId>,
    /// How it ended.
    pub status: Status,
    /// On receives: consumed by a write with immediate.
    pub remote_write: bool,
    /// What was posted before on the same side, and has no completion, ended as this did; on a shared receive queue all that
    /// is in flight. For devices that vanish without completing each request. If this operation itself has had its
    /// completion, nothing is left to report but on a shared queue, and this is ignored.
    pub flushes_earlier: bool,
    /// On receives: the bytes received, or written with the immediate.
    pub len: u64,
    /// On receives: the immediate data, in host order.
    pub immediate: Option<u32>,
    /// See [`Completion::provider_code`].
    pub provider_code: u32,
}

impl RawCompletion {
    /// An operation that ended with `status` and nothing to report.
    #[inline]
    pub fn new(token: Token, status: Status) -> Self {
        RawCompletion { token, status, ..Self::default() }
    }
}
