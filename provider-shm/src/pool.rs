//! The memory that a domain allocates: files that peers can have mapped, cut into runs of whole pages.
//!
//! Each file is as large as all before it, so there are few of them, however much memory there is. Runs that are given back are
//! holes in their file from then on: they cost nothing, and are zero again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FallocateFlags;

use crate::mapping::Mapping;

/// Bytes of a page, at least; what is allocated is a multiple.
const PAGE: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };
/// Bytes of the first file.
const FIRST: usize = 4 << 20;
/// Files of a domain.
pub(crate) const FILES: usize = 64;

/// Where bytes of a file begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Which file, in the order of their making.
    pub(crate) file: u32,
    /// Bytes into it.
    pub(crate) offset: usize,
}

struct File {
    mapping: Mapping,
    descriptor: OwnedFd,
}

/// The files, and what of them is free.
#[derive(Default)]
pub(crate) struct Pool {
    files: Vec<File>,
    /// Free runs, no two of them side by side: where, and how long.
    free: BTreeMap<Place, usize>,
    /// The same, the shortest first.
    by_len: BTreeSet<(usize, Place)>,
}

impl Pool {
    /// A run of `len` zero bytes, which is its pages' first part.
    ///
    /// # Errors
    /// As memfd_create(2) and mmap(2); `OutOfMemory` where there are too many files.
    pub(crate) fn allocate(&mut self, len: usize) -> io::Result<(Place, *mut u8)> {
        let len = len.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let fitting = (len, Place { file: 0, offset: 0 });
        let found = self.by_len.range(fitting..).next().copied();
        let (free, place) = match found {
            Some(found) => found,
            None => self.grow(len)?,
        };
        self.files[place.file as usize].mapping.secure(place.offset, len)?;
        self.take(place, free);
        if free > len {
            let rest = Place { offset: place.offset + len, ..place };
            self.put(rest, free - len);
        }
        Ok((place, self.files[place.file as usize].mapping.at(place.offset).as_ptr()))
    }

    /// Gives a run back that nothing reaches any more.
    pub(crate) fn free(&mut self, place: Place, len: usize) {
        let mut len = len.next_multiple_of(PAGE);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let file = &self.files[place.file as usize].descriptor;
        if rustix::fs::fallocate(file, hole, place.offset as u64, len as u64).is_err() {
            // It is not zero again: it is used no more.
            return;
        }
        let mut start = place;
        let before = self.free.range(..place).next_back().map(|(at, len)| (*at, *len));
        if let Some((at, before)) = before
            .filter(|(at, before)| at.file == place.file && at.offset + before == place.offset)
        {
            self.take(at, before);
            (start, len) = (at, len + before);
        }
        let behind = Place { offset: start.offset + len, ..start };
        if let Some(after) = self.free.get(&behind).copied() {
            self.take(behind, after);
            len += after;
        }
        self.put(start, len);
    }

    /// The place of bytes of this process, if all of them are in one file.
    pub(crate) fn find(&self, addr: *const u8, len: usize) -> Option<Place> {
        self.files.iter().enumerate().find_map(|(file, at)| {
            let offset = addr.addr().checked_sub(at.mapping.at(0).addr().get())?;
            let end = offset.checked_add(len)?;
            (end <= at.mapping.len()).then_some(Place { file: file as u32, offset })
        })
    }

    /// The files' descriptors, in the order of their making.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.files.iter().map(|file| file.descriptor.as_fd())
    }

    /// One more file, with room for `len` bytes; all of it is free.
    fn grow(&mut self, len: usize) -> io::Result<(usize, Place)> {
        if self.files.len() == FILES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let all: usize = self.files.iter().map(|file| file.mapping.len()).sum();
        // As large as all before; where that is too much, as small as can be.
        let made = Mapping::create(len.max(all).max(FIRST)).or_else(|_| Mapping::create(len));
        let (mapping, descriptor) = made?;
        let place = Place { file: self.files.len() as u32, offset: 0 };
        let size = mapping.len();
        self.files.push(File { mapping, descriptor });
        self.put(place, size);
        Ok((size, place))
    }

    fn put(&mut self, place: Place, len: usize) {
        self.free.insert(place, len);
        self.by_len.insert((len, place));
    }

    fn take(&mut self, place: Place, len: usize) {
        self.free.remove(&place);
        self.by_len.remove(&(len, place));
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use fabric_core::memory;

    use super::*;

    fn byte(at: *mut u8) -> u8 {
        let mut byte = [0];
        // SAFETY: of a run of the test's.
        unsafe { memory::load(at, &mut byte) };
        byte[0]
    }

    #[test]
    fn runs_are_zero_and_apart_and_come_back() {
        let mut pool = Pool::default();
        let mut numbers = fabric_util::splitmix::SplitMix64::new(1);
        let mut held: Vec<(Place, *mut u8, usize, u8)> = Vec::new();
        for round in 0..3000_usize {
            if numbers.once_in(2) && !held.is_empty() {
                let (place, at, len, mark) = held.swap_remove(numbers.below(held.len()));
                assert_eq!((byte(at), byte(at.wrapping_add(len - 1))), (mark, mark));
                pool.free(place, len);
            } else {
                let max = if numbers.once_in(9) { 3 << 20 } else { 9000 };
                let len = 1 + numbers.below(max);
                let (place, at) = pool.allocate(len).unwrap();
                assert_eq!(at.addr() % PAGE, 0);
                assert_eq!(pool.find(at, len), Some(place));
                assert_eq!((byte(at), byte(at.wrapping_add(len - 1))), (0, 0), "{round}");
                let mark = 1 + (round % 255) as u8;
                // SAFETY: the first and the last byte of the run.
                unsafe {
                    memory::store(at, &[mark]);
                    memory::store(at.wrapping_add(len - 1), &[mark]);
                }
                held.push((place, at, len, mark));
            }
        }
        for (place, _, len, _) in held {
            pool.free(place, len);
        }
        let whole: Vec<_> = pool.files.iter().map(|file| file.mapping.len()).collect();
        let free: Vec<_> = pool.free.values().copied().collect();
        assert_eq!(free, whole, "what is given back is whole again");
        assert_eq!(pool.by_len.len(), free.len());
    }

    #[test]
    fn memory_of_others_has_no_place() {
        let mut pool = Pool::default();
        let own = [0_u8; 8];
        assert_eq!(pool.find(own.as_ptr(), 8), None);
        let (_, at) = pool.allocate(10).unwrap();
        assert_eq!(pool.find(at, FIRST).unwrap().offset, 0);
        assert_eq!(pool.find(at, FIRST + 1), None);
        assert_eq!(pool.find(at.wrapping_sub(1), 2), None);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_and_changes_nothing() {
        let mut pool = Pool::default();
        for len in [usize::MAX, isize::MAX as usize] {
            pool.allocate(len).unwrap_err();
        }
        assert!(pool.files.is_empty() && pool.free.is_empty());
    }
}
