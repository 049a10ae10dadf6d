//! Futures that wait for something else than the end of an operation: a message without a receive, a counter, the end of all
//! sends. What each waits for is looked at after every poll.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use fabric_rdm::Counter;
use fabric_util::sync::Mutex;

use crate::wakers::Wakers;

/// What a future waits for.
pub(super) enum Condition {
    /// A message arrived without a receive, since the endpoint's number was this.
    Message { seen: u64 },
    /// So many operations have ended well, or more than this otherwise.
    Count { counter: Counter, successes: u64, errors: u64 },
    /// No send is outstanding.
    Idle,
}

impl Condition {
    fn is_met(&self, endpoint: &fabric_rdm::Endpoint) -> bool {
        match self {
            Condition::Message { seen } => endpoint.arrived() != *seen,
            Condition::Count { counter, successes, errors } => {
                counter.successes() >= *successes || counter.errors() > *errors
            }
            Condition::Idle => endpoint.outstanding().is_ok_and(|count| count == 0),
        }
    }
}

struct WaitingFor {
    id: u64,
    condition: Condition,
    waker: Waker,
}

/// A future among those that wait; none at first.
#[derive(Debug, Default)]
pub(super) struct ConditionPlace(Option<u64>);

/// All that wait.
#[derive(Default)]
pub(crate) struct Conditions {
    state: Mutex<ConditionsState>,
    /// How many wait, so that none cost no lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct ConditionsState {
    waiting: Vec<WaitingFor>,
    /// Futures that ever waited.
    named: u64,
}

impl Conditions {
    /// Has a future wait, or renews what it waits for. It looks once more afterwards. The caller holds no lock.
    pub(super) fn join(&self, place: &mut ConditionPlace, condition: Condition, waker: &Waker) {
        let fresh = waker.clone();
        let mut old = Wakers::new();
        let mut state = self.state.lock();
        if let Some(id) = place.0
            && let Some(known) = state.waiting.iter_mut().find(|known| known.id == id)
        {
            known.condition = condition;
            old.discard([std::mem::replace(&mut known.waker, fresh)]);
            return;
        }
        state.named += 1;
        let id = state.named;
        place.0 = Some(id);
        state.waiting.push(WaitingFor { id, condition, waker: fresh });
        self.count.store(state.waiting.len(), Ordering::SeqCst);
    }

    /// It waits no more. The caller holds no lock.
    pub(super) fn leave(&self, place: &mut ConditionPlace) {
        let Some(id) = place.0.take() else { return };
        let mut old = Wakers::new();
        let mut state = self.state.lock();
        if let Some(at) = state.waiting.iter().position(|known| known.id == id) {
            old.discard([state.waiting.swap_remove(at).waker]);
            self.count.store(state.waiting.len(), Ordering::SeqCst);
        }
    }

    /// Whether any waits.
    pub(super) fn are_awaited(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Adds the wakers of those whose condition is met; `all`: of the others too.
    #[inline]
    pub(super) fn wake(&self, endpoint: &fabric_rdm::Endpoint, all: bool, wakers: &mut Wakers) {
        if !self.are_awaited() {
            return;
        }
        let mut state = self.state.lock();
        let mut at = 0;
        while let Some(one) = state.waiting.get(at) {
            if all || one.condition.is_met(endpoint) {
                // It looks, and joins anew if that is not what it waits for.
                wakers.wake([state.waiting.swap_remove(at).waker]);
            } else {
                at += 1;
            }
        }
        self.count.store(state.waiting.len(), Ordering::SeqCst);
    }
}
