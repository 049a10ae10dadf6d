//! The endpoints of a domain, as everything below their own file knows them: their state and counters, and those of the
//! endpoints that are closed.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use fabric_core::state::StateCell;
use fabric_core::{DatagramSources, EndpointId, EndpointState, Error, Failure, Info, Result};
use fabric_util::sync::Mutex;

use crate::counters::{Counters, EndpointCounters};

/// What the event hub and the completion queues know of an endpoint.
pub(crate) struct EndpointShared {
    pub(crate) id: EndpointId,
    pub(crate) state: StateCell,
    /// Whether its one `Disconnected` was reported.
    pub(crate) ended: AtomicBool,
    pub(crate) counters: EndpointCounters,
    /// Where its datagrams came from, if it receives such.
    pub(crate) sources: Option<Arc<DatagramSources>>,
}

impl EndpointShared {
    pub(crate) fn new(id: EndpointId) -> Self {
        let (state, counters) = (StateCell::new(), EndpointCounters::default());
        EndpointShared { id, state, ended: AtomicBool::new(false), counters, sources: None }
    }

    /// That of a datagram endpoint, which is never connected, and never dead.
    pub(crate) fn of_datagrams(id: EndpointId, sources: &Arc<DatagramSources>) -> Self {
        EndpointShared { sources: Some(sources.clone()), ..Self::new(id) }
    }

    /// The provider refused a post or a grant. If it knows that the connection is over, so does the endpoint: a later post could
    /// reach a device that still takes it, and would be taken after one that was not.
    #[cold]
    pub(crate) fn note_refusal(&self, refusal: &Error) {
        if matches!(refusal, Error::NotConnected | Error::DeviceLost) {
            self.state.replace(EndpointState::Connected, EndpointState::Dead);
        }
    }
}

/// What reclaiming regions (`reclaim.rs`) asks of an endpoint.
pub(crate) trait Settle: Send + Sync {
    /// Takes what has ended in the send queue, unsignaled operations too; true if nothing is in flight there.
    fn settle(&self) -> bool;

    /// Leaves progress to the provider's thread again, which takes a poll for the application's.
    fn hand_over(&self);
}

/// The endpoints of a domain.
pub(crate) struct EndpointRegistry {
    provider: &'static str,
    max: usize,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    endpoints: HashMap<EndpointId, Entry>,
    /// What the closed ones had counted.
    closed_totals: Counters,
}

struct Entry {
    shared: Weak<EndpointShared>,
    /// None before it is made.
    endpoint: Option<Weak<dyn Settle>>,
}

impl EndpointRegistry {
    pub(crate) fn new(info: &Info) -> Self {
        let (provider, max) = (info.provider, info.limits.endpoints);
        EndpointRegistry { provider, max, state: Mutex::default() }
    }

    /// Counts in an endpoint that is about to be made.
    pub(crate) fn add(&self, shared: &Arc<EndpointShared>) -> Result<()> {
        let mut state = self.state.lock();
        if state.endpoints.len() >= self.max {
            let (max, provider) = (self.max, self.provider);
            let text = format!("the domain has {max} endpoints, the most that {provider} takes");
            return Err(Error::NoMemory(Failure::new("make endpoint", text)));
        }
        let entry = Entry { shared: Arc::downgrade(shared), endpoint: None };
        state.endpoints.insert(shared.id, entry);
        Ok(())
    }

    /// An endpoint that was added is made.
    pub(crate) fn made(&self, id: EndpointId, endpoint: Weak<dyn Settle>) {
        if let Some(entry) = self.state.lock().endpoints.get_mut(&id) {
            entry.endpoint = Some(endpoint);
        }
    }

    /// An endpoint is closed, or was not made after all.
    pub(crate) fn remove(&self, shared: &EndpointShared) {
        let mut state = self.state.lock();
        if state.endpoints.remove(&shared.id).is_some() {
            state.closed_totals.add(&shared.counters.snapshot());
        }
    }

    pub(crate) fn shared(&self) -> Vec<Arc<EndpointShared>> {
        self.state.lock().endpoints.values().filter_map(|entry| entry.shared.upgrade()).collect()
    }

    /// What all of them counted, the closed ones too.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = self.state.lock().closed_totals;
        for shared in self.shared() {
            sum.add(&shared.counters.snapshot());
        }
        sum
    }

    /// Those that are made.
    fn endpoints(&self) -> Vec<Arc<dyn Settle>> {
        let state = self.state.lock();
        state.endpoints.values().filter_map(|entry| entry.endpoint.as_ref()?.upgrade()).collect()
    }

    /// Takes what has ended on every endpoint; true if nothing is in flight in any send queue.
    pub(crate) fn settle(&self) -> bool {
        let mut settled = true;
        for endpoint in self.endpoints() {
            settled &= endpoint.settle();
        }
        settled
    }

    /// See [`Settle::hand_over`].
    pub(crate) fn hand_over(&self) {
        self.endpoints().iter().for_each(|endpoint| endpoint.hand_over());
    }
}
