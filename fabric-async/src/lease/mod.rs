//! Leases: memory of a peer, for a time. This file has what its holder and its owner see; `control.rs` serves them.

mod borrow;
mod connect;
mod control;
mod wire;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use fabric::{Access, RemoteRegion, RemoteSlice};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::block::{Block, Loan};
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::error::{Error, LeaseEnd, Refusal, Result};
pub(crate) use borrow::Borrowing;
pub(crate) use control::{Control, ROOM};

/// What peers may borrow of this process's memory, each connection by itself.
///
/// ```
/// use std::time::Duration;
/// use fabric_async::{LeasePolicy, Node};
///
/// # fn main() -> Result<(), fabric_async::Error> {
/// let mut policy = LeasePolicy::default();
/// policy.bytes = 1 << 20;
/// policy.longest = Duration::from_secs(60);
/// let node = Node::builder().lend(policy).build()?;
/// # drop(node);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasePolicy {
    /// Most bytes that one connection has at a time; default 64 MiB, 0 lends nothing on request.
    pub bytes: u64,
    /// Most leases that one connection has at a time; default 256.
    pub leases: usize,
    /// The longest lease, and the longest renewal; default 10 minutes.
    pub longest: Duration,
    /// The rights that can be asked for; default all of [`Access::REMOTE`].
    pub rights: Access,
}

impl Default for LeasePolicy {
    fn default() -> Self {
        let longest = Duration::from_secs(600);
        LeasePolicy { bytes: 64 << 20, leases: 256, longest, rights: Access::REMOTE }
    }
}

impl LeasePolicy {
    pub(crate) fn check(&self) -> Result<()> {
        if Access::REMOTE.contains(self.rights) {
            return Ok(());
        }
        let text = format!("a lease gives rights of {:?}, not {:?}", Access::REMOTE, self.rights);
        Err(fabric::Error::invalid("make node", text).into())
    }
}

/// Nanoseconds on this process's monotonic clock.
fn nanos(at: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    u64::try_from(at.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// `now + time`, however long that is.
fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time.min(Duration::from_secs(1 << 32))).unwrap_or(now)
}

// ---------------------------------------------------------------------------------------- the holder

/// What the holder knows of a lease. The last reference, of an operation in flight perhaps, gives it back.
pub(crate) struct Held {
    region: RemoteRegion,
    lease: u64,
    /// When it ends, as far as this side knows: [`nanos`].
    until: AtomicU64,
    /// 0, or 1 and more: a [`LeaseEnd`].
    ended: AtomicU8,
    /// Where it came from; `None` if a holder passed it on.
    control: Option<Weak<Control>>,
}

const ENDS: [LeaseEnd; 4] =
    [LeaseEnd::Expired, LeaseEnd::Released, LeaseEnd::Revoked, LeaseEnd::Disconnected];

impl Held {
    fn end(&self) -> Option<LeaseEnd> {
        match self.ended.load(Ordering::Acquire) {
            0 if nanos(Instant::now()) >= self.until.load(Ordering::Acquire) => {
                Some(LeaseEnd::Expired)
            }
            0 => None,
            end => ENDS.get(usize::from(end) - 1).copied(),
        }
    }

    fn set_end(&self, end: LeaseEnd) {
        let number = ENDS.iter().position(|known| *known == end).map_or(1, |index| index as u8 + 1);
        // The first reason stays.
        let _ = self.ended.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(control) = self.control.as_ref().and_then(Weak::upgrade) {
            control.give_back(self.lease);
        }
    }
}

