//! Memory regions: memory that is registered with a domain.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};

use fabric_core::provider::{GrantOps, RegistrationOps};
use fabric_core::{Access, Error, Memory, RemoteRegion, Result, memory};
use fabric_util::log_line;
use fabric_util::range::bounds;
use fabric_util::sync::Mutex;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::domain::DomainInner;
use crate::process::ForkChecked;
use crate::unopened::{Held, ProviderGrant};

/// What operations in flight hold on to.
pub(crate) struct RegionCore {
    registration: Mutex<Registration>,
    /// The region's own handle and those of grants. Every other reference is an operation's. It grows under the
    /// registration's lock, and falls before the handle's reference goes: then the region looks used for a moment.
    handles: AtomicUsize,
    closed: AtomicBool,
    addr: *mut u8,
    len: usize,
    pub(crate) access: Access,
    pub(crate) local_key: u64,
    remote: RemoteRegion,
    /// Freed only once the registration has ended well.
    memory: ManuallyDrop<Option<Memory>>,
    pub(crate) domain: Arc<DomainInner>,
}

// SAFETY: `addr` is the start of memory that `memory`, or the caller of `register_raw`, keeps allocated; it is
// only reached through `fabric_core::memory`, whose accesses may be concurrent.
unsafe impl Send for RegionCore {}
// SAFETY: as above.
unsafe impl Sync for RegionCore {}

impl Held for RegionCore {
    fn count_leaked(&self) {
        self.domain.count_leaked(1);
    }
}

/// What the provider keeps of it.
struct Registration {
    /// Nothing once it has ended.
    ops: Option<ForkChecked<Box<dyn RegistrationOps>>>,
    /// Those that are open, by their names.
    grants: BTreeMap<u64, ProviderGrant>,
    next_grant: u64,
}

impl Registration {
    /// Ends it and its grants, but in a child of the process that made it. On error it stays registered.
    fn end(&mut self) -> Result<()> {
        if let Some(ops) = self.ops.as_mut().filter(|ops| ops.is_current_process()) {
            while let Some(mut grant) = self.grants.first_entry() {
                grant.get_mut().revoke()?;
                grant.remove();
            }
            ops.deregister()?;
        }
        self.ops = None;
        Ok(())
    }
}

impl Drop for RegionCore {
    fn drop(&mut self) {
        // Unwinding out of here, or an error, is no proof that no device reaches the memory: then it leaks.
        match self.registration.get_mut().end() {
            // SAFETY: it is dropped here alone, and not used afterwards.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            Err(error) => {
                self.domain.count_leaked(1);
                let len = self.len;
                log_line!(
                    Error,
                    "a region of {len} bytes: {error}; its memory stays until the process ends"
                );
            }
        }
    }
}

impl RegionCore {
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Orders this look after the reference that the caller has just taken: either it sees `closed`, or
        // `close` sees the reference. On x86-64 the processor's locked increment was a full barrier already,
        // and only the compiler must be held back.
        if cfg!(all(target_arch = "x86_64", not(miri))) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        self.closed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn addr_at(&self, offset: usize) -> *mut u8 {
        self.addr.wrapping_add(offset)
    }

    /// Whether operations of this side use it.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > self.handles.load(Ordering::Acquire)
    }

    /// A handle goes, whose reference follows. Behind the last one the library looks when operations have let go.
    pub(crate) fn drop_handle(self: &Arc<Self>) {
        let last = self.handles.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && Arc::strong_count(self) > 1 && self.domain.ops.is_current_process() {
            self.domain.reclaim.add(self);
        }
    }

    /// Something is left of an operation that will end by itself. Behind the last handle the library looks when it has.
    pub(crate) fn look_after(self: &Arc<Self>) {
        if self.handles.load(Ordering::Acquire) == 0 {
            self.domain.reclaim.add(self);
        }
    }

    /// Has `begin` make a grant of the provider's registration.
    pub(crate) fn begin_grant(
        &self,
        begin: impl FnOnce(&dyn RegistrationOps) -> Result<Box<dyn GrantOps>>,
    ) -> Result<ProviderGrant> {
        let registration = self.registration.lock();
        let Some(ops) = &registration.ops else {
            return Err(Error::state("grant", "the region is closed"));
        };
        Ok(ForkChecked::new(begin(&***ops)?))
    }

    /// Keeps a grant, for one more handle; gives its name.
    pub(crate) fn add_grant(&self, grant: ProviderGrant) -> u64 {
        let mut registration = self.registration.lock();
        let name = registration.next_grant;
        registration.next_grant += 1;
        registration.grants.insert(name, grant);
        self.handles.fetch_add(1, Ordering::Relaxed);
        name
    }

    /// Ends a grant, unless it has ended. On error it is kept.
    pub(crate) fn revoke_grant(&self, name: u64) -> Result<()> {
        let mut registration = self.registration.lock();
        if let Some(grant) = registration.grants.get_mut(&name) {
            grant.revoke()?;
            registration.grants.remove(&name);
        }
        Ok(())
    }
}

