//! What a connection's state machine asks for, and the words for what happened.

use std::time::Duration;

use super::hello::{Hello, Refusal};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timeouts {
    /// From the first post until the connection is there; then the peer is unreachable. One that answers, and has no place for
    /// a connection, is waited for ten times as long. Time in which there is no place for it here does not count.
    pub connect: Duration,
    /// One attempt.
    pub attempt: Duration,
    /// For the attempt of the other side, after the own one was refused because of it.
    pub crossing: Duration,
    /// Before the second attempt, and twice as long before each further one, up to 32 times; up to a half less, so that those that
    /// failed together do not ask together. A peer that says when it has a place is asked then, or after half of `connect`.
    pub retry: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(30),
            attempt: Duration::from_secs(5),
            crossing: Duration::from_secs(2),
            retry: Duration::from_millis(20),
        }
    }
}

/// Names a connection, or an attempt at one, of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(super) u64);

/// Why a peer is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DeathCause {
    /// The connection was lost, or the peer says that it was.
    #[error("the connection to it was lost")]
    Lost,
    /// Another incarnation is at its address.
    #[error("another incarnation of it, or another endpoint, is at its address")]
    Gone,
    /// No attempt succeeded in time.
    #[error("no connection to it could be made in time")]
    Unreachable,
    /// It is there, and was not willing: this endpoint was not inserted there in time.
    #[error("it does not know this endpoint: its application has to insert it, or admit strangers")]
    NotAdmitted,
    /// It breaks the protocol, or messages are missing.
    #[error("it breaks the protocol, or messages are missing")]
    Protocol,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialError {
    /// No listener answered, or the connection was lost.
    Unreachable,
    /// The peer's endpoint refused it.
    Refused(Refusal),
}

/// What the caller has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect, with this request.
    Dial(ConnId, Hello),
    /// Close the connection, or give up the attempt. Nothing of it is to be reported any more.
    Close(ConnId),
    /// Send a confirmation as the first message.
    Confirm(ConnId),
    /// The connection is there: send what waits.
    Ready(ConnId),
    /// Send nothing more, and call [`drained`](super::PeerConnection::drained) when all that was sent is completed.
    Drain(ConnId),
    /// Send a message of parking, as the last one: call [`park_sent`](super::PeerConnection::park_sent) when it is posted, and
    /// [`park_completed`](super::PeerConnection::park_completed) when it is completed.
    SendPark(ConnId),
    /// The peer is dead: end all that waits or is under way.
    Died(DeathCause),
}

/// The answer to a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Accept it, with this.
    Accept(ConnId, Hello),
    /// Refuse it, for this reason.
    Refuse(Refusal),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There never was one, or none since the peer was revived.
    Idle,
    /// An attempt is under way, or about to be.
    Dialing,
    /// The peer's request was accepted, and is not confirmed.
    Accepted,
    /// The peer accepted, that is confirmed, and nothing has come from it yet.
    Confirmed,
    /// Messages go.
    Established,
    /// What is under way is finished, and nothing new goes.
    Draining,
    /// It was closed in agreement. A post makes another one.
    Parked,
    /// The peer is lost, until it is revived.
    Dead,
}
