//! What belongs to each endpoint of a domain, by the endpoint's name.

use ahash::RandomState;
use fabric_core::{EndpointId, unlikely};
use hashbrown::HashTable;

/// Values by endpoints. What comes mostly comes from where the last came from, and then is found without a search.
pub struct EndpointMap<V> {
    entries: HashTable<(EndpointId, V)>,
    hasher: RandomState,
    /// The bucket that was looked into last.
    recent: usize,
}

impl<V> Default for EndpointMap<V> {
    fn default() -> Self {
        // Names are chosen by the library alone: any seeds do.
        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        EndpointMap { entries: HashTable::new(), hasher, recent: 0 }
    }
}

impl<V> EndpointMap<V> {
    /// What belongs to an endpoint.
    #[inline]
    pub fn get(&mut self, endpoint: EndpointId) -> Option<&V> {
        let is_recent = |(of, _): &(EndpointId, V)| *of == endpoint;
        if unlikely(!self.entries.get_bucket(self.recent).is_some_and(is_recent)) {
            self.recent = self.find(endpoint)?;
        }
        self.entries.get_bucket(self.recent).map(|(_, value)| value)
    }

    #[inline(never)] // not to be in the way of the other case
    fn find(&self, endpoint: EndpointId) -> Option<usize> {
        self.entries.find_bucket_index(self.hasher.hash_one(endpoint), |(of, _)| *of == endpoint)
    }

    /// Puts in what belongs to an endpoint, in place of what it had.
    pub fn insert(&mut self, endpoint: EndpointId, value: V) {
        self.remove(endpoint);
        let hasher = &self.hasher;
        let hash_of = |(of, _): &(EndpointId, V)| hasher.hash_one(of);
        self.entries.insert_unique(hasher.hash_one(endpoint), (endpoint, value), hash_of);
    }

    /// Takes out what belongs to an endpoint.
    pub fn remove(&mut self, endpoint: EndpointId) -> Option<V> {
        let hash = self.hasher.hash_one(endpoint);
        let entry = self.entries.find_entry(hash, |(of, _)| *of == endpoint).ok()?;
        Some(entry.remove().0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 3 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn each_endpoint_has_what_was_put_in_last(
            steps in proptest::collection::vec((0..40u64, 0..3u8), 0..if cfg!(miri) { 50 } else { 300 }),
        ) {
            let (mut map, mut model) = (EndpointMap::default(), HashMap::new());
            for (step, (id, what)) in steps.into_iter().enumerate() {
                match what {
                    0 => {
                        map.insert(EndpointId(id), step);
                        model.insert(id, step);
                    }
                    1 => prop_assert_eq!(map.remove(EndpointId(id)), model.remove(&id)),
                    _ => {}
                }
                prop_assert_eq!(map.get(EndpointId(id)), model.get(&id));
            }
        }
    }
}
