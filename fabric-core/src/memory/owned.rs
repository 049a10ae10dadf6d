//! Memory that regions own.

use std::alloc::{self, Layout};
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Failure, Result};

/// The alignment that every small allocation gets: a cache line.
const LINE: usize = 64;

/// The largest alignment for which the system's allocator passes zeroed pages on untouched. Above it,
/// `alloc_zeroed` writes the zeros itself and so makes every page resident.
const LAZY_ALIGN: usize = 16;

/// Zeroed, aligned memory, shared by its clones; the last one frees it. It is of the heap, or of a provider.
///
/// Its bytes may change at any time while it is registered, so they are accessed by the functions of
/// [this module](crate::memory) only, never through references.
#[derive(Clone)]
pub struct Memory(Arc<Block>);

struct Block {
    start: *mut u8,
    len: usize,
    _owner: Owner,
}

/// What frees the memory when it is dropped.
enum Owner {
    Heap { _allocation: Allocation },
    Provider { _owner: Box<dyn Send + Sync> },
}

/// What the heap gave.
struct Allocation {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: the pointers are the block's own, or its owner's, and free of ties to a thread. The block never forms references
// to what they point at; any access to it is by the functions of the parent module, which tolerate
// any concurrent access of their kind, or is justified where it is made.
unsafe impl Send for Block {}
// SAFETY: as above; the fields themselves never change.
unsafe impl Sync for Block {}

impl Memory {
    /// Allocates `len` bytes, aligned to 64 bytes, or to the page size when they fill a page.
    ///
    /// Pages that are never touched cost nothing. Memory that is page-aligned has its last page to itself too,
    /// so that no other object is affected by what a registration does to whole pages.
    ///
    /// # Errors
    /// As [`Memory::aligned`].
    pub fn zeroed(len: usize) -> Result<Memory, Error> {
        let page = page_size();
        Self::aligned(len, if len >= page { page } else { LINE })
    }

    /// Allocates `len` bytes at a multiple of `align` bytes.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`]: `len` is zero, `align` is no power of two, or the two exceed
    ///   `isize::MAX` bytes.
    /// - [`Error::NoMemory`]: there is not that much.
    pub fn aligned(len: usize, align: usize) -> Result<Memory, Error> {
        let invalid = |detail: String| Error::invalid("allocate", detail);
        if len == 0 {
            return Err(invalid("zero bytes asked for; memory has at least one".to_owned()));
        }
        if !align.is_power_of_two() {
            return Err(invalid(format!("alignment {align} is not a power of two")));
        }
        let too_large =
            || invalid(format!("{len} bytes aligned to {align} exceed the address space"));
        // Whole multiples of the alignment, and room to move the start to one.
        let room = len
            .checked_next_multiple_of(align)
            .and_then(|len| len.checked_add(align.saturating_sub(LAZY_ALIGN)))
            .ok_or_else(too_large)?;
        let layout =
            Layout::from_size_align(room, LAZY_ALIGN.min(align)).map_err(|_| too_large())?;
        // SAFETY: the size is not zero, since `len` is not.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return Err(Error::NoMemory(Failure::new(
                "allocate",
                format!("no {len} bytes of memory left"),
            )));
        }
        let offset = base.addr().wrapping_neg() & (align - 1);
        // SAFETY: `base` is aligned to the lesser of `LAZY_ALIGN` and `align`, so the next multiple of
        // `align` is at most the added room away, and `len` bytes still follow it.
        let start = unsafe { base.add(offset) };
        let _owner = Owner::Heap { _allocation: Allocation { base, layout } };
        Ok(Memory(Arc::new(Block { start, len, _owner })))
    }

    /// Memory that a provider has allocated. It is freed by the drop of `owner`, with the last clone.
    ///
    /// # Safety
    /// `len` bytes at `start`, at least one, are allocated, writable and zero, and at a multiple of 64; they stay allocated
    /// until `owner` is dropped. Other processes reach them only in ways that those of this one cannot make undefined
    /// ([`memory`](crate::memory)).
    pub unsafe fn from_provider(start: *mut u8, len: usize, owner: Box<dyn Send + Sync>) -> Memory {
        Memory(Arc::new(Block { start, len, _owner: Owner::Provider { _owner: owner } }))
    }

    /// Bytes; at least one.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there is no empty memory")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// The first byte. Valid for [`len`](Memory::len) bytes while a clone of this lives.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.start
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("addr", &self.as_ptr()).field("len", &self.len()).finish()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and this is the last owner.
        unsafe { alloc::dealloc(self.base, self.layout) }
    }
}

