//! Endpoints: making, connecting, closing. What they transfer is in `posting.rs`.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use fabric::{ConnectRequest, EndpointState};

use super::bound::{Bound, RX, TX};
use super::completions::Completions;
use super::counter::Counter;
use super::domain::{Domain, Queue};
use super::event::Owner;
use super::event_queue::{Ending, Events};
use super::kinds::{ActiveEndpoint, AnyEndpoint};
use super::shared_context::{OpenReceives, SharedReceives, SharedTransmits};
use super::tally::Tally;
use crate::abi::FidEp;
use crate::abi::flags::{FI_CLASS_EP, FI_EDOMAIN, FI_ENOEQ};
use crate::errno::Errno;
use crate::handle::{Name, Object};
use crate::sync::lock;

/// How long connecting and accepting may take: the peer's application may be slow to look for requests.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a shutdown or a close waits until the peer has what was injected: that counts as done when the call returns.
const LINGER: Duration = Duration::from_secs(1);

/// What an info asks of an endpoint.
pub(crate) struct Wishes {
    pub(crate) depths: [usize; 2],
    pub(crate) segments: [usize; 2],
    pub(crate) inject: usize,
    pub(crate) caps: u64,
    /// Of transmits.
    pub(crate) order: u64,
    /// The application has the mode `FI_RX_CQ_DATA`.
    pub(crate) writes_data: bool,
    pub(crate) op_flags: [u64; 2],
    pub(crate) source: Option<SocketAddr>,
    /// It connects from the port of the source as well: that of a passive endpoint, which it was made from.
    pub(crate) keeps_port: bool,
    pub(crate) request: Option<ConnectRequest>,
}

/// An endpoint.
pub(crate) struct MessageEndpoint {
    domain: Arc<Domain>,
    pub(super) wishes: Wishes,
    bound: Mutex<MessageBound>,
    enabled: OnceLock<Arc<Enabled>>,
    /// The flags of operations that have none of their own: of transmits, of receives.
    pub(super) op_flags: [AtomicU64; 2],
}

// SAFETY: `FidEp` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for MessageEndpoint {
    type C = FidEp;
    const CLASS: usize = FI_CLASS_EP;
}

/// What it was bound to.
#[derive(Default)]
struct MessageBound {
    events: Option<Arc<Events>>,
    queues: Bound,
    request: Option<ConnectRequest>,
    receives: Option<Arc<SharedReceives>>,
    /// Held, so that it does not close.
    _transmits: Option<Arc<SharedTransmits>>,
}

/// An endpoint that can transfer.
pub(crate) struct Enabled {
    pub(crate) endpoint: fabric::Endpoint,
    /// Of transmits, of receives: whether only those that ask for it have a completion.
    pub(crate) is_selective: [bool; 2],
    pub(crate) tally: Tally,
    completions: [Arc<Completions>; 2],
    /// What it shares with others, if it does.
    receives: Option<Arc<OpenReceives>>,
}

impl MessageEndpoint {
    pub(crate) fn new(domain: &Arc<Domain>, mut wishes: Wishes) -> Self {
        let bound = MessageBound { request: wishes.request.take(), ..MessageBound::default() };
        let op_flags = wishes.op_flags.map(AtomicU64::new);
        let (bound, enabled) = (Mutex::new(bound), OnceLock::new());
        MessageEndpoint { domain: domain.clone(), wishes, bound, enabled, op_flags }
    }

    fn unenabled(&self) -> Result<std::sync::MutexGuard<'_, MessageBound>, Errno> {
        let bound = lock(&self.bound);
        if self.enabled.get().is_some() { Err(Errno::BAD_STATE) } else { Ok(bound) }
    }

    fn check_device(&self, of: &Domain) -> Result<(), Errno> {
        let is_here = Arc::ptr_eq(&of.device, &self.domain.device);
        if is_here { Ok(()) } else { Err(Errno(FI_EDOMAIN)) }
    }

    fn source_ip(&self) -> Option<IpAddr> {
        self.wishes.source.map(|source| source.ip()).filter(|ip| !ip.is_unspecified())
    }

    /// What transfers; an endpoint that is not enabled transfers nothing.
    #[inline]
    pub(crate) fn enabled(&self) -> Result<&Enabled, Errno> {
        self.enabled.get().map(|enabled| &**enabled).ok_or(Errno::BAD_STATE)
    }

    /// Whether it may write with data.
    #[inline]
    pub(crate) fn writes_data(&self) -> bool {
        self.wishes.writes_data
    }

    /// The same; one that begins a connection is enabled by that, if it was not (`fi_endpoint(3)`, `fi_enable`).
    fn enabled_now(&self, owner: Owner) -> Result<&Enabled, Errno> {
        if self.enabled.get().is_none() {
            self.enable(owner)?;
        }
        self.enabled()
    }

    pub(crate) fn connect(&self, owner: Owner, to: SocketAddr, data: &[u8]) -> Result<(), Errno> {
        Ok(self.enabled_now(owner)?.endpoint.connect(to, data)?)
    }

    /// Answers the request that it was made for.
    pub(crate) fn accept(&self, owner: Owner, data: &[u8]) -> Result<(), Errno> {
        let (enabled, name) = (self.enabled_now(owner)?, owner.name);
        let mut bound = lock(&self.bound);
        let MessageBound { request, events, .. } = &mut *bound;
        let events = events.as_ref().ok_or(Errno::BAD_STATE)?;
        let taken = request.as_mut().ok_or(Errno::BAD_STATE)?;
        events.begin_accept(name);
        taken.accept(&enabled.endpoint, data).inspect_err(|_| events.end_accept(name))?;
        *request = None;
        Ok(())
    }

    pub(crate) fn peer(&self) -> Result<SocketAddr, Errno> {
        let peer = self.enabled()?.endpoint.peer_addr();
        peer.ok_or(Errno(libc::ENOTCONN))
    }

    /// Ends the connection, in order as far as the peer lets it.
    pub(crate) fn shutdown(&self) -> Result<(), Errno> {
        let endpoint = &self.enabled()?.endpoint;
        if endpoint.state() == EndpointState::Connected && endpoint.shutdown(LINGER).is_err() {
            log::debug!("{endpoint:?}: what is in flight is canceled");
        }
        endpoint.disconnect();
        Ok(())
    }
}

