//! What a region is made of, as long as a handle, a grant or an operation in flight needs it. The handle is in `region.rs`.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};

use fabric_core::provider::{GrantOps, RegistrationOps};
use fabric_core::{Access, Error, Memory, RemoteRegion, Result, memory, unlikely};
use fabric_util::log_line;
use fabric_util::sync::Mutex;

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
    pub(crate) len: usize,
    pub(crate) access: Access,
    pub(crate) local_key: u64,
    pub(crate) remote: RemoteRegion,
    /// Freed only once the registration has ended well.
    pub(crate) memory: ManuallyDrop<Option<Memory>>,
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
        RegionCore {
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
        }
    }

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

    /// Where bytes of it are, for a look at them.
    #[inline]
    pub(crate) fn range(
        &self,
        operation: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<*mut u8> {
        // Memory that peers can have mapped is the parent's there, too.
        self.domain.ops.check(operation)?;
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if self.is_gone() || !fits {
            return Err(self.bad_range(operation, offset, len));
        }
        Ok(self.addr_at(offset))
    }

    /// The library's own memory lives as long as the handle; foreign memory may go once it is closed.
    #[inline]
    fn is_gone(&self) -> bool {
        unlikely(self.memory.is_none()) && self.closed.load(Ordering::Acquire)
    }

    #[cold]
    fn bad_range(&self, operation: &'static str, offset: usize, len: usize) -> Error {
        if self.is_gone() {
            return Error::state(operation, "the region is closed, and its memory is foreign");
        }
        let size = self.len;
        let text = format!("{len} bytes at offset {offset} do not fit a region of {size}");
        Error::invalid(operation, text)
    }

    /// The same, for a change.
    #[inline]
    pub(crate) fn writable(
        &self,
        operation: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<*mut u8> {
        if self.memory.is_none() && !self.access.contains(Access::LOCAL_WRITE) {
            return Err(Self::not_writable(operation));
        }
        self.range(operation, offset, len)
    }

    #[cold]
    fn not_writable(operation: &'static str) -> Error {
        Error::invalid(operation, "the region was registered without LOCAL_WRITE")
    }

    /// Copies bytes out of it.
    #[inline]
    pub(crate) fn load(
        &self,
        operation: &'static str,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<()> {
        let from = self.range(operation, offset, bytes.len())?;
        // SAFETY: the range was checked; this keeps the memory allocated.
        unsafe { memory::load(from, bytes) };
        Ok(())
    }

    /// Copies bytes into it.
    #[inline]
    pub(crate) fn store(&self, operation: &'static str, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.writable(operation, offset, bytes.len())?;
        // SAFETY: as above.
        unsafe { memory::store(to, bytes) };
        Ok(())
    }

    /// Whether operations of this side use it.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > self.handles.load(Ordering::Acquire)
    }

    /// See [`Region::close`](crate::Region::close).
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.domain.ops.check("close region")?;
        let mut registration = self.registration.lock();
        if registration.ops.is_none() {
            return Ok(());
        }
        self.closed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.is_used() && self.is_still_used() {
            self.closed.store(false, Ordering::SeqCst);
            return Err(Error::Busy);
        }
        // What was done under the references that are gone has happened before the end of the registration.
        fence(Ordering::Acquire);
        registration.end()
    }

    /// The same, after a look at unsignaled operations: nothing says that they have ended, so that may not be known yet.
    #[cold]
    fn is_still_used(self: &Arc<Self>) -> bool {
        self.domain.endpoints.settle();
        self.is_used()
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
