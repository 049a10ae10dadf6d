//! Where the events of a domain go: to its own queue, or to the one that an endpoint or a listener was made with.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fabric_core::{EndpointId, Error, Event, EventSink, ListenerId, Result};
use fabric_util::sync::Mutex;

use crate::eq::{EventHub, EventQueue};

/// The event queues of a domain.
pub(crate) struct EventRouter {
    own: Arc<EventHub>,
    others: Mutex<OtherQueues>,
}

/// Those that the application made, and what reports to them.
#[derive(Default)]
struct OtherQueues {
    hubs: Vec<Weak<EventHub>>,
    endpoints: HashMap<EndpointId, Arc<EventHub>>,
    listeners: HashMap<ListenerId, Arc<EventHub>>,
}

impl OtherQueues {
    fn alive(&self) -> Vec<Arc<EventHub>> {
        self.hubs.iter().filter_map(Weak::upgrade).collect()
    }
}

impl EventRouter {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(EventRouter { own: EventHub::new()?, others: Mutex::default() }))
    }

    /// The domain's own queue.
    pub(crate) fn own(&self) -> &Arc<EventHub> {
        &self.own
    }

    /// Makes one more queue.
    pub(crate) fn add_queue(&self) -> Result<EventQueue> {
        let hub = EventHub::new()?;
        let mut others = self.others.lock();
        others.hubs.retain(|hub| hub.strong_count() > 0);
        others.hubs.push(Arc::downgrade(&hub));
        drop(others);
        // A loss that is reported after this look reaches it by itself.
        if self.own.device_lost() {
            hub.event(Event::DeviceLost);
        }
        Ok(EventQueue { hub })
    }

    /// The queue that was asked for: the domain's own, unless it is another one of the domain.
    ///
    /// # Errors
    /// `InvalidArgument`: it is of another domain.
    pub(crate) fn choose(
        &self,
        operation: &'static str,
        queue: Option<&EventQueue>,
    ) -> Result<Arc<EventHub>> {
        let Some(EventQueue { hub }) = queue else { return Ok(self.own.clone()) };
        let is_known = Arc::ptr_eq(hub, &self.own)
            || self.others.lock().alive().iter().any(|known| Arc::ptr_eq(known, hub));
        if !is_known {
            return Err(Error::invalid(operation, "the event queue is of another domain"));
        }
        Ok(hub.clone())
    }

    /// From now on the events of an endpoint go to this queue.
    pub(crate) fn route_endpoint(&self, id: EndpointId, hub: &Arc<EventHub>) {
        if !Arc::ptr_eq(hub, &self.own) {
            self.others.lock().endpoints.insert(id, hub.clone());
        }
    }

    /// The same for a listener.
    pub(crate) fn route_listener(&self, id: ListenerId, hub: &Arc<EventHub>) {
        if !Arc::ptr_eq(hub, &self.own) {
            self.others.lock().listeners.insert(id, hub.clone());
        }
    }

    /// An endpoint is gone.
    pub(crate) fn forget_endpoint(&self, id: EndpointId) {
        self.others.lock().endpoints.remove(&id);
    }

    /// A listener is gone.
    pub(crate) fn forget_listener(&self, id: ListenerId) {
        self.others.lock().listeners.remove(&id);
    }
}

impl EventSink for EventRouter {
    fn event(&self, event: Event) {
        let others = self.others.lock();
        let hub = match &event {
            Event::ConnectRequest { listener } => others.listeners.get(listener).cloned(),
            Event::DeviceLost => {
                drop(others);
                // First there: a queue that is made meanwhile finds it there, or is among the others.
                self.own.event(event);
                let hubs = self.others.lock().alive();
                return hubs.iter().for_each(|hub| hub.event(Event::DeviceLost));
            }
            // Events of the port are the domain's.
            event => event.endpoint().and_then(|id| others.endpoints.get(&id).cloned()),
        };
        drop(others);
        hub.as_ref().unwrap_or(&self.own).event(event);
    }
}
