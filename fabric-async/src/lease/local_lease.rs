//! The owner's side of a lease: its memory, which a peer reaches until the lease ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric::{Access, Domain, RemoteRegion};
use fabric_util::log_line;
use fabric_util::sync::{Mutex, MutexGuard};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::lease_key::LeaseKey;
use crate::agenda::LeaseName;
use crate::block::{Block, Loan};
use crate::buffer::Buffer;
use crate::error::{Error, LeaseEnd, Result};
use crate::reactor::ReactorHandle;

/// Memory of this side that a peer has a lease on.
///
/// Its bytes can change at any time, so they are copied in and out, never referred to. When the lease has ended they
/// are this side's alone: [`take`](LocalLease::take) then gives the [`Buffer`]. Clones are the same memory.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric::Access;
/// use std::time::Duration;
///
/// let lent = conn.lend(conn.alloc(64)?, Duration::from_secs(30), Access::REMOTE).unwrap();
/// let remote = peer.next_lease().await?;
/// peer.write(peer.node().pool().alloc_from(&[1; 8])?, remote.at(8)).delivered().await?;
/// assert_eq!(lent.get::<u64>(8)?, 0x0101_0101_0101_0101);
/// let buffer = lent.take()?; // the lease ends; no byte changes any more
/// assert_eq!(buffer[8..16], [1; 8]);
/// # Ok(()) });
/// ```
///
/// While it is lent there is no `[u8]`:
///
/// ```compile_fail,E0608
/// # fn f(lent: fabric_async::LocalLease) -> u8 {
/// lent[0]
/// # }
/// ```
#[derive(Clone)]
pub struct LocalLease {
    pub(crate) loan: Arc<LocalLeaseState>,
}

pub(crate) struct LocalLeaseState {
    name: LeaseName,
    pub(super) len: usize,
    pub(super) rights: Access,
    /// Its thread ends leases in time.
    reactor: Arc<ReactorHandle>,
    /// Whether it has not ended; read without the lock, which a copy or an ending lease holds.
    active: AtomicBool,
    memory: Mutex<LeaseMemory>,
}

enum LeaseMemory {
    Leased(LeaseKey, Loan),
    Returned(Block),
    Taken,
}

impl LocalLeaseState {
    pub(super) fn new(
        name: LeaseName,
        len: usize,
        rights: Access,
        (key, loan): (LeaseKey, Loan),
        reactor: &Arc<ReactorHandle>,
    ) -> Arc<Self> {
        let (memory, reactor) = (Mutex::new(LeaseMemory::Leased(key, loan)), reactor.clone());
        Arc::new(LocalLeaseState { name, len, rights, reactor, active: true.into(), memory })
    }

    fn memory(&self) -> MutexGuard<'_, LeaseMemory> {
        self.memory.lock()
    }

    /// Whether it has not ended, nor been taken back by the application.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// The descriptor for the peer, once it can use it.
    ///
    /// # Errors
    /// It will never be open, or has ended.
    pub(super) fn poll_open(&self) -> Result<Option<RemoteRegion>> {
        match &mut *self.memory() {
            LeaseMemory::Leased(key, loan) => Ok(key.poll_open(loan.region().remote())?),
            _ => Err(Error::LeaseEnded(LeaseEnd::Revoked)),
        }
    }

    /// Whether it cannot end yet.
    pub(super) fn is_opening(&self) -> bool {
        match &mut *self.memory() {
            LeaseMemory::Leased(key, _) => key.is_opening(),
            _ => false,
        }
    }

    /// A descriptor by which peers of every connection reach it.
    pub(super) fn share(&self, domain: &Domain) -> Result<RemoteRegion> {
        match &mut *self.memory() {
            LeaseMemory::Leased(_, loan) => Ok(loan.share(domain)?),
            _ => Err(Error::LeaseEnded(LeaseEnd::Revoked)),
        }
    }

    /// Ends the lease: when it has returned `Ok`, no peer reads or changes a byte. If the device does not let go of the
    /// memory, it stays out.
    pub(super) fn end(&self) -> Result<()> {
        let mut memory = self.memory();
        *memory = match std::mem::replace(&mut *memory, LeaseMemory::Taken) {
            LeaseMemory::Leased(mut key, loan) => {
                let ended = match key.is_opening() {
                    true => Err((loan, fabric::Error::Busy)),
                    false => loan.end(),
                };
                match ended {
                    Ok(block) => LeaseMemory::Returned(block),
                    Err((loan, error)) => {
                        *memory = LeaseMemory::Leased(key, loan);
                        return Err(error.into());
                    }
                }
            }
            other => other,
        };
        self.active.store(false, Ordering::Release);
        Ok(())
    }

    /// Ends the lease, and takes its memory.
    pub(super) fn take(&self) -> Result<Block> {
        self.end()?;
        match std::mem::replace(&mut *self.memory(), LeaseMemory::Taken) {
            LeaseMemory::Returned(block) => Ok(block),
            _ => Err(taken()),
        }
    }

    /// Ends the lease; a failure is logged, since no caller can handle it.
    pub(super) fn end_by_itself(&self) {
        if let Err(error) = self.end() {
            // A forked child cannot end its parent's leases.
            if matches!(error, Error::Fabric(fabric::Error::InvalidState(_))) {
                return;
            }
            log_line!(Error, "lease {}, {} bytes, stays out: {error}", self.name.1, self.len);
        }
    }
}

