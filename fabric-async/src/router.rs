//! Where the domain's connection events go: each to the connection or listener that it concerns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fabric::{EndpointId, Event, EventQueue, ListenerId};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::lane::Lane;
use crate::leftover::Leftover;
use crate::service::ReactorHandle;
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
    lanes: Mutex<HashMap<EndpointId, Weak<Lane>>>,
    listeners: Mutex<Vec<(ListenerId, Weak<dyn ListenerEvents>)>>,
    reactor: Arc<ReactorHandle>,
    device_lost: AtomicBool,
}

impl Router {
    pub(crate) fn new(events: EventQueue, reactor: &Arc<ReactorHandle>) -> Arc<Self> {
        Arc::new(Router {
            events: Mutex::new(events),
            lanes: Mutex::default(),
            listeners: Mutex::default(),
            reactor: reactor.clone(),
            device_lost: AtomicBool::new(false),
        })
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<EndpointId, Weak<Lane>>> {
        self.lanes.lock()
    }

    pub(crate) fn register(&self, id: EndpointId, lane: &Arc<Lane>) {
        self.lanes().insert(id, Arc::downgrade(lane));
    }

    pub(crate) fn unregister(&self, id: EndpointId) {
        self.lanes().remove(&id);
    }

    fn lane(&self, id: EndpointId) -> Option<Arc<Lane>> {
        self.lanes().get(&id)?.upgrade()
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
        let mut leftover = Leftover::new();
        let mut asked = Vec::new();
        let events = self.events.lock();
        while let Some(event) = events.poll() {
            self.deliver(event, &mut leftover, &mut asked);
        }
        drop(events);
        // A listener may be of a provider of the application's own, so no lock is held.
        for listener in asked {
            listener.take_requests(&mut leftover.wakers);
        }
    }

    /// `asked`: the listeners at which requests wait.
    fn deliver(
        &self,
        event: Event,
        leftover: &mut Leftover,
        asked: &mut Vec<Arc<dyn ListenerEvents>>,
    ) {
        let wakers = &mut leftover.wakers;
        let lane = event.endpoint().and_then(|id| self.lane(id));
        match (event, &lane) {
            (Event::Connected { data, .. }, Some(lane)) => lane.connected(Ok(data), wakers),
            (Event::ConnectFailed { error, .. }, Some(lane)) => lane.connected(Err(error), wakers),
            (Event::Disconnected { reason, .. }, Some(lane)) => {
                lane.ended(reason, wakers);
                // Leases end with their connection, and this may be any thread.
                self.reactor.look_at_leases();
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
        leftover.lane(lane);
    }

    /// Adds the wakers of all futures that wait for something of a connection.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake_connections(&self, wakers: &mut Wakers) {
        let lanes: Vec<_> = self.lanes().values().filter_map(Weak::upgrade).collect();
        lanes.iter().for_each(|lane| lane.call_all(wakers));
    }
}
