//! Connection events: one queue a domain.
//!
//! The hub is also where blocking waits for one endpoint or listener look: each event is handed out once,
//! to whoever takes it first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric_core::{
    DisconnectReason, EndpointId, EndpointState, Error, Event, EventSink, ListenerId, Result,
};
use fabric_util::fork::Origin;
use fabric_util::log_line;
use fabric_util::sync::{Condvar, Mutex, MutexGuard, assert_none_held};
use fabric_util::wakeup::Wakeup;

use crate::endpoint::Shared;
use crate::process::foreign;

/// Events of endpoints that are gone are kept for a reader, but not without bound.
const MAX_ORPHANS: usize = 1024;

pub(crate) struct Hub {
    origin: Origin,
    state: Mutex<HubState>,
    changed: Condvar,
    wakeup: Wakeup,
}

#[derive(Default)]
struct HubState {
    queue: VecDeque<Event>,
    endpoints: HashMap<EndpointId, Member>,
    listeners: HashSet<ListenerId>,
    orphans: usize,
    /// Counts events, so that a waiter notices one between its look and its sleep.
    sequence: u64,
    device_lost: bool,
}

/// An endpoint, and its peer once it is connecting.
struct Member {
    shared: Arc<Shared>,
    peer: Option<SocketAddr>,
}

impl Hub {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let wakeup =
            Wakeup::new().map_err(|cause| Error::system("open domain", "fabric", cause))?;
        let (origin, state, changed) = (Origin::here(), Mutex::default(), Condvar::new());
        Ok(Arc::new(Hub { origin, state, changed, wakeup }))
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock()
    }

    pub(crate) fn add(&self, shared: &Arc<Shared>) {
        let member = Member { shared: shared.clone(), peer: None };
        self.lock().endpoints.insert(shared.id, member);
    }

    /// Whom the endpoint connects to, or accepts; errors name it.
    pub(crate) fn set_peer(&self, id: EndpointId, peer: SocketAddr) {
        if let Some(member) = self.lock().endpoints.get_mut(&id) {
            member.peer = Some(peer);
        }
    }

    /// What a wait for something of this endpoint ends with when its time has passed.
    #[cold]
    pub(crate) fn timed_out(&self, id: EndpointId) -> Error {
        let peer = self.lock().endpoints.get(&id).and_then(|member| member.peer);
        Error::TimedOut(peer.map(Box::new))
    }

    pub(crate) fn device_lost(&self) -> bool {
        self.lock().device_lost
    }

    /// Forgets an endpoint that is dropped. Its `Disconnected` goes too; if it was still connecting, the
    /// attempt ends with `Canceled`.
    pub(crate) fn remove(&self, id: EndpointId) {
        let mut state = self.lock();
        let Some(Member { shared, .. }) = state.endpoints.remove(&id) else { return };
        state.queue.retain(|event| event.endpoint() != Some(id));
        if shared.state.replace(EndpointState::Connecting, EndpointState::Dead) {
            if state.orphans >= MAX_ORPHANS {
                let known = &state.endpoints;
                let oldest = state
                    .queue
                    .iter()
                    .position(|event| event.endpoint().is_some_and(|id| !known.contains_key(&id)));
                if let Some(at) = oldest {
                    state.queue.remove(at);
                    state.orphans -= 1;
                }
            }
            state.orphans += 1;
            self.push(&mut state, Event::ConnectFailed { endpoint: id, error: Error::Canceled });
        } else if state.queue.is_empty() {
            self.wakeup.clear();
        }
    }

    pub(crate) fn add_listener(&self, id: ListenerId) {
        self.lock().listeners.insert(id);
    }

    pub(crate) fn remove_listener(&self, id: ListenerId) {
        let mut state = self.lock();
        state.listeners.remove(&id);
        state.queue.retain(|e| !matches!(e, Event::ConnectRequest { listener } if *listener == id));
        if state.queue.is_empty() {
            self.wakeup.clear();
        }
    }

    fn push(&self, state: &mut HubState, event: Event) {
        if state.queue.is_empty() {
            self.wakeup.set();
        }
        state.queue.push_back(event);
        state.sequence += 1;
        self.changed.notify_all();
    }

    fn take(&self, state: &mut HubState, at: usize) -> Option<Event> {
        let event = state.queue.remove(at)?;
        if event.endpoint().is_some_and(|id| !state.endpoints.contains_key(&id)) {
            state.orphans -= 1;
        }
        if state.queue.is_empty() {
            self.wakeup.clear();
        }
        Some(event)
    }

    fn take_where(&self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let mut state = self.lock();
        let at = state.queue.iter().position(wanted)?;
        self.take(&mut state, at)
    }

    /// Takes the connect outcome of an endpoint.
    pub(crate) fn take_outcome(&self, id: EndpointId) -> Option<Event> {
        self.take_where(|event| is_outcome_of(event, id))
    }

    /// Takes the end of an endpoint.
    pub(crate) fn take_disconnected(&self, id: EndpointId) -> Option<DisconnectReason> {
        let ended =
            |e: &Event| matches!(e, Event::Disconnected { endpoint, .. } if *endpoint == id);
        match self.take_where(ended)? {
            Event::Disconnected { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Looks with `look` until it finds something, at every event again; `None` when the time has passed.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut seen = self.lock().sequence;
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let mut state = self.lock();
            while state.sequence == seen {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                state = match left {
                    Some(Duration::ZERO) => return None,
                    Some(left) => self.changed.wait_timeout(state, left),
                    None => self.changed.wait(state),
                };
            }
            seen = state.sequence;
        }
    }
}

