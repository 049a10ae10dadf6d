//! Registered memory of the domain itself: slots for results that are never read, and the word that a
//! delivery-complete write reads at the target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_core::{Error, Memory, Result};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::error::register_failed;
use crate::ffi::ibv_access_flags;
use crate::handle::{Mr, Pd};

/// Bytes of a slot: results of two endpoints do not share a cache line.
const SLOT_SIZE: usize = 64;
const SLOTS: usize = 256;

/// Memory of this crate's own and its registration.
pub(crate) struct Slab {
    pub(crate) mr: Mr,
    pub(crate) memory: Memory,
}

impl Slab {
    pub(crate) fn new(
        operation: &'static str,
        pd: &Arc<Pd>,
        len: usize,
        iova: Option<u64>,
        access: ibv_access_flags,
    ) -> Result<Self> {
        let memory = Memory::aligned(len, rustix::param::page_size())?;
        let addr = memory.as_ptr();
        let iova = iova.unwrap_or(addr as u64);
        // SAFETY: the slab holds the memory until its registration is dropped; this crate reaches it only through
        // `fabric_core::memory`.
        let mr = unsafe { Mr::new(pd, (addr, len), iova, access) };
        let mr = mr.map_err(|cause| register_failed(operation, addr, len, cause))?;
        Ok(Slab { mr, memory })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.mr.deregister().is_err() {
            // A device may still reach it. The registration says why, when it goes.
            std::mem::forget(self.memory.clone());
        }
    }
}

/// The domain's own registered memory.
pub(crate) struct Scratch {
    pd: Arc<Pd>,
    flush: Slab,
    slots: Mutex<ScratchSlots>,
}

#[derive(Default)]
struct ScratchSlots {
    slabs: Vec<Slab>,
    free: Vec<(usize, usize)>,
}

impl Scratch {
    pub(crate) fn new(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        // Named from zero on, so that its key alone says where it is.
        let page = rustix::param::page_size();
        let flush =
            Slab::new("open domain", pd, page, Some(0), ibv_access_flags::IBV_ACCESS_REMOTE_READ)?;
        Ok(Arc::new(Scratch { pd: pd.clone(), flush, slots: Mutex::default() }))
    }

    /// The key of the word at address zero that a peer reads to know that its writes have arrived.
    pub(crate) fn flush_read_key(&self) -> u32 {
        self.flush.mr.rkey()
    }

    fn lock(&self) -> MutexGuard<'_, ScratchSlots> {
        self.slots.lock()
    }

    /// A slot of an endpoint's own.
    pub(crate) fn slot(self: &Arc<Self>) -> Result<ScratchSlot> {
        let mut slots = self.lock();
        if slots.free.is_empty() {
            let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
            slots.slabs.push(Slab::new(
                "make endpoint",
                &self.pd,
                SLOT_SIZE * SLOTS,
                None,
                access,
            )?);
            let slab = slots.slabs.len() - 1;
            slots.free.extend((0..SLOTS).rev().map(|slot| (slab, slot)));
        }
        let Some((slab, slot)) = slots.free.pop() else {
            return Err(Error::Internal(fabric_core::Failure::new("make endpoint", "no slot")));
        };
        let Slab { memory, mr } = &slots.slabs[slab];
        let addr = memory.as_ptr().wrapping_add(slot * SLOT_SIZE);
        Ok(ScratchSlot {
            addr,
            lkey: mr.lkey(),
            index: (slab, slot),
            kept: AtomicBool::new(false),
            scratch: self.clone(),
        })
    }
}

/// 64 registered bytes: word 0 takes what is never read, word 1 the results of compare-and-swap loops.
pub(crate) struct ScratchSlot {
    addr: *mut u8,
    pub(crate) lkey: u32,
    index: (usize, usize),
    kept: AtomicBool,
    scratch: Arc<Scratch>,
}

// SAFETY: the memory belongs to the scratch, which the slot holds; it is reached through `fabric_core::memory` only.
unsafe impl Send for ScratchSlot {}
// SAFETY: as above.
unsafe impl Sync for ScratchSlot {}

impl ScratchSlot {
    /// The device may go on writing to it: it is never reused.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Where the device puts what is never read.
    pub(crate) fn discard(&self) -> u64 {
        self.addr as u64
    }

    /// Where the device puts the result of a compare-and-swap.
    pub(crate) fn result(&self) -> u64 {
        self.addr as u64 + 8
    }

    /// The result of the last compare-and-swap.
    pub(crate) fn load_result(&self) -> u64 {
        let mut word = [0; 8];
        // SAFETY: word 1 of the slot; the device has written it before it completed the request.
        unsafe { fabric_core::memory::load(self.addr.wrapping_add(8), &mut word) };
        u64::from_ne_bytes(word)
    }
}

impl Drop for ScratchSlot {
    fn drop(&mut self) {
        if !*self.kept.get_mut() {
            self.scratch.lock().free.push(self.index);
        }
    }
}
