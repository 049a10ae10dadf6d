//! Domains: an open device, and everything that is made on it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fabric_core::access::check_registration;
use fabric_core::provider::DynDomain;
use fabric_core::{
    Access, CqAttr, EndpointAttr, EndpointId, Error, Hints, Info, ListenerAttr, Memory, Result,
};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::builder::EndpointBuilder;
use crate::catalog::{Catalog, Selection};
use crate::counters::Counters;
use crate::cq::CompletionQueue;
use crate::endpoint::{EndpointInner, Shared};
use crate::eq::{EventQueue, Hub};
use crate::listener::Listener;
use crate::process::ParentOnly;
use crate::reclaim::Reclaim;
use crate::region::Region;

pub(crate) struct DomainInner {
    pub(crate) ops: ParentOnly<Box<dyn DynDomain>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) info: Info,
    selection: Selection,
    /// What an endpoint is made with unless its builder says otherwise.
    pub(crate) defaults: EndpointAttr,
    next_id: AtomicU64,
    roll: Mutex<Roll>,
    queues: AtomicUsize,
    /// Regions that stay registered since nothing proved that no device touches them.
    leaked: AtomicU64,
    pub(crate) reclaim: Reclaim,
}

/// The endpoints, and what those that are gone had counted.
#[derive(Default)]
struct Roll {
    endpoints: HashMap<EndpointId, Entry>,
    gone: Counters,
}

struct Entry {
    shared: Weak<Shared>,
    /// None before it is made.
    inner: Weak<EndpointInner>,
}

impl DomainInner {
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn roll(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock()
    }

    pub(crate) fn enroll(&self, shared: &Arc<Shared>) -> Result<()> {
        let mut roll = self.roll();
        let max = self.info.limits.endpoints;
        if roll.endpoints.len() >= max {
            return Err(Error::NoMemory(fabric_core::Failure::new(
                "make endpoint",
                format!(
                    "the domain has {max} endpoints, the most that {} takes",
                    self.info.provider
                ),
            )));
        }
        let entry = Entry { shared: Arc::downgrade(shared), inner: Weak::new() };
        roll.endpoints.insert(shared.id, entry);
        Ok(())
    }

    /// Counts one more completion queue, until its place is dropped.
    pub(crate) fn place_queue(self: &Arc<Self>) -> Result<QueuePlace> {
        let (max, provider) = (self.info.limits.completion_queues, self.info.provider);
        let more = |count| (count < max).then_some(count + 1);
        match self.queues.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(QueuePlace(self.clone())),
            Err(_) => Err(Error::NoMemory(fabric_core::Failure::new(
                "make completion queue",
                format!("the domain has {max} completion_queues, the most that {provider} takes"),
            ))),
        }
    }

    /// An endpoint that was enrolled is made.
    pub(crate) fn introduce(&self, inner: &Arc<EndpointInner>) {
        if let Some(entry) = self.roll().endpoints.get_mut(&inner.shared.id) {
            entry.inner = Arc::downgrade(inner);
        }
    }

    /// The endpoints that there are.
    pub(crate) fn endpoints(&self) -> Vec<Arc<EndpointInner>> {
        self.roll().endpoints.values().filter_map(|entry| entry.inner.upgrade()).collect()
    }

    pub(crate) fn count_leaked(&self, regions: u64) {
        self.leaked.fetch_add(regions, Ordering::Relaxed);
    }

    fn shared(&self) -> Vec<Arc<Shared>> {
        self.roll().endpoints.values().filter_map(|entry| entry.shared.upgrade()).collect()
    }

    pub(crate) fn strike(&self, shared: &Shared) {
        let mut roll = self.roll();
        if roll.endpoints.remove(&shared.id).is_some() {
            roll.gone.add(&shared.counters.snapshot());
        }
    }

    fn counters(&self) -> Counters {
        let mut sum = self.roll().gone;
        for shared in self.shared() {
            sum.add(&shared.counters.snapshot());
        }
        sum.leaked_regions = self.leaked.load(Ordering::Relaxed);
        sum.provider = self.ops.counters();
        sum
    }
}

