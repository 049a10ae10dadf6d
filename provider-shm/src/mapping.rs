//! Memory that two processes have mapped: a file without a name, of a size that stays.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use fabric_util::sync::Mutex;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

/// It can be made no smaller, so that no access meets the end of the file (SIGBUS), and no larger.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A mapping of a whole file, readable and writable, for both processes. It is zero at first; pages that are never touched
/// cost nothing.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is free of ties to a thread. What it points at is reached by raw pointers and atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above; the fields themselves never change.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes a file of `len` bytes and maps it; gives its descriptor, by which the peer does.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2) and mmap(2).
    pub(crate) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        // The kernel would end the process (SIGXFSZ).
        let max = getrlimit(Resource::Fsize).current;
        if max.is_some_and(|max| max < len as u64) {
            return Err(rustix::io::Errno::FBIG.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(c"fabric", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let mapping = Self::map(file.as_fd(), len)?;
        Ok((mapping, file))
    }

    /// Maps what a peer has made.
    ///
    /// # Errors
    /// `InvalidData`: it is not what [`create`](Mapping::create) makes. As mmap(2).
    pub(crate) fn of(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        if sealed_len(file)? != len {
            return Err(ErrorKind::InvalidData.into());
        }
        Self::map(file, len)
    }

    fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    /// Has its pages from an offset on there for sure. Where the kernel gives no more memory than there is (vm.overcommit_memory=2), and
    /// for a file only as it is touched, that could be the end of the process (SIGBUS).
    ///
    /// # Errors
    /// There is too little memory.
    pub(crate) fn secure(&self, offset: usize, len: usize) -> io::Result<()> {
        if is_memory_counted() { self.populate(offset, len) } else { Ok(()) }
    }

    fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(len <= self.len - offset);
        let start = self.at(offset).as_ptr().cast();
        // SAFETY: within the mapping, whose bytes it leaves as they are.
        match unsafe { rustix::mm::madvise(start, len, Advice::LinuxPopulateWrite) } {
            // Older than Linux 5.14.
            Err(rustix::io::Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The byte at an offset. Valid as long as the mapping lives.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "{offset} is not within {} bytes", self.len);
        // SAFETY: within the mapping.
        unsafe { self.base.add(offset) }
    }
}

/// Whether the kernel gives no more memory than there is; as it was when this was first asked.
fn is_memory_counted() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);
    if MODE.load(Ordering::Relaxed) == UNKNOWN {
        let mode = std::fs::read("/proc/sys/vm/overcommit_memory");
        let is = mode.is_ok_and(|mode| mode.starts_with(b"2"));
        MODE.store(if is { YES } else { NO }, Ordering::Relaxed);
    }
    MODE.load(Ordering::Relaxed) == YES
}

/// What a domain's peers have made and it has mapped: each file once. A process that is forked inherits no lock that its own domains take.
#[derive(Default)]
pub(crate) struct Mappings(Mutex<BTreeMap<(u64, u64), Weak<Mapping>>>);

impl Mappings {
    /// As [`Mapping::of`], of any length.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn map(&self, file: BorrowedFd<'_>) -> io::Result<Arc<Mapping>> {
        let len = sealed_len(file)?;
        let status = rustix::fs::fstat(file)?;
        let mut all = self.0.lock();
        let name = (status.st_dev, status.st_ino);
        if let Some(mapping) = all.get(&name).and_then(Weak::upgrade) {
            return Ok(mapping);
        }
        // While one is mapped, its file's name is no other's.
        all.retain(|_, mapping| mapping.strong_count() > 0);
        let mapping = Arc::new(Mapping::map(file, len)?);
        // SAFETY: of the mapping, whose bytes it leaves as they are. It is in the owner's core dumps; that it fails does no harm.
        let _ = unsafe {
            rustix::mm::madvise(mapping.base.as_ptr().cast(), len, Advice::LinuxDontDump)
        };
        all.insert(name, Arc::downgrade(&mapping));
        Ok(mapping)
    }
}

