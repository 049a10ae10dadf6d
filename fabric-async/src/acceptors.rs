//! Connections that are being accepted, several at a time: a peer that does not finish its set-up delays no other.
//!
//! They belong to the listener, and every accepting future polls all of them: so it does not matter whether the future
//! that started one is polled again, dropped or forgotten.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use fabric_util::sync::Mutex;

use crate::connection::Connection;
use crate::error::Result;
use crate::wakers::Wakers;

/// Maximum number at a time; further requests wait at the listener.
const MAX_PENDING: usize = 64;

/// A connection that is being accepted.
type PendingAccept = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

/// The accepting futures of a listener, and the connections that are being accepted.
#[derive(Default)]
pub(crate) struct Acceptors(Mutex<AcceptorsState>);

#[derive(Default)]
struct AcceptorsState {
    /// By name; `None` while it is polled.
    pending: HashMap<u64, Option<PendingAccept>>,
    /// Woken and to be polled, in the order of wake-ups.
    ready: Vec<u64>,
    asleep: HashMap<u64, Waker>,
    named: u64,
}

impl AcceptorsState {
    fn name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    fn wake_all(&mut self, wakers: &mut Wakers) {
        wakers.wake(self.asleep.drain().map(|(_, waker)| waker));
    }
}

/// The waker of a pending accept.
struct Progress {
    acceptors: Arc<Acceptors>,
    name: u64,
}

impl Wake for Progress {
    fn wake(self: Arc<Self>) {
        let mut wakers = Wakers::new();
        let mut state = self.acceptors.0.lock();
        if !state.ready.contains(&self.name) {
            state.ready.push(self.name);
        }
        // Wakes all accepting futures: one alone may be held and not polled.
        state.wake_all(&mut wakers);
    }
}

impl Acceptors {
    /// Takes all pending accepts.
    pub(crate) fn take_all(&self) -> Vec<PendingAccept> {
        let mut state = self.0.lock();
        state.pending.drain().filter_map(|(_, one)| one).collect()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.lock().pending.len() >= MAX_PENDING
    }

    /// Starts one.
    pub(crate) fn begin(self: &Arc<Self>, one: PendingAccept) -> Option<Result<Connection>> {
        let mut state = self.0.lock();
        let name = state.name();
        state.pending.insert(name, None);
        drop(state);
        self.poll_one(name, one)
    }

    /// Polls the woken ones until one is done.
    pub(crate) fn poll_ready(self: &Arc<Self>) -> Option<Result<Connection>> {
        while let Some((name, one)) = self.next_ready() {
            if let Some(done) = self.poll_one(name, one) {
                return Some(done);
            }
        }
        None
    }

    fn next_ready(&self) -> Option<(u64, PendingAccept)> {
        let mut state = self.0.lock();
        let AcceptorsState { pending, ready, .. } = &mut *state;
        ready.retain(|name| pending.contains_key(name));
        // One that is being polled elsewhere is polled again there.
        let is_here = |name: &u64| matches!(pending.get(name), Some(Some(_)));
        let index = ready.iter().position(is_here)?;
        let name = ready.remove(index);
        Some((name, pending.get_mut(&name)?.take()?))
    }

    fn poll_one(self: &Arc<Self>, name: u64, mut one: PendingAccept) -> Option<Result<Connection>> {
        let waker = Waker::from(Arc::new(Progress { acceptors: self.clone(), name }));
        let polled = one.as_mut().poll(&mut Context::from_waker(&waker));
        let mut wakers = Wakers::new();
        let mut state = self.0.lock();
        match polled {
            Poll::Ready(done) => {
                if state.pending.len() >= MAX_PENDING {
                    state.wake_all(&mut wakers);
                }
                state.pending.remove(&name);
                drop(state);
                Some(done)
            }
            Poll::Pending => {
                if let Some(place) = state.pending.get_mut(&name) {
                    *place = Some(one);
                }
                None
            }
        }
    }

    pub(crate) fn sleep(&self, name: u64, waker: &Waker) {
        let fresh = waker.clone();
        let mut wakers = Wakers::new();
        wakers.discard(self.0.lock().asleep.insert(name, fresh));
    }

    /// A name for an accepting future.
    pub(crate) fn join(&self) -> u64 {
        self.0.lock().name()
    }

    /// An accepting future was dropped.
    pub(crate) fn leave(&self, name: u64) {
        let mut wakers = Wakers::new();
        let mut state = self.0.lock();
        wakers.discard(state.asleep.remove(&name));
        if !state.ready.is_empty() {
            // Passes its wake-up on to the others.
            state.wake_all(&mut wakers);
        }
    }
}
