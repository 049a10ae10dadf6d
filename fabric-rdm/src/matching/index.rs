//! Chains by key: the values of each key in the order in which they came.

use fabric_core::{cold_path, likely};
use hashbrown::HashTable;
use hashbrown::hash_table::OccupiedEntry;

use super::links::{Links, Remaining};

/// Says of a number that its value is the only one of its key, and has no links. That is so of most values: they cost one
/// access less.
const ONLY: u32 = 1 << 31;

/// Finds the oldest value of a key. Keys and hashes are the caller's: this has the number of the first value of each key,
/// five bytes for it, and nothing more, so that thousands stay in the cache.
#[derive(Debug, Default)]
pub(super) struct Index {
    firsts: HashTable<u32>,
}

impl Index {
    /// The oldest value of the key with this hash, where `has_key` says whether a value has that key.
    #[inline]
    pub(super) fn first(&self, hash: u64, has_key: impl FnMut(u32) -> bool) -> Option<u32> {
        self.find_first(hash, has_key).map(|(first, _)| first)
    }

    /// The same, and the bucket that it is in until something changes.
    #[inline]
    pub(super) fn find_first(
        &self,
        hash: u64,
        mut has_key: impl FnMut(u32) -> bool,
    ) -> Option<(u32, usize)> {
        let bucket = self.firsts.find_bucket_index(hash, |first| has_key(first & !ONLY))?;
        Some((self.firsts.get_bucket(bucket)? & !ONLY, bucket))
    }

    /// Takes out a value that was [found](Self::find_first) in this bucket.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn take_first(&mut self, links: &mut impl Links, at: u32, bucket: usize) {
        match self.firsts.get_bucket_entry(bucket) {
            Ok(entry) => take(entry, links, at),
            Err(_) => cold_path(),
        }
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
        match self.firsts.find_mut(hash, |first| has_key(links, first & !ONLY)) {
            Some(first) => {
                if *first & ONLY != 0 {
                    *first &= !ONLY;
                    links.begin(*first);
                }
                links.append(*first, at);
            }
            None => {
                let hash_of = |first: &u32| hash_of(links, first & !ONLY);
                self.firsts.insert_unique(hash, at | ONLY, hash_of);
            }
        }
    }

    /// Takes a value out, by the hash of its key.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut impl Links, at: u32, hash: u64) {
        // By its number: what is compared is in the table.
        match self.firsts.find_entry(hash, |first| first & !ONLY == at) {
            Ok(entry) => take(entry, links, at),
            Err(_) => {
                // It has others before it.
                cold_path();
                links.unlink(at);
            }
        }
    }

    /// Takes all out, whatever the links say.
    pub(super) fn clear(&mut self) {
        self.firsts.clear();
    }
}

/// Takes out the first value of a key.
#[inline(always)] // as above
fn take(mut entry: OccupiedEntry<'_, u32>, links: &mut impl Links, at: u32) {
    if likely(*entry.get() & ONLY != 0) {
        entry.remove();
        return;
    }
    match links.unlink(at) {
        Remaining::First(first) => *entry.get_mut() = first,
        _ => drop(entry.remove()),
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
                    let found = index.find_first(hash(key(at)), |other| key(other) == key(at));
                    match found {
                        Some((first, bucket)) if first == at => {
                            index.take_first(&mut links, at, bucket);
                        }
                        _ => index.remove(&mut links, at, hash(key(at))),
                    }
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
