//! How many bytes peers may have of something, and that one network does not take all of it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::fair_table::Network;
use crate::sync::Mutex;

/// A network may have so much of what is left for the others: a quarter if it is alone (dynamic thresholds, as of
/// [`admission`](crate::admission)).
const FREE_PER_SHARE: u64 = 3;

/// Bytes that peers asked for and have: all together, and those of each network.
pub struct ByteQuota {
    taken: Mutex<Taken>,
    max: u64,
    max_of_one: Option<u64>,
}

#[derive(Default)]
struct Taken {
    bytes: u64,
    /// Of those that have some.
    of_each: HashMap<Network, u64>,
}

impl ByteQuota {
    /// At most `max` bytes in all, and `max_of_one` for one network, or so much that others get some.
    pub fn new(max: u64, max_of_one: Option<u64>) -> Arc<Self> {
        Arc::new(ByteQuota { taken: Mutex::default(), max, max_of_one })
    }

    /// Reserves room for so many; false if there is none.
    pub fn reserve(&self, from: Network, len: u64) -> bool {
        let mut taken = self.taken.lock();
        let of_one = taken.of_each.get(&from).copied().unwrap_or_default();
        let Some(left) = self.max.checked_sub(taken.bytes).and_then(|free| free.checked_sub(len))
        else {
            return false;
        };
        if of_one + len > self.max_of_one.unwrap_or(left / FREE_PER_SHARE) {
            return false;
        }
        taken.bytes += len;
        taken.of_each.insert(from, of_one + len);
        true
    }

    /// How many are reserved.
    pub fn reserved(&self) -> u64 {
        self.taken.lock().bytes
    }

    /// Gives back what was reserved.
    pub fn give_back(&self, from: Network, len: u64) {
        let mut taken = self.taken.lock();
        taken.bytes -= len;
        if let Some(of_one) = taken.of_each.get_mut(&from) {
            *of_one -= len;
            if *of_one == 0 {
                taken.of_each.remove(&from);
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
        let quota = ByteQuota::new(10, Some(4));
        assert!(quota.reserve(host(1), 4) && !quota.reserve(host(1), 1));
        assert!(quota.reserve(host(2), 4) && !quota.reserve(host(3), 3));
        assert!(quota.reserve(host(3), 2) && !quota.reserve(host(4), 1), "all is taken");
        assert!(!quota.reserve(host(4), u64::MAX));
        quota.give_back(host(1), 4);
        assert!(quota.reserve(host(4), 4));
        for (from, len) in [(2, 4), (3, 2), (4, 4)] {
            quota.give_back(host(from), len);
        }
        assert!(quota.taken.lock().of_each.is_empty() && quota.reserved() == 0);
    }

    #[test]
    fn each_network_leaves_three_quarters_of_what_was_left() {
        const TOTAL: u64 = 1 << 20;
        let quota = ByteQuota::new(TOTAL, None);
        assert!(!quota.reserve(host(0), TOTAL / 4 + 1), "alone it has a quarter");
        for from in 0..10 {
            let mut len = TOTAL;
            while len > 0 {
                if !quota.reserve(host(from), len) {
                    len /= 2;
                }
            }
        }
        let left = TOTAL - quota.reserved();
        assert!((TOTAL / 20..TOTAL / 15).contains(&left), "{left}");
    }
}
