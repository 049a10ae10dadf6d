//! What peers have without being trusted yet, shared by the network that they come from: when there is too much, the network
//! that has most loses its oldest. So a crowd from one place displaces itself, and a client from elsewhere gets in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The network that counts as one peer: an IPv4 address, or the first 64 bits of an IPv6 address. A site has a /64 at least
/// (RFC 6177), and a host may use any address of it (RFC 4941).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(addr: IpAddr) -> Self {
        Network(match addr.to_canonical() {
            IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(addr) => addr.fmt(f),
            IpAddr::V6(addr) => write!(f, "{addr}/64"),
        }
    }
}

/// Entries by a key that no other has; the one with the least is the oldest. Every operation takes logarithmic time.
pub struct FairTable<T> {
    entries: BTreeMap<u64, (Network, T)>,
    keys: HashMap<Network, BTreeSet<u64>>,
    /// The network that has most is last; of several the one with the oldest entry.
    ranking: BTreeSet<(usize, Reverse<u64>, Network)>,
}

impl<T> Default for FairTable<T> {
    fn default() -> Self {
        FairTable { entries: BTreeMap::new(), keys: HashMap::new(), ranking: BTreeSet::new() }
    }
}

impl<T> FairTable<T> {
    /// Adds an entry.
    pub fn insert(&mut self, key: u64, from: impl Into<Network>, entry: T) {
        let from = from.into();
        self.change_keys(from, |keys| keys.insert(key));
        self.entries.insert(key, (from, entry));
    }

    /// Adds an entry to a table of at most `max`; gives the one that had to leave for it.
    ///
    /// # Errors
    /// The entry itself: the table is full, and no network has more of it than this one would.
    pub fn insert_up_to(
        &mut self,
        max: usize,
        key: u64,
        from: impl Into<Network>,
        entry: T,
    ) -> Result<Option<T>, T> {
        let from = from.into();
        let mut displaced = None;
        if self.len() >= max {
            displaced = self.displace_for(from).map(|(_, entry)| entry);
            if displaced.is_none() {
                return Err(entry);
            }
        }
        self.insert(key, from, entry);
        Ok(displaced)
    }

