//! Reliable datagram endpoints: making, binding, closing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use fabric_rdm::RdmAttr;
use fabric_rdm::window::{Resource, WindowLimits};

use super::enabled::RdmEnabled;
use crate::abi::FidEp;
use crate::abi::flags::{FI_CLASS_EP, FI_EDOMAIN, FI_ENOAV};
use crate::errno::Errno;
use crate::handle::{Name, Object};
use crate::objects::av::AddressVector;
use crate::objects::bound::{Bound, RX, TX};
use crate::objects::counter::Counter;
use crate::objects::domain::{Domain, Queue};
use crate::objects::endpoint::Wishes;
use crate::objects::event::Owner;
use crate::objects::event_queue::Events;
use crate::objects::kinds::{ActiveEndpoint, AnyEndpoint};
use crate::sync::lock;

/// Bytes that are free in a buffer for many messages, at least, unless the application sets it.
const MIN_MULTI_RECV: usize = 64;
/// Messages of one peer without a receive, and of all. Programs post many before the other side looks for them. A peer hears of
/// free places when it has used half of what it may have, and that costs as much as a message: one that has only what is reserved
/// hears after 32 messages, and the first 64 peers, which have a whole window each, after 16,384.
const WINDOW: Resource = Resource { total: 1 << 22, window: 1 << 15, reserved: 64 };
/// Where a message arrives that is sent in one piece: there is room for what is copied, and its head.
const SLOT: u32 = (16 << 10) + 128;
/// Peers that are not in the address vector.
const STRANGERS: u32 = 1 << 16;

// There are places to reserve for all of them; and the first peers get a whole window each (`window::Resource`).
const _: () = assert!(WINDOW.reserved * STRANGERS as u64 <= WINDOW.total);
const _: () = assert!(WINDOW.total / WINDOW.window > 64);

/// An endpoint.
pub(crate) struct RdmEndpoint {
    pub(super) domain: Arc<Domain>,
    pub(super) wishes: Wishes,
    bound: Mutex<RdmBound>,
    enabled: OnceLock<Arc<RdmEnabled>>,
    pub(super) op_flags: [AtomicU64; 2],
    pub(crate) min_multi_recv: AtomicUsize,
}

// SAFETY: `FidEp` is repr(C) and begins with a fid; message endpoints, of the same class, have it too, and another kind.
unsafe impl Object for RdmEndpoint {
    type C = FidEp;
    const CLASS: usize = FI_CLASS_EP;
    const KIND: usize = 1;
}

/// What it was bound to, and where it is to be.
struct RdmBound {
    queues: Bound,
    vector: Option<Arc<AddressVector>>,
    /// Nothing is reported there.
    _events: Option<Arc<Events>>,
    place: Option<SocketAddr>,
}

impl RdmEndpoint {
    pub(crate) fn new(domain: &Arc<Domain>, wishes: Wishes) -> Self {
        let bound = RdmBound {
            queues: Bound::default(),
            vector: None,
            _events: None,
            place: wishes.source,
        };
        RdmEndpoint {
            domain: domain.clone(),
            op_flags: wishes.op_flags.map(AtomicU64::new),
            wishes,
            bound: Mutex::new(bound),
            enabled: OnceLock::new(),
            min_multi_recv: AtomicUsize::new(MIN_MULTI_RECV),
        }
    }

    fn unenabled(&self) -> Result<MutexGuard<'_, RdmBound>, Errno> {
        let bound = lock(&self.bound);
        if self.enabled.get().is_some() { Err(Errno::BAD_STATE) } else { Ok(bound) }
    }

    /// Peers know an endpoint by one place: where any address is asked for, that is the device's first one of the family, and one
    /// that other hosts reach if there is one.
    fn one_place(&self, place: SocketAddr) -> Result<SocketAddr, Errno> {
        if !place.ip().is_unspecified() {
            return Ok(place);
        }
        let addresses = &self.domain.device.domain.info().addresses;
        let family = addresses.iter().filter(|ip| ip.is_ipv4() == place.is_ipv4());
        let first = family.min_by_key(|ip| ip.is_loopback()).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        Ok((*first, place.port()).into())
    }

    /// What transfers; an endpoint that is not enabled transfers nothing.
    #[inline]
    pub(super) fn enabled(&self) -> Result<&RdmEnabled, Errno> {
        self.enabled.get().map(|enabled| &**enabled).ok_or(Errno::BAD_STATE)
    }

    pub(crate) fn cancel(&self, context: u64) -> Result<(), Errno> {
        self.enabled()?.cancel(context)
    }

    pub(super) fn min_free(&self) -> u64 {
        self.min_multi_recv.load(Ordering::Relaxed) as u64
    }
}

impl AnyEndpoint for RdmEndpoint {
    /// Where peers find it.
    fn address(&self) -> Result<SocketAddr, Errno> {
        if let Some(enabled) = self.enabled.get() {
            return enabled.endpoint.address().rails().next().ok_or(Errno::BAD_STATE);
        }
        lock(&self.bound).place.ok_or(Errno::BAD_STATE)
    }

    fn set_address(&self, place: SocketAddr) -> Result<(), Errno> {
        self.unenabled()?.place = Some(place);
        Ok(())
    }

    fn end(&self, _: Name) {
        if let Some(enabled) = self.enabled.get() {
            enabled.end();
        }
    }
}

impl ActiveEndpoint for RdmEndpoint {
    fn bind_queue(&self, queue: &Arc<Queue>, flags: u64) -> Result<(), Errno> {
        self.unenabled()?.queues.bind_queue(&self.domain, queue, flags)
    }

    fn bind_counter(&self, counter: &Arc<Counter>, flags: u64) -> Result<(), Errno> {
        self.unenabled()?.queues.bind_counter(counter, flags)
    }

    fn bind_events(&self, events: &Arc<Events>) -> Result<(), Errno> {
        self.unenabled()?._events = Some(events.clone());
        Ok(())
    }

    fn bind_vector(&self, vector: &Arc<AddressVector>) -> Result<(), Errno> {
        if !Arc::ptr_eq(&vector.domain.device, &self.domain.device) {
            return Err(Errno(FI_EDOMAIN));
        }
        self.unenabled()?.vector = Some(vector.clone());
        Ok(())
    }

    fn enable(&self, _: Owner) -> Result<(), Errno> {
        let bound = self.unenabled()?;
        let vector = bound.vector.as_ref().ok_or(Errno(FI_ENOAV))?;
        let depth = |side: usize| u32::try_from(self.wishes.depths[side]).unwrap_or(u32::MAX);
        let mut attr = RdmAttr::default();
        (attr.send_depth, attr.recv_depth) = (depth(TX), depth(RX));
        attr.listen = bound.place.map(|place| self.one_place(place)).transpose()?;
        attr.named_by_place = true;
        attr.max_strangers = STRANGERS;
        attr.slot_len = SLOT;
        attr.window = WindowLimits { places: WINDOW, ..attr.window };
        let enabled = RdmEnabled::new(&self.domain, (&attr, &self.wishes), &bound.queues, vector)?;
        // The lock is held: there is none yet.
        let _ = self.enabled.set(enabled);
        Ok(())
    }
}
