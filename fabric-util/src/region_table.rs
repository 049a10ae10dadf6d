//! Registrations: which memory peers may reach, by which key.
//!
//! The engine holds a region's gate for reading while it copies, a deregistration takes it for writing:
//! when that has returned, no copy is under way and none will begin. A grant is an entry of its own, which only one
//! connection finds. Peers that have the memory mapped reach it by [`Windows`], which an entry has too where there are some.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use fabric_core::{
    Access, EndpointId, Error, Failure, GrantOps, RegistrationOps, RemoteAddr, Result,
};

use crate::sync::{Mutex, ReadGuard, RwLock};

mod windows;

pub use windows::{Lent, WindowAttr, Windows};

/// A registered range.
pub struct RegionEntry {
    addr: *mut u8,
    /// How peers name the first byte.
    remote: RemoteAddr,
    /// Its window, while there is one.
    window: Mutex<Option<u32>>,
    len: u64,
    access: Access,
    /// The only connection that it is there for; none: it is there for all.
    only: Option<EndpointId>,
    open: RwLock<bool>,
}

// SAFETY: `addr` is only dereferenced under the gate, while the registrant keeps the range allocated, and only
// through `fabric_core::memory` or system calls, which may run beside other accesses.
unsafe impl Send for RegionEntry {}
// SAFETY: as above.
unsafe impl Sync for RegionEntry {}

/// Leave to touch a region's memory, for as long as it is held.
pub struct RegionGuard<'a>(#[allow(dead_code)] ReadGuard<'a, bool>);

impl RegionEntry {
    /// Leave to copy, unless the region is closed.
    pub fn enter(&self) -> Option<RegionGuard<'_>> {
        let gate = self.open.read();
        if *gate { Some(RegionGuard(gate)) } else { None }
    }

    /// As [`enter`](RegionEntry::enter), for a caller that holds another guard: none either while a deregistration waits.
    pub fn try_enter(&self) -> Option<RegionGuard<'_>> {
        let gate = self.open.try_read()?;
        if *gate { Some(RegionGuard(gate)) } else { None }
    }

    /// The place that peers name by `addr`; the range has been checked.
    pub fn at(&self, addr: u64) -> *mut u8 {
        self.addr.wrapping_add(addr.wrapping_sub(self.remote.addr) as usize)
    }

    /// Whether `len` bytes at what peers name by `addr` are inside.
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        let offset = addr.checked_sub(self.remote.addr);
        offset.and_then(|offset| offset.checked_add(len)).is_some_and(|end| end <= self.len)
    }

    /// Whether the peer of this connection may know of it.
    #[inline]
    fn is_for(&self, connection: EndpointId) -> bool {
        self.only.is_none_or(|only| only == connection)
    }

    /// Whether peers may do all of that.
    pub fn allows(&self, access: Access) -> bool {
        self.access.contains(access)
    }
}

/// The registrations of a domain.
#[derive(Default)]
pub struct RegionTable {
    entries: RwLock<HashMap<u64, Arc<RegionEntry>>>,
    /// Those that something can be granted to.
    connections: RwLock<HashSet<EndpointId>>,
    windows: Option<Arc<dyn Windows>>,
}

impl RegionTable {
    /// One whose registrations peers may reach by windows.
    pub fn with_windows(windows: Option<Arc<dyn Windows>>) -> Self {
        RegionTable { windows, ..RegionTable::default() }
    }

    /// A connection is established.
    pub fn begin_connection(&self, connection: EndpointId) {
        self.connections.write().insert(connection);
    }

    /// A connection has ended, if it was there.
    pub fn end_connection(&self, connection: EndpointId) {
        self.connections.write().remove(&connection);
    }

    /// Lends memory to the peer of a connection, if that can have it mapped.
    pub fn lend(&self, range: (*mut u8, usize), to: EndpointId) -> Option<Lent> {
        Lent::open(self.windows.as_ref()?, range, to)
    }