/// Memory of a peer that this side may use for a time: a lease.
///
/// [`at`](Remote::at) says where in it an operation goes. It ends when it is dropped and the operations on it are done, when
/// its time is over, when its owner takes it back, or with the connection over which it came. Operations on a lease
/// that has ended, as far as this side knows, are refused here, with [`Error::LeaseEnded`], and harm nothing. One that
/// reaches the owner later is an [`Error::RemoteAccess`] and ends the connection, as every forbidden access does: so
/// [`renew`](Remote::renew) early.
///
/// Clones are the same lease.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric_async::{Error, LeaseEnd};
/// use std::time::Duration;
///
/// let remote = conn.request_remote(4096, Duration::from_millis(50)).await?;
/// assert!(remote.time_left() <= Duration::from_millis(50));
/// remote.renew(Duration::from_secs(1)).await?;
/// conn.write(conn.alloc(8)?, remote.at(0)).await?;
/// let kept = remote.clone();
/// remote.release();
/// let failed = conn.write(conn.alloc(8)?, kept.at(0)).await.unwrap_err();
/// assert!(matches!(failed.error, Error::LeaseEnded(LeaseEnd::Released)));
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Remote {
    held: Arc<Held>,
}

impl Remote {
    /// By which the owner finds it: [`Connection::lent`]. 0 for leases that were passed on.
    pub fn id(&self) -> u64 {
        self.held.lease
    }

    /// Bytes: what was asked for, in whole multiples of 8.
    #[allow(clippy::len_without_is_empty)] // a lease is never empty
    pub fn len(&self) -> u64 {
        self.held.region.len()
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.held.region.access()
    }

    /// The place `offset` bytes into it, for one operation.
    #[inline]
    pub fn at(&self, offset: u64) -> At {
        At { slice: self.held.region.at(offset), lease: Some(self.held.clone()) }
    }

    /// The descriptor beneath, for the poll API. What is done with it does not know when the lease ends.
    pub fn descriptor(&self) -> RemoteRegion {
        self.held.region
    }

    /// How much of its time is left, as far as this side knows; zero when it has ended.
    pub fn time_left(&self) -> Duration {
        if self.end().is_some() {
            return Duration::ZERO;
        }
        let until = self.held.until.load(Ordering::Acquire);
        Duration::from_nanos(until.saturating_sub(nanos(Instant::now())))
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<LeaseEnd> {
        self.held.end()
    }

    fn control(&self) -> Result<Arc<Control>> {
        if let Some(end) = self.end() {
            return Err(Error::LeaseEnded(end));
        }
        match &self.held.control {
            None => Err(Error::NotGranted(Refusal::Unknown)),
            Some(control) => control.upgrade().ok_or(Error::LeaseEnded(LeaseEnd::Disconnected)),
        }
    }

    /// Has it end `time` from now instead of when it would. Dropping the future may leave either.
    ///
    /// # Errors
    /// `NotGranted` beyond the owner's policy, or for a lease that was passed on; `LeaseEnded`; `Disconnected`.
    pub async fn renew(&self, time: Duration) -> Result<()> {
        let sent = Instant::now();
        let granted = self.control()?.renew(self.held.lease, time)?.value().await?;
        // The owner counts from a moment after this one, so this side stops no later than it.
        self.held.until.store(nanos(after(sent, granted)), Ordering::Release);
        Ok(())
    }

    /// Gives it back. Operations that were not begun are refused, on other clones too; when those in flight are done, and the
    /// clones gone, the owner has it again.
    pub fn release(self) {
        self.held.set_end(LeaseEnd::Released);
    }

    /// Lets a third peer use it too, until it ends: that peer gets it from [`Connection::borrowed`], and uses it over its own
    /// connection to the owner. Keep this handle as long as it is to last; renewals are not seen by the third peer.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// # // The peer here is owner and third at once: it borrows its own memory.
    /// let remote = conn.request_remote(64, std::time::Duration::from_secs(30)).await?;
    /// remote.pass_on(&conn)?; // to whom the connection goes
    /// let passed = peer.borrowed().await?;
    /// assert_eq!(passed.len(), 64);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `LeaseEnded`; `NotGranted` if `to` carries no leases; `Disconnected`.
    pub fn pass_on(&self, to: &Connection) -> Result<()> {
        if let Some(end) = self.end() {
            return Err(Error::LeaseEnded(end));
        }
        to.control()?.pass(self.time_left(), self.held.region)
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({}: {}, {:?} left)", self.id(), self.held.region, self.time_left())
    }
}

/// A place in a peer's memory, for one operation: of a lease ([`Remote::at`]), or of a descriptor of the poll API that the
/// peer's application shipped by itself ([`fabric::RemoteRegion::at`]).
#[derive(Clone)]
pub struct At {
    slice: RemoteSlice,
    pub(crate) lease: Option<Arc<Held>>,
}

impl At {
    #[inline]
    pub(crate) fn slice(&self) -> RemoteSlice {
        self.slice
    }

