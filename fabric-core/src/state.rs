//! The life of an endpoint, and why it ends.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where an endpoint stands. It moves only downwards in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum EndpointState {
    /// Made; receives may be posted.
    Idle,
    /// `connect` or `accept` was called, the outcome is open; receives may be posted.
    Connecting,
    /// Everything may be posted.
    Connected,
    /// The connection has ended, or was never established; nothing may be posted.
    Dead,
}

/// An [`EndpointState`] that many threads see.
#[derive(Debug)]
pub struct StateCell(AtomicU8);

impl StateCell {
    /// A cell in state `Idle`.
    pub fn new() -> Self {
        StateCell(AtomicU8::new(EndpointState::Idle as u8))
    }

    /// The present state.
    #[inline]
    pub fn get(&self) -> EndpointState {
        match self.0.load(Ordering::Acquire) {
            0 => EndpointState::Idle,
            1 => EndpointState::Connecting,
            2 => EndpointState::Connected,
            _ => EndpointState::Dead,
        }
    }

    /// Moves on to `to`; false if the cell already stood there or further.
    pub fn advance(&self, to: EndpointState) -> bool {
        self.0.fetch_max(to as u8, Ordering::AcqRel) < to as u8
    }

    /// Moves from exactly `from` to `to`; false if it stood elsewhere.
    pub fn replace(&self, from: EndpointState, to: EndpointState) -> bool {
        let result =
            self.0.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
        result.is_ok()
    }
}

impl Default for StateCell {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum DisconnectReason {
    /// This side closed it.
    Local,
    /// The peer closed it in order.
    Remote,
    /// An operation failed at its target (`TooLong`, `RemoteAccess`), on this side or the other.
    OperationFailed,
    /// The peer, or the way to it, is lost.
    PeerLost,
    /// Nothing that was under way at this end got on for as long as [`EndpointAttr::stall`](crate::EndpointAttr::stall) allows: the
    /// peer lives, and takes nothing.
    Stalled,
    /// The peer violated the protocol.
    Protocol,
    /// The device is gone.
    DeviceLost,
    /// The provider failed in a way it does not expect.
    Internal,
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DisconnectReason::Local => "closed by this side",
            DisconnectReason::Remote => "closed by the peer",
            DisconnectReason::OperationFailed => "an operation failed at its target",
            DisconnectReason::PeerLost => "the peer is lost",
            DisconnectReason::Stalled => {
                "what was under way did not get on for as long as `stall` allows"
            }
            DisconnectReason::Protocol => "protocol error by the peer",
            DisconnectReason::DeviceLost => "the device is gone",
            DisconnectReason::Internal => "internal error of the provider",
        })
    }
}