    /// What `key` opens to the peer of a connection.
    pub fn find(&self, key: u64, connection: EndpointId) -> Option<Arc<RegionEntry>> {
        self.entries.read().get(&key).filter(|entry| entry.is_for(connection)).cloned()
    }

    /// Enters a range: under a key that cannot be guessed, or so that peers name its first byte as `remote` says. `provider` is
    /// named in errors.
    fn add(
        &self,
        provider: &'static str,
        (addr, len): (*mut u8, usize),
        access: Access,
        only: Option<EndpointId>,
        remote: Option<RemoteAddr>,
    ) -> Result<Arc<RegionEntry>> {
        let mut entries = self.entries.write();
        let is_free = |key| key != 0 && !entries.contains_key(&key);
        let remote = match remote {
            Some(remote) if is_free(remote.key) => remote,
            Some(_) => {
                let text = "the key that it is to have is 0, or another registration's";
                return Err(Error::Internal(Failure::new("register", text).of(provider)));
            }
            None => loop {
                let key = random(provider)?;
                let is_named = access.contains(Access::VIRTUAL_ADDRESSES);
                if is_free(key) && !windows::is_lent(key) {
                    break RemoteAddr { key, addr: if is_named { addr as u64 } else { 0 } };
                }
            },
        };
        // Without a window peers reach it by the stream.
        let shown = access.intersects(Access::REMOTE) && !windows::is_lent(remote.key);
        let windows = self.windows.as_ref().filter(|_| shown);
        let attr = WindowAttr { at: remote, addr, len, access, only };
        let window = Mutex::new(windows.and_then(|windows| windows.open(&attr)));
        let (len, open) = (len as u64, RwLock::new(true));
        let entry = Arc::new(RegionEntry { addr, remote, window, len, access, only, open });
        entries.insert(remote.key, entry.clone());
        Ok(entry)
    }

    /// Takes an entry out and closes it, and its window.
    fn remove(&self, entry: &RegionEntry) -> Result<()> {
        let mut entries = self.entries.write();
        // A key of another provider's may be that of a newer region by now.
        if entries.get(&entry.remote.key).is_some_and(|known| std::ptr::eq(&**known, entry)) {
            entries.remove(&entry.remote.key);
        }
        drop(entries);
        // Waits for the copies under way: each is one system call or one memory copy long.
        *entry.open.write() = false;
        let mut window = entry.window.lock();
        if let (Some(windows), Some(number)) = (&self.windows, *window) {
            windows.close(number)?;
            *window = None;
        }
        Ok(())
    }

    /// How many regions and grants are open.
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
    provider: &'static str,
    table: Arc<RegionTable>,
    entry: Arc<RegionEntry>,
}

impl Registration {
    /// Registers a range, under a key that cannot be guessed. `provider` is named in errors.
    ///
    /// # Errors
    /// Failures of getrandom(2).
    ///
    /// # Safety
    /// As [`DomainOps::register`](fabric_core::DomainOps::register).
    pub unsafe fn new(
        provider: &'static str,
        table: &Arc<RegionTable>,
        (addr, len): (*mut u8, usize),
        access: Access,
    ) -> Result<Self> {
        let entry = table.add(provider, (addr, len), access, None, None)?;
        Ok(Registration { provider, table: table.clone(), entry })
    }

    /// The same for memory that another provider has registered with this access, so that it is there. Peers name the
    /// first byte as `remote` says, if it does.
    ///
    /// # Errors
    /// `Internal`: another registration has this key. Failures of getrandom(2).
    ///
    /// # Safety
    /// As [`DomainOps::register`](fabric_core::DomainOps::register).
    pub unsafe fn new_at(
        provider: &'static str,
        table: &Arc<RegionTable>,
        range: (*mut u8, usize),
        access: Access,
        remote: Option<RemoteAddr>,
    ) -> Result<Self> {
        let entry = table.add(provider, range, access, None, remote)?;
        Ok(Registration { provider, table: table.clone(), entry })
    }
}

