//! What this side lends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use fabric_util::fair_table::Network;
use fabric_util::sync::Mutex;

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

/// A network may have so much of what is left for the others: a quarter if it is alone (dynamic thresholds, as of
/// `admission`).
const FREE_PER_SHARE: u64 = 3;

/// Bytes that peers asked for and have, all connections of a node together, and of each network.
pub(crate) struct LeaseQuota {
    lent: Mutex<Lent>,
    max: u64,
    max_of_one: Option<u64>,
}

#[derive(Default)]
struct Lent {
    bytes: u64,
    /// Of those that have some.
    of_each: HashMap<Network, u64>,
}

impl LeaseQuota {
    /// At most `max` bytes in all, and `max_of_one` for one network, or so much that others get some.
    pub(crate) fn new(max: u64, max_of_one: Option<u64>) -> Arc<Self> {
        Arc::new(LeaseQuota { lent: Mutex::default(), max, max_of_one })
    }

    /// Reserves room for so many; false if there is none.
    pub(super) fn reserve(&self, from: Network, len: u64) -> bool {
        let mut lent = self.lent.lock();
        let of_one = lent.of_each.get(&from).copied().unwrap_or_default();
        let Some(left) = self.max.checked_sub(lent.bytes).and_then(|free| free.checked_sub(len))
        else {
            return false;
        };
        if of_one + len > self.max_of_one.unwrap_or(left / FREE_PER_SHARE) {
            return false;
        }
        lent.bytes += len;
        lent.of_each.insert(from, of_one + len);
        true
    }

    pub(super) fn give_back(&self, from: Network, len: u64) {
        let mut lent = self.lent.lock();
        lent.bytes -= len;
        if let Some(of_one) = lent.of_each.get_mut(&from) {
            *of_one -= len;
            if *of_one == 0 {
                lent.of_each.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn host(number: u8) -> Network {
        IpAddr::from(Ipv4Addr::new(192, 0, 2, number)).into()
    }

    #[test]
    fn a_network_has_no_more_than_the_setting() {
        let quota = LeaseQuota::new(10, Some(4));
        assert!(quota.reserve(host(1), 4) && !quota.reserve(host(1), 1));
        assert!(quota.reserve(host(2), 4) && !quota.reserve(host(3), 3));
        assert!(quota.reserve(host(3), 2) && !quota.reserve(host(4), 1), "all is lent");
        assert!(!quota.reserve(host(4), u64::MAX));
        quota.give_back(host(1), 4);
        assert!(quota.reserve(host(4), 4));
        for (from, len) in [(2, 4), (3, 2), (4, 4)] {
            quota.give_back(host(from), len);
        }
        assert!(quota.lent.lock().of_each.is_empty() && quota.lent.lock().bytes == 0);
    }

    #[test]
    fn each_network_leaves_three_quarters_of_what_was_left() {
        const TOTAL: u64 = 1 << 20;
        let quota = LeaseQuota::new(TOTAL, None);
        assert!(!quota.reserve(host(0), TOTAL / 4 + 1), "alone it has a quarter");
        for from in 0..10 {
            let mut len = TOTAL;
            while len > 0 {
                if !quota.reserve(host(from), len) {
                    len /= 2;
                }
            }
        }
        let left = TOTAL - quota.lent.lock().bytes;
        assert!((TOTAL / 20..TOTAL / 15).contains(&left), "{left}");
    }
}
