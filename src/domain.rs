//! Domains: an open device, and everything that is made on it.

mod inner;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::sync::Arc;

use fabric_core::access::check_registration;
use fabric_core::{
    Access, Capabilities, CqAttr, DatagramAttr, Error, Info, ListenerAttr, Memory, Path, Result,
    Security, SharedReceiveAttr,
};
use fabric_util::probe::probe;

use crate::builder::EndpointBuilder;
use crate::choice::Selection;
use crate::counters::Counters;
use crate::cq::CompletionQueue;
use crate::datagram::DatagramEndpoint;
use crate::eq::EventQueue;
use crate::listener::Listener;
use crate::region::Region;
use crate::shared_receives::SharedReceiveQueue;
use crate::slice::Slice;
pub(crate) use inner::{DomainInner, QueuePlace};

/// An open device of a provider; regions, queues, endpoints and listeners are made on it and work together.
///
/// Clones are the same domain. It closes when the last handle made on it is gone; the order does not matter. What endpoints
/// that were just dropped still owe their peers is sent first: where a peer takes nothing, that holds up the last drop
/// for 2 s at most.
/// Any thread may use it. A child made by `fork` may not: every call there is `InvalidState`.
///
/// Peers that are connected to one domain share its trust: on providers without
/// [`SECRET_KEYS`](fabric_core::Capabilities::SECRET_KEYS) they can guess the keys of its regions: use one
/// domain for each group that trusts itself. By default nothing is encrypted and no peer is authenticated; over TCP
/// both can be had ([`Hints::security`](fabric_core::Hints::security)).
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

    /// How much its connections are protected: what the hints and the environment ask for, and not what the device could do
    /// beyond that.
    pub fn security(&self) -> Security {
        self.inner.security
    }

    /// The domain's connection events.
    pub fn events(&self) -> EventQueue {
        EventQueue { hub: self.inner.events.own().clone() }
    }

    /// Makes an event queue beside the domain's own, for the endpoints and listeners that are made with it
    /// ([`EndpointBuilder::events`], [`listen_into`](Domain::listen_into)): so a library that shares a domain with its
    /// application has its events for itself. The loss of the device is reported in all queues, events of the port only in the
    /// domain's own.
    ///
    /// # Errors
    /// `NoMemory` without a descriptor; `InvalidState` in a forked child.
    pub fn event_queue(&self) -> Result<EventQueue> {
        self.inner.ops.check("make event queue")?;
        self.inner.events.add_queue()
    }

    /// Allocates `len` zeroed bytes, aligned for everything, and registers them.
    ///
    /// # Errors
    /// As [`allocate`](Domain::allocate) and [`register`](Domain::register).
    pub fn alloc(&self, len: usize, access: Access) -> Result<Region> {
        self.register(&self.allocate(len)?, access)
    }

    /// Allocates `len` zeroed bytes, aligned to 64 bytes at least, to be registered in whole or in part.
    ///
    /// It is the memory that suits the device best: peers within the host reach that of `shm` without this process. Any
    /// [`Memory`] can be registered with any domain, and all of it is used in the same way.
    ///
    /// # Errors
    /// `InvalidArgument` for zero bytes, or more than there are addresses; `NoMemory` if there is not that much; `InvalidState`
    /// in a forked child.
    pub fn allocate(&self, len: usize) -> Result<Memory> {
        self.inner.ops.check("allocate")?;
        self.inner.ops.allocate(len)
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
        unsafe { self.register_range(Some(memory.clone()), (addr, len), access, true) }
    }

    /// Registers memory that this library did not allocate: mapped files, shared or read-only memory.
    ///
    /// # Errors
    /// As [`register`](Domain::register), and `InvalidArgument` if the memory is not mapped, or not writable
    /// though `access` needs it.
    ///
    /// # Safety
    /// Until [`Region::close`] returned `Ok` and no other method of the region, or of an
    /// [`AtomicElement`](crate::AtomicElement) of it, is running or will be called, or the region was dropped, all its
    /// operations' completions were taken and each [`OwnedSlice`](crate::OwnedSlice) of it is gone: the range stays mapped, and
    /// this process reaches it only in ways that a concurrent writer cannot make undefined. Without `LOCAL_WRITE` it may be
    /// read-only. A device that does not let go of the range is an error of `close`; a drop can only log it.
    pub unsafe fn register_raw(&self, addr: *mut u8, len: usize, access: Access) -> Result<Region> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.register_range(None, (addr, len), access, true) }
    }

    /// As [`register_raw`](Domain::register_raw), without asking the kernel whether the memory is there, which takes some 35 us a
    /// MiB (`MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`): for libraries that register memory for one operation.
    ///
    /// # Errors
    /// As [`register`](Domain::register). Memory that is not mapped, or not writable though `access` needs it, is an error only
    /// over devices that lock it; elsewhere the process may end by a signal at the first access.
    ///
    /// # Safety
    /// As of [`register_raw`](Domain::register_raw); and the whole range is mapped now, and writable if `access` has `LOCAL_WRITE`.
    pub unsafe fn register_raw_unchecked(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Region> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.register_range(None, (addr, len), access, false) }
    }

    /// `probes`: whether the kernel is asked for the pages.
    unsafe fn register_range(
        &self,
        memory: Option<Memory>,
        (addr, len): (*mut u8, usize),
        access: Access,
        probes: bool,
    ) -> Result<Region> {
        const OP: &str = "register";
        self.inner.ops.check(OP)?;
        check_registration(addr as u64, len as u64, access)?;
        let info = &self.inner.info;
        if access.contains(Access::GRANTS_ONLY) && !info.capabilities.contains(Capabilities::GRANTS)
        {
            let text = format!("GRANTS_ONLY: the device {} has no grants", info.device);
            return Err(Error::unsupported(OP, info.provider, text));
        }
        let max = info.limits.region_len;
        if len as u64 > max {
            return Err(Error::invalid(OP, format!("{len} bytes; a region has at most {max}")));
        }
        if probes {
            probe(addr, len, access)?;
        }
        // SAFETY: the caller's promise, and the checks above.
        let registration = unsafe { self.inner.ops.register(addr, len, access.of_own_key())? };
        Ok(Region::new(self.inner.clone(), memory, (addr, len), access, registration))
    }

    /// Checks that a slice fits its region, is of this domain, and has the rights that an operation of this name needs: for
    /// libraries that post later.
    ///
    /// # Errors
    /// `InvalidArgument` that says what is wrong; `InvalidState` for a closed region, unless the slice is empty.
    #[inline]
    pub fn check_slice(
        &self,
        operation: &'static str,
        slice: Slice<'_>,
        need: Access,
    ) -> Result<()> {
        self.inner.check_slice(operation, &slice, need)?;
        slice.check_open(operation)
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

    /// Makes a receive queue for `depth` receives that endpoints share; their completions go to `queue`, which keeps room for
    /// all of them.
    ///
    /// # Errors
    /// `Unsupported` without [`SHARED_RECEIVES`](fabric_core::Capabilities::SHARED_RECEIVES). `InvalidArgument` that names the
    /// limit, or says how much room the completion queue has left; `NoMemory`.
    pub fn shared_receive_queue(
        &self,
        depth: usize,
        queue: &CompletionQueue,
    ) -> Result<SharedReceiveQueue> {
        self.shared_receive_queue_with(&SharedReceiveAttr::new(depth), queue)
    }

    /// As [`shared_receive_queue`](Domain::shared_receive_queue), with all settings.
    ///
    /// # Errors
    /// As [`shared_receive_queue`](Domain::shared_receive_queue).
    pub fn shared_receive_queue_with(
        &self,
        attr: &SharedReceiveAttr,
        queue: &CompletionQueue,
    ) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(&self.inner, attr, queue)
    }

    /// Makes a datagram endpoint, with the default settings: depths of 128, the device's first address.
    ///
    /// # Errors
    /// `Unsupported` without [`DATAGRAMS`](fabric_core::Capabilities::DATAGRAMS), and on a domain with security, which datagrams
    /// do not have. `InvalidArgument` that names the limit, or says how much room the completion queue has left; `NoMemory`.
    pub fn datagram_endpoint(&self, queue: &CompletionQueue) -> Result<DatagramEndpoint> {
        self.datagram_endpoint_with(&DatagramAttr::default(), queue, queue)
    }

    /// As [`datagram_endpoint`](Domain::datagram_endpoint), with all settings, and a queue for each side.
    ///
    /// # Errors
    /// As [`datagram_endpoint`](Domain::datagram_endpoint).
    pub fn datagram_endpoint_with(
        &self,
        attr: &DatagramAttr,
        send: &CompletionQueue,
        recv: &CompletionQueue,
    ) -> Result<DatagramEndpoint> {
        DatagramEndpoint::new(&self.inner, attr, send, recv)
    }

    /// Begins to make an endpoint.
    pub fn endpoint(&self) -> EndpointBuilder<'_> {
        EndpointBuilder::new(&self.inner)
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
        Listener::new(&self.inner, addr, attr, None)
    }

    /// The same, with the listener's events in a queue of its own ([`event_queue`](Domain::event_queue)).
    ///
    /// # Errors
    /// As [`listen_with`](Domain::listen_with), and `InvalidArgument` for the queue of another domain.
    pub fn listen_into(
        &self,
        addr: SocketAddr,
        attr: &ListenerAttr,
        events: &EventQueue,
    ) -> Result<Listener> {
        Listener::new(&self.inner, addr, attr, Some(events))
    }

    /// Which way a connection to `peer` would go now, and why no other. It may connect to the peer to find out, and leaves at once.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that is no peer's (unspecified, broadcast, multicast); `NoMemory` without the descriptors or
    /// the memory to find out; `InvalidState` in a forked child.
    pub fn path_to(&self, peer: SocketAddr) -> Result<Path> {
        self.inner.ops.check("path_to")?;
        fabric_util::route::check_peer(peer)?;
        Ok(self.inner.ops.path_to(peer)?.unwrap_or_else(|| Path::new(&self.inner.info)))
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
        let mut endpoints = self.inner.endpoints.shared();
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
        self.inner.fmt(f)
    }
}
