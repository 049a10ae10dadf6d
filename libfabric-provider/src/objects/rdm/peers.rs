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
    numbers: Vec<Option<(Peer, u64)>>,
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
        put(&mut self.numbers, peer.index() as usize, (peer, number));
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
            Some((known, number)) if known == peer => number,
            _ => self.find(endpoint, peer),
        }
    }

    /// Of one that came by itself: by what it said of its place.
    #[cold]
    fn find(&self, endpoint: &Endpoint, peer: Peer) -> u64 {
        let mut known = write(&self.known);
        let address = endpoint.address_of(peer).ok();
        let place: Option<SocketAddr> = address.and_then(|address| address.rails().next());
        let Some(number) = place.and_then(|place| self.vector.find(place)) else {
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
        let known = write(&self.known).peers.get_mut(number as usize).and_then(Option::take);
        // One that came by itself may not have been looked for since its address was inserted. To insert a peer finds it.
        let find = || endpoint.insert(&Address::of_listener(place).ok()?).ok();
        known.or_else(find)
    }
}
