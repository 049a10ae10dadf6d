//! Memory that is not the heap's: pages of any protection, addresses where nothing is, copies beside regions.

use std::io;

use fabric::provider::memory;
use fabric::{Access, Domain, Error, Memory, Region};

/// How a page may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Not at all.
    Nothing,
    /// By reading.
    Read,
    /// By reading and writing.
    ReadWrite,
}

impl Protection {
    fn flags(self) -> libc::c_int {
        match self {
            Protection::Nothing => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Zeroed private pages of this process. They are never unmapped: a region, and operations in flight on it, can
/// then outlive any handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    start: *mut u8,
    len: usize,
}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages.
    pub(crate) fn map(len: usize, protection: Protection) -> io::Result<Self> {
        let len = len.next_multiple_of(page_size());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection.flags(), flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Pages { start: start.cast(), len })
    }

    /// Changes the protection of part of the pages; offset and length are multiples of the page size.
    pub(crate) fn protect(
        &self,
        offset: usize,
        len: usize,
        protection: Protection,
    ) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: the range is part of this mapping, to which no references exist.
        match unsafe { libc::mprotect(self.start.add(offset).cast(), len, protection.flags()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Registers all pages, whatever their protection: a provider has to find out itself.
    pub(crate) fn register(&self, domain: &Domain, access: Access) -> fabric::Result<Region> {
        // SAFETY: the pages stay mapped for ever, and this process reaches them through the region only. Pages
        // that do not allow what `access` says are what the caller wants to see refused.
        unsafe { domain.register_raw(self.start, self.len, access) }
    }
}

/// Registers addresses at which nothing is mapped, which must fail.
///
/// They lie below the lowest address that the kernel hands out (`vm.mmap_min_addr`), so that no other thread's
/// mapping can come to be there meanwhile.
pub(crate) fn register_unmapped(domain: &Domain, access: Access) -> fabric::Result<Region> {
    register_nowhere(domain, 8192, 4096, access)
}

/// Registers `len` bytes at `start`, which are no memory of this process, at least not all of them: so it must fail.
pub(crate) fn register_nowhere(
    domain: &Domain,
    start: usize,
    len: usize,
    access: Access,
) -> fabric::Result<Region> {
    // SAFETY: nothing accesses the range: no provider may accept it, and no case uses the region if one does.
    unsafe { domain.register_raw(std::ptr::without_provenance_mut(start), len, access) }
}

/// Copies bytes into memory that regions may be part of.
pub(crate) fn store(into: &Memory, at: usize, bytes: &[u8]) -> fabric::Result<()> {
    let to = within(into, at, bytes.len())?;
    // SAFETY: the range was checked, and `into` keeps it allocated; no references are made to such memory.
    unsafe { memory::store(to, bytes) };
    Ok(())
}

/// Copies bytes out of memory that regions may be part of.
pub(crate) fn load(from: &Memory, at: usize, bytes: &mut [u8]) -> fabric::Result<()> {
    let from = within(from, at, bytes.len())?;
    // SAFETY: as in `store`; the memory was zeroed when it was made.
    unsafe { memory::load(from, bytes) };
    Ok(())
}

fn within(memory: &Memory, at: usize, len: usize) -> fabric::Result<*mut u8> {
    if at.checked_add(len).is_none_or(|end| end > memory.len()) {
        let text = format!("{len} bytes at {at} do not fit a memory of {}", memory.len());
        return Err(Error::invalid("copy", text));
    }
    Ok(memory.as_ptr().wrapping_add(at))
}

/// The system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: `sysconf` has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole() {
        let pages = Pages::map(1, Protection::ReadWrite).unwrap();
        assert_eq!(pages.len, page_size());
        pages.protect(0, page_size(), Protection::Read).unwrap();
        assert!(pages.protect(page_size(), 1, Protection::Nothing).is_err());
    }
}
