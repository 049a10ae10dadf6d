//! Registrations: which memory peers may reach, by which key.
//!
//! The engine holds a region's gate for reading while it copies, a deregistration takes it for writing:
//! when that has returned, no copy is under way and none will begin.

use std::collections::HashMap;
use std::sync::Arc;

use fabric_core::{Access, Error, RegistrationOps, Result};

use crate::probe::probe;
use crate::sync::{ReadGuard, RwLock};

/// A registered range.
pub struct Entry {
    key: u64,
    addr: *mut u8,
    len: u64,
    access: Access,
    open: RwLock<bool>,
}

// SAFETY: `addr` is only dereferenced under the gate, while the registrant keeps the range allocated, and only
// through `fabric_core::memory` or system calls, which may run beside other accesses.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// Leave to touch a region's memory, for as long as it is held.
pub struct Pass<'a>(#[allow(dead_code)] ReadGuard<'a, bool>);

impl Entry {
    /// Leave to copy, unless the region is closed.
    pub fn enter(&self) -> Option<Pass<'_>> {
        let gate = self.open.read();
        if *gate { Some(Pass(gate)) } else { None }
    }

    /// As [`enter`](Entry::enter), for who holds another pass: none either while a deregistration waits.
    pub fn try_enter(&self) -> Option<Pass<'_>> {
        let gate = self.open.try_read()?;
        if *gate { Some(Pass(gate)) } else { None }
    }

    /// The place `addr` bytes into the region; the range has been checked.
    pub fn at(&self, addr: u64) -> *mut u8 {
        self.addr.wrapping_add(addr as usize)
    }

    /// Whether `len` bytes at `addr` are inside.
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Whether peers may do all of that.
    pub fn grants(&self, access: Access) -> bool {
        self.access.contains(access)
    }
}

/// The registrations of a domain.
#[derive(Default)]
pub struct RegionTable {
    entries: RwLock<HashMap<u64, Arc<Entry>>>,
}

impl RegionTable {
    /// The region that `key` opens.
    pub fn find(&self, key: u64) -> Option<Arc<Entry>> {
        self.entries.read().get(&key).cloned()
    }

    /// How many regions are open.
    pub fn len(&self) -> usize {
        self.entries.read().len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A registration.
pub struct Registration {
    table: Arc<RegionTable>,
    entry: Arc<Entry>,
}

impl Registration {
    /// Registers a range, under a key that cannot be guessed. `provider` is named in errors.
    ///
    /// # Errors
    /// `InvalidArgument`: the range is not mapped, or not as writable as `access` needs. Failures of getrandom(2).
    ///
    /// # Safety
    /// As [`DomainOps::register`](fabric_core::DomainOps::register).
    pub unsafe fn new(
        provider: &'static str,
        table: &Arc<RegionTable>,
        (addr, len): (*mut u8, usize),
        access: Access,
    ) -> Result<Self> {
        probe(addr, len, access)?;
        let mut entries = table.entries.write();
        let key = loop {
            let key = random(provider)?;
            if key != 0 && !entries.contains_key(&key) {
                break key;
            }
        };
        let entry = Arc::new(Entry { key, addr, len: len as u64, access, open: RwLock::new(true) });
        entries.insert(key, entry.clone());
        drop(entries);
        Ok(Registration { table: table.clone(), entry })
    }
}

/// 64 bits nobody can guess. A key that was closed comes back with a chance of 2^-64 a registration.
fn random(provider: &'static str) -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|cause| {
        Error::system("register", provider, std::io::Error::other(cause.to_string()))
    })?;
    Ok(u64::from_ne_bytes(bytes))
}

// SAFETY: the engine reaches the range only through the table's entry, under its gate and with range and rights checked;
// `deregister` takes the entry out and closes the gate, which waits for the copies under way.
unsafe impl RegistrationOps for Registration {
    fn local_key(&self) -> u64 {
        self.entry.key
    }
    fn remote_key(&self) -> u64 {
        self.entry.key
    }
    fn remote_base(&self) -> u64 {
        // Peers count from the start of the region and learn no address of this process.
        0
    }

    fn deregister(&mut self) -> Result<()> {
        let mut entries = self.table.entries.write();
        entries.remove(&self.entry.key);
        drop(entries);
        // Waits for the copies under way: each is one system call or one memory copy long.
        *self.entry.open.write() = false;
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // One that is dropped as it is must not be open for ever; deregistering cannot fail.
        if *self.entry.open.read() {
            let _ = self.deregister();
        }
    }
}

// Miri has no madvise(2), by which registrations probe.
#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;

    fn register(table: &Arc<RegionTable>, bytes: &mut [u64]) -> Registration {
        let range = (bytes.as_mut_ptr().cast(), size_of_val(bytes));
        // SAFETY: the bytes outlive the registration in each test.
        unsafe { Registration::new("test", table, range, Access::ALL) }.unwrap()
    }

    #[test]
    fn keys_open_until_closed_and_never_come_back() {
        let table = Arc::new(RegionTable::default());
        let mut memory = [0u64; 8];
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut registration = register(&table, &mut memory);
            let key = registration.remote_key();
            assert!(seen.insert(key));
            let entry = table.find(key).unwrap();
            assert!(entry.enter().is_some());
            registration.deregister().unwrap();
            assert!(table.find(key).is_none() && entry.enter().is_none());
        }
    }

    #[test]
    fn who_is_inside_gets_no_second_pass_while_a_deregistration_waits() {
        let table = Arc::new(RegionTable::default());
        let mut memory = [0u64; 8];
        let mut registration = register(&table, &mut memory);
        let entry = table.find(registration.remote_key()).unwrap();
        let pass = entry.enter();
        assert!(pass.is_some() && entry.try_enter().is_some());
        std::thread::scope(|scope| {
            scope.spawn(|| registration.deregister().unwrap());
            // To wait here instead would be for ever.
            while entry.try_enter().is_some() {
                std::thread::yield_now();
            }
            drop(pass);
        });
        assert!(entry.try_enter().is_none() && entry.enter().is_none());
    }

    #[test]
    fn bounds_do_not_wrap() {
        let table = Arc::new(RegionTable::default());
        let mut memory = [0u64; 8];
        let registration = register(&table, &mut memory);
        let entry = table.find(registration.remote_key()).unwrap();
        assert!(entry.contains(0, 64) && entry.contains(64, 0) && entry.contains(63, 1));
        assert!(!entry.contains(0, 65) && !entry.contains(65, 0) && !entry.contains(u64::MAX, 2));
    }
}
