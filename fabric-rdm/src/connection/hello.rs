//! What both sides of a connection say before it is one.

use std::time::Duration;

use crate::identity::EndpointIdentity;

/// What goes with a connection request, and with its acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The side that asks, or accepts.
    pub from: EndpointIdentity,
    /// The side that is meant.
    pub to: EndpointIdentity,
    /// The number of the attempt. In an acceptance that of the session, which is as high as that of any attempt that the
    /// acceptor has made: so its own requests that are still under way are known to be given up.
    pub session: u64,
    /// The number of the pair's life.
    pub life: u32,
    /// Wins over an attempt without.
    pub force: bool,
    /// Messages that were sent in this life.
    pub sent: u64,
    /// Messages that were received in this life.
    pub received: u64,
}

/// Why a connection request is refused; goes back with the refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Another attempt wins, that of the side that refuses: wait for it.
    Crossing,
    /// Another incarnation is meant than the one that is here.
    Gone,
    /// The life with this number, and each before it, is over.
    Over(u32),
    /// A session with this number has been there: try with a higher one.
    Stale(u64),
    /// The side that asks is not known here: the application may insert it later.
    Stranger,
    /// As many connections are open as may be: there may be a place after this time, or after one that is not known (zero).
    Busy(Duration),
}