/// 64 bits that no peer can guess. A key that was closed comes back with a chance of 2^-64 a registration.
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
        self.entry.remote.key
    }
    fn remote_key(&self) -> u64 {
        self.entry.remote.key
    }
    fn remote_base(&self) -> u64 {
        self.entry.remote.addr
    }

    unsafe fn grant(
        &self,
        endpoint: EndpointId,
        range: Range<usize>,
        access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        if !self.table.connections.read().contains(&endpoint) {
            return Err(Error::NotConnected);
        }
        let part = (self.entry.addr.wrapping_add(range.start), range.len());
        let access = access | self.entry.access.intersection(Access::VIRTUAL_ADDRESSES);
        let entry = self.table.add(self.provider, part, access, Some(endpoint), None)?;
        Ok(Box::new(TableGrant { table: self.table.clone(), entry }))
    }

    fn deregister(&mut self) -> Result<()> {
        self.table.remove(&self.entry)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // One that is dropped as it is must not be open for ever; its memory stays.
        let _ = self.table.remove(&self.entry);
    }
}

/// Part of a registered range, open to one connection. The connection's name never comes back, so with its end the key
/// opens nothing.
struct TableGrant {
    table: Arc<RegionTable>,
    entry: Arc<RegionEntry>,
}

// SAFETY: the entry is for this connection alone (`find`); `revoke` takes it out and closes its gate, which waits for the
// copies under way.
unsafe impl GrantOps for TableGrant {
    fn remote_key(&self) -> u64 {
        self.entry.remote.key
    }
    fn remote_base(&self) -> u64 {
        self.entry.remote.addr
    }
    fn revoke(&mut self) -> Result<()> {
        self.table.remove(&self.entry)
    }
}

impl Drop for TableGrant {
    fn drop(&mut self) {
        // As for a registration.
        let _ = self.table.remove(&self.entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: EndpointId = EndpointId(1);

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
        for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
            let mut registration = register(&table, &mut memory);
            let key = registration.remote_key();
            assert!(seen.insert(key));
            let entry = table.find(key, ONE).unwrap();
            assert!(entry.enter().is_some());
            registration.deregister().unwrap();
            assert!(table.find(key, ONE).is_none() && entry.enter().is_none());
        }
    }

    #[test]
    fn who_is_inside_gets_no_second_pass_while_a_deregistration_waits() {
        let table = Arc::new(RegionTable::default());
        let mut memory = [0u64; 8];
        let mut registration = register(&table, &mut memory);
        let entry = table.find(registration.remote_key(), ONE).unwrap();
        let guard = entry.enter();
        assert!(guard.is_some() && entry.try_enter().is_some());
        std::thread::scope(|scope| {
            scope.spawn(|| registration.deregister().unwrap());
            // To wait here instead would be for ever.
            while entry.try_enter().is_some() {
                std::thread::yield_now();
            }
            drop(guard);
        });
        assert!(entry.try_enter().is_none() && entry.enter().is_none());
    }

    /// Windows that are closed when they have been asked twice.
    #[derive(Default)]
    struct Slow(Mutex<Vec<(RemoteAddr, u32)>>);

    impl Windows for Slow {
        fn open(&self, window: &WindowAttr) -> Option<u32> {
            let mut all = self.0.lock();
            all.push((window.at, 0));
            Some(all.len() as u32)
        }

        fn close(&self, number: u32) -> Result<()> {
            let (_, asked) = &mut self.0.lock()[number as usize - 1];
            *asked += 1;
            if *asked == 1 { Err(Error::Busy) } else { Ok(()) }
        }
    }

