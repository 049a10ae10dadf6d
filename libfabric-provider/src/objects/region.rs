//! Memory regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fabric::{Access, Capabilities, Error, Region, Slice};

use super::domain::Domain;
use crate::abi::FidMr;
use crate::abi::flags::{
    FI_CLASS_MR, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WRITE,
};
use crate::errno::Errno;
use crate::handle::Object;

/// How long a close waits for operations that end without the application's doing: of endpoints that are gone, and unsignaled ones.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it looks.
const CLOSE_TICK: Duration = Duration::from_micros(200);

/// The bounds of a region for atomics of peers are multiples of this.
const ATOMIC_ALIGNMENT: usize = 8;

/// Registered memory.
pub(crate) struct MemoryRegion {
    region: Region,
    /// No two have the same.
    pub(crate) number: u64,
    domain: Arc<Domain>,
}

// SAFETY: `FidMr` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for MemoryRegion {
    type C = FidMr;
    const CLASS: usize = FI_CLASS_MR;
}

impl MemoryRegion {
    /// Registers memory of the application's.
    ///
    /// # Safety
    /// As of `Domain::register_raw`: the application keeps it mapped until it has closed the region (`fi_mr(3)`).
    pub(crate) unsafe fn register(
        domain: &Arc<Domain>,
        (address, len): (*mut u8, usize),
        access: u64,
    ) -> Result<Self, Errno> {
        let mut rights = rights(access)?;
        // Long messages are read from where they are.
        if domain.has_datagrams && access & (FI_SEND | FI_REMOTE_READ | FI_REMOTE_WRITE) == FI_SEND
        {
            rights |= access_to_send(&domain.device.domain);
        }
        // Devices execute atomics on elements at multiples of their size, and want such bounds; in other regions there are none.
        let is_aligned = (address as usize | len).is_multiple_of(ATOMIC_ALIGNMENT);
        if domain.has_datagrams && is_aligned && rights.contains(Access::REMOTE_WRITE) {
            rights |= Access::REMOTE_ATOMIC;
        }
        // SAFETY: the caller's promise.
        let region = unsafe { domain.device.domain.register_raw(address, len, rights)? };
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(MemoryRegion { region, number, domain: domain.clone() })
    }

    /// What peers name it by.
    pub(crate) fn key(&self) -> u64 {
        self.region.remote().key()
    }

    /// Whether a buffer is a part of it.
    pub(crate) fn contains(&self, address: usize, len: usize) -> bool {
        let start = address.checked_sub(self.region.addr());
        start.is_some_and(|start| start <= self.region.len() && len <= self.region.len() - start)
    }

    /// The part that a buffer of the application's is.
    pub(crate) fn slice(&self, address: usize, len: usize) -> Result<Slice<'_>, Errno> {
        let start = address.checked_sub(self.region.addr()).ok_or(Errno::INVALID)?;
        let end = start.checked_add(len).ok_or(Errno::INVALID)?;
        Ok(self.region.slice(start..end))
    }

    /// Ends the registration: the application may free the memory afterwards. `FI_EBUSY` where operations in flight use it, which
    /// only the application can end.
    pub(crate) fn end(&self) -> Result<(), Errno> {
        let until = Instant::now() + CLOSE_TIMEOUT;
        loop {
            match self.region.close() {
                Err(Error::Busy) if Instant::now() < until => {
                    // What has ended is in our queues, or on its way there.
                    self.domain.device.drain();
                    self.domain.device.release(self.number);
                    if matches!(self.region.close(), Err(Error::Busy)) {
                        std::thread::sleep(CLOSE_TICK);
                    }
                }
                ended => return Ok(ended?),
            }
        }
    }
}

/// The rights that an application asks for.
fn rights(access: u64) -> Result<Access, Errno> {
    let known = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if access & !known != 0 {
        return Err(Errno::INVALID);
    }
    // The info says that peers name it so.
    let mut rights = Access::VIRTUAL_ADDRESSES;
    // A read puts bytes there.
    rights.set(Access::LOCAL_WRITE, access & (FI_RECV | FI_READ | FI_REMOTE_WRITE) != 0);
    rights.set(Access::REMOTE_READ, access & FI_REMOTE_READ != 0);
    rights.set(Access::REMOTE_WRITE, access & FI_REMOTE_WRITE != 0);
    Ok(rights)
}

/// The rights with which a peer reads a long message from where it is, and nothing else, where the device has such rights.
pub(crate) fn access_to_send(domain: &fabric::Domain) -> Access {
    match domain.info().capabilities.contains(Capabilities::GRANTS) {
        true => Access::REMOTE_READ | Access::GRANTS_ONLY,
        false => Access::empty(),
    }
}
