//! The table of peers: those that an application has inserted, by handle and by identity.

use ahash::RandomState;
use fabric_core::{Error, Result};
use hashbrown::HashTable;

use crate::address::Address;
use crate::hash::keyed_hasher;
use crate::identity::EndpointIdentity;

/// Names a peer within the endpoint that it was inserted into.
///
/// After [`Peers::remove`] it names no peer, and never another: a later peer at the same index has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Peer {
    index: u32,
    generation: u32,
}

impl Peer {
    /// The handle that [`to_bits`](Self::to_bits) made a number of. A number of another origin names a peer or none.
    pub const fn from_bits(bits: u64) -> Self {
        Peer { index: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// As a number: the index in the lower half, the generation in the upper one.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Its place, below the number of peers that there ever were at a time: for tables beside this one.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// How many peers had that place before.
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "peer {}.{}", self.index, self.generation)
    }
}

/// A place for a peer.
#[derive(Debug)]
struct PeerSlot<T> {
    generation: u32,
    state: SlotState<T>,
}

#[derive(Debug)]
enum SlotState<T> {
    Taken(Record<T>),
    /// Free, and the next one that is.
    Free(Option<u32>),
    /// It has had as many peers as there are generations, and is never used again.
    UsedUp,
}

impl<T> PeerSlot<T> {
    fn record(&self) -> Option<&Record<T>> {
        match &self.state {
            SlotState::Taken(record) => Some(record),
            _ => None,
        }
    }

