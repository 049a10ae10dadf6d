//! Parts of regions: borrowed, as the local side of an operation, and owned, for what is posted later.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use fabric_core::{Access, Error, Result, cold_path, likely, memory};
use fabric_util::range::bounds;

use crate::region_core::RegionCore;

/// Part of a region, as the local side of an operation.
///
/// It borrows the region's handle, so it cannot outlive that; operations in flight need no handle.
///
/// ```compile_fail,E0505
/// # fn f(domain: &fabric::Domain, endpoint: &fabric::Endpoint) -> fabric::Result<()> {
/// let region = domain.alloc(64, fabric::Access::ALL)?;
/// let slice = region.slice(..8);
/// drop(region);
/// endpoint.send(slice, 1)
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Slice<'a> {
    pub(crate) core: &'a Arc<RegionCore>,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl<'a> Slice<'a> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of its first byte in this process, for diagnosis and alignment.
    pub fn addr(&self) -> usize {
        self.core.addr_at(self.offset) as usize
    }

    /// The rights that its region was registered with.
    pub fn access(&self) -> Access {
        self.core.access
    }

    /// Part of it. A range that does not fit is refused by what it is used for.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'a> {
        let (start, end) = bounds(range, self.len);
        let offset = self.offset.checked_add(start);
        // A range that ends before it starts must not become a valid empty one, and one beyond this one not a part of the region.
        match (offset, end.checked_sub(start)) {
            (Some(offset), Some(len)) if likely(end <= self.len) || self.is_whole() => {
                Slice { core: self.core, offset, len }
            }
            _ => {
                cold_path();
                Slice { core: self.core, offset: usize::MAX, len: usize::MAX }
            }
        }
    }

    /// All of its region: what does not fit there is named by its numbers.
    #[inline]
    fn is_whole(&self) -> bool {
        self.offset == 0 && self.len == self.core.len
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// As [`Region::read_at`](crate::Region::read_at).
    #[inline]
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let at = self.part("read_at", offset, bytes.len())?;
        self.core.load("read_at", at, bytes)
    }

    /// Copies bytes into it.
    ///
    /// # Errors
    /// As [`Region::write_at`](crate::Region::write_at).
    #[inline]
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let at = self.part("write_at", offset, bytes.len())?;
        self.core.store("write_at", at, bytes)
    }

    /// Copies another slice, as long as this one, into it. They may overlap: all of the other arrives as it was before.
    ///
    /// # Errors
    /// As [`Region::write_at`](crate::Region::write_at), and `InvalidArgument` if they are not equally long.
    #[inline]
    pub fn copy_from(&self, from: Slice<'_>) -> Result<()> {
        const OP: &str = "copy_from";
        if from.len != self.len {
            return Err(unequal(OP, from.len, self.len));
        }
        let source = from.core.range(OP, from.offset, from.len)?;
        let to = self.core.writable(OP, self.offset, self.len)?;
        // SAFETY: both ranges were checked; the cores keep the memory allocated.
        unsafe { memory::copy(to, source, self.len) };
        Ok(())
    }

    /// Where so many bytes of it are in the region.
    #[inline]
    fn part(&self, operation: &'static str, offset: usize, len: usize) -> Result<usize> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        end.and_then(|_| self.offset.checked_add(offset))
            .ok_or_else(|| bad_part(operation, (offset, len), self.len))
    }

    /// Whether its region is open; nothing is asked of an empty slice.
    #[inline]
    pub(crate) fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.len > 0 && self.core.is_closed() {
            return Err(closed(operation));
        }
        Ok(())
    }

    /// Holds the part for an operation that is posted later.
    ///
    /// # Errors
    /// `InvalidArgument` if the range does not fit its region, `InvalidState` if the region is closed, and in a forked child.
    #[inline]
    pub fn hold(&self) -> Result<OwnedSlice> {
        const OP: &str = "hold";
        self.core.range(OP, self.offset, self.len)?;
        // Counts as an operation in flight from here on, so the region cannot close meanwhile.
        let core = self.core.clone();
        if core.is_closed() {
            return Err(closed(OP));
        }
        Ok(OwnedSlice { core, offset: self.offset, len: self.len })
    }
}

#[cold]
fn bad_part(operation: &'static str, (offset, len): (usize, usize), size: usize) -> Error {
    let text = format!("{len} bytes at offset {offset} do not fit a slice of {size}");
    Error::invalid(operation, text)
}

#[cold]
fn closed(operation: &'static str) -> Error {
    Error::state(operation, "the region is closed")
}

#[cold]
fn unequal(operation: &'static str, len: usize, size: usize) -> Error {
    Error::invalid(operation, format!("{len} bytes do not fit a slice of {size} exactly"))
}

impl fmt::Debug for Slice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({}+{} of {})", self.offset, self.len, self.core.len)
    }
}

/// Part of a region that is held as an operation in flight holds it: for libraries that post later, or copy messages
/// themselves. Made by [`Slice::hold`].
///
/// As long as it is there, [`Region::close`](crate::Region::close) is `Busy`, and the memory stays allocated and registered, also if the region's
/// handle is dropped.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, _b) = doc::pair()?;
/// # let domain = &a.domain;
/// use fabric::{Access, Error};
///
/// let region = domain.alloc(64, Access::LOCAL_WRITE)?;
/// let held = region.slice(8..16).hold()?;
/// assert!(matches!(region.close(), Err(Error::Busy)));
/// held.as_slice().write_at(0, b"later")?;
/// assert_eq!(region.to_vec(8..13)?, b"later");
/// drop(held);
/// region.close()?;
/// # Ok(()) }
/// ```
pub struct OwnedSlice {
    core: Arc<RegionCore>,
    offset: usize,
    len: usize,
}

impl OwnedSlice {
    /// For an operation, or a copy.
    pub fn as_slice(&self) -> Slice<'_> {
        Slice { core: &self.core, offset: self.offset, len: self.len }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for OwnedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned{:?}", self.as_slice())
    }
}
