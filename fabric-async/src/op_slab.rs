//! The slab of operations: what is in flight, and what has ended and was not asked for yet.
//!
//! An operation's slot in the slab owns its buffers from the post until its completion; the future has only the number
//! of the slot, and that number is the context that the completion brings back. So a future can be dropped or forgotten
//! at any time: dropped, it marks the slot as abandoned, and the completion frees it; forgotten, slot and
//! buffers stay taken, and nothing else happens.
//!
//! Slots are made in chunks that never move or go away, so they are reached without a lock but their own, and a slab
//! that is warm allocates nothing.

use std::sync::OnceLock;
use std::task::Waker;

use fabric::Failure;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::op_buffers::OpBuffers;

/// Places of the first chunk; each further one has twice as many.
const FIRST: u32 = 64;
const CHUNKS: usize = 19;
/// The most operations at a time.
const MAX_OPS: u32 = FIRST * ((1 << CHUNKS) - 1);

/// What is in a slot: of an operation that ends with a `C`, and keeps `K` until then.
#[derive(Default)]
pub(crate) struct OpSlot<C, K> {
    pub(crate) phase: Phase,
    pub(crate) buffers: OpBuffers,
    pub(crate) keeps: K,
    pub(crate) waker: Option<Waker>,
    pub(crate) completion: C,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Vacant,
    /// In flight, and a future wants to know.
    InFlight,
    /// In flight, with a future that wants the outcome but not the buffers.
    Detached,
    /// In flight, without a future.
    Abandoned,
    /// Ended.
    Done,
}

#[derive(Default)]
struct Vacant {
    slots: Vec<u32>,
    made: u32,
}

type Chunk<C, K> = Box<[Mutex<OpSlot<C, K>>]>;

pub(crate) struct OpSlab<C, K> {
    chunks: [OnceLock<Chunk<C, K>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

impl<C: Default, K: Default> OpSlab<C, K> {
    pub(crate) fn new() -> Self {
        OpSlab { chunks: [const { OnceLock::new() }; CHUNKS], vacant: Mutex::default() }
    }

    /// A vacant slot.
    #[inline]
    pub(crate) fn begin(&self) -> Result<u32> {
        let mut vacant = self.vacant.lock();
        if let Some(number) = vacant.slots.pop() {
            return Ok(number);
        }
        self.make(&mut vacant)
    }

    #[cold]
    fn make(&self, vacant: &mut Vacant) -> Result<u32> {
        let number = vacant.made;
        if number >= MAX_OPS {
            let text = format!("{MAX_OPS} operations are under way or were never asked for");
            return Err(fabric::Error::NoMemory(Failure::new("begin an operation", text)).into());
        }
        let (chunk, index) = locate(number);
        if index == 0 {
            let slots = (0..FIRST << chunk).map(|_| Mutex::default()).collect();
            // Only here, under the lock, and once for each chunk.
            let _ = self.chunks[chunk].set(slots);
            // Room for every slot, so that giving one back never allocates.
            let all = (number + (FIRST << chunk)) as usize;
            let more = all.saturating_sub(vacant.slots.len());
            vacant.slots.reserve(more);
        }
        vacant.made += 1;
        Ok(number)
    }

    /// The slot, locked; `None` for a number that was never given out.
    #[inline]
    pub(crate) fn lock(&self, number: u32) -> Option<MutexGuard<'_, OpSlot<C, K>>> {
        Some(self.slot(number)?.lock())
    }

    /// As [`lock`](OpSlab::lock), for one that locks several slots at once. No thread that holds one waits for another, so it
    /// is locked in a moment, in whatever order.
    pub(crate) fn lock_beside_others(&self, number: u32) -> Option<MutexGuard<'_, OpSlot<C, K>>> {
        let slot = self.slot(number)?;
        loop {
            match slot.try_lock() {
                Some(slot) => return Some(slot),
                None => std::hint::spin_loop(),
            }
        }
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Mutex<OpSlot<C, K>>> {
        let (chunk, index) = locate(number);
        self.chunks.get(chunk)?.get()?.get(index)
    }

    /// Gives a slot back, whose buffers are gone.
    #[inline]
    pub(crate) fn end(&self, number: u32) {
        self.vacant.lock().slots.push(number);
    }

    /// Every slot that was ever used.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&mut OpSlot<C, K>)) {
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            look(&mut slot.lock());
        }
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> usize {
        let vacant = self.vacant.lock();
        vacant.made as usize - vacant.slots.len()
    }
}

/// The chunk of a number, and where it is there.
#[inline]
fn locate(number: u32) -> (usize, usize) {
    let chunk = (number / FIRST + 1).ilog2();
    (chunk as usize, (number - FIRST * ((1 << chunk) - 1)) as usize)
}

impl Error {
    /// Why an operation that ended badly did so, if its connection ended for `reason`.
    pub(crate) fn of(status: fabric::Status, reason: Option<fabric::DisconnectReason>) -> Error {
        use fabric::Status;
        match (status, reason) {
            (Status::RemoteAccess, _) => Error::RemoteAccess,
            (Status::PeerLost, _) => Error::Disconnected(fabric::DisconnectReason::PeerLost),
            (Status::Canceled, Some(reason)) => Error::Disconnected(reason),
            (other, _) => Error::Failed(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_again() {
        assert_eq!(locate(0), (0, 0));
        assert_eq!(locate(63), (0, 63));
        assert_eq!(locate(64), (1, 0));
        assert_eq!(locate(191), (1, 127));
        assert_eq!(locate(192), (2, 0));
        let slab = OpSlab::<u64, ()>::new();
        assert!(slab.lock(0).is_none());
        let numbers: Vec<u32> = (0..1000).map(|_| slab.begin().unwrap()).collect();
        for number in &numbers {
            slab.lock(*number).unwrap().completion = u64::from(*number);
        }
        for number in &numbers {
            assert_eq!(slab.lock(*number).unwrap().completion, u64::from(*number));
            slab.end(*number);
        }
        assert_eq!(slab.taken(), 0);
        assert!(slab.begin().unwrap() < 1000);
    }
}