    #[test]
    fn a_window_is_closed_once_and_until_it_is() {
        let windows = Arc::new(Slow::default());
        let table = Arc::new(RegionTable::with_windows(Some(windows.clone())));
        let mut memory = [0u64; 8];
        let mut registration = register(&table, &mut memory);
        let at = RemoteAddr { key: registration.remote_key(), addr: 0 };
        assert_eq!(*windows.0.lock(), [(at, 0)]);
        assert!(matches!(registration.deregister(), Err(Error::Busy)));
        assert!(table.find(at.key, ONE).is_none(), "the key opens nothing meanwhile");
        registration.deregister().unwrap();
        registration.deregister().unwrap();
        drop(registration);
        assert_eq!(*windows.0.lock(), [(at, 2)]);
        let range = (memory.as_mut_ptr().cast(), size_of_val(&memory));
        // SAFETY: the memory outlives the registration.
        unsafe { Registration::new("test", &table, range, Access::LOCAL_WRITE) }.unwrap();
        assert_eq!(windows.0.lock().len(), 1, "no peer may do anything");
    }

    #[test]
    fn peers_name_bytes_as_was_asked_for() {
        let table = Arc::new(RegionTable::default());
        let mut memory = [0u64; 8];
        let range = (memory.as_mut_ptr().cast(), size_of_val(&memory));
        let at = RemoteAddr { key: 7, addr: 1 << 40 };
        // SAFETY: the memory outlives the registrations.
        let new =
            |at| unsafe { Registration::new_at("test", &table, range, Access::ALL, Some(at)) };
        let mut registration = new(at).unwrap();
        assert_eq!((registration.remote_key(), registration.remote_base()), (7, 1 << 40));
        let entry = table.find(7, ONE).unwrap();
        assert!(entry.contains(at.addr + 8, 56) && !entry.contains(at.addr + 8, 57));
        assert!(!entry.contains(8, 1) && !entry.contains(at.addr - 1, 1));
        assert_eq!(entry.at(at.addr + 8), memory.as_mut_ptr().wrapping_add(1).cast());
        for taken in [at, RemoteAddr { key: 0, addr: 0 }] {
            assert!(matches!(new(taken), Err(Error::Internal(_))));
        }
        registration.deregister().unwrap();
        new(at).unwrap();
    }

    #[test]
    fn bounds_do_not_wrap() {
        let table = Arc::new(RegionTable::default());
        let mut memory = [0u64; 8];
        let registration = register(&table, &mut memory);
        let entry = table.find(registration.remote_key(), ONE).unwrap();
        assert!(entry.contains(0, 64) && entry.contains(64, 0) && entry.contains(63, 1));
        assert!(!entry.contains(0, 65) && !entry.contains(65, 0) && !entry.contains(u64::MAX, 2));
    }

    #[test]
    fn a_grant_is_a_part_for_one_connection_until_it_is_revoked() {
        let table = Arc::new(RegionTable::default());
        let mut memory = [0u64; 8];
        let mut registration = register(&table, &mut memory);
        // SAFETY: the bytes outlive the grants.
        let grant = |range| unsafe { registration.grant(ONE, range, Access::REMOTE_READ) };
        assert!(matches!(grant(0..1), Err(Error::NotConnected)));
        table.begin_connection(ONE);
        let (mut first, other) = (grant(8..24).unwrap(), grant(0..1).unwrap());
        table.end_connection(ONE);
        assert!(matches!(grant(0..1), Err(Error::NotConnected)));
        let key = first.remote_key();
        assert!(key != registration.remote_key() && table.find(key, EndpointId(2)).is_none());
        let entry = table.find(key, ONE).unwrap();
        assert_eq!(entry.at(0), memory.as_mut_ptr().wrapping_add(1).cast());
        assert!(entry.contains(0, 16) && !entry.contains(0, 17) && !entry.contains(16, 1));
        assert!(entry.allows(Access::REMOTE_READ) && !entry.allows(Access::REMOTE_WRITE));
        first.revoke().unwrap();
        assert!(table.find(key, ONE).is_none() && entry.enter().is_none());
        assert!(table.find(registration.remote_key(), EndpointId(2)).is_some());
        // Dropped as it is, it is as closed.
        drop(other);
        assert_eq!(table.len(), 1);
        registration.deregister().unwrap();
        assert!(table.is_empty());
    }
}