/// A completion queue's place among those of its domain.
pub(crate) struct QueuePlace(Arc<DomainInner>);

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.0.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open device of a provider; regions, queues, endpoints and listeners are made on it and work together.
///
/// Clones are the same domain. It closes when the last handle made on it is gone; the order does not matter.
/// Any thread may use it. A child made by `fork` may not: every call there is `InvalidState`.
///
/// Peers that are connected to one domain share its trust: on providers without
/// [`SECRET_KEYS`](fabric_core::Capabilities::SECRET_KEYS) they can guess the keys of its regions. Nothing
/// is encrypted and no peer is authenticated: use one domain for each group that trusts itself, on a network
/// that you trust.
///
/// ```
/// use fabric::{Access, Domain, Hints};
///
/// // Ask for what the program needs only: the default hints want messages, one-sided operations and atomics.
/// let hints = Hints::default();
/// let domain = Domain::open(&hints)?;
/// println!("{}: {}", domain.selection(), domain.info().addresses[0]);
/// println!("a message has at most {} bytes", domain.info().limits.message);
///
/// let region = domain.alloc(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// let queue = domain.completion_queue(1024)?;
/// let endpoint = domain.endpoint().build(&queue)?;
/// let listener = domain.listen((domain.info().addresses[0], 0).into())?;
/// # Ok::<(), fabric::Error>(())
/// ```
#[derive(Clone)]
pub struct Domain {
    pub(crate) inner: Arc<DomainInner>,
}

impl Domain {
    /// Opens the device that suits `hints` best, among the compiled-in providers and within what
    /// `FABRIC_PROVIDER` allows.
    ///
    /// # Errors
    /// `NoProvider` if none suits; the text says for each provider and device why not. `InvalidArgument`
    /// for an environment variable with a bad value.
    pub fn open(hints: &Hints) -> Result<Self> {
        Catalog::builtin().open(hints)
    }

    pub(crate) fn new(
        ops: Box<dyn DynDomain>,
        hub: Arc<Hub>,
        info: Info,
        selection: Selection,
        defaults: EndpointAttr,
    ) -> Self {
        let inner = DomainInner {
            ops: ParentOnly::new(ops),
            hub,
            info,
            selection,
            defaults,
            next_id: AtomicU64::new(1),
            roll: Mutex::default(),
            queues: AtomicUsize::new(0),
            leaked: AtomicU64::new(0),
            reclaim: Reclaim::default(),
        };
        Domain { inner: Arc::new(inner) }
    }

    /// What the device offers.
    pub fn info(&self) -> &Info {
        &self.inner.info
    }

