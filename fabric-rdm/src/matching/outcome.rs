//! What matching gives out: who met whom, and how receives end.

use super::pattern::Envelope;

/// Names a posted receive. After its end it names none, and never another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveId {
    /// Among all that were ever posted to the matcher.
    pub(super) seq: u64,
    pub(super) at: u32,
}

/// Names a message without a receive. Once it is taken it names none, and never another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MessageId {
    /// Among all that ever had to wait in the matcher.
    pub(super) seq: u64,
    pub(super) at: u32,
}

/// A message and the receive that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Match<R, M> {
    /// The receive.
    pub receive: ReceiveId,
    /// The receive's context.
    pub context: R,
    /// The message.
    pub envelope: Envelope,
    /// The message's payload.
    pub payload: M,
    /// Where in the receive's buffer the message begins, in bytes: 0 unless it is one for many messages.
    pub offset: u64,
    /// As many of its bytes as go there: all, unless it [is truncated](Match::is_truncated).
    pub len: u64,
    /// The receive is for many messages: [`Matcher::delivered`](super::Matcher::delivered) has to be called once this one's
    /// bytes are there. Else the receive has ended.
    pub of_many: bool,
}

impl<R, M> Match<R, M> {
    /// Whether the message is longer than there was room for it.
    pub fn is_truncated(&self) -> bool {
        self.len < self.envelope.len
    }
}

/// What became of a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arrived<R, M> {
    /// A receive took it.
    Matched(Match<R, M>),
    /// It waits for a receive.
    Waits(MessageId),
}

/// What became of a receive that the application ends, or the loss of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ending<R> {
    /// It is for one message, and ended without one.
    Ended(R),
    /// It is for many messages, and all that it had taken are there. It ended by that.
    Released(Released<R>),
    /// It is for many messages, and some that it took are not there yet. It takes no more, and the
    /// last of them [releases](Released) it.
    WithLast,
    /// There is no such receive, or it takes no more already: it has met its message, or ended otherwise. That is its outcome.
    NotThere,
}

/// The one and last that happens to a receive of many messages: its buffer is the application's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Released<R> {
    /// The receive.
    pub receive: ReceiveId,
    /// Its context.
    pub context: R,
    /// As many bytes of the buffer as messages took.
    pub used: u64,
    /// Why it ended.
    pub reason: ReleaseReason,
}

/// Why a receive of many messages ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseReason {
    /// Less is free than the minimum, or it has taken as many messages as it may.
    Full,
    /// It was canceled.
    Canceled,
    /// It was for messages of one peer, and that is gone.
    PeerGone,
}
