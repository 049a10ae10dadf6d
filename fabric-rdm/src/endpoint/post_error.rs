//! Why an operation was not posted.

use fabric_core::Error;

use crate::connection::DeathCause;
use crate::window::Blocked;

/// Why an operation was not posted: it had no effect, and nothing of it happens later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PostError {
    /// There is no room for it now.
    #[error("try again: {0}")]
    Again(Full),
    /// The peer is lost. Posts fail until the application [revives](crate::Endpoint::revive) it.
    #[error("the peer is down, until it is revived: {0}")]
    PeerDown(DeathCause),
    /// Anything else.
    #[error(transparent)]
    Fabric(#[from] Error),
}

/// What there is no room in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Full {
    /// The endpoint's own depth: take completions, then post again.
    #[error("as many operations are outstanding as the endpoint's depth allows: take completions")]
    Depth,
    /// The peer has no place for one more message without a receive. It has one when its application posts receives, which no
    /// completion reports: poll, or wait, and ask [`has_room`](crate::Endpoint::has_room).
    #[error(transparent)]
    Peer(Blocked),
}

impl From<Full> for PostError {
    fn from(full: Full) -> Self {
        PostError::Again(full)
    }
}
