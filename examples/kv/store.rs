//! The store itself: its table, and what a client does to it.

use std::time::Instant;

use fabric::{
    Access, AtomicOp, CompletionQueue, Domain, Endpoint, Op, Region, RemoteRegion, RemoteSlice,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::common::{Outcome, PATIENCE, Place, connect, wait};

/// A slot of the table, as it lies in memory; both ends have the same byte order.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Slot {
    version: u64,
    sum: u32,
    key_len: u16,
    value_len: u16,
    key: [u8; 48],
    value: [u8; 192],
}

/// Bytes of a slot.
pub(crate) const SLOT: usize = size_of::<Slot>();
/// Where the part that writers write begins: behind the version.
const ENTRY: usize = size_of::<u64>();

impl Slot {
    fn new(version: u64, key: &[u8], value: &[u8]) -> Outcome<Self> {
        let mut slot = Slot { version, ..Slot::new_zeroed() };
        if key.is_empty() || key.len() > slot.key.len() || value.len() > slot.value.len() {
            return Err("a key has 1 to 48 bytes, a value at most 192".into());
        }
        (slot.key_len, slot.value_len) = (key.len() as u16, value.len() as u16);
        slot.key[..key.len()].copy_from_slice(key);
        slot.value[..value.len()].copy_from_slice(value);
        slot.sum = slot.right_sum();
        Ok(slot)
    }

    fn right_sum(&self) -> u32 {
        crc32fast::hash(Slot { sum: 0, ..*self }.as_bytes())
    }

    /// Whether it was never written.
    pub(crate) fn is_free(&self) -> bool {
        self.version == 0 && self.key_len == 0
    }

    /// Whether it was read between two writes, not in the middle of one.
    fn is_stable(&self) -> bool {
        self.version.is_multiple_of(2) && self.sum == self.right_sum()
    }

    fn key(&self) -> &[u8] {
        &self.key[..usize::from(self.key_len).min(self.key.len())]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.value[..usize::from(self.value_len).min(self.value.len())]
    }
}

/// A client's end of the store.
pub(crate) struct Client {
    endpoint: Endpoint,
    queue: CompletionQueue,
    table: RemoteRegion,
    /// A slot that was read, a slot to write, and a word for what an atomic returns.
    local: Region,
    /// How often a slot was locked, torn or taken by another.
    pub(crate) retries: u64,
}

const OUT: usize = SLOT;
const OLD: usize = 2 * SLOT;

impl Client {
    pub(crate) fn connect(domain: &Domain, to: Place) -> Outcome<Self> {
        let queue = domain.completion_queue(256)?;
        let (endpoint, descriptor) = connect(&domain.endpoint(), &queue, to.on(domain)?, &[])?;
        let table = RemoteRegion::from_bytes(&descriptor)?;
        let local = domain.alloc(2 * SLOT + 8, Access::LOCAL_WRITE)?;
        Ok(Client { endpoint, queue, table, local, retries: 0 })
    }

    fn place(&self, index: u64) -> RemoteSlice {
        self.table.at(index * SLOT as u64)
    }

    /// Fetches a slot, again and again until it is stable.
    fn read(&mut self, index: u64) -> Outcome<Slot> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.endpoint.read(self.local.slice(..SLOT), self.place(index), 0)?;
            wait(&self.queue)?;
            let slot: Slot = self.local.get(0)?;
            if slot.is_free() || slot.is_stable() {
                return Ok(slot);
            }
            if Instant::now() > deadline {
                return Err(format!("slot {index} stays locked: its writer may have died").into());
            }
            self.retries += 1;
        }
    }

    /// The slot that has the key, or the free one where it belongs: the first of either behind its hash.
    pub(crate) fn find(&mut self, key: &[u8]) -> Outcome<(u64, Slot)> {
        let slots = self.table.len() / SLOT as u64;
        let start = u64::from(crc32fast::hash(key));
        for index in (0..slots).map(|probe| (start + probe) % slots) {
            let slot = self.read(index)?;
            if slot.is_free() || slot.key() == key {
                return Ok((index, slot));
            }
        }
        Err("the table is full".into())
    }

    /// Replaces the value of a key by `new` of the old one; nothing else changes it in between.
    pub(crate) fn update(&mut self, key: &[u8], new: impl Fn(&[u8]) -> Vec<u8>) -> Outcome {
        loop {
            let (index, slot) = self.find(key)?;
            let (place, version) = (self.place(index), slot.version);
            let next = Slot::new(version + 2, key, &new(slot.value()))?;
            let old = self.local.slice(OLD..OLD + 8);
            self.endpoint.compare_swap(version, version + 1, old, place, 0)?;
            wait(&self.queue)?;
            if self.local.get::<u64>(OLD)? != version {
                self.retries += 1;
                continue; // somebody was faster: look again
            }
            self.local.put(OUT, &next)?;
            let entry = self.local.slice(OUT + ENTRY..OUT + SLOT);
            // The two go out together. The atomic takes effect behind the write; its success is that of both.
            self.endpoint.post_batch(&[
                Op::write(entry, self.table.at(place.offset() + ENTRY as u64)).unsignaled(),
                Op::atomic(AtomicOp::Add, 1u64, place),
            ])?;
            wait(&self.queue)?;
            return Ok(());
        }
    }
}
