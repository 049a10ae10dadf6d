//! What this side lends.

use std::sync::Arc;
use std::time::Instant;

use fabric_util::sync::Mutex;

use super::local_lease::LocalLeaseState;

/// A lease in the books.
pub(super) struct LeaseRecord {
    pub(super) loan: Arc<LocalLeaseState>,
    pub(super) until: Instant,
    /// Counts against the policy.
    pub(super) asked: bool,
}

/// Bytes that peers asked for and have, all connections of a node together.
pub(crate) struct LeaseQuota {
    bytes: Mutex<u64>,
    max: u64,
}

impl LeaseQuota {
    pub(crate) fn new(max: u64) -> Arc<Self> {
        Arc::new(LeaseQuota { bytes: Mutex::default(), max })
    }

    /// Keeps room for so many; false if there is none.
    pub(super) fn keep(&self, len: u64) -> bool {
        let mut bytes = self.bytes.lock();
        let sum = bytes.checked_add(len).filter(|sum| *sum <= self.max);
        *bytes = sum.unwrap_or(*bytes);
        sum.is_some()
    }

    pub(super) fn give_back(&self, len: u64) {
        *self.bytes.lock() -= len;
    }
}
