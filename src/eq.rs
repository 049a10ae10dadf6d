//! Connection events: one queue a domain.
//!
//! Blocking waits for one endpoint or listener take their events from here, too: each event is handed out once, to the
//! thread that takes it first. A wait wakes for the events of its owner alone, and finds them without a search: many
//! threads that wait each cost nothing to the others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fabric_core::{
    DisconnectReason, EndpointId, EndpointState, Error, Event, EventSink, ListenerId, Result,
    likely, unlikely,
};
use fabric_util::fork::ForkEpoch;
use fabric_util::log_line;
use fabric_util::sync::{Condvar, Mutex, MutexGuard, assert_none_held};
use fabric_util::wakeup::Wakeup;
use smallvec::SmallVec;

use crate::process::forked_error;
use crate::registry::EndpointShared;

/// Events of endpoints that are gone are kept for a reader, but not without bound.
const MAX_DETACHED: usize = 1024;

pub(crate) struct EventHub {
    fork_epoch: ForkEpoch,
    state: Mutex<HubState>,
    wakeup: Wakeup,
    /// Something waits: a look without the lock, for pollers.
    has_events: AtomicBool,
}

/// The events by their number, which is their order. An owner has the numbers of its own, so that no wait searches
/// the events of others.
#[derive(Default)]
struct HubState {
    queue: BTreeMap<u64, Event>,
    next: u64,
    endpoints: HashMap<EndpointId, EndpointEvents>,
    listeners: HashMap<ListenerId, ListenerEvents>,
    /// Those of endpoints that are gone, oldest first.
    detached_events: VecDeque<u64>,
    /// The port's.
    port: Option<u64>,
    /// Of waits for any event.
    any: Arc<Signal>,
    device_lost: bool,
}

/// An endpoint, and its peer once it is connecting.
struct EndpointEvents {
    shared: Arc<EndpointShared>,
    peer: Option<SocketAddr>,
    /// At most one of each kind, in order.
    pending: SmallVec<[u64; 2]>,
    signal: Arc<Signal>,
}

/// A listener.
#[derive(Default)]
struct ListenerEvents {
    pending: Option<u64>,
    signal: Arc<Signal>,
}

/// What waits for an owner's events sleep on.
#[derive(Default)]
struct Signal {
    changed: Condvar,
    /// Counts events, so that a wait notices one between its look and its sleep. Changed under the hub's lock.
    sequence: AtomicU64,
}

impl Signal {
    fn notify(&self) {
        self.sequence.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }
}

/// Whose events a wait is for.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    Any,
    Endpoint(EndpointId),
    Listener(ListenerId),
}

impl From<EndpointId> for Owner {
    fn from(id: EndpointId) -> Self {
        Owner::Endpoint(id)
    }
}

impl From<ListenerId> for Owner {
    fn from(id: ListenerId) -> Self {
        Owner::Listener(id)
    }
}

impl HubState {
    fn signal(&self, owner: Owner) -> &Arc<Signal> {
        match owner {
            Owner::Any => None,
            Owner::Endpoint(id) => self.endpoints.get(&id).map(|entry| &entry.signal),
            Owner::Listener(id) => self.listeners.get(&id).map(|requests| &requests.signal),
        }
        .unwrap_or(&self.any)
    }

    /// Files an event under its owner, and wakes the waits that it concerns.
    fn file(&mut self, event: Event) -> u64 {
        let number = self.next;
        self.next += 1;
        match &event {
            Event::ConnectRequest { listener } => {
                if let Some(requests) = self.listeners.get_mut(listener) {
                    requests.pending = Some(number);
                    requests.signal.notify();
                }
            }
            Event::DeviceLost => {
                self.listeners.values().for_each(|requests| requests.signal.notify());
                self.endpoints.values().for_each(|entry| entry.signal.notify());
            }
            Event::PortDown | Event::PortActive => self.port = Some(number),
            event => match event.endpoint().and_then(|id| self.endpoints.get_mut(&id)) {
                Some(entry) => {
                    entry.pending.push(number);
                    entry.signal.notify();
                }
                None => self.detached_events.push_back(number),
            },
        }
        self.queue.insert(number, event);
        self.any.notify();
        number
    }

