//! What a few cases need of the operating system: memory that is not the heap's, and a child process.
//!
//! The only module of this crate with unsafe code. Its functions are safe to call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use fabric::{Access, Domain, Region};

use crate::check::Failed;

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

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
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
    let nowhere = std::ptr::without_provenance_mut(8192);
    // SAFETY: nothing accesses the range: no provider may accept it, and no case uses the region if one does.
    unsafe { domain.register_raw(nowhere, 4096, access) }
}

/// The system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: `sysconf` has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Runs `body` in a forked child and gives back its text. The child has no threads but its own, and ends without
/// running destructors or exit handlers.
///
/// `body` must be brief: what other threads of this process had locked at the fork stays locked in the child. A
/// child that does not end in `time` is killed, and that is a failure.
#[track_caller]
pub(crate) fn in_child(time: Duration, body: impl FnOnce() -> String) -> Result<String, Failed> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: new descriptors that nobody else owns.
    let [from, to] = unsafe { ends.map(|end| OwnedFd::from_raw_fd(end)) };
    // SAFETY: the child runs `body`, writes and exits; glibc keeps its allocator usable in the child of a process
    // with threads, and what else may be locked there only costs the deadline below.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error().into()),
        0 => {
            let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
                .unwrap_or_else(|_| "panic".to_owned());
            // SAFETY: `text` is alive; a failed write shows as a missing text. `_exit` runs no handlers, and does
            // not return.
            unsafe {
                libc::write(to.as_raw_fd(), text.as_ptr().cast(), text.len());
                libc::_exit(0);
            }
        }
        _ => {}
    }
    drop(to);
    let text = read_until_closed(&from, time);
    // SAFETY: `child` is ours and was not waited for, so the number is still its own.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    match text? {
        Some(text) => Ok(text),
        None => Err(Failed::new(format!("the child to end within {time:?}"), "it hangs")),
    }
}

/// What comes from a pipe until all its writers are gone; `None` if that takes too long.
fn read_until_closed(pipe: &OwnedFd, time: Duration) -> io::Result<Option<String>> {
    let until = Instant::now() + time;
    let mut text = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&mut poll, 1, left.as_millis().min(1000) as libc::c_int) };
        if ready == 0 && left.is_zero() {
            return Ok(None);
        }
        if ready <= 0 {
            continue;
        }
        let mut block = [0u8; 4096];
        // SAFETY: `block` has room for as many bytes.
        let got = unsafe { libc::read(pipe.as_raw_fd(), block.as_mut_ptr().cast(), block.len()) };
        match usize::try_from(got) {
            Ok(0) => return Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Ok(got) => text.extend_from_slice(&block[..got]),
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_reports() {
        let parent = std::process::id();
        let text = in_child(Duration::from_secs(10), || std::process::id().to_string()).unwrap();
        assert_ne!(text.parse::<u32>().unwrap(), parent);
    }

    #[test]
    fn child_that_hangs_is_killed() {
        let hang = || loop {
            std::thread::sleep(Duration::from_secs(1));
        };
        let failed = in_child(Duration::from_millis(100), hang).unwrap_err();
        assert_eq!(failed.seen(), "it hangs");
    }

    #[test]
    fn pages_are_whole() {
        let pages = Pages::map(1, Protection::ReadWrite).unwrap();
        assert_eq!(pages.len(), page_size());
        pages.protect(0, page_size(), Protection::Read).unwrap();
        assert!(pages.protect(page_size(), 1, Protection::Nothing).is_err());
    }
}
