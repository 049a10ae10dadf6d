//! Which peer of ours a number of an address vector is, and the other way round. Both are found when they are first needed.

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};

use fabric_rdm::{Address, Endpoint, Peer};

use crate::abi::flags::FI_ADDR_UNSPEC;
use crate::errno::Errno;
use crate::objects::av::AddressVector;
use crate::sync::{read, write};

/// See above.
pub(super) struct PeerMap {
    vector: Arc<AddressVector>,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    /// By number.
    peers: Vec<Option<Peer>>,
    /// By the index of the peer.
    numbers: Vec<Option<(Peer, Number)>>,
}

/// What the address vector has of a peer.
#[derive(Clone, Copy)]
enum Number {
    Is(u64),
    /// Nothing, after so many inserts.
    IsNot(u64),
}

fn put<T>(list: &mut Vec<Option<T>>, at: usize, value: T) {
    if list.len() <= at {
        list.resize_with(at + 1, || None);
    }
    list[at] = Some(value);
}

impl Known {
    fn add(&mut self, number: u64, peer: Peer) {
        // An address vector has no more than fit the memory.
        put(&mut self.peers, number as usize, peer);
        put(&mut self.numbers, peer.index() as usize, (peer, Number::Is(number)));
    }
}

impl PeerMap {
    pub(super) fn new(vector: Arc<AddressVector>) -> Self {
        PeerMap { vector, known: RwLock::default() }
    }

    /// The peer with this number.
    #[inline]
    pub(super) fn peer(&self, endpoint: &Endpoint, number: u64) -> Result<Peer, Errno> {
        let known = read(&self.known).peers.get(number as usize).copied().flatten();
        match known {
            Some(peer) => Ok(peer),
            None => self.insert(endpoint, number),
        }
    }

    #[cold]
    fn insert(&self, endpoint: &Endpoint, number: u64) -> Result<Peer, Errno> {
        let mut known = write(&self.known);
        // With the lock: an address that is removed meanwhile is forgotten afterwards.
        let place = self.vector.lookup(number)?;
        let address = Address::of_listener(place).map_err(|_| Errno::INVALID)?;
        let peer = endpoint.insert(&address)?;
        known.add(number, peer);
        Ok(peer)
    }

    /// The number of a peer; `FI_ADDR_NOTAVAIL` where the address vector does not have it.
    #[inline]
    pub(super) fn number(&self, endpoint: &Endpoint, peer: Peer) -> u64 {
        let known = read(&self.known).numbers.get(peer.index() as usize).copied().flatten();
        match known {
            Some((known, Number::Is(number))) if known == peer => number,
            Some((known, Number::IsNot(inserts)))
                if known == peer && inserts == self.vector.inserts() =>
            {
                FI_ADDR_UNSPEC
            }
            _ => self.find(endpoint, peer),
        }
    }

    /// Of one that came by itself: by what it said of its place.
    #[cold]
    fn find(&self, endpoint: &Endpoint, peer: Peer) -> u64 {
        let mut known = write(&self.known);
        let inserts = self.vector.inserts();
        let address = endpoint.address_of(peer).ok();
        let place: Option<SocketAddr> = address.and_then(|address| address.rails().next());
        let Some(number) = place.and_then(|place| self.vector.find(place)) else {
            put(&mut known.numbers, peer.index() as usize, (peer, Number::IsNot(inserts)));
            return FI_ADDR_UNSPEC;
        };
        known.add(number, peer);
        number
    }

    /// The address with this number is gone: the peer that it was.
    pub(super) fn forget(
        &self,
        endpoint: &Endpoint,
        number: u64,
        place: SocketAddr,
    ) -> Option<Peer> {
        let mut all = write(&self.known);
        let known = all.peers.get_mut(number as usize).and_then(Option::take);
        // Another address may get the number before all of this peer's messages have been read.
        if let Some(place) = known.and_then(|peer| all.numbers.get_mut(peer.index() as usize)) {
            *place = None;
        }
        drop(all);
        // One that came by itself may not have been looked for since its address was inserted. To insert a peer finds it.
        let find = || endpoint.insert(&Address::of_listener(place).ok()?).ok();
        known.or_else(find)
    }
}