    /// Whether its lease still stands. The post checks range and rights.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.lease.as_ref().and_then(|lease| lease.end()) {
            None => Ok(()),
            Some(end) => Err(Error::LeaseEnded(end)),
        }
    }
}

impl From<RemoteSlice> for At {
    fn from(slice: RemoteSlice) -> Self {
        At { slice, lease: None }
    }
}

impl std::fmt::Debug for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "At({} of {})", self.slice.offset(), self.slice.region())
    }
}

// ----------------------------------------------------------------------------------------- the owner

/// Memory of this side that a peer has a lease on.
///
/// Its bytes can change at any time, so they are copied in and out, never referred to. When the lease has ended they
/// are this side's alone: [`take`](Lent::take) then gives the [`Buffer`]. Clones are the same memory.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric::Access;
/// use std::time::Duration;
///
/// let lent = conn.lend(conn.alloc(64)?, Duration::from_secs(30), Access::REMOTE).unwrap();
/// let remote = peer.borrowed().await?;
/// peer.write(peer.node().pool().alloc_from(&[1; 8])?, remote.at(8)).await?;
/// assert_eq!(lent.get::<u64>(8)?, 0x0101_0101_0101_0101);
/// let buffer = lent.take()?; // the lease ends; no byte changes any more
/// assert_eq!(buffer[8..16], [1; 8]);
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Lent {
    pub(crate) loan: Arc<LoanState>,
}

pub(crate) struct LoanState {
    lease: u64,
    len: usize,
    memory: Mutex<LentMemory>,
}

enum LentMemory {
    Out(Loan),
    Back(Block),
    Taken,
}

impl LoanState {
    fn new(lease: u64, len: usize, loan: Loan) -> Arc<Self> {
        Arc::new(LoanState { lease, len, memory: Mutex::new(LentMemory::Out(loan)) })
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, LentMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not ended, and the application has not taken it back.
    fn is_out(&self) -> bool {
        matches!(*self.memory(), LentMemory::Out(_))
    }

    /// Ends the lease: when it has returned, no peer reads or changes a byte.
    fn end(&self) {
        let mut memory = self.memory();
        *memory = match std::mem::replace(&mut *memory, LentMemory::Taken) {
            LentMemory::Out(loan) => LentMemory::Back(loan.end()),
            other => other,
        };
    }
}

impl Drop for LoanState {
    fn drop(&mut self) {
        self.end();
        if let LentMemory::Back(block) = std::mem::replace(&mut *self.memory(), LentMemory::Taken) {
            drop(Buffer::new(block, 0));
        }
    }
}

impl Lent {
    /// By which the peer names it: [`Remote::id`].
    pub fn id(&self) -> u64 {
        self.loan.lease
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // a lease is never empty
    pub fn len(&self) -> usize {
        self.loan.len
    }

    /// Whether the peer can still reach it.
    pub fn is_out(&self) -> bool {
        self.loan.is_out()
    }

    /// Copies bytes out of it. Which of a peer's bytes are seen while it writes is not defined.
    ///
    /// # Errors
    /// The fabric's `InvalidArgument` if the range does not fit, `InvalidState` if its buffer was taken.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        match &*self.loan.memory() {
            LentMemory::Out(loan) => Ok(loan.region().read_at(offset, bytes)?),
            LentMemory::Back(block) => {
                let end = offset.checked_add(bytes.len());
                let from = end.and_then(|end| block.bytes()[..self.loan.len].get(offset..end));
                bytes.copy_from_slice(from.ok_or_else(|| self.misfit(offset, bytes.len()))?);
                Ok(())
            }
            LentMemory::Taken => Err(taken()),
        }
    }

