//! What the books have of a lease that this side grants.

use std::sync::Arc;
use std::time::Instant;

use super::local_lease::LocalLeaseState;

/// A lease in the books.
pub(super) struct LeaseRecord {
    pub(super) loan: Arc<LocalLeaseState>,
    pub(super) until: Instant,
    /// Until when it can be renewed, if that is bounded.
    pub(super) latest: Option<Instant>,
    /// Counts against the policy.
    pub(super) asked: bool,
}
