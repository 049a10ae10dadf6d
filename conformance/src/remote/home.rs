//! Where the bytes of cases' memory are: in this process, or in another that a remote domain belongs to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use fabric::{Error, Memory, Result};
use serde_bytes::ByteBuf;

use super::frame::CHUNK;
use super::link::Link;
use super::protocol::Call;

/// Memory of a case. Whose domain registers it first has its bytes: with a remote domain they are in the other process.
#[derive(Debug)]
pub(crate) struct Home {
    memory: Memory,
    place: OnceLock<Place>,
}

#[derive(Debug)]
enum Place {
    Here,
    There(Tenancy),
}

/// Homes by their first address; a remote provider, which is given nothing but addresses, looks them up.
static HOMES: Mutex<BTreeMap<usize, Weak<Home>>> = Mutex::new(BTreeMap::new());

fn homes() -> MutexGuard<'static, BTreeMap<usize, Weak<Home>>> {
    // Whole between statements.
    HOMES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Home {
    /// `len` zero bytes.
    pub(crate) fn new(len: usize) -> Result<Arc<Self>> {
        let home = Arc::new(Home { memory: Memory::zeroed(len)?, place: OnceLock::new() });
        homes().insert(home.memory.as_ptr().addr(), Arc::downgrade(&home));
        Ok(home)
    }

    /// What to register.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Says that it has been registered: from now on its bytes stay where they are.
    pub(crate) fn settle(&self) {
        let _ = self.place.set(Place::Here);
    }

    /// Reads bytes that are in another process; false if they are in this one.
    pub(crate) fn load(&self, at: usize, into: &mut [u8]) -> Result<bool> {
        let Some(Place::There(tenancy)) = self.place.get() else { return Ok(false) };
        for (i, chunk) in into.chunks_mut(CHUNK).enumerate() {
            let bytes = tenancy.load(at + i * CHUNK, chunk.len())?;
            if bytes.len() != chunk.len() {
                return Err(Error::invalid("load", "the other host sent another number of bytes"));
            }
            chunk.copy_from_slice(&bytes);
        }
        Ok(true)
    }

    /// Writes bytes that are in another process; false if they are in this one.
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) -> Result<bool> {
        let Some(Place::There(tenancy)) = self.place.get() else { return Ok(false) };
        for (i, chunk) in bytes.chunks(CHUNK).enumerate() {
            tenancy.store(at + i * CHUNK, chunk)?;
        }
        Ok(true)
    }

    /// Memory at the far end of `link` for the range, and where in it the range begins: that of the home it lies in, or
    /// else memory of its own, which nobody here can read.
    pub(super) fn lodge(addr: usize, len: usize, link: &Arc<Link>) -> Result<(Tenancy, u64)> {
        let home = homes().range(..=addr).next_back().and_then(|(_, home)| home.upgrade());
        let inside =
            |home: &Arc<Home>| addr + len <= home.memory.as_ptr().addr() + home.memory.len();
        let Some(home) = home.filter(inside) else {
            // As far from a page's start as here: alignment counts.
            let at = addr % 4096;
            return Ok((Tenancy::new(at + len, link)?, at as u64));
        };
        if home.place.get().is_none() {
            // One thread makes it and registers it first.
            let _ = home.place.set(Place::There(Tenancy::new(home.memory.len(), link)?));
        }
        match home.place.get() {
            Some(Place::There(tenancy)) if tenancy.is_of(link) => {
                Ok((tenancy.clone(), (addr - home.memory.as_ptr().addr()) as u64))
            }
            _ => Err(Error::invalid("register", "the bytes of this memory are in another process")),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        homes().remove(&self.memory.as_ptr().addr());
    }
}

/// Memory at the far end of a link; it goes with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Tenancy(Arc<Lease>);

struct Lease {
    memory: u64,
    // A domain closes when all that was made on it is gone, and memory is not of that kind.
    link: Weak<Link>,
}

impl Tenancy {
    fn new(len: usize, link: &Arc<Link>) -> Result<Self> {
        let memory = link.number();
        link.call::<()>(Call::Allocate { memory, len: len as u64 })?;
        Ok(Tenancy(Arc::new(Lease { memory, link: Arc::downgrade(link) })))
    }

    pub(super) fn memory(&self) -> u64 {
        self.0.memory
    }

    fn is_of(&self, link: &Arc<Link>) -> bool {
        std::ptr::eq(self.0.link.as_ptr(), Arc::as_ptr(link))
    }

    fn link(&self) -> Result<Arc<Link>> {
        self.0.link.upgrade().ok_or(Error::DeviceLost)
    }

    fn load(&self, at: usize, len: usize) -> Result<ByteBuf> {
        let (at, len) = (at as u64, len as u64);
        self.link()?.call(Call::Load { memory: self.memory(), at, len })
    }

    fn store(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let (at, bytes) = (at as u64, ByteBuf::from(bytes));
        self.link()?.call(Call::Store { memory: self.memory(), at, bytes })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            // A server that is gone has freed it.
            let _ = link.call::<()>(Call::Free { memory: self.memory });
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({})", self.memory)
    }
}
