//! Address vectors: numbers for addresses, for all endpoints that are bound to one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::domain::Domain;
use crate::abi::FidAv;
use crate::abi::flags::FI_CLASS_AV;
use crate::errno::Errno;
use crate::handle::Object;
use crate::sync::lock;

/// As many addresses as an endpoint of ours may have peers.
const MAX: usize = 1 << 20;

/// An endpoint that uses the addresses.
pub(crate) trait AddressUser: Send + Sync {
    /// This address was removed, which had this number.
    fn forget(&self, number: u64, address: SocketAddr);
}

/// An address vector.
pub(crate) struct AddressVector {
    pub(crate) domain: Arc<Domain>,
    state: Mutex<AvState>,
    /// Addresses that were inserted, ever.
    inserts: AtomicU64,
}

#[derive(Default)]
struct AvState {
    entries: Vec<Option<AvEntry>>,
    free: BinaryHeap<Reverse<usize>>,
    numbers: HashMap<SocketAddr, usize>,
    users: Vec<Weak<dyn AddressUser>>,
}

struct AvEntry {
    address: SocketAddr,
    /// It was inserted so often: the last removal counts.
    uses: usize,
}

// SAFETY: `FidAv` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for AddressVector {
    type C = FidAv;
    const CLASS: usize = FI_CLASS_AV;
}

impl AddressVector {
    pub(crate) fn new(domain: &Arc<Domain>) -> Self {
        AddressVector {
            domain: domain.clone(),
            state: Mutex::default(),
            inserts: AtomicU64::new(0),
        }
    }

    pub(crate) fn add_user(&self, user: Weak<dyn AddressUser>) {
        let mut state = lock(&self.state);
        state.users.retain(|user| user.strong_count() > 0);
        state.users.push(user);
    }

    /// The number of an address: the lowest one that is free, or the one that it has.
    pub(crate) fn insert(&self, address: SocketAddr) -> Result<u64, Errno> {
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(Errno::INVALID);
        }
        let mut state = lock(&self.state);
        let AvState { entries, free, numbers, .. } = &mut *state;
        if let Some(number) = numbers.get(&address) {
            if let Some(entry) = &mut entries[*number] {
                entry.uses += 1;
            }
            return Ok(*number as u64);
        }
        let entry = Some(AvEntry { address, uses: 1 });
        let number = match free.pop() {
            Some(Reverse(number)) => {
                entries[number] = entry;
                number
            }
            None if entries.len() == MAX => return Err(Errno::NO_MEMORY),
            None => {
                entries.push(entry);
                entries.len() - 1
            }
        };
        numbers.insert(address, number);
        self.inserts.fetch_add(1, Ordering::Release);
        Ok(number as u64)
    }

    /// Takes an address out: what endpoints have outstanding with it ends.
    pub(crate) fn remove(&self, number: u64) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        let at = usize::try_from(number).map_err(|_| Errno::INVALID)?;
        let entry = state.entries.get_mut(at).and_then(Option::as_mut).ok_or(Errno::INVALID)?;
        entry.uses -= 1;
        if entry.uses > 0 {
            return Ok(());
        }
        let address = entry.address;
        state.entries[at] = None;
        state.numbers.remove(&address);
        state.free.push(Reverse(at));
        let users = state.users.clone();
        // They look addresses up.
        drop(state);
        users.iter().filter_map(Weak::upgrade).for_each(|user| user.forget(number, address));
        Ok(())
    }

    pub(crate) fn lookup(&self, number: u64) -> Result<SocketAddr, Errno> {
        let at = usize::try_from(number).map_err(|_| Errno::INVALID)?;
        let state = lock(&self.state);
        let entry = state.entries.get(at).and_then(Option::as_ref);
        entry.map(|entry| entry.address).ok_or(Errno::INVALID)
    }

    /// Changes with each address that was not there.
    #[inline]
    pub(crate) fn inserts(&self) -> u64 {
        self.inserts.load(Ordering::Acquire)
    }

    /// The number of an address, if it is there.
    pub(crate) fn find(&self, address: SocketAddr) -> Option<u64> {
        lock(&self.state).numbers.get(&address).map(|number| *number as u64)
    }
}