    /// Copies bytes into it.
    ///
    /// # Errors
    /// As [`read_at`](Lent::read_at).
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        match &mut *self.loan.memory() {
            LentMemory::Out(loan) => Ok(loan.region().write_at(offset, bytes)?),
            LentMemory::Back(block) => {
                let end = offset.checked_add(bytes.len());
                let len = self.loan.len;
                let to = end.and_then(|end| block.bytes_mut()[..len].get_mut(offset..end));
                to.ok_or_else(|| self.misfit(offset, bytes.len()))?.copy_from_slice(bytes);
                Ok(())
            }
            LentMemory::Taken => Err(taken()),
        }
    }

    /// A value in it.
    ///
    /// # Errors
    /// As [`read_at`](Lent::read_at).
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read_at(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Puts a value into it.
    ///
    /// # Errors
    /// As [`read_at`](Lent::read_at).
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
    /// # Errors
    /// The fabric's `InvalidState` if it was taken before.
    pub fn take(&self) -> Result<Buffer> {
        self.loan.end();
        match std::mem::replace(&mut *self.loan.memory(), LentMemory::Taken) {
            LentMemory::Back(block) => Ok(Buffer::new(block, self.loan.len)),
            _ => Err(taken()),
        }
    }
}

#[cold]
fn taken() -> Error {
    fabric::Error::state("lent", "its buffer was taken").into()
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({}: {} bytes, out: {})", self.id(), self.len(), self.is_out())
    }
}

// ------------------------------------------------------------------------------------ the connection

impl Connection {
    fn control(&self) -> Result<&Arc<Control>> {
        self.link.control.get().ok_or(Error::NotGranted(Refusal::Off))
    }

    /// Asks the peer for memory, zeroed, with all rights that its policy gives, for a time. The peer's application need do
    /// nothing for it.
    ///
    /// # Errors
    /// `NotGranted` with the reason; `Disconnected`.
    pub async fn request_remote(&self, len: usize, time: Duration) -> Result<Remote> {
        self.control()?.request(len as u64, time, Access::empty())?.value().await
    }

    /// Asks as [`request_remote`](Connection::request_remote), for just these rights.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use fabric::Access;
    ///
    /// let time = std::time::Duration::from_secs(30);
    /// let remote = conn.request_remote_with(64, time, Access::REMOTE_READ).await?;
    /// assert_eq!(remote.access(), Access::REMOTE_READ);
    /// // What the descriptor does not allow is refused here.
    /// assert!(conn.write(conn.alloc(8)?, remote.at(0)).await.is_err());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`request_remote`](Connection::request_remote).
    pub async fn request_remote_with(
        &self,
        len: usize,
        time: Duration,
        rights: Access,
    ) -> Result<Remote> {
        self.control()?.request(len as u64, time, rights)?.value().await
    }

    /// Lends a buffer to the peer, unasked and whatever the policy says; it gets it from
    /// [`borrowed`](Connection::borrowed). The lease ends after `time`, or by [`Lent::take`], or when the peer gives it back.
    ///
    /// # Errors
    /// `NotGranted` if the connection carries no leases; the fabric's: `InvalidArgument` for a buffer whose length is not a
    /// multiple of 8 or for rights that are none of a peer's, `NoMemory`; `Disconnected`. The error has the buffer.
    pub fn lend(
        &self,
        buffer: Buffer,
        time: Duration,
        rights: Access,
    ) -> Result<Lent, crate::Failed<Buffer>> {
        match self.control() {
            Ok(control) => control.lend(buffer, time, rights),
            Err(error) => Err(crate::Failed { error, buffer }),
        }
    }

    /// The next lease that the peer lends, or passes on, unasked. Dropping the future loses nothing.
    ///
    /// # Errors
    /// `NotGranted` if the connection carries no leases; `Disconnected`.
    pub async fn borrowed(&self) -> Result<Remote> {
        Borrowing::new(self.control()?).await
    }

    /// Memory of this side that the peer has a lease on, by the lease's [`id`](Remote::id).
    pub fn lent(&self, id: u64) -> Option<Lent> {
        self.link.control.get()?.lent(id)
    }
}