    /// The provider's name.
    pub fn provider(&self) -> &'static str {
        self.inner.info.provider
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.inner.info.device
    }

    /// Which provider and device were chosen, and why.
    pub fn selection(&self) -> &Selection {
        &self.inner.selection
    }

    /// The domain's connection events.
    pub fn events(&self) -> EventQueue {
        EventQueue { hub: self.inner.hub.clone() }
    }

    /// Allocates `len` zeroed bytes, aligned for everything, and registers them.
    ///
    /// # Errors
    /// As [`register`](Domain::register), and `NoMemory`.
    pub fn alloc(&self, len: usize, access: Access) -> Result<Region> {
        self.register(&Memory::zeroed(len)?, access)
    }

    /// Registers the whole of `memory`. One memory may be part of several regions.
    ///
    /// # Errors
    /// `InvalidArgument` if the rights are contradictory (remote write or atomic without local write) or the
    /// bounds do not suit them (remote atomics: multiples of 8); `NoMemory` if the device or the limit of
    /// locked memory has no room; `InvalidState` in a forked child.
    pub fn register(&self, memory: &Memory, access: Access) -> Result<Region> {
        self.register_part(memory, .., access)
    }

    /// Registers part of `memory`.
    ///
    /// # Errors
    /// As [`register`](Domain::register), and `InvalidArgument` if the range does not fit.
    pub fn register_part(
        &self,
        memory: &Memory,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<Region> {
        let size = memory.len();
        let (start, end) = fabric_util::range::bounds(range, size);
        let len = end.checked_sub(start).filter(|_| end <= size).ok_or_else(|| {
            Error::invalid("register", format!("the range does not fit a memory of {size} bytes"))
        })?;
        let addr = memory.as_ptr().wrapping_add(start);
        // SAFETY: the range is part of `memory`, which the region keeps allocated, and which safe code reaches
        // only through `fabric_core::memory`.
        unsafe { self.register_range(Some(memory.clone()), addr, len, access) }
    }

    /// Registers memory that this library did not allocate: mapped files, shared or read-only memory.
    ///
    /// # Errors
    /// As [`register`](Domain::register), and `InvalidArgument` if the memory is not mapped, or not writable
    /// though `access` needs it.
    ///
    /// # Safety
    /// Until [`Region::close`] returned `Ok` and no other method of the region, or of an
    /// [`AtomicElement`](crate::AtomicElement) of it, is running or will be called, or the region was dropped and all
    /// its operations' completions were taken: the range stays mapped, and this process reaches it only in ways that a
    /// concurrent writer cannot make undefined. Without `LOCAL_WRITE` it may be read-only. A device that does not let go
    /// of the range is an error of `close`; a drop can only log it.
    pub unsafe fn register_raw(&self, addr: *mut u8, len: usize, access: Access) -> Result<Region> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.register_range(None, addr, len, access) }
    }

    unsafe fn register_range(
        &self,
        memory: Option<Memory>,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Region> {
        const OP: &str = "register";
        self.inner.ops.check(OP)?;
        check_registration(addr as u64, len as u64, access)?;
        let max = self.inner.info.limits.region_len;
        if len as u64 > max {
            return Err(Error::invalid(OP, format!("{len} bytes; a region has at most {max}")));
        }
        // SAFETY: the caller's promise, and the checks above.
        let registration = unsafe { self.inner.ops.register(addr, len, access)? };
        Ok(Region::new(self.inner.clone(), memory, (addr, len), access, registration))
    }

    /// Makes a completion queue with room for `capacity` completions.
    ///
    /// Each endpoint reserves its send depth or receive depth (or both) of the queue it is bound to, so a
    /// queue never overflows. The default depths are 128 each: a queue for `n` such endpoints needs `n * 256`, and the
    /// endpoint after that cannot be made. For many connections set smaller depths
    /// ([`EndpointBuilder::send_depth`], [`recv_depth`](EndpointBuilder::recv_depth)); the room of an endpoint is
    /// [`EndpointBuilder::room`], what is left of a queue [`CompletionQueue::room`].
    ///
    /// # Errors
    /// `InvalidArgument` naming the limit, `NoMemory`.
    pub fn completion_queue(&self, capacity: usize) -> Result<CompletionQueue> {
        self.completion_queue_with(&CqAttr::new(capacity))
    }

    /// As [`completion_queue`](Domain::completion_queue), with all settings.
    ///
    /// # Errors
    /// As [`completion_queue`](Domain::completion_queue); `Unsupported` for a vector on a device without.
    pub fn completion_queue_with(&self, attr: &CqAttr) -> Result<CompletionQueue> {
        CompletionQueue::new(&self.inner, attr)
    }

    /// Begins to make an endpoint.
    pub fn endpoint(&self) -> EndpointBuilder<'_> {
        EndpointBuilder::new(self)
    }

    /// Listens for connections on `addr`, with the default backlog of 128. Port 0 chooses a free port.
    ///
    /// The unspecified address means the device's first address of the family, which
    /// [`local_addr`](Listener::local_addr) then has; on a device for all interfaces it means all their
    /// addresses, and `local_addr` is the unspecified one with the real port.
    ///
    /// # Errors
    /// `AddrInUse`, `InvalidArgument` if the address is not this device's, `NoMemory`.
    pub fn listen(&self, addr: SocketAddr) -> Result<Listener> {
        self.listen_with(addr, &ListenerAttr::default())
    }

    /// Listens with other settings.
    ///
    /// # Errors
    /// As [`listen`](Domain::listen), and `InvalidArgument` naming the limit.
    pub fn listen_with(&self, addr: SocketAddr, attr: &ListenerAttr) -> Result<Listener> {
        Listener::new(&self.inner, addr, attr)
    }

    /// What all endpoints of the domain did so far, those that are gone included.
    pub fn counters(&self) -> Counters {
        self.inner.counters()
    }

    /// The state of the domain and its endpoints as text, for a bug report. Slow; not for the data path.
    pub fn dump(&self) -> String {
        let info = &self.inner.info;
        let mut text = format!("domain {} {} {}\n", info.provider, info.version, info.device);
        let _ = writeln!(text, "  {}", self.inner.selection);
        let _ = writeln!(text, "  {}", self.counters());
        let _ = writeln!(text, "  {:?}", self.inner.ops.counters());
        let mut endpoints = self.inner.shared();
        endpoints.sort_by_key(|shared| shared.id);
        for shared in endpoints {
            let counters = shared.counters.snapshot();
            let _ = writeln!(text, "  {} {:?}: {counters}", shared.id, shared.state.get());
        }
        for line in self.inner.ops.dump().lines() {
            let _ = writeln!(text, "  {line}");
        }
        text
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({}:{})", self.provider(), self.device())
    }
}
