//! How far a connection is, and how it ends.

use fabric_core::{Error, Status};

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection yet.
    Idle,
    /// It stands; on the accepting side perhaps not yet known to the peer.
    Open,
    /// It ended for this side; what the peer must still get is on its way, what comes in is discarded.
    Ending,
    /// Nothing goes in or out.
    Closed,
}

/// Why this side ends the connection, or found it ended.
#[derive(Debug)]
pub enum End {
    /// The application closed it.
    Local,
    /// The stream is at its end, or broken.
    Lost,
    /// What is under way does not get on.
    Stalled,
    /// It never stood.
    Failed(Error),
    /// This library failed.
    Internal,
    /// The application lets the endpoint go: nothing more is completed or reported.
    Quiet,
}

/// The frame that ends what this side transmits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum FinalFrame {
    #[default]
    None,
    Bye,
    Nak(u32, Status),
}