impl Drop for LocalLeaseState {
    fn drop(&mut self) {
        self.end_by_itself();
        // Outside the lock: returning memory may wake futures that wait for it.
        let memory = std::mem::replace(&mut *self.memory(), LeaseMemory::Taken);
        if let LeaseMemory::Returned(block) = memory {
            drop(Buffer::new(block, 0));
        }
    }
}

impl LocalLease {
    /// By which the peer names it: [`RemoteLease::id`](super::RemoteLease::id).
    pub fn id(&self) -> u64 {
        self.loan.name.1
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // a lease is never empty
    pub fn len(&self) -> usize {
        self.loan.len
    }

    /// Whether the peer can still reach it, as far as this side is sure: while it is taken back, yes.
    pub fn is_active(&self) -> bool {
        self.loan.is_active()
    }

    /// Copies bytes out of it. Which of a peer's bytes are seen while it writes is not defined.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let text = conn.node().pool().alloc_from(b"borrowed")?;
    /// let lent = conn.lend(text, std::time::Duration::from_secs(30), fabric::Access::REMOTE_READ)?;
    /// let mut bytes = [0; 3];
    /// lent.read_at(1, &mut bytes)?;
    /// assert_eq!(&bytes, b"orr");
    /// assert!(lent.read_at(6, &mut bytes).is_err()); // beyond its end
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// The fabric's `InvalidArgument` if the range does not fit, `InvalidState` if its buffer was taken.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        match &*self.loan.memory() {
            LeaseMemory::Leased(_, loan) => Ok(loan.region().read_at(offset, bytes)?),
            LeaseMemory::Returned(block) => {
                let end = offset.checked_add(bytes.len());
                let from = end.and_then(|end| block.bytes()[..self.loan.len].get(offset..end));
                bytes.copy_from_slice(from.ok_or_else(|| self.misfit(offset, bytes.len()))?);
                Ok(())
            }
            LeaseMemory::Taken => Err(taken()),
        }
    }

    /// Copies bytes into it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// peer.local_lease(remote.id()).unwrap().write_at(8, b"hello")?;
    /// assert_eq!(*conn.read(conn.alloc(5)?, remote.at(8)).await?, *b"hello");
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`read_at`](LocalLease::read_at).
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        match &mut *self.loan.memory() {
            LeaseMemory::Leased(_, loan) => Ok(loan.region().write_at(offset, bytes)?),
            LeaseMemory::Returned(block) => {
                let end = offset.checked_add(bytes.len());
                let len = self.loan.len;
                let to = end.and_then(|end| block.bytes_mut()[..len].get_mut(offset..end));
                to.ok_or_else(|| self.misfit(offset, bytes.len()))?.copy_from_slice(bytes);
                Ok(())
            }
            LeaseMemory::Taken => Err(taken()),
        }
    }

    /// A value in it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// conn.write(conn.node().pool().alloc_from(&[1; 8])?, remote.at(8)).delivered().await?;
    /// assert_eq!(peer.local_lease(remote.id()).unwrap().get::<u64>(8)?, 0x0101_0101_0101_0101);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`read_at`](LocalLease::read_at).
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read_at(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Puts a value into it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// peer.local_lease(remote.id()).unwrap().put(8, &7u64)?;
    /// assert_eq!(conn.fetch_add(remote.at(8), 1).await?, 7);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`read_at`](LocalLease::read_at).
    pub fn put<T: IntoBytes + Immutable>(&self, offset: usize, value: &T) -> Result<()> {
        self.write_at(offset, value.as_bytes())
    }

    #[cold]
    fn misfit(&self, offset: usize, len: usize) -> Error {
        let text =
            format!("{len} bytes at offset {offset} do not fit {} that are lent", self.len());
        fabric::Error::invalid("lent", text).into()
    }

    /// Ends the lease, if it has not ended, and takes the memory as a buffer, without a copy. An operation of the peer
    /// that is on its way then fails and ends the connection; so agree on it first.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let text = conn.node().pool().alloc_from(b"mine")?;
    /// let lent = conn.lend(text, std::time::Duration::from_secs(30), fabric::Access::REMOTE_READ)?;
    /// assert_eq!(*lent.take()?, *b"mine"); // again
    /// assert!(lent.take().is_err());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// The fabric's `InvalidState` if it was taken before; `Busy` with
    /// [`connection_keys`](crate::NodeBuilder::connection_keys) while it waits for what was posted before it; the system's if the device did not let go of the memory, which
    /// then stays out.
    pub fn take(&self) -> Result<Buffer> {
        let block = self.loan.take()?;
        // The node's thread takes the lease out of the books, and reports that to the holder.
        self.loan.reactor.lease_revoked(self.loan.name);
        Ok(Buffer::new(block, self.loan.len))
    }
}

#[cold]
fn taken() -> Error {
    fabric::Error::state("lent", "its buffer was taken").into()
}

impl std::fmt::Debug for LocalLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalLease({}: {} bytes, active: {})", self.id(), self.len(), self.is_active())
    }
}