/// Memory that is registered with a domain: what local operations use, and what peers may reach.
///
/// # Safety without locks
/// Bytes of a region can change at any time: peers write them, other threads too. So they are read and
/// written by value, never by reference, and order comes from completions. Which bytes a
/// reader sees during a transfer is undefined by the contract, but never undefined behaviour.
///
/// # Life
/// The memory stays allocated and registered as long as any operation in flight uses it, whatever becomes of
/// this handle, or a [`Grant`](crate::Grant) of it is there. [`close`](Region::close) ends the rights now, dropping the
/// handle ends them when the last such operation has completed and the last grant has gone. When either is done, no peer reads or changes a byte, and the key opens
/// nothing.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
/// # let (peer, timeout) = (&b, doc::TIMEOUT);
/// use fabric::{Access, RemoteRegion};
///
/// let region = domain.alloc(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write_at(0, b"published")?;
/// region.put(64, &42u64)?;
/// assert_eq!(region.get::<u64>(64)?, 42);
///
/// // What a peer needs to read it: 40 bytes, sent in any way.
/// let descriptor = region.remote().to_bytes();
/// let remote = RemoteRegion::from_bytes(&descriptor)?;
/// let part = remote.at(64);
/// # let _ = part;
///
/// // From here on no peer reads or changes a byte.
/// region.close()?;
/// # Ok(()) }
/// ```
pub struct Region {
    pub(crate) core: Arc<RegionCore>,
}

/// Part of a region, as the local side of an operation.
///
/// It borrows the region's handle, so it cannot outlive that; operations in flight need no handle.
///
/// ```compile_fail,E0505
/// # fn f(domain: &fabric::Domain, endpoint: &fabric::Endpoint) -> fabric::Result<()> {
/// let region = domain.alloc(64, fabric::Access::ALL)?;
/// let slice = region.slice(..8);
/// drop(region);
/// endpoint.send(slice, 1)
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Slice<'a> {
    pub(crate) region: &'a Region,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl<'a> From<&'a Region> for Slice<'a> {
    fn from(region: &'a Region) -> Self {
        Slice { region, offset: 0, len: region.core.len }
    }
}

impl fmt::Debug for Slice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({}+{} of {})", self.offset, self.len, self.region.core.len)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.core.drop_handle();
    }
}

impl Region {
    pub(crate) fn new(
        domain: Arc<DomainInner>,
        memory: Option<Memory>,
        (addr, len): (*mut u8, usize),
        access: Access,
        registration: Box<dyn RegistrationOps>,
    ) -> Self {
        let remote = RemoteRegion::from_parts(
            registration.remote_key(),
            registration.remote_base(),
            len as u64,
            access.of_own_key(),
        );
        Region {
            core: Arc::new(RegionCore {
                local_key: registration.local_key(),
                registration: Mutex::new(Registration {
                    ops: Some(ForkChecked::new(registration)),
                    grants: BTreeMap::new(),
                    next_grant: 0,
                }),
                handles: AtomicUsize::new(1),
                closed: AtomicBool::new(false),
                addr,
                len,
                access,
                remote,
                memory: ManuallyDrop::new(memory),
                domain,
            }),
        }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // a region is never empty
    pub fn len(&self) -> usize {
        self.core.len
    }

    /// The rights it was registered with.
    pub fn access(&self) -> Access {
        self.core.access
    }

    /// The address of its first byte in this process, for diagnosis and alignment.
    pub fn addr(&self) -> usize {
        self.core.addr as usize
    }

    /// The descriptor by which peers reach it; ship its bytes to them.
    pub fn remote(&self) -> RemoteRegion {
        self.core.remote
    }

    /// The memory beneath, to register it once more; `None` for regions of `register_raw`.
    pub fn memory(&self) -> Option<&Memory> {
        self.core.memory.as_ref()
    }

    /// Part of the region, for an operation. A range that does not fit is refused by the post.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_> {
        let (start, end) = bounds(range, self.core.len);
        // A range that ends before it starts must not become a valid empty one.
        match end.checked_sub(start) {
            Some(len) => Slice { region: self, offset: start, len },
            None => Slice { region: self, offset: usize::MAX, len: usize::MAX },
        }
    }

