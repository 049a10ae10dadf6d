//! Where the bytes of cases' memory are: in this process, or in another that a remote domain belongs to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use fabric::{Domain, Error, Memory, Result};
use serde_bytes::ByteBuf;

use super::frame::CHUNK;
use super::link::Link;
use super::protocol::{Call, MemoryCall};

/// Memory of a case. Its bytes are with the domain that registers it first: of a remote one in the other process.
#[derive(Debug)]
pub(crate) struct CaseMemory {
    memory: Memory,
    location: OnceLock<Location>,
}

#[derive(Debug)]
enum Location {
    Local,
    Remote(RemoteAlloc),
}

/// All of it, by the first address; a remote provider, which is given nothing but addresses, looks them up.
static ALL: Mutex<BTreeMap<usize, Weak<CaseMemory>>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<usize, Weak<CaseMemory>>> {
    // Whole between statements.
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CaseMemory {
    /// `len` zero bytes, of the kind that suits the domain.
    pub(crate) fn new(domain: &Domain, len: usize) -> Result<Arc<Self>> {
        let memory = domain.allocate(len)?;
        let this = Arc::new(CaseMemory { memory, location: OnceLock::new() });
        all().insert(this.memory.as_ptr().addr(), Arc::downgrade(&this));
        Ok(this)
    }

    /// What to register.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// It has been registered: from now on its bytes stay where they are.
    pub(crate) fn set_registered(&self) {
        let _ = self.location.set(Location::Local);
    }

    /// Reads bytes that are in another process; false if they are in this one.
    pub(crate) fn load(&self, at: usize, into: &mut [u8]) -> Result<bool> {
        let Some(Location::Remote(alloc)) = self.location.get() else { return Ok(false) };
        for (i, chunk) in into.chunks_mut(CHUNK).enumerate() {
            let bytes = alloc.load(at + i * CHUNK, chunk.len())?;
            if bytes.len() != chunk.len() {
                return Err(Error::invalid("load", "the other host sent another number of bytes"));
            }
            chunk.copy_from_slice(&bytes);
        }
        Ok(true)
    }

    /// Writes bytes that are in another process; false if they are in this one.
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) -> Result<bool> {
        let Some(Location::Remote(alloc)) = self.location.get() else { return Ok(false) };
        for (i, chunk) in bytes.chunks(CHUNK).enumerate() {
            alloc.store(at + i * CHUNK, chunk)?;
        }
        Ok(true)
    }

    /// Ends the registration of it all where its bytes are in another process: of operations there this one does not know.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(Location::Remote(alloc)) = self.location.get() else { return Ok(()) };
        let start = self.memory.as_ptr().addr() as u64;
        alloc.link()?.call(Call::Memory(MemoryCall::Close { start }))
    }

    /// Memory at the far end of `link` for the range, and where in it the range begins: that of the case's memory it
    /// lies in, or else memory of its own, which cannot be read from here.
    pub(super) fn alloc_at(
        addr: usize,
        len: usize,
        link: &Arc<Link>,
    ) -> Result<(RemoteAlloc, u64)> {
        let found = all().range(..=addr).next_back().and_then(|(_, memory)| memory.upgrade());
        let inside =
            |of: &Arc<CaseMemory>| addr + len <= of.memory.as_ptr().addr() + of.memory.len();
        let Some(found) = found.filter(inside) else {
            // As far from a page's start as here: alignment counts.
            let at = addr % 4096;
            return Ok((RemoteAlloc::new(at + len, link)?, at as u64));
        };
        if found.location.get().is_none() {
            // One thread makes it and registers it first.
            let _ =
                found.location.set(Location::Remote(RemoteAlloc::new(found.memory.len(), link)?));
        }
        match found.location.get() {
            Some(Location::Remote(alloc)) if alloc.is_of(link) => {
                Ok((alloc.clone(), (addr - found.memory.as_ptr().addr()) as u64))
            }
            _ => Err(Error::invalid("register", "the bytes of this memory are in another process")),
        }
    }
}

impl Drop for CaseMemory {
    fn drop(&mut self) {
        all().remove(&self.memory.as_ptr().addr());
    }
}

/// Memory at the far end of a link; it goes with the last clone.
#[derive(Clone, Debug)]
pub(super) struct RemoteAlloc(Arc<Alloc>);

struct Alloc {
    memory: u64,
    // A domain closes when all that was made on it is gone, and memory is not of that kind.
    link: Weak<Link>,
}

impl RemoteAlloc {
    fn new(len: usize, link: &Arc<Link>) -> Result<Self> {
        let memory = link.next_id();
        link.call::<()>(Call::Memory(MemoryCall::Allocate { memory, len: len as u64 }))?;
        Ok(RemoteAlloc(Arc::new(Alloc { memory, link: Arc::downgrade(link) })))
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
        self.link()?.call(Call::Memory(MemoryCall::Load { memory: self.memory(), at, len }))
    }

    fn store(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let (at, bytes) = (at as u64, ByteBuf::from(bytes));
        self.link()?.call(Call::Memory(MemoryCall::Store { memory: self.memory(), at, bytes }))
    }
}

impl Drop for Alloc {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            // A server that is gone has freed it.
            let _ = link.call::<()>(Call::Memory(MemoryCall::Free { memory: self.memory }));
        }
    }
}

impl std::fmt::Debug for Alloc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Alloc({})", self.memory)
    }
}