impl AnyEndpoint for MessageEndpoint {
    fn address(&self) -> Result<SocketAddr, Errno> {
        let connecting = self.enabled.get().and_then(|enabled| enabled.endpoint.local_addr());
        connecting.or(self.wishes.source).ok_or(Errno::BAD_STATE)
    }

    fn end(&self, name: Name) {
        let _ = self.shutdown();
        let events = lock(&self.bound).events.take();
        if let Some(events) = events {
            events.remove(name);
        }
        if let Some(enabled) = self.enabled.get() {
            for queue in &enabled.completions {
                queue.remove_endpoint(enabled.endpoint.id());
            }
        }
    }
}

impl ActiveEndpoint for MessageEndpoint {
    fn bind_events(&self, events: &Arc<Events>) -> Result<(), Errno> {
        self.unenabled()?.events = Some(events.clone());
        Ok(())
    }

    fn bind_queue(&self, queue: &Arc<Queue>, flags: u64) -> Result<(), Errno> {
        self.unenabled()?.queues.bind_queue(&self.domain, queue, flags)
    }

    fn bind_counter(&self, counter: &Arc<Counter>, flags: u64) -> Result<(), Errno> {
        self.unenabled()?.queues.bind_counter(counter, flags)
    }

    fn bind_receives(&self, receives: &Arc<SharedReceives>) -> Result<(), Errno> {
        self.check_device(&receives.domain)?;
        self.unenabled()?.receives = Some(receives.clone());
        Ok(())
    }

    fn bind_transmits(&self, transmits: &Arc<SharedTransmits>) -> Result<(), Errno> {
        self.check_device(&transmits.domain)?;
        self.unenabled()?._transmits = Some(transmits.clone());
        Ok(())
    }

    fn enable(&self, owner: Owner) -> Result<(), Errno> {
        let bound = self.unenabled()?;
        let device = &self.domain.device;
        let events = bound.events.clone().ok_or(Errno(FI_ENOEQ))?;
        let completions = bound.queues.completions(&self.domain, self.wishes.caps)?;
        let event_queue = events.queue(device)?;
        let Wishes { depths: [send, recv], segments, inject, .. } = self.wishes;
        let mut builder = device.domain.endpoint().events(&event_queue);
        builder = builder.send_depth(send).recv_depth(recv).inject(inject);
        builder = builder.send_segments(segments[TX]).recv_segments(segments[RX]);
        builder = builder.connect_timeout(CONNECT_TIMEOUT);
        if let Some(source) = self.source_ip() {
            builder = builder.source(source);
        }
        if let (Some(source), true) = (self.wishes.source, self.wishes.keeps_port) {
            builder = builder.source_port(source.port());
        }
        let binding = lock(&device.binding);
        let is_one = Arc::ptr_eq(&completions[TX], &completions[RX]);
        let receives = bound.receives.as_ref();
        let receives = receives
            .map(|receives| receives.open(&completions[RX], bound.queues.is_selective[RX]))
            .transpose()?;
        let endpoint = if let Some(receives) = &receives {
            builder.shared_receives(&receives.queue).build(&completions[TX].part(send)?)?
        } else if is_one {
            builder.build(&completions[TX].part(send.saturating_add(recv))?)?
        } else {
            builder.build_with(&completions[TX].part(send)?, &completions[RX].part(recv)?)?
        };
        drop(binding);
        let id = endpoint.id();
        for queue in &completions {
            queue.add_endpoint(id, bound.queues.tally.clone());
        }
        bound.queues.feed_counters(&completions);
        let (is_selective, tally) = (bound.queues.is_selective, bound.queues.tally.clone());
        let enabled = Arc::new(Enabled { endpoint, is_selective, tally, completions, receives });
        let ending: Weak<Enabled> = Arc::downgrade(&enabled);
        events.add_endpoint(device, id, owner, ending);
        // The lock is held: there is none yet.
        let _ = self.enabled.set(enabled);
        Ok(())
    }
}

impl Ending for Enabled {
    fn has_settled(&self) -> bool {
        // One that cannot be drained is full, and the application reads it or waits in vain.
        let drained = self.completions.iter().all(|queue| queue.drain().is_ok());
        let counters = self.endpoint.counters();
        let posted = counters.posted_sends + counters.posted_recvs;
        // Shared ones were not posted to it.
        let taken = if self.receives.is_some() { counters.received } else { 0 };
        let id = self.endpoint.id();
        let is_read = || !self.completions.iter().any(|queue| queue.has_unread(id));
        drained && posted + taken <= counters.completed + counters.errors && is_read()
    }
}
