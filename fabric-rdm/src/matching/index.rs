//! Chains by key: the values of each key in the order in which they came.

use hashbrown::HashTable;

use super::links::{Links, Remaining};

/// Finds the oldest value of a key. Keys and hashes are the caller's: this has the number of the first value of each key,
/// five bytes for it, and nothing more, so that thousands stay in the cache.
#[derive(Debug, Default)]
pub(super) struct Index {
    firsts: HashTable<u32>,
}

impl Index {
    /// The oldest value of the key with this hash, where `has_key` says whether a value has that key.
    #[inline]
    pub(super) fn first(&self, hash: u64, mut has_key: impl FnMut(u32) -> bool) -> Option<u32> {
        self.firsts.find(hash, |at| has_key(*at)).copied()
    }

    /// Adds a value behind the others of its key. `hash_of` gives the hash of any value that is here.
    #[inline]
    pub(super) fn push<L: Links>(
        &mut self,
        links: &mut L,
        at: u32,
        hash: u64,
        has_key: impl Fn(&L, u32) -> bool,
        hash_of: impl Fn(&L, u32) -> u64,
    ) {
        match self.first(hash, |at| has_key(links, at)) {
            Some(first) => links.append(first, at),
            None => {
                links.begin(at);
                self.firsts.insert_unique(hash, at, |at| hash_of(links, *at));
            }
        }
    }

    /// Takes a value out. Its hash is needed only where it was the first of its key.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut impl Links, at: u32, hash: impl FnOnce() -> u64) {
        let remaining = links.unlink(at);
        if remaining == Remaining::SameFirst {
            return;
        }
        if let Ok(mut entry) = self.firsts.find_entry(hash(), |first| *first == at) {
            match remaining {
                Remaining::First(first) => *entry.get_mut() = first,
                _ => drop(entry.remove()),
            }
        }
    }

    /// Takes all out, whatever the links say.
    pub(super) fn clear(&mut self) {
        self.firsts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::links::LinkTable;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        /// Values whose key is their last two bits, with hashes that are all the same, or all different.
        #[test]
        fn the_oldest_of_each_key_is_found(
            steps in proptest::collection::vec(0..24u32, 0..200),
            collide: bool,
        ) {
            let key = |at: u32| at % 4;
            let hash = |key: u32| if collide { 7 } else { u64::from(key) << 57 | u64::from(key) };
            let (mut index, mut links, mut list) = (Index::default(), LinkTable::default(), Vec::new());
            links.grow(24);
            for at in steps {
                if list.contains(&at) {
                    list.retain(|other| *other != at);
                    index.remove(&mut links, at, || hash(key(at)));
                } else {
                    list.push(at);
                    let same = |_: &LinkTable, other| key(other) == key(at);
                    index.push(&mut links, at, hash(key(at)), same, |_, at| hash(key(at)));
                }
                for wanted in 0..4 {
                    let oldest = list.iter().copied().find(|at| key(*at) == wanted);
                    prop_assert_eq!(index.first(hash(wanted), |at| key(at) == wanted), oldest);
                }
            }
        }
    }
}