    /// Takes an entry.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let (from, entry) = self.entries.remove(&key)?;
        self.change_keys(from, |keys| keys.remove(&key));
        Some(entry)
    }

    /// An entry.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        self.entries.get_mut(&key).map(|(_, entry)| entry)
    }

    /// The oldest entry of all, and its key.
    pub fn oldest(&self) -> Option<(u64, &T)> {
        self.entries.first_key_value().map(|(key, (_, entry))| (*key, entry))
    }

    /// The oldest entry from a network, and its key.
    pub fn oldest_of(&self, from: impl Into<Network>) -> Option<(u64, &T)> {
        let key = *self.keys.get(&from.into())?.first()?;
        self.entries.get(&key).map(|(_, entry)| (key, entry))
    }

    /// Takes the oldest entry of all.
    pub fn pop_oldest(&mut self) -> Option<T> {
        self.pop_oldest_from(|_| true)
    }

    /// Takes the oldest entry from one of the networks that `is_of` says.
    pub fn pop_oldest_from(&mut self, is_of: impl Fn(Network) -> bool) -> Option<T> {
        let key = *self.entries.iter().find(|(_, (from, _))| is_of(*from))?.0;
        self.remove(key)
    }

    /// Takes the oldest entry of the network that has most.
    pub fn displace(&mut self) -> Option<(Network, T)> {
        let &(_, Reverse(oldest), network) = self.ranking.last()?;
        Some((network, self.remove(oldest)?))
    }

    /// As [`displace`](FairTable::displace), if that network has more than `count`.
    pub fn displace_beyond(&mut self, count: usize) -> Option<(Network, T)> {
        if self.ranking.last()?.0 > count { self.displace() } else { None }
    }

    /// As [`displace`](FairTable::displace), in favour of one more from `of`, if that [is fair](FairTable::may_displace_for).
    pub fn displace_for(&mut self, of: impl Into<Network>) -> Option<(Network, T)> {
        if self.may_displace_for(of) { self.displace() } else { None }
    }

    /// Whether the network that has most would still have as much as this one if it lost its oldest for one more of that.
    pub fn may_displace_for(&self, of: impl Into<Network>) -> bool {
        self.ranking.last().is_some_and(|&(most, ..)| most > self.count(of) + 1)
    }

    /// Takes the entries that `is_over` says.
    pub fn extract_if(&mut self, is_over: impl Fn(&T) -> bool) -> Vec<T> {
        let over = self.entries.iter().filter(|(_, (_, entry))| is_over(entry));
        let over: Vec<u64> = over.map(|(key, _)| *key).collect();
        over.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// How many entries come from a network.
    pub fn count(&self, of: impl Into<Network>) -> usize {
        self.keys.get(&of.into()).map_or(0, BTreeSet::len)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes all entries, the oldest first.
    pub fn take_all(&mut self) -> impl ExactSizeIterator<Item = T> + use<T> {
        std::mem::take(self).entries.into_values().map(|(_, entry)| entry)
    }

    fn change_keys(&mut self, from: Network, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let rank = |keys: &BTreeSet<u64>| Some((keys.len(), Reverse(*keys.first()?), from));
        let keys = self.keys.entry(from).or_default();
        if let Some(old) = rank(keys) {
            self.ranking.remove(&old);
        }
        change(keys);
        match rank(keys) {
            Some(new) => drop(self.ranking.insert(new)),
            None => drop(self.keys.remove(&from)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn host(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    fn table(entries: &[(u64, u8)]) -> FairTable<u64> {
        let mut table = FairTable::default();
        entries.iter().for_each(|&(key, from)| table.insert(key, host(from), key));
        table
    }

    #[test]
    fn addresses_of_one_site_are_one_network() {
        let network = |addr: &str| Network::from(addr.parse::<IpAddr>().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_eq!(network("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(network("192.0.2.1").to_string(), "192.0.2.1");
    }

    #[test]
    fn who_has_most_loses_its_oldest() {
        let mut table = table(&[(1, 7), (2, 8), (3, 8), (4, 7), (5, 8)]);
        let displaced = |table: &mut FairTable<u64>| table.displace().map(|(_, key)| key);
        assert_eq!(displaced(&mut table), Some(2), "three of five");
        assert_eq!(displaced(&mut table), Some(1), "two each: the oldest");
        assert_eq!(displaced(&mut table), Some(3));
        assert_eq!(displaced(&mut table), Some(4), "one each");
        assert_eq!((displaced(&mut table), displaced(&mut table)), (Some(5), None));
        assert!(table.is_empty() && table.keys.is_empty() && table.ranking.is_empty());
    }

    #[test]
    fn nobody_is_displaced_for_one_who_would_have_more() {
        let displaced = |entries: &[(u64, u8)], of| {
            table(entries).displace_for(host(of)).map(|(network, key)| (network.to_string(), key))
        };
        let seven = |key| Some(("192.0.2.7".to_owned(), key));
        assert_eq!(displaced(&[(1, 7), (2, 7)], 8), seven(1));
        assert_eq!(displaced(&[(1, 7), (2, 7)], 7), None, "its own");
        assert_eq!(displaced(&[(1, 7), (2, 8)], 9), None, "one each");
        assert_eq!(displaced(&[(1, 7), (2, 7), (3, 8)], 8), None, "two each");
        assert_eq!(displaced(&[(1, 8), (2, 7), (3, 7), (4, 7)], 8), seven(2));
        assert_eq!(displaced(&[], 8), None);
    }

    #[test]
    fn entries_leave_by_key_and_by_age() {
        let mut table = table(&[(1, 7), (2, 8), (3, 7)]);
        assert_eq!((table.remove(1), table.remove(1)), (Some(1), None));
        assert_eq!((table.len(), table.count(host(7)), table.count(host(9))), (2, 1, 0));
        assert_eq!(table.pop_oldest_from(|from| from != host(8).into()), Some(3));
        assert_eq!(table.pop_oldest(), Some(2));
        table.insert(3, host(7), 0);
        *table.get_mut(3).unwrap() = 3;
        assert_eq!((table.oldest(), table.oldest_of(host(8))), (Some((3, &3)), None));
        (4..8).for_each(|key| table.insert(key, host(9), key));
        assert_eq!(table.oldest_of(host(9)), Some((4, &4)));
        assert_eq!(table.extract_if(|key| key % 2 == 1), [3, 5, 7]);
        assert_eq!(table.take_all().collect::<Vec<_>>(), [4, 6]);
        assert!(table.is_empty() && table.ranking.is_empty() && table.pop_oldest().is_none());
    }

    proptest::proptest! {
        // Miri is slow, and this has no unsafe code.
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: if cfg!(miri) { 1 } else { 256 },
            failure_persistence: None,
            ..Default::default()
        })]
        /// Beside a list of all entries.
        #[test]
        fn it_does_as_a_list_would(steps in proptest::collection::vec((0..4u8, 0..5u8), 0..80)) {
            let (mut table, mut list) = (FairTable::default(), Vec::new());
            for (key, (step, from)) in steps.into_iter().enumerate() {
                let key = key as u64;
                match step {
                    0 | 1 => {
                        table.insert(key, host(from), key);
                        list.push((key, from));
                    }
                    2 if !list.is_empty() => {
                        let (gone, _) = list.remove(usize::from(from) % list.len());
                        assert_eq!(table.remove(gone), Some(gone));
                    }
                    _ => {
                        let count = |of| list.iter().filter(|(_, from)| *from == of).count();
                        let max = list.iter().map(|(_, from)| count(*from)).max();
                        let place = list.iter().position(|(_, from)| Some(count(*from)) == max);
                        let gone = place.map(|place| list.remove(place).0);
                        assert_eq!(table.displace().map(|(_, key)| key), gone);
                    }
                }
                assert_eq!((table.len(), table.ranking.len()), (list.len(), table.keys.len()));
            }
        }
    }
}
