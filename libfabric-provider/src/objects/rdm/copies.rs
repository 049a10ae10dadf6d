//! Registered memory for short messages of buffers that are in no region, and for what is written and read, as to copy them costs less
//! than to register the buffer; and for what is injected.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use fabric::{Access, Domain, Region, Slice};

use crate::discovery::RDM_INJECT;
use crate::errno::Errno;
use crate::sync::lock;

/// The longest message that is copied.
const LEN: usize = RDM_INJECT;
/// Places of one region, and of all.
const CHUNK: usize = 64;
const MAX_PLACES: usize = 1 << 12;
/// Those of buffers, which are registered if they find none. The others are for what is injected alone: receives, which may wait for
/// ever, do not keep it from going.
const MAX_BUFFERS: u32 = 1 << 10;

/// Where the message of an operation is, or is to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    place: u32,
    is_injected: bool,
    /// The buffer of the application.
    address: usize,
    len: usize,
}

impl Copied {
    /// Its part of a region.
    fn range(self) -> Range<usize> {
        let start = self.place as usize % CHUNK * LEN;
        start..start + self.len
    }
}

/// The places.
pub(super) struct Copies {
    domain: Domain,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    regions: Vec<Arc<Region>>,
    free: Vec<u32>,
    /// Those that buffers have.
    of_buffers: u32,
}

impl Copies {
    pub(super) fn new(domain: &Domain) -> Self {
        Copies { domain: domain.clone(), places: Mutex::default() }
    }

    /// A place for the message of a buffer, and its memory; `None`: that is too long, or there is none.
    pub(super) fn take_for(&self, address: usize, len: usize) -> Option<(Copied, Place)> {
        self.take(address, len, false)
    }

    /// The same for bytes that are injected.
    pub(super) fn take_to_inject(&self, bytes: &[u8]) -> Option<(Copied, Place)> {
        self.take(bytes.as_ptr() as usize, bytes.len(), true)
    }

    fn take(&self, address: usize, len: usize, is_injected: bool) -> Option<(Copied, Place)> {
        let places = &mut *lock(&self.places);
        if len > LEN || !is_injected && places.of_buffers >= MAX_BUFFERS {
            return None;
        }
        if places.free.is_empty() && places.regions.len() * CHUNK < MAX_PLACES {
            let region = self.domain.alloc(CHUNK * LEN, Access::LOCAL_WRITE).ok()?;
            let first = (places.regions.len() * CHUNK) as u32;
            places.regions.push(Arc::new(region));
            places.free.extend((first..first + CHUNK as u32).rev());
        }
        let copied = Copied { place: places.free.pop()?, is_injected, address, len };
        let region = places.regions.get(copied.place as usize / CHUNK)?.clone();
        places.of_buffers += u32::from(!is_injected);
        Some((copied, Place { region, range: copied.range() }))
    }

    /// The operation has ended, or was not posted: so many bytes of its message go to its buffer.
    ///
    /// # Safety
    /// The buffer must be the operation's own until now, if any bytes are to go there.
    pub(super) unsafe fn give_back(&self, copied: Copied, len: usize) {
        let places = &mut *lock(&self.places);
        let region = places.regions.get(copied.place as usize / CHUNK);
        if let Some(region) = region.filter(|_| len > 0) {
            let len = len.min(copied.len);
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts_mut(copied.address as *mut u8, len) };
            if let Err(error) = region.slice(copied.range()).read_at(0, bytes) {
                log::error!("a message is not copied: {error}");
            }
        }
        places.of_buffers -= u32::from(!copied.is_injected);
        places.free.push(copied.place);
    }
}

/// The memory of a place.
pub(super) struct Place {
    region: Arc<Region>,
    range: Range<usize>,
}

impl Place {
    pub(super) fn slice(&self) -> Slice<'_> {
        self.region.slice(self.range.clone())
    }

    /// Copies the bytes of the buffer here.
    ///
    /// # Safety
    /// The buffer must be the operation's own, and is not written to meanwhile.
    pub(super) unsafe fn load(&self, copied: Copied) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(copied.address as *const u8, copied.len) };
        Ok(self.slice().write_at(0, bytes)?)
    }
}
