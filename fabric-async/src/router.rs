//! Where the domain's connection events go: each to the connection or listener that it concerns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fabric::{EndpointId, Event, EventQueue, ListenerId};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::conn_state::ConnState;
use crate::deferred::Deferred;
use crate::reactor::ReactorHandle;
use crate::wakers::Wakers;

/// What a listener does about events.
pub(crate) trait ListenerEvents: Send + Sync {
    /// Takes the requests that wait at the listener; adds the wakers of futures that can go on.
    fn take_requests(&self, wakers: &mut Wakers);

    /// No more requests will come: adds the wakers of all futures that wait for one.
    fn wake_all(&self, wakers: &mut Wakers);
}

/// The connections and listeners of a node.
pub(crate) struct Router {
    events: Mutex<EventQueue>,
    connections: Mutex<HashMap<EndpointId, Weak<ConnState>>>,
    listeners: Mutex<Vec<(ListenerId, Weak<dyn ListenerEvents>)>>,
    reactor: Arc<ReactorHandle>,
    device_lost: AtomicBool,
}

impl Router {
    pub(crate) fn new(events: EventQueue, reactor: &Arc<ReactorHandle>) -> Arc<Self> {
        Arc::new(Router {
            events: Mutex::new(events),
            connections: Mutex::default(),
            listeners: Mutex::default(),
            reactor: reactor.clone(),
            device_lost: AtomicBool::new(false),
        })
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<EndpointId, Weak<ConnState>>> {
        self.connections.lock()
    }

    pub(crate) fn register(&self, id: EndpointId, conn_state: &Arc<ConnState>) {
        self.connections().insert(id, Arc::downgrade(conn_state));
    }

    pub(crate) fn unregister(&self, id: EndpointId) {
        self.connections().remove(&id);
    }

    fn conn_state(&self, id: EndpointId) -> Option<Arc<ConnState>> {
        self.connections().get(&id)?.upgrade()
    }

    pub(crate) fn register_listener(&self, id: ListenerId, listener: Weak<dyn ListenerEvents>) {
        self.listeners.lock().push((id, listener));
    }

    pub(crate) fn unregister_listener(&self, id: ListenerId) {
        self.listeners.lock().retain(|(known, _)| *known != id);
    }

    fn listener(&self, id: ListenerId) -> Option<Arc<dyn ListenerEvents>> {
        self.listeners.lock().iter().find(|(known, _)| *known == id)?.1.upgrade()
    }

    pub(crate) fn is_device_lost(&self) -> bool {
        self.device_lost.load(Ordering::Relaxed)
    }

    /// Delivers the events that there are. When it returns, every event that was reported before the call is delivered,
    /// by this thread or another.
    pub(crate) fn take_events(&self) {
        let mut deferred = Deferred::new();
        let mut asked = Vec::new();
        let events = self.events.lock();
        while let Some(event) = events.poll() {
            self.deliver(event, &mut deferred, &mut asked);
        }
        drop(events);
        // A listener may be of a provider of the application's own, so no lock is held.
        for listener in asked {
            listener.take_requests(&mut deferred.wakers);
        }
    }

    /// `asked`: the listeners at which requests wait.
    fn deliver(
        &self,
        event: Event,
        deferred: &mut Deferred,
        asked: &mut Vec<Arc<dyn ListenerEvents>>,
    ) {
        let wakers = &mut deferred.wakers;
        let conn_state = event.endpoint().and_then(|id| self.conn_state(id));
        match (event, &conn_state) {
            (Event::Connected { data, .. }, Some(conn_state)) => {
                conn_state.connected(Ok(data), wakers)
            }
            (Event::ConnectFailed { error, .. }, Some(conn_state)) => {
                conn_state.connected(Err(error), wakers)
            }
            (Event::Disconnected { endpoint, reason, .. }, Some(conn_state)) => {
                conn_state.ended(reason, wakers);
                // Leases end with their connection, and this may be any thread.
                self.reactor.disconnected(endpoint);
            }
            (Event::ConnectRequest { listener }, _) => asked.extend(self.listener(listener)),
            (Event::DeviceLost, _) => {
                // Each endpoint has an event of its own.
                self.device_lost.store(true, Ordering::Relaxed);
                let listeners = self.listeners.lock();
                let all: Vec<_> = listeners.iter().filter_map(|(_, one)| one.upgrade()).collect();
                drop(listeners);
                all.iter().for_each(|listener| listener.wake_all(wakers));
            }
            _ => {}
        }
        deferred.conn_state(conn_state);
    }

    /// Adds the wakers of all futures that wait for something of a connection.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake_connections(&self, wakers: &mut Wakers) {
        let connections: Vec<_> = self.connections().values().filter_map(Weak::upgrade).collect();
        connections.iter().for_each(|conn_state| conn_state.wake_all(wakers));
    }
}