    /// Ends the registration and its grants now.
    ///
    /// When it has returned, no peer and no device reads or changes the memory, and the key opens nothing.
    /// Repeating it is harmless. The region refuses every operation afterwards; its bytes can still be read
    /// and written here, except those of foreign memory.
    ///
    /// # Errors
    /// `Busy` while local operations in flight use the region: take their completions first. Of unsignaled operations,
    /// which have none on success, this call starts to find out whether they have ended: try it again. The system's error if the
    /// device did not let go of the memory, which must then stay as it is; it can be tried again.
    pub fn close(&self) -> Result<()> {
        self.core.domain.ops.check("close region")?;
        let mut registration = self.core.registration.lock();
        if registration.ops.is_none() {
            return Ok(());
        }
        self.core.closed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.core.is_used() && self.is_still_used() {
            self.core.closed.store(false, Ordering::SeqCst);
            return Err(Error::Busy);
        }
        // What was done under the references that are gone has happened before the end of the registration.
        fence(Ordering::Acquire);
        registration.end()
    }

    /// The same, after a look at unsignaled operations: nothing says that they have ended, so that may not be known yet.
    #[cold]
    fn is_still_used(&self) -> bool {
        self.core.domain.endpoints.settle();
        self.core.is_used()
    }

    fn range(&self, operation: &'static str, offset: usize, len: usize) -> Result<*mut u8> {
        // Memory that peers can have mapped is the parent's there, too.
        self.core.domain.ops.check(operation)?;
        // The library's own memory lives as long as the handle; foreign memory may go once it is closed.
        if self.core.memory.is_none() && self.core.closed.load(Ordering::Acquire) {
            return Err(Error::state(operation, "the region is closed, and its memory is foreign"));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.core.len) {
            let size = self.core.len;
            return Err(Error::invalid(
                operation,
                format!("{len} bytes at offset {offset} do not fit a region of {size}"),
            ));
        }
        Ok(self.core.addr_at(offset))
    }

    pub(crate) fn writable(
        &self,
        operation: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<*mut u8> {
        if self.core.memory.is_none() && !self.core.access.contains(Access::LOCAL_WRITE) {
            return Err(Error::invalid(operation, "the region was registered without LOCAL_WRITE"));
        }
        self.range(operation, offset, len)
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    /// `InvalidArgument` if the range does not fit, `InvalidState` for foreign memory once it is closed, and in a forked child.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let at = self.range("read_at", offset, bytes.len())?;
        // SAFETY: the range was checked; the core keeps the memory allocated.
        unsafe { memory::load(at, bytes) };
        Ok(())
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at); `InvalidArgument` for foreign memory without `LOCAL_WRITE`.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let at = self.writable("write_at", offset, bytes.len())?;
        // SAFETY: the range was checked; the core keeps the memory allocated.
        unsafe { memory::store(at, bytes) };
        Ok(())
    }

    /// A copy of a part of the region.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at).
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>> {
        let Slice { offset, len, .. } = self.slice(range);
        self.range("to_vec", offset, len)?;
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets every byte of the region.
    ///
    /// # Errors
    /// As [`write_at`](Region::write_at).
    pub fn fill(&self, byte: u8) -> Result<()> {
        let block = [byte; 4096];
        for offset in (0..self.core.len).step_by(block.len()) {
            self.write_at(offset, &block[..block.len().min(self.core.len - offset)])?;
        }
        Ok(())
    }

    /// Reads a value. Its bytes may be of several moments; [`atomic`](Region::atomic) reads a word at once.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at).
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read_at(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes a value. Its bytes may become visible one after the other.
    ///
    /// # Errors
    /// As [`write_at`](Region::write_at).
    pub fn put<T: IntoBytes + Immutable>(&self, offset: usize, value: &T) -> Result<()> {
        self.write_at(offset, value.as_bytes())
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// While it lives nothing may write the region: no peer, no operation in flight, no other thread.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the range is allocated and initialized; the caller answers for the absence of writers.
        unsafe { std::slice::from_raw_parts(self.core.addr, self.core.len) }
    }

    /// The bytes as a slice that may be written.
    ///
    /// # Safety
    /// While it lives nothing else may read or write the region: no peer, no operation, no other thread.
    #[allow(clippy::mut_from_ref)] // like UnsafeCell: the caller answers for exclusivity
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: the range is allocated and initialized; the caller answers for exclusivity.
        unsafe { std::slice::from_raw_parts_mut(self.core.addr, self.core.len) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.core.len)
            .field("access", &self.core.access)
            .finish()
    }
}
