//! The windows of a domain: what peers that have its memory mapped see of its registrations.
//!
//! They are in a file that peers have mapped, too, to be read. Where a window is, its key says, but for a few places, so that peers
//! find it at once.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::{Access, RemoteAddr};
use fabric_util::region_table::WindowAttr;
use fabric_util::sync::{AtomicU32, AtomicU64, fence};

use crate::mapping::{Mapping, Placed, Words};
use crate::pool::Place;

/// Windows of a domain, as a power of 2; what is registered beyond goes through its process.
const COUNT_LOG2: u32 = 15;
const COUNT: usize = 1 << COUNT_LOG2;
/// Places that a window may be at.
const PLACES: u32 = 8;

/// No window.
const FREE: u64 = 0;
/// The peers of all connections.
const ALL: u64 = 0;

/// Valid for any bytes, zeros included, with which it begins. What is beside the key changes only while the key is 0, and no
/// peer is there.
#[repr(C, align(64))]
struct Slot {
    key: AtomicU64,
    /// The only connection whose peer may come.
    only: AtomicU64,
    /// The address by which peers name the first byte.
    base: AtomicU64,
    offset: AtomicU64,
    len: AtomicU64,
    file: AtomicU32,
    access: AtomicU32,
}

/// By the windows' numbers; there is no window 0.
type Slots = [Slot; COUNT + 1];

// SAFETY: atomics, and any values are valid.
unsafe impl Words for Slots {}

/// The name of a connection among windows.
pub(crate) fn name(connection: fabric_core::EndpointId) -> u64 {
    connection.0.wrapping_add(1)
}

/// The numbers that a key's window may have.
#[inline]
fn places(key: u64) -> impl Iterator<Item = u32> {
    // Multiplied by the golden ratio, so that keys that follow each other lie apart (Knuth, 6.4).
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - COUNT_LOG2)) as u32;
    (first..first + PLACES).map(|place| 1 + place % COUNT as u32)
}

/// The windows, as peers see them.
pub(crate) struct View(Placed<Slots>);

impl View {
    /// What a peer has made.
    ///
    /// # Errors
    /// As [`Mapping::of`].
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::new(Mapping::of(file, size_of::<Slots>())?))
    }

    fn new(mapping: Mapping) -> Self {
        View(Placed::new(&Arc::new(mapping), 0))
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.0.get(number as usize)
    }

    /// The number of a key's window, if there is one just now.
    #[inline]
    pub(crate) fn number(&self, key: u64) -> Option<u32> {
        let has_key = |slot: &Slot| key != FREE && slot.key.load(Ordering::Relaxed) == key;
        places(key).find(|number| self.slot(*number).is_some_and(has_key))
    }

    /// Where bytes are, if the window of this number is there for them and for this connection, and the window's key, to be looked
    /// at again. To be asked at the window ([`Hazard::enter`](crate::hazard::Hazard::enter)).
    #[inline]
    pub(crate) fn find(
        &self,
        number: u32,
        at: RemoteAddr,
        len: usize,
        need: Access,
        connection: u64,
    ) -> Option<(Place, &AtomicU64)> {
        let slot = self.slot(number)?;
        if at.key == FREE || slot.key.load(Ordering::Acquire) != at.key {
            return None;
        }
        let only = slot.only.load(Ordering::Relaxed);
        let access = Access::from_bits_retain(slot.access.load(Ordering::Relaxed));
        if only != ALL && only != connection || !access.contains(need) {
            return None;
        }
        let within = at.addr.checked_sub(slot.base.load(Ordering::Relaxed))?;
        let end = within.checked_add(len as u64)?;
        if end > slot.len.load(Ordering::Relaxed) {
            return None;
        }
        let offset = slot.offset.load(Ordering::Relaxed).checked_add(within)?;
        let (file, offset) = (slot.file.load(Ordering::Relaxed), usize::try_from(offset).ok()?);
        Some((Place { file, offset }, &slot.key))
    }
}

/// The windows, as their owner has them.
pub(crate) struct Table {
    view: View,
    descriptor: OwnedFd,
    /// The numbers of those that are open, or that a peer may still be at.
    taken: HashSet<u32>,
}