/// The system's page size in bytes.
fn page_size() -> usize {
    // SAFETY: `sysconf` has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{load, store};

    fn contents(memory: &Memory) -> Vec<u8> {
        let mut bytes = vec![0xFF; memory.len()];
        // SAFETY: the memory has that length.
        unsafe { load(memory.as_ptr(), &mut bytes) };
        bytes
    }

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for len in [1, 63, 64, 4095, 4096, 4097, 300_000] {
            let memory = Memory::zeroed(len).unwrap();
            assert_eq!(memory.len(), len);
            let align = if len >= 4096 { 4096 } else { 64 };
            assert_eq!(memory.as_ptr().addr() % align, 0, "{len}");
            if !cfg!(miri) || len < 5000 {
                assert!(contents(&memory).iter().all(|byte| *byte == 0));
            }
        }
        for shift in 0..22 {
            for len in [1, 17, 5000] {
                let memory = Memory::aligned(len, 1 << shift).unwrap();
                assert_eq!(memory.as_ptr().addr() % (1 << shift), 0, "{len} {shift}");
                // SAFETY: the last of its bytes.
                unsafe { store(memory.as_ptr().add(len - 1), &[1]) };
            }
        }
    }

    #[test]
    fn clones_share_and_the_last_one_frees() {
        let memory = Memory::zeroed(100).unwrap();
        let clone = memory.clone();
        assert_eq!(clone.as_ptr(), memory.as_ptr());
        // SAFETY: the memory has that length.
        unsafe { store(memory.as_ptr(), &[7; 100]) };
        drop(memory);
        assert_eq!(contents(&clone), [7; 100]);
        assert!(format!("{clone:?}").ends_with("len: 100 }"), "{clone:?}");
    }

    #[test]
    fn a_providers_memory_goes_with_its_last_clone() {
        let block = Memory::zeroed(64).unwrap();
        let owner = std::sync::Arc::new(block.clone());
        let weak = std::sync::Arc::downgrade(&owner);
        // SAFETY: the owner keeps those bytes.
        let memory = unsafe { Memory::from_provider(block.as_ptr(), 64, Box::new(owner)) };
        drop(block);
        let clone = memory.clone();
        drop(memory);
        assert_eq!(contents(&clone), [0; 64]);
        assert!(weak.upgrade().is_some());
        drop(clone);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn impossible_memory_is_an_error() {
        let invalid = |result: Result<Memory, Error>| {
            assert!(matches!(result, Err(Error::InvalidArgument(_))), "{result:?}");
        };
        invalid(Memory::zeroed(0));
        invalid(Memory::aligned(0, 8));
        invalid(Memory::zeroed(usize::MAX));
        invalid(Memory::zeroed(isize::MAX as usize));
        for align in [0, 3, 100, usize::MAX, 1 << 63] {
            invalid(Memory::aligned(10, align));
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn too_much_memory_is_an_error() {
        let result = Memory::zeroed(isize::MAX as usize / 2);
        assert!(matches!(result, Err(Error::NoMemory(_))), "{result:?}");
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn untouched_pages_cost_nothing() {
        let memory = Memory::zeroed(64 << 20).unwrap();
        // SAFETY: the third page is inside.
        unsafe { store(memory.as_ptr().add(2 * 4096), &[1]) };
        let mut resident = vec![0u8; memory.len() / 4096];
        // SAFETY: the range is mapped and page-aligned, and the vector has a byte for each page.
        let result = unsafe {
            libc::mincore(memory.as_ptr().cast(), memory.len(), resident.as_mut_ptr().cast())
        };
        assert_eq!(result, 0);
        let count = resident.iter().filter(|page| **page & 1 != 0).count();
        // The page touched, or the one huge page it lies in.
        assert!((1..=512).contains(&count), "{count} of {} pages are resident", resident.len());
    }
}