impl EventSink for Hub {
    fn event(&self, event: Event) {
        let mut state = self.lock();
        if let Some(event) = self.admit(&mut state, event) {
            self.push(&mut state, event);
        }
    }
}

impl Hub {
    /// Moves the endpoint's state on; `None` for an event that comes too late, or a second time.
    fn admit(&self, state: &mut HubState, event: Event) -> Option<Event> {
        let member = event.endpoint().map(|id| state.endpoints.get(&id));
        let peer = member.flatten().and_then(|member| member.peer);
        let event = match (event, peer) {
            (Event::ConnectFailed { endpoint, error }, Some(peer)) => {
                Event::ConnectFailed { endpoint, error: error.at(peer) }
            }
            (event, _) => event,
        };
        let news = match (&event, member.map(|member| member.map(|member| &member.shared))) {
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
            (Event::ConnectRequest { listener }, _) => {
                let waits =
                    |e: &Event| matches!(e, Event::ConnectRequest { listener: l } if l == listener);
                let known = state.listeners.contains(listener);
                let waiting = state.queue.iter().any(waits);
                if known && waiting {
                    // One pending event of each kind; blocked acceptors look again all the same.
                    state.sequence += 1;
                    self.changed.notify_all();
                }
                known && !waiting
            }
            (Event::DeviceLost, _) => !std::mem::replace(&mut state.device_lost, true),
            (Event::PortDown | Event::PortActive, _) => {
                // What the port was before is no news any more.
                state.queue.retain(|e| !matches!(e, Event::PortDown | Event::PortActive));
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

/// The outcome of connecting, for this endpoint.
fn is_outcome_of(event: &Event, id: EndpointId) -> bool {
    matches!(event, Event::Connected { .. } | Event::ConnectFailed { .. })
        && event.endpoint() == Some(id)
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
///             let endpoint = domain.endpoint().build(&queue)?;
///             request.accept(&endpoint, b"")?;
///             endpoints.insert(endpoint.id(), endpoint);
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
    pub(crate) hub: Arc<Hub>,
}

impl EventQueue {
    /// Takes the oldest event, if there is one. Never blocks. In a forked child there is none.
    pub fn poll(&self) -> Option<Event> {
        if self.hub.origin.is_here() { self.hub.take_where(|_| true) } else { None }
    }

    /// Takes the oldest event, waiting for one as long as `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// `TimedOut`; `InvalidState` in a forked child.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        if !self.hub.origin.is_here() {
            return Err(foreign("wait for events"));
        }
        self.hub.wait_for(timeout, || self.poll()).ok_or(Error::TimedOut(None))
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
