//! The windows of a domain: what peers that have its memory mapped see of its registrations.
//!
//! They are in a file that peers have mapped, too, to be read. A window's number is the upper part of the address by which
//! peers name its bytes, so that they find it at once; whether it is still there, its key says.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::{Access, RemoteAddr};
use fabric_util::region_table::WindowAttr;
use fabric_util::sync::{AtomicU32, AtomicU64, fence};

use crate::mapping::{Mapping, Placed, Words};
use crate::pool::Place;

/// Windows of a domain; what is registered beyond goes through its process. There is no window 0.
const COUNT: usize = 1 << 15;
/// Bits of an address that say where in a window: a region is shorter than all that processors can name.
const WITHIN: u32 = 48;

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
    offset: AtomicU64,
    len: AtomicU64,
    file: AtomicU32,
    access: AtomicU32,
}

type Slots = [Slot; COUNT];

// SAFETY: atomics, and any values are valid.
unsafe impl Words for Slots {}

/// The name of a connection among windows.
pub(crate) fn name(connection: fabric_core::EndpointId) -> u64 {
    connection.0.wrapping_add(1)
}

/// The number of the window that an address is in; 0: in none.
#[inline]
pub(crate) fn number(addr: u64) -> u32 {
    (addr >> WITHIN) as u32
}

/// The address of a window's first byte.
fn base(number: u32) -> u64 {
    u64::from(number) << WITHIN
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

    /// Where bytes are, if a window is there for them and for this connection, and the window's key, to be looked at again. To
    /// be asked at the window ([`Hazard::enter`](crate::hazard::Hazard::enter)).
    #[inline]
    pub(crate) fn find(
        &self,
        at: RemoteAddr,
        len: usize,
        need: Access,
        connection: u64,
    ) -> Option<(Place, &AtomicU64)> {
        let slot = self.slot(number(at.addr))?;
        if at.key == FREE || slot.key.load(Ordering::Acquire) != at.key {
            return None;
        }
        let only = slot.only.load(Ordering::Relaxed);
        let access = Access::from_bits_retain(slot.access.load(Ordering::Relaxed));
        if only != ALL && only != connection || !access.contains(need) {
            return None;
        }
        let within = at.addr & ((1 << WITHIN) - 1);
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
    /// Those that were there and are not, and those from this one on that never were.
    free: Vec<u32>,
    next: u32,
}

impl Table {
    /// # Errors
    /// As [`Mapping::create`].
    pub(crate) fn new() -> io::Result<Self> {
        let (mapping, descriptor) = Mapping::create(size_of::<Slots>())?;
        Ok(Table { view: View::new(mapping), descriptor, free: Vec::new(), next: 1 })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Opens a window on a place; gives the address of its first byte. `None`: there are too many, or it is too long.
    pub(crate) fn open(&mut self, window: &WindowAttr, place: Place) -> Option<u64> {
        if window.len as u64 > 1 << WITHIN {
            return None;
        }
        let number = self.free.pop().or_else(|| {
            self.next += 1;
            Some(self.next - 1)
        })?;
        let Some(slot) = self.view.slot(number) else {
            self.next = number;
            return None;
        };
        slot.only.store(window.only.map_or(ALL, name), Ordering::Relaxed);
        slot.offset.store(place.offset as u64, Ordering::Relaxed);
        slot.len.store(window.len as u64, Ordering::Relaxed);
        slot.file.store(place.file, Ordering::Relaxed);
        slot.access.store(window.access.bits(), Ordering::Relaxed);
        slot.key.store(window.key, Ordering::Release);
        Some(base(number))
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
        self.free.push(number);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use fabric_core::EndpointId;

    use super::*;

    const KEY: u64 = 77;
    const ONE: EndpointId = EndpointId(0);

    fn window(len: usize, only: Option<EndpointId>) -> WindowAttr {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        WindowAttr { key: KEY, addr: std::ptr::null_mut(), len, access, only }
    }

    fn both() -> (Table, View) {
        let table = Table::new().unwrap();
        let view = View::of(table.descriptor()).unwrap();
        (table, view)
    }

    #[test]
    fn a_window_is_what_was_opened_until_it_is_closed() {
        let (mut table, view) = both();
        let place = Place { file: 3, offset: 8192 };
        let base = table.open(&window(100, None), place).unwrap();
        let find = |addr, len, need| {
            let found = view.find(RemoteAddr { key: KEY, addr }, len, need, name(ONE));
            found.map(|(place, _)| place)
        };
        let read = Access::REMOTE_READ;
        assert_eq!(find(base, 100, read), Some(place));
        assert_eq!(find(base + 90, 10, read), Some(Place { offset: 8282, ..place }));
        assert_eq!(find(base + 91, 10, read), None, "beyond its end");
        assert_eq!(find(base - 1, 1, read), None);
        assert_eq!(find(base, 8, Access::REMOTE_ATOMIC), None, "without the right");
        assert_eq!(find(base, usize::MAX, read), None);
        let wrong = RemoteAddr { key: KEY + 1, addr: base };
        assert!(view.find(wrong, 1, read, name(ONE)).is_none());
        table.close(number(base));
        assert_eq!(find(base, 1, read), None);
        assert!(view.find(RemoteAddr { key: FREE, addr: base }, 1, read, name(ONE)).is_none());
        assert_eq!(find(u64::MAX, 1, read), None);
    }

    #[test]
    fn a_grant_is_for_one_connection() {
        let (mut table, view) = both();
        let base = table.open(&window(8, Some(ONE)), Place { file: 0, offset: 0 }).unwrap();
        let find = |connection| {
            view.find(RemoteAddr { key: KEY, addr: base }, 8, Access::REMOTE_READ, connection)
        };
        assert!(find(name(ONE)).is_some());
        assert!(find(name(EndpointId(1))).is_none());
    }

    #[test]
    fn there_is_an_end_of_them_and_numbers_come_back() {
        let (mut table, _view) = both();
        let place = Place { file: 0, offset: 0 };
        let mut bases = Vec::new();
        while let Some(base) = table.open(&window(8, None), place) {
            bases.push(base);
        }
        assert_eq!(bases.len(), COUNT - 1);
        assert!(bases.iter().all(|base| number(*base) > 0 && base.checked_add(1 << 48).is_some()));
        table.close(number(bases[5]));
        assert_eq!(table.open(&window(8, None), place), None, "a peer may still be there");
        table.forget(number(bases[5]));
        assert_eq!(table.open(&window(8, None), place), Some(bases[5]));
        assert_eq!(table.open(&window(1 << 49, None), place), None);
    }
}
