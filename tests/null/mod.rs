//! A provider without a wire: for tests of what is above providers, and the pattern for one of your own.
//!
//! A connection is established at once, an operation of the send queue ends at once, and a receive waits until a
//! test brings a message. There is no peer: what would be sent is read and forgotten, what would be fetched
//! is [`FILL`]. A [`Link`] is a test's way to the inside of an endpoint: it holds operations back, makes
//! them fail, brings messages, ends the connection.
//!
//! What an author of a provider finds here: who calls what and under which locks; that the memory of an
//! operation is touched only until its completion, and by `fabric_core::memory` alone; that events come
//! before the completions they cause; that the descriptor is set under the same lock as the queue it
//! reports, so that no completion slips in between.

#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

pub mod cq;
pub mod domain;
pub mod endpoint;
pub mod shared;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use domain::{Backlog, NullDomain};
pub use endpoint::Link;
use fabric_core::provider::{Provider, RawRequest, RequestId};
use fabric_core::setting::{self, Setting};
use fabric_core::{
    Capabilities, Device, DomainAttr, EndpointId, Event, EventSink, Info, Limits, ListenerId,
    Result, Segment,
};
pub use shared::Receives;

/// What reads and fetching atomics bring.
pub const FILL: u8 = 0xA5;

const SETTINGS: &[Setting] =
    &[Setting::new("message_bytes", "the longest message, in bytes (1 to 65536)", "65536")];

/// The provider. Its [`Control`] gives tests a hand in it.
#[derive(Clone)]
pub struct NullProvider {
    info: Info,
    control: Arc<Control>,
}

/// What a test reaches from outside: the endpoints, and the registrations that are alive.
#[derive(Default)]
pub struct Control {
    links: Mutex<HashMap<EndpointId, Arc<Link>>>,
    /// By local key: what may be touched.
    registered: Mutex<HashMap<u64, (usize, usize)>>,
    /// By key: the registration of each.
    grants: Mutex<HashMap<u64, u64>>,
    /// The shared receive queue that was made last.
    receives: Mutex<Weak<Receives>>,
    listeners: Mutex<HashMap<ListenerId, Arc<Backlog>>>,
    rejected: Mutex<Vec<(RequestId, Vec<u8>)>>,
    next: AtomicU64,
    /// What a test has happen in the middle of the next registration.
    on_register: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether the device lets go of no memory.
    holds_on: AtomicBool,
    /// Whether grants do not open.
    stays_shut: AtomicBool,
    /// Whether a grant never opens, since its connection is over.
    never_opens: AtomicBool,
    makes_none: AtomicBool,
    /// Whether what is in flight cannot be stopped.
    goes_on: AtomicBool,
}

impl NullProvider {
    pub fn new() -> Self {
        let mut limits = Limits::none();
        limits.message = 1 << 16;
        limits.inject = 256;
        limits.send_segments = 8;
        limits.recv_segments = 8;
        limits.send_depth = 1 << 16;
        limits.recv_depth = 1 << 16;
        limits.cq_capacity = 1 << 20;
        limits.completion_queues = 1 << 12;
        limits.endpoints = 1 << 12;
        limits.regions = 1 << 16;
        limits.region_len = 1 << 30;
        limits.backlog = 128;
        let mut info = Info::new("null", "null0");
        info.version = "1".to_owned();
        info.description = "no wire at all".to_owned();
        info.addresses = vec![Ipv4Addr::LOCALHOST.into()];
        info.capabilities = Capabilities::SEND
            | Capabilities::RMA
            | Capabilities::ATOMIC
            | Capabilities::UNIQUE_KEYS
            | Capabilities::GRANTS;
        info.limits = limits;
        NullProvider { info, control: Arc::default() }
    }

    /// With something else to offer.
    pub fn edit(mut self, edit: impl FnOnce(&mut Info)) -> Self {
        edit(&mut self.info);
        self
    }

    pub fn control(&self) -> Arc<Control> {
        self.control.clone()
    }
}

impl Provider for NullProvider {
    type Domain = NullDomain;

    fn name(&self) -> &'static str {
        self.info.provider
    }

    fn devices(&self) -> Vec<Device> {
        vec![Device { name: self.info.device.clone(), state: Ok(self.info.clone()) }]
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn configure(&self, name: &str, value: &str) -> Result<Self> {
        if name != "message_bytes" {
            return Err(setting::unknown(self.name(), name, SETTINGS));
        }
        let bytes = setting::number(name, value, 1..=1 << 16)?;
        Ok(self.clone().edit(|info| info.limits.message = bytes))
    }

    fn open(
        &self,
        _info: &Info,
        _attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<NullDomain> {
        Ok(NullDomain { control: self.control.clone(), events })
    }
}

impl Control {
    /// The inside of an endpoint.
    pub fn link(&self, endpoint: EndpointId) -> Arc<Link> {
        self.links.lock().unwrap()[&endpoint].clone()
    }

    /// The inside of the shared receive queue that was made last.
    pub fn receives(&self) -> Arc<Receives> {
        self.receives.lock().unwrap().upgrade().unwrap()
    }

    /// How many endpoints there are.
    pub fn endpoints(&self) -> usize {
        self.links.lock().unwrap().len()
    }

    /// How many registrations are alive.
    pub fn registrations(&self) -> usize {
        self.registered.lock().unwrap().len()
    }

    /// Has something happen in the middle of the next registration.
    pub fn on_register(&self, then: impl FnOnce() + Send + 'static) {
        *self.on_register.lock().unwrap() = Some(Box::new(then));
    }

    /// Whether the device fails to stop what is in flight.
    pub fn go_on(&self, goes: bool) {
        self.goes_on.store(goes, Ordering::Relaxed);
    }

    /// Whether the device fails to let go of memory.
    pub fn hold_on(&self, holds: bool) {
        self.holds_on.store(holds, Ordering::Relaxed);
    }

    /// Whether grants wait until they open.
    pub fn stay_shut(&self, shut: bool) {
        self.stays_shut.store(shut, Ordering::Relaxed);
    }

    /// No grant opens any more: its connection is over.
    pub fn never_open(&self) {
        self.never_opens.store(true, Ordering::Relaxed);
    }

    /// Whether the device refuses to make endpoints.
    pub fn make_none(&self, none: bool) {
        self.makes_none.store(none, Ordering::Relaxed);
    }

    /// How many grants are alive.
    pub fn grants(&self) -> usize {
        self.grants.lock().unwrap().len()
    }

    /// How many listeners are alive.
    pub fn listeners(&self) -> usize {
        self.listeners.lock().unwrap().len()
    }

    /// Brings a connection request, as from a peer.
    pub fn request(&self, listener: ListenerId, data: &[u8]) -> RequestId {
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let backlog = self.listeners.lock().unwrap()[&listener].clone();
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        backlog.requests.lock().unwrap().push_back(RawRequest::new(id, peer, data.into()));
        backlog.events.event(Event::ConnectRequest { listener });
        id
    }

    /// The requests that were rejected, with the data for the peer.
    pub fn rejected(&self) -> Vec<(RequestId, Vec<u8>)> {
        self.rejected.lock().unwrap().clone()
    }

    /// A device would fault here: each segment must lie in a registration that is alive.
    fn check(&self, segments: &[Segment]) {
        let registered = self.registered.lock().unwrap();
        for segment in segments {
            let (addr, len) = registered[&segment.key];
            let start = segment.addr as usize;
            assert!(start >= addr && start + segment.len <= addr + len, "outside its registration");
        }
    }
}