    fn take(&mut self, number: u64) -> Option<Event> {
        let event = self.queue.remove(&number)?;
        match &event {
            Event::ConnectRequest { listener } => {
                if let Some(requests) = self.listeners.get_mut(listener) {
                    requests.pending = None;
                }
            }
            Event::DeviceLost => {}
            Event::PortDown | Event::PortActive => self.port = None,
            event => match event.endpoint().and_then(|id| self.endpoints.get_mut(&id)) {
                Some(entry) => entry.pending.retain(|pending| *pending != number),
                // Without an owner that asks it was the oldest event, and so is the oldest of these.
                None => drop(self.detached_events.pop_front()),
            },
        }
        Some(event)
    }

    /// An endpoint's first event that is wanted.
    fn first(&self, id: EndpointId, wanted: impl Fn(&Event) -> bool) -> Option<u64> {
        let is_wanted = |number: &u64| self.queue.get(number).is_some_and(&wanted);
        self.endpoints.get(&id)?.pending.iter().copied().find(is_wanted)
    }
}

impl EventHub {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let wakeup =
            Wakeup::new().map_err(|cause| Error::system("open domain", "fabric", cause))?;
        Ok(Arc::new(EventHub {
            fork_epoch: ForkEpoch::current(),
            state: Mutex::default(),
            wakeup,
            has_events: AtomicBool::new(false),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock()
    }

    pub(crate) fn add(&self, shared: &Arc<EndpointShared>) {
        let (pending, signal) = (SmallVec::new(), Arc::default());
        let entry = EndpointEvents { shared: shared.clone(), peer: None, pending, signal };
        self.lock().endpoints.insert(shared.id, entry);
    }

    /// Whom the endpoint connects to, or accepts; errors name it.
    pub(crate) fn set_peer(&self, id: EndpointId, peer: SocketAddr) {
        if let Some(entry) = self.lock().endpoints.get_mut(&id) {
            entry.peer = Some(peer);
        }
    }

    /// What a wait for something of this endpoint ends with when its time has passed.
    #[cold]
    pub(crate) fn timed_out(&self, id: EndpointId) -> Error {
        let peer = self.lock().endpoints.get(&id).and_then(|entry| entry.peer);
        Error::TimedOut(peer.map(Box::new))
    }

    pub(crate) fn device_lost(&self) -> bool {
        self.lock().device_lost
    }

    /// Forgets an endpoint that is dropped. Its `Disconnected` goes too; if it was still connecting, the
    /// attempt ends with `Canceled`.
    pub(crate) fn remove(&self, id: EndpointId) {
        let mut state = self.lock();
        let Some(EndpointEvents { shared, pending, .. }) = state.endpoints.remove(&id) else {
            return;
        };
        for number in pending {
            state.queue.remove(&number);
        }
        if shared.state.replace(EndpointState::Connecting, EndpointState::Dead) {
            if state.detached_events.len() >= MAX_DETACHED
                && let Some(oldest) = state.detached_events.pop_front()
            {
                state.queue.remove(&oldest);
            }
            self.push(&mut state, Event::ConnectFailed { endpoint: id, error: Error::Canceled });
        } else {
            self.clear_if_empty(&state);
        }
    }

    pub(crate) fn add_listener(&self, id: ListenerId) {
        self.lock().listeners.insert(id, ListenerEvents::default());
    }

    pub(crate) fn remove_listener(&self, id: ListenerId) {
        let mut state = self.lock();
        if let Some(number) = state.listeners.remove(&id).and_then(|requests| requests.pending) {
            state.queue.remove(&number);
            self.clear_if_empty(&state);
        }
    }

    fn push(&self, state: &mut HubState, event: Event) {
        state.file(event);
        if state.queue.len() == 1 {
            self.has_events.store(true, Ordering::Release);
            self.wakeup.set();
        }
    }

    fn clear_if_empty(&self, state: &HubState) {
        if state.queue.is_empty() {
            self.has_events.store(false, Ordering::Release);
            self.wakeup.clear();
        }
    }

    fn take(&self, find: impl FnOnce(&HubState) -> Option<u64>) -> Option<Event> {
        let mut state = self.lock();
        let number = find(&state)?;
        let event = state.take(number);
        self.clear_if_empty(&state);
        event
    }

    #[inline]
    fn take_oldest(&self) -> Option<Event> {
        if unlikely(self.has_events.load(Ordering::Acquire)) { self.take_first() } else { None }
    }

    #[inline(never)] // not to be in the way of a poll that finds none
    fn take_first(&self) -> Option<Event> {
        self.take(|state| state.queue.first_key_value().map(|(number, _)| *number))
    }

    /// Takes the connect outcome of an endpoint.
    pub(crate) fn take_outcome(&self, id: EndpointId) -> Option<Event> {
        self.take(|state| state.first(id, is_outcome))
    }

    /// Takes the end of an endpoint.
    pub(crate) fn take_disconnected(&self, id: EndpointId) -> Option<DisconnectReason> {
        let ended = |event: &Event| matches!(event, Event::Disconnected { .. });
        match self.take(|state| state.first(id, ended))? {
            Event::Disconnected { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Looks with `look` until it finds something, at every event of the owner again; `None` when the time has passed.
    pub(crate) fn wait_for<T>(
        &self,
        owner: impl Into<Owner>,
        timeout: Option<Duration>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let signal = self.lock().signal(owner.into()).clone();
        let mut seen = signal.sequence();
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let mut state = self.lock();
            while signal.sequence() == seen {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                state = match left {
                    Some(Duration::ZERO) => return None,
                    Some(left) => signal.changed.wait_timeout(state, left),
                    None => signal.changed.wait(state),
                };
            }
            seen = signal.sequence();
        }
    }
}

impl EventSink for EventHub {
    fn event(&self, event: Event) {
        let mut state = self.lock();
        if let Some(event) = self.filter(&mut state, event) {
            self.push(&mut state, event);
        }
    }
}

impl EventHub {
    /// Moves the endpoint's state on; `None` for an event that comes too late, or a second time.
    fn filter(&self, state: &mut HubState, event: Event) -> Option<Event> {
        let entry = event.endpoint().map(|id| state.endpoints.get(&id));
        let peer = entry.flatten().and_then(|entry| entry.peer);
        let event = match (event, peer) {
            (Event::ConnectFailed { endpoint, error }, Some(peer)) => {
                Event::ConnectFailed { endpoint, error: error.at(peer) }
            }
            (event, _) => event,
        };
        let news = match (&event, entry.map(|entry| entry.map(|entry| &entry.shared))) {
            (_, Some(None)) => false,
            (Event::Connected { .. }, Some(Some(shared))) => {
                shared.state.replace(EndpointState::Connecting, EndpointState::Connected)
            }
            (Event::ConnectFailed { .. }, Some(Some(shared))) => {
                shared.state.advance(EndpointState::Dead)
            }
            (Event::Disconnected { .. }, Some(Some(shared))) => {
                shared.state.advance(EndpointState::Dead);
                !shared.ended.swap(true, Ordering::AcqRel)
            }
            (Event::ConnectRequest { listener }, _) => match state.listeners.get(listener) {
                Some(ListenerEvents { pending: Some(_), signal }) => {
                    // One pending event of each kind; blocked acceptors look again all the same.
                    signal.notify();
                    false
                }
                requests => requests.is_some(),
            },
            (Event::DeviceLost, _) => !std::mem::replace(&mut state.device_lost, true),
            (Event::PortDown | Event::PortActive, _) => {
                // What the port was before is no news any more.
                if let Some(number) = state.port.take() {
                    state.queue.remove(&number);
                }
                true
            }
            _ => false,
        };
        if news {
            log_event(&event, peer);
        }
        news.then_some(event)
    }
}

/// A line for those who ask why a service does not connect.
fn log_event(event: &Event, peer: Option<SocketAddr>) {
    let peer = || peer.map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string());
    match event {
        Event::Connected { endpoint, .. } => {
            log_line!(Debug, "{endpoint}: connected with {}", peer());
        }
        Event::ConnectFailed { endpoint, error } => {
            log_line!(Debug, "{endpoint}: not connected with {}: {error}", peer());
        }
        Event::Disconnected { endpoint, reason } => {
            log_line!(Debug, "{endpoint}: the connection with {} has ended: {reason}", peer());
        }
        _ => {}
    }
}

/// The outcome of connecting.
fn is_outcome(event: &Event) -> bool {
    matches!(event, Event::Connected { .. } | Event::ConnectFailed { .. })
}

/// The connection events of a domain, in the order they happened.
///
/// - Bounded: an endpoint has at most one pending event of each kind, a listener one, the port one.
/// - Each event is handed out once: here, or by the blocking wait of its endpoint
///   ([`Endpoint::wait_connected`](crate::Endpoint::wait_connected)).
/// - The descriptor ([`AsFd`]) is readable exactly while an event waits.
/// - Any thread may use it. Clones are the same queue.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
/// # let (peer, timeout) = (&b, doc::TIMEOUT);
/// use fabric::Event;
///
/// # let (domain, connected, other) = (b.domain.clone(), b.endpoint, a.endpoint);
/// # let mut endpoints = std::collections::HashMap::from([(connected.id(), connected)]);
/// # let listener = domain.listen((domain.info().addresses[0], 0).into())?;
/// # let queue = domain.completion_queue(256)?;
/// # drop(other);
/// // The connections of a server; a thread of its own, or an event loop with `AsFd`, does this for as long as it runs.
/// while !endpoints.is_empty() {
///     match domain.events().wait(timeout)? {
///         // Requests wait: take all of them. (`listener.poll` finds them without the event, too.)
///         Event::ConnectRequest { .. } => while let Some(mut request) = listener.poll() {
///             // One client too many is sent away; the others stay.
///             match domain.endpoint().build(&queue) {
///                 Ok(endpoint) if request.accept(&endpoint, b"").is_ok() => {
///                     endpoints.insert(endpoint.id(), endpoint);
///                 }
///                 Ok(_) => {}
///                 Err(_) => drop(request.reject(b"busy")),
///             }
///         },
///         // Dead: dropping it gives the room in its completion queue back.
///         Event::Disconnected { endpoint, reason } => {
///             println!("{endpoint:?}: {reason}");
///             endpoints.remove(&endpoint);
///         }
///         Event::ConnectFailed { endpoint, .. } => drop(endpoints.remove(&endpoint)),
///         Event::DeviceLost => break,
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct EventQueue {
    pub(crate) hub: Arc<EventHub>,
}

impl EventQueue {
    /// Takes the oldest event, if there is one. Never blocks. In a forked child there is none.
    #[inline]
    pub fn poll(&self) -> Option<Event> {
        if likely(self.hub.fork_epoch.is_current()) { self.hub.take_oldest() } else { None }
    }

    /// Takes the oldest event, waiting for one as long as `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// `TimedOut`; `InvalidState` in a forked child.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        if !self.hub.fork_epoch.is_current() {
            return Err(forked_error("wait for events"));
        }
        self.hub.wait_for(Owner::Any, timeout, || self.poll()).ok_or(Error::TimedOut(None))
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hub.wakeup.as_fd()
    }
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.hub.lock().queue.len();
        assert_none_held("a formatter is called");
        f.debug_struct("EventQueue").field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod tests;