impl Table {
    /// # Errors
    /// As [`Mapping::create`].
    pub(crate) fn new() -> io::Result<Self> {
        let (mapping, descriptor) = Mapping::create(size_of::<Slots>())?;
        mapping.secure(0, size_of::<Slots>())?;
        Ok(Table { view: View::new(mapping), descriptor, taken: HashSet::new() })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Opens a window on a place; gives its number. `None`: there are too many.
    pub(crate) fn open(&mut self, window: &WindowAttr, place: Place) -> Option<u32> {
        let number = places(window.at.key).find(|number| !self.taken.contains(number))?;
        let slot = self.view.slot(number)?;
        self.taken.insert(number);
        slot.only.store(window.only.map_or(ALL, name), Ordering::Relaxed);
        slot.base.store(window.at.addr, Ordering::Relaxed);
        slot.offset.store(place.offset as u64, Ordering::Relaxed);
        slot.len.store(window.len as u64, Ordering::Relaxed);
        slot.file.store(place.file, Ordering::Relaxed);
        slot.access.store(window.access.bits(), Ordering::Relaxed);
        slot.key.store(window.at.key, Ordering::Release);
        Some(number)
    }

    /// Closes a window; peers may still be there. Gives the only connection whose peer may, if it is one.
    pub(crate) fn close(&self, number: u32) -> Option<u64> {
        let slot = self.view.slot(number)?;
        slot.key.store(FREE, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let only = slot.only.load(Ordering::Relaxed);
        (only != ALL).then_some(only)
    }

    /// A closed window has no peers any more.
    pub(crate) fn forget(&mut self, number: u32) {
        self.taken.remove(&number);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use fabric_core::EndpointId;

    use super::*;

    const KEY: u64 = 77;
    const BASE: u64 = 1 << 40;
    const ONE: EndpointId = EndpointId(0);
    const PLACE: Place = Place { file: 3, offset: 8192 };

    fn window(key: u64, only: Option<EndpointId>) -> WindowAttr {
        let (at, access) = (RemoteAddr { key, addr: BASE }, Access::REMOTE_READ);
        WindowAttr { at, addr: std::ptr::null_mut(), len: 100, access, only }
    }

    fn both() -> (Table, View) {
        let table = Table::new().unwrap();
        let view = View::of(table.descriptor()).unwrap();
        (table, view)
    }

    #[test]
    fn a_window_is_what_was_opened_until_it_is_closed() {
        let (mut table, view) = both();
        let number = table.open(&window(KEY, None), PLACE).unwrap();
        assert_eq!(view.number(KEY), Some(number));
        assert!(view.number(KEY + 1).is_none() && view.number(FREE).is_none());
        let find = |addr, len, need| {
            let found = view.find(number, RemoteAddr { key: KEY, addr }, len, need, name(ONE));
            found.map(|(place, _)| place)
        };
        let read = Access::REMOTE_READ;
        assert_eq!(find(BASE, 100, read), Some(PLACE));
        assert_eq!(find(BASE + 90, 10, read), Some(Place { offset: 8282, ..PLACE }));
        assert_eq!(find(BASE + 91, 10, read), None, "beyond its end");
        assert_eq!(find(BASE - 1, 1, read), None);
        assert_eq!(find(BASE, 8, Access::REMOTE_ATOMIC), None, "without the right");
        assert_eq!(find(BASE, usize::MAX, read), None);
        assert_eq!(find(u64::MAX, 1, read), None);
        let at = |key| view.find(number, RemoteAddr { key, addr: BASE }, 1, read, name(ONE));
        assert!(at(KEY).is_some() && at(KEY + 1).is_none());
        table.close(number);
        assert!(view.number(KEY).is_none() && at(KEY).is_none() && at(FREE).is_none());
    }

    #[test]
    fn a_grant_is_for_one_connection() {
        let (mut table, view) = both();
        let number = table.open(&window(KEY, Some(ONE)), PLACE).unwrap();
        let at = RemoteAddr { key: KEY, addr: BASE };
        let find = |connection| view.find(number, at, 8, Access::REMOTE_READ, connection);
        assert!(find(name(ONE)).is_some());
        assert!(find(name(EndpointId(1))).is_none());
    }

    #[test]
    fn many_windows_are_found_and_what_has_no_place_is_not_shown() {
        let (mut table, view) = both();
        let mut keys = fabric_util::splitmix::SplitMix64::new(1);
        let mut opened = Vec::new();
        let first_miss = (0..COUNT).find(|_| {
            let key = keys.next_u64();
            let number = table.open(&window(key, None), PLACE);
            opened.extend(number.map(|number| (key, number)));
            number.is_none()
        });
        assert!(first_miss.is_some_and(|opened| opened > COUNT / 4), "{first_miss:?}");
        let numbers: HashSet<_> = opened.iter().map(|(_, number)| *number).collect();
        assert!(numbers.len() == opened.len() && !numbers.contains(&0));
        assert!(opened.iter().all(|(key, number)| view.number(*key) == Some(*number)));
        // Keys of a device follow each other.
        let (mut table, view) = both();
        for key in 1..COUNT as u64 / 2 {
            let number = table.open(&window(key << 8, None), PLACE);
            assert!(number.is_some() && view.number(key << 8) == number, "{key}");
        }
    }

    #[test]
    fn a_place_that_a_peer_may_be_at_is_not_given_out() {
        let (mut table, view) = both();
        let first = table.open(&window(KEY, None), PLACE).unwrap();
        table.close(first);
        let second = table.open(&window(KEY, None), PLACE).unwrap();
        assert!(second != first && view.number(KEY) == Some(second));
        table.close(second);
        table.forget(first);
        table.forget(second);
        assert_eq!(table.open(&window(KEY, None), PLACE), Some(first));
    }
}
