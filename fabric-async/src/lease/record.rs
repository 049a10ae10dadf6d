//! What the books have of a lease that this side grants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::local_lease::LocalLeaseState;
use crate::backoff::Backoff;

/// A lease in the books.
pub(super) struct LeaseRecord {
    pub(super) loan: Arc<LocalLeaseState>,
    /// When it ends, or is looked at next.
    pub(super) until: Instant,
    /// The peer does not know of it yet.
    pub(super) opening: Option<Opening>,
    /// Until when it can be renewed, if that is bounded.
    pub(super) latest: Option<Instant>,
    /// Counts against the policy.
    pub(super) asked: bool,
}

impl LeaseRecord {
    /// A lease that the peer cannot use yet. `asked`: the number of its request, if it made one.
    pub(super) fn opening(loan: Arc<LocalLeaseState>, time: Duration, asked: Option<u64>) -> Self {
        let opening = Some(Opening { asked, time, backoff: Backoff::new() });
        LeaseRecord { loan, until: Instant::now(), opening, latest: None, asked: asked.is_some() }
    }
}

/// A lease that the peer cannot use yet.
pub(super) struct Opening {
    /// The number of its request; `None`: it is lent unasked.
    pub(super) asked: Option<u64>,
    /// How long it is to last.
    pub(super) time: Duration,
    /// When to look whether it can.
    pub(super) backoff: Backoff,
}
