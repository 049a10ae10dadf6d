//! Memory regions: memory that is registered with a domain. What one is made of is in `region_core.rs`.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use fabric_core::provider::RegistrationOps;
use fabric_core::{Access, Memory, RemoteRegion, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::domain::DomainInner;
use crate::region_core::RegionCore;
use crate::slice::Slice;

/// Memory that is registered with a domain: what local operations use, and what peers may reach.
///
/// # Safety without locks
/// Bytes of a region can change at any time: peers write them, other threads too. So they are read and
/// written by value, never by reference, and order comes from completions. Which bytes a
/// reader sees during a transfer is undefined by the contract, but never undefined behaviour.
///
/// # Life
/// The memory stays allocated and registered as long as any operation in flight uses it, whatever becomes of
/// this handle, or a [`Grant`](crate::Grant) of it is there. [`close`](Region::close) ends the rights now, dropping the
/// handle ends them when the last such operation has completed and the last grant has gone. When either is done, no peer reads or changes a byte, and the key opens
/// nothing.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
/// # let (peer, timeout) = (&b, doc::TIMEOUT);
/// use fabric::{Access, RemoteRegion};
///
/// let region = domain.alloc(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write_at(0, b"published")?;
/// region.put(64, &42u64)?;
/// assert_eq!(region.get::<u64>(64)?, 42);
///
/// // What a peer needs to read it: 40 bytes, sent in any way.
/// let descriptor = region.remote().to_bytes();
/// let remote = RemoteRegion::from_bytes(&descriptor)?;
/// let part = remote.at(64);
/// # let _ = part;
///
/// // From here on no peer reads or changes a byte.
/// region.close()?;
/// # Ok(()) }
/// ```
pub struct Region {
    pub(crate) core: Arc<RegionCore>,
}

impl<'a> From<&'a Region> for Slice<'a> {
    fn from(region: &'a Region) -> Self {
        Slice { core: &region.core, offset: 0, len: region.core.len }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.core.drop_handle();
    }
}

impl Region {
    pub(crate) fn new(
        domain: Arc<DomainInner>,
        memory: Option<Memory>,
        place: (*mut u8, usize),
        access: Access,
        registration: Box<dyn RegistrationOps>,
    ) -> Self {
        let core = RegionCore::new(domain, memory, place, access, registration);
        Region { core: Arc::new(core) }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // a region is never empty
    pub fn len(&self) -> usize {
        self.core.len
    }

    /// The rights it was registered with.
    pub fn access(&self) -> Access {
        self.core.access
    }

    /// The address of its first byte in this process, for diagnosis and alignment.
    pub fn addr(&self) -> usize {
        self.core.addr_at(0) as usize
    }

    /// The descriptor by which peers reach it; ship its bytes to them.
    pub fn remote(&self) -> RemoteRegion {
        self.core.remote
    }

    /// The memory beneath, to register it once more; `None` for regions of `register_raw`.
    pub fn memory(&self) -> Option<&Memory> {
        self.core.memory.as_ref()
    }

    /// Part of the region, for an operation. A range that does not fit is refused by the post.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_> {
        Slice::from(self).slice(range)
    }

    /// Ends the registration and its grants now.
    ///
    /// When it has returned, no peer and no device reads or changes the memory, and the key opens nothing.
    /// Repeating it is harmless. The region refuses every operation afterwards; its bytes can still be read
    /// and written here, except those of foreign memory.
    ///
    /// # Errors
    /// `Busy` while local operations in flight use the region: take their completions first. Of unsignaled operations,
    /// which have none on success, this call starts to find out whether they have ended: try it again. The system's error if the
    /// device did not let go of the memory, which must then stay as it is; it can be tried again.
    pub fn close(&self) -> Result<()> {
        self.core.close()
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    /// `InvalidArgument` if the range does not fit, `InvalidState` for foreign memory once it is closed, and in a forked child.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.core.load("read_at", offset, bytes)
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at); `InvalidArgument` for foreign memory without `LOCAL_WRITE`.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.core.store("write_at", offset, bytes)
    }

    /// A copy of a part of the region.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at).
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>> {
        let Slice { offset, len, .. } = self.slice(range);
        self.core.range("to_vec", offset, len)?;
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets every byte of the region.
    ///
    /// # Errors
    /// As [`write_at`](Region::write_at).
    pub fn fill(&self, byte: u8) -> Result<()> {
        let block = [byte; 4096];
        for offset in (0..self.core.len).step_by(block.len()) {
            self.write_at(offset, &block[..block.len().min(self.core.len - offset)])?;
        }
        Ok(())
    }

    /// Reads a value. Its bytes may be of several moments; [`atomic`](Region::atomic) reads a word at once.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at).
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read_at(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes a value. Its bytes may become visible one after the other.
    ///
    /// # Errors
    /// As [`write_at`](Region::write_at).
    pub fn put<T: IntoBytes + Immutable>(&self, offset: usize, value: &T) -> Result<()> {
        self.write_at(offset, value.as_bytes())
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// While it lives nothing may write the region: no peer, no operation in flight, no other thread.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the range is allocated and initialized; the caller answers for the absence of writers.
        unsafe { std::slice::from_raw_parts(self.core.addr_at(0), self.core.len) }
    }

    /// The bytes as a slice that may be written.
    ///
    /// # Safety
    /// While it lives nothing else may read or write the region: no peer, no operation, no other thread.
    #[allow(clippy::mut_from_ref)] // like UnsafeCell: the caller answers for exclusivity
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: the range is allocated and initialized; the caller answers for exclusivity.
        unsafe { std::slice::from_raw_parts_mut(self.core.addr_at(0), self.core.len) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.core.len)
            .field("access", &self.core.access)
            .finish()
    }
}