    fn record_mut(&mut self) -> Option<&mut Record<T>> {
        match &mut self.state {
            SlotState::Taken(record) => Some(record),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Record<T> {
    address: Address,
    state: T,
}

/// The peers of an endpoint, each with its address and a state of the caller's: nothing, while it is not connected.
///
/// A peer with one rail and a state of 8 bytes takes 112 bytes; each takes 6 to 11 more in the index.
#[derive(Debug)]
pub struct Peers<T> {
    slots: Vec<PeerSlot<T>>,
    first_free: Option<u32>,
    by_identity: HashTable<u32>,
    hasher: RandomState,
    max: u32,
}

impl<T: Default> Peers<T> {
    /// For at most `max` peers at a time. Memory is taken as they come.
    ///
    /// # Errors
    /// [`Error::Internal`]: the system gives no random numbers, by which the index is made safe from peers.
    pub fn new(max: u32) -> Result<Self> {
        Ok(Peers {
            slots: Vec::new(),
            first_free: None,
            by_identity: HashTable::new(),
            hasher: keyed_hasher()?,
            max,
        })
    }

    /// The peer with this address's identity, inserted unless it is there. One that is there keeps the rails that it has.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: there are as many peers as there may be.
    pub fn insert(&mut self, address: &Address) -> Result<Peer> {
        if let Some(peer) = self.find(address.identity()) {
            return Ok(peer);
        }
        if self.len() >= self.max as usize {
            return Err(full(self.max));
        }
        let index = self.free_slot().ok_or_else(|| full(self.max))?;
        let slot = &mut self.slots[index as usize];
        slot.state = SlotState::Taken(Record { address: address.clone(), state: T::default() });
        let peer = Peer { index, generation: slot.generation };
        let hash = self.hasher.hash_one(Some(address.identity()));
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_identity
            .insert_unique(hash, index, |index| hasher.hash_one(identity_at(slots, *index)));
        Ok(peer)
    }

    /// A place for one more, taken off the free ones. `None`: there are no more numbers.
    fn free_slot(&mut self) -> Option<u32> {
        if let Some(index) = self.first_free {
            if let SlotState::Free(next) = self.slots[index as usize].state {
                self.first_free = next;
            }
            return Some(index);
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(PeerSlot { generation: 0, state: SlotState::Free(None) });
        Some(index)
    }

    /// Takes a peer out, and gives its address and state. Its handle names no peer any more.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: there is no such peer (any more).
    pub fn remove(&mut self, peer: Peer) -> Result<(Address, T)> {
        self.get(peer)?;
        let slot = &mut self.slots[peer.index as usize];
        let SlotState::Taken(Record { address, state }) =
            std::mem::replace(&mut slot.state, SlotState::UsedUp)
        else {
            return Err(gone(peer));
        };
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            slot.state = SlotState::Free(self.first_free.replace(peer.index));
        }
        let hash = self.hasher.hash_one(Some(address.identity()));
        if let Ok(entry) = self.by_identity.find_entry(hash, |index| *index == peer.index) {
            entry.remove();
        }
        Ok((address, state))
    }

    /// The peer with this identity, if there is one.
    pub fn find(&self, identity: EndpointIdentity) -> Option<Peer> {
        let same = |index: &u32| identity_at(&self.slots, *index) == Some(identity);
        let index = *self.by_identity.find(self.hasher.hash_one(Some(identity)), same)?;
        Some(Peer { index, generation: self.slots[index as usize].generation })
    }

    /// A peer's address and state.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: there is no such peer (any more).
    pub fn get(&self, peer: Peer) -> Result<(&Address, &T)> {
        let slot = self.slots.get(peer.index as usize);
        let slot = slot.filter(|slot| slot.generation == peer.generation);
        let record = slot.and_then(PeerSlot::record).ok_or_else(|| gone(peer))?;
        Ok((&record.address, &record.state))
    }

    /// The same, to change the state.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: there is no such peer (any more).
    pub fn get_mut(&mut self, peer: Peer) -> Result<(&Address, &mut T)> {
        let slot = self.slots.get_mut(peer.index as usize);
        let slot = slot.filter(|slot| slot.generation == peer.generation);
        let record = slot.and_then(PeerSlot::record_mut).ok_or_else(|| gone(peer))?;
        Ok((&record.address, &mut record.state))
    }

    /// Gives a peer another address, of the same identity: where it is known better now.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: there is no such peer (any more), or the address has another identity.
    pub fn set_address(&mut self, peer: Peer, address: &Address) -> Result<()> {
        let (known, _) = self.get(peer)?;
        if known.identity() != address.identity() {
            return Err(Error::invalid("peer", "the address has another identity than the peer"));
        }
        let slot = &mut self.slots[peer.index as usize];
        if let Some(record) = slot.record_mut() {
            record.address = address.clone();
        }
        Ok(())
    }

    /// All peers, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Peer, &Address, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let peer = Peer { index, generation: slot.generation };
            slot.record().map(|record| (peer, &record.address, &record.state))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_identity.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_identity.is_empty()
    }
}

/// Its hash, also where it is known to be there, is that of the option.
fn identity_at<T>(slots: &[PeerSlot<T>], index: u32) -> Option<EndpointIdentity> {
    slots.get(index as usize)?.record().map(|record| record.address.identity())
}

#[cold]
fn gone(peer: Peer) -> Error {
    Error::invalid("peer", format!("{peer} was removed, or is not of this endpoint"))
}

#[cold]
fn full(max: u32) -> Error {
    let detail = format!("there are {max} peers, as many as there may be: remove one first");
    Error::NoMemory(fabric_core::Failure::new("insert", detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::HostIdentity;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    fn address(number: u32) -> Address {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let rails = [SocketAddr::from(([192, 0, 2, 1], 7471))];
        let host = HostIdentity::from_bytes([0; 16]);
        Address::new(EndpointIdentity::from_bytes(bytes), host, &rails).unwrap()
    }

    /// With the state that an endpoint has for a peer without a connection: a pointer to nothing.
    #[test]
    fn a_peer_takes_at_most_112_bytes() {
        assert!(size_of::<PeerSlot<Option<Box<u64>>>>() <= 112);
        assert!(size_of::<PeerSlot<(u64, Option<Box<u64>>)>>() <= 128);
    }

    #[test]
    fn insert_twice() {
        let mut peers = Peers::<u8>::new(2).unwrap();
        let first = peers.insert(&address(1)).unwrap();
        *peers.get_mut(first).unwrap().1 = 7;
        let other_rail = [SocketAddr::from(([192, 0, 2, 9], 1))];
        let (identity, host) = (address(1).identity(), address(1).host());
        let again = Address::new(identity, host, &other_rail).unwrap();
        assert_eq!(peers.insert(&again).unwrap(), first);
        assert_eq!(peers.get(first).unwrap(), (&address(1), &7));
        assert_eq!(peers.len(), 1);
    }

    #[test]
    fn stale_handle() {
        let mut peers = Peers::<()>::new(8).unwrap();
        let old = peers.insert(&address(1)).unwrap();
        peers.remove(old).unwrap();
        let new = peers.insert(&address(2)).unwrap();
        assert_eq!((old.index(), new.index()), (0, 0), "the place is used again");
        assert_eq!((old.generation(), new.generation()), (0, 1));
        assert!(matches!(peers.get(old), Err(Error::InvalidArgument(_))));
        assert!(matches!(peers.get_mut(old), Err(Error::InvalidArgument(_))));
        assert!(matches!(peers.remove(old), Err(Error::InvalidArgument(_))));
        assert_eq!(peers.get(new).unwrap().0, &address(2));
        assert_eq!(Peer::from_bits(new.to_bits()), new);
        assert!(peers.get(Peer::from_bits(u64::MAX)).is_err());
    }

    #[test]
    fn a_full_table_refuses_until_one_is_removed() {
        let mut peers = Peers::<()>::new(2).unwrap();
        let first = peers.insert(&address(1)).unwrap();
        peers.insert(&address(2)).unwrap();
        assert!(matches!(peers.insert(&address(3)), Err(Error::NoMemory(_))));
        assert!(peers.insert(&address(1)).is_ok(), "it is there");
        peers.remove(first).unwrap();
        peers.insert(&address(3)).unwrap();
    }

    /// A generation never comes again, not even after all others.
    #[test]
    fn a_place_whose_generations_are_used_up_is_given_up() {
        let mut peers = Peers::<()>::new(8).unwrap();
        peers.insert(&address(1)).unwrap();
        peers.slots[0].generation = u32::MAX;
        let last = peers.find(address(1).identity()).unwrap();
        peers.remove(last).unwrap();
        assert!(peers.get(last).is_err());
        assert_eq!(peers.insert(&address(2)).unwrap(), Peer { index: 1, generation: 0 });
        assert!(peers.get(last).is_err());
    }

    #[test]
    fn ten_thousand_are_cheap() {
        let mut peers = Peers::<Option<Box<u64>>>::new(10_000).unwrap();
        let handles: Vec<_> = (0..10_000).map(|i| peers.insert(&address(i)).unwrap()).collect();
        assert!(peers.slots.capacity() <= 16384, "memory for no more than is there, rounded up");
        for (number, handle) in (0..).zip(&handles) {
            assert_eq!(peers.find(address(number).identity()), Some(*handle));
        }
        handles.into_iter().for_each(|handle| assert!(peers.remove(handle).is_ok()));
        assert!(peers.is_empty() && peers.iter().next().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        /// Beside a map of those that there are, and a list of the handles that ever were.
        #[test]
        fn it_does_as_a_map_would(steps in proptest::collection::vec((any::<bool>(), 0..8u32), 0..100)) {
            let mut peers = Peers::<()>::new(6).unwrap();
            let (mut map, mut old) = (BTreeMap::new(), Vec::new());
            for (insert, number) in steps {
                if insert {
                    match peers.insert(&address(number)) {
                        Ok(peer) => prop_assert_eq!(*map.entry(number).or_insert(peer), peer),
                        Err(_) => prop_assert!(map.len() == 6 && !map.contains_key(&number)),
                    }
                } else if let Some(peer) = map.remove(&number) {
                    prop_assert_eq!(peers.remove(peer).unwrap().0, address(number));
                    old.push(peer);
                }
                for (number, peer) in &map {
                    prop_assert_eq!(peers.get(*peer).unwrap().0, &address(*number));
                    prop_assert_eq!(peers.find(address(*number).identity()), Some(*peer));
                }
                prop_assert!(old.iter().all(|peer| peers.get(*peer).is_err()));
                prop_assert_eq!((peers.len(), peers.iter().count()), (map.len(), map.len()));
            }
        }
    }
}
