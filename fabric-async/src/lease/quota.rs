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
    /// Counts against the policy.
    pub(super) asked: bool,
}

/// A request up to this long may take of the last tenth.
const SMALL: u64 = 64 << 10;

/// Bytes that peers asked for and have, all connections of a node together, and of each network.
pub(crate) struct LeaseQuota {
    lent: Mutex<Lent>,
    max: u64,
    max_of_one: u64,
}

#[derive(Default)]
struct Lent {
    bytes: u64,
    /// Of those that have some.
    of_each: HashMap<Network, u64>,
}

impl LeaseQuota {
    /// At most `max` bytes in all, and `max_of_one` for one network.
    pub(crate) fn new(max: u64, max_of_one: u64) -> Arc<Self> {
        Arc::new(LeaseQuota { lent: Mutex::default(), max, max_of_one })
    }

    /// Reserves room for so many; false if there is none.
    pub(super) fn reserve(&self, from: Network, len: u64) -> bool {
        let mut lent = self.lent.lock();
        let of_one = lent.of_each.get(&from).copied().unwrap_or_default();
        let max = if len <= SMALL { self.max } else { self.max - self.max / 10 };
        let fits = |sum: u64, max| sum.checked_add(len).is_some_and(|sum| sum <= max);
        if !fits(lent.bytes, max) || !fits(of_one, self.max_of_one) {
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
    fn a_network_has_its_share_and_the_last_tenth_is_for_small_requests() {
        let quota = LeaseQuota::new(10 << 20, 4 << 20);
        assert!(quota.reserve(host(1), 4 << 20) && !quota.reserve(host(1), 1));
        assert!(quota.reserve(host(2), 4 << 20) && quota.reserve(host(3), 1 << 20));
        assert!(!quota.reserve(host(3), SMALL + 1), "the last tenth");
        assert!(quota.reserve(host(3), SMALL) && quota.reserve(host(4), SMALL));
        assert!(!quota.reserve(host(4), u64::MAX));
        quota.give_back(host(1), 4 << 20);
        assert!(quota.reserve(host(1), (4 << 20) - 2 * SMALL));
        for (from, len) in
            [(1, (4 << 20) - 2 * SMALL), (2, 4 << 20), (3, 1 << 20), (3, SMALL), (4, SMALL)]
        {
            quota.give_back(host(from), len);
        }
        assert!(quota.lent.lock().of_each.is_empty() && quota.lent.lock().bytes == 0);
    }
}