/// The length of a file that stays as long as it is.
///
/// # Errors
/// `InvalidData`: it is no such file, or has no bytes.
fn sealed_len(file: BorrowedFd<'_>) -> io::Result<usize> {
    // What has no seals at all says so by an error, and is asked no more: its file system may be a peer's (FUSE).
    let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
    if !seals.contains(SEALS) {
        return Err(ErrorKind::InvalidData.into());
    }
    let len = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    if len > 0 { Ok(len) } else { Err(ErrorKind::InvalidData.into()) }
}

/// A value in a mapping, which it keeps.
pub(crate) struct Placed<T> {
    mapping: Arc<Mapping>,
    at: NonNull<T>,
}

/// What may be in a mapping: atomics, for which any bytes are valid.
///
/// # Safety
/// It is so, and nothing but atomics.
pub(crate) unsafe trait Words {}

// SAFETY: what it points at is shared anyway, and `Words` of atomics.
unsafe impl<T: Words> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: Words> Sync for Placed<T> {}

impl<T: Words> Placed<T> {
    /// The value at an offset, which suits its alignment and leaves room for it.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize) -> Self {
        let end = offset.checked_add(size_of::<T>());
        assert!(
            offset.is_multiple_of(align_of::<T>()) && end.is_some_and(|end| end <= mapping.len)
        );
        Placed { at: mapping.at(offset).cast(), mapping: mapping.clone() }
    }
}

impl<T> Clone for Placed<T> {
    fn clone(&self) -> Self {
        Placed { mapping: self.mapping.clone(), at: self.at }
    }
}

impl<T: Words> Deref for Placed<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: aligned (a mapping begins with a page) and within the mapping, which lives as long; the words are atomic, for
        // this process and the other one, and any values are valid (`Words`).
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and what points into it does not outlive it (`at`). It fails for no mapping.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LEN: usize = 8192;

    #[test]
    fn both_see_the_same_bytes() {
        let (one, file) = Mapping::create(LEN).unwrap();
        let other = Mapping::of(file.as_fd(), LEN).unwrap();
        // SAFETY: within the mappings; no reference into them exists.
        unsafe {
            assert_eq!(other.at(LEN - 1).read(), 0);
            one.at(LEN - 1).write(7);
            assert_eq!(other.at(LEN - 1).read(), 7);
        }
    }

    #[test]
    fn only_what_cannot_change_its_size_is_mapped() {
        let refused = |file: BorrowedFd<'_>| {
            let error = Mapping::of(file, LEN).err().expect("it is refused");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        };
        let (_one, file) = Mapping::create(2 * LEN).unwrap();
        refused(file.as_fd());
        rustix::fs::ftruncate(&file, LEN as u64).unwrap_err();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
            let file = rustix::fs::memfd_create(c"other", flags).unwrap();
            rustix::fs::ftruncate(&file, LEN as u64).unwrap();
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            refused(file.as_fd());
        }
        // A descriptor that is no file.
        refused(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().as_fd());
    }

    #[test]
    fn a_file_is_mapped_once_in_a_domain() {
        let (_one, file) = Mapping::create(LEN).unwrap();
        let (mappings, others) = (Mappings::default(), Mappings::default());
        let first = mappings.map(file.as_fd()).unwrap();
        assert!(Arc::ptr_eq(&first, &mappings.map(file.as_fd()).unwrap()));
        // None that another domain holds is waited for: in a forked process it may be held for ever.
        let _held = mappings.0.lock();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| others.map(file.as_fd()).unwrap());
            assert!(!Arc::ptr_eq(&first, &other.join().unwrap()));
        });
    }

    #[test]
    #[cfg_attr(miri, ignore)] // pages
    fn pages_are_there_when_they_are_asked_for() {
        let (one, file) = Mapping::create(1 << 20).unwrap();
        let bytes = || 512 * rustix::fs::fstat(&file).unwrap().st_blocks;
        assert_eq!(bytes(), 0);
        one.populate(1 << 19, 1 << 18).unwrap();
        assert!(bytes() >= 1 << 18);
        one.secure(0, 1 << 20).unwrap();
    }
}
