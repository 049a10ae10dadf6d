//! Connections that are being accepted, several at a time: a peer that does not finish its set-up delays no other. When there
//! are as many as may be, the network that has most of them loses its oldest for a peer from elsewhere, and one that takes
//! its time makes room for anyone.
//!
//! They belong to the listener, and every accepting future polls all of them: so it does not matter whether the future
//! that started one is polled again, dropped or forgotten.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fabric_util::fair_table::{FairTable, Network};
use fabric_util::sync::Mutex;

use crate::connection::Connection;
use crate::error::Result;
use crate::wakers::Wakers;

/// Maximum number at a time; further requests wait at the listener.
const MAX_PENDING: usize = 64;

/// So long a peer may take for its part when others wait: a packet of it may be lost, and sent again after a second
/// (RFC 6298).
const PATIENCE: Duration = Duration::from_millis(1500);

/// A connection that is being accepted.
type PendingAccept = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

/// The accepting futures of a listener, and the connections that are being accepted.
#[derive(Default)]
pub(crate) struct Acceptors(Mutex<AcceptorsState>);

#[derive(Default)]
struct AcceptorsState {
    /// By name.
    pending: FairTable<SetUp>,
    /// Woken and to be polled, in the order of wake-ups.
    ready: Vec<u64>,
    asleep: HashMap<u64, Waker>,
    named: u64,
}

struct SetUp {
    begun: Instant,
    /// `None` while it is polled.
    accept: Option<PendingAccept>,
}

impl AcceptorsState {
    fn name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= MAX_PENDING
    }

    /// Whether the oldest has taken its time.
    fn is_late(&self, now: Instant) -> bool {
        self.pending.oldest().is_some_and(|(_, oldest)| oldest.begun + PATIENCE <= now)
    }

    fn displace_for(&mut self, from: IpAddr, now: Instant) -> Option<SetUp> {
        match self.pending.displace_for(from) {
            Some((_, displaced)) => Some(displaced),
            None if self.is_late(now) => self.pending.pop_oldest(),
            None => None,
        }
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
        self.0.lock().pending.take_all().filter_map(|set_up| set_up.accept).collect()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.lock().is_full()
    }

    /// Whether one from this network may begin: there is room, or another leaves for it.
    pub(crate) fn admit(&self, from: Network) -> bool {
        let state = self.0.lock();
        !state.is_full() || state.pending.may_displace_for(from) || state.is_late(Instant::now())
    }

    /// When one will have taken its time.
    pub(crate) fn next_late(&self) -> Option<Instant> {
        self.0.lock().pending.oldest().map(|(_, set_up)| set_up.begun + PATIENCE)
    }

    /// Starts one. Gives whether another had to leave for it, and the connection, if that is made already.
    pub(crate) fn begin(
        self: &Arc<Self>,
        from: IpAddr,
        one: PendingAccept,
    ) -> (bool, Option<Result<Connection>>) {
        let begun = Instant::now();
        let mut state = self.0.lock();
        let displaced = if state.is_full() { state.displace_for(from, begun) } else { None };
        let name = state.name();
        state.pending.insert(name, from, SetUp { begun, accept: None });
        drop(state);
        (displaced.is_some(), self.poll_one(name, one))
    }

    /// There is a request more. Accepting futures that wait for room do not wait for requests, and it may be from a network
    /// that there is room for.
    pub(crate) fn wake_if_full(&self, wakers: &mut Wakers) {
        let mut state = self.0.lock();
        if state.is_full() {
            state.wake_all(wakers);
        }
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
        ready.retain(|name| pending.get_mut(*name).is_some());
        // One that is being polled elsewhere is polled again there.
        let index = ready.iter().position(|name| {
            pending.get_mut(*name).is_some_and(|set_up| set_up.accept.is_some())
        })?;
        let name = ready.remove(index);
        Some((name, pending.get_mut(name)?.accept.take()?))
    }

    fn poll_one(self: &Arc<Self>, name: u64, mut one: PendingAccept) -> Option<Result<Connection>> {
        let waker = Waker::from(Arc::new(Progress { acceptors: self.clone(), name }));
        let polled = one.as_mut().poll(&mut Context::from_waker(&waker));
        let mut wakers = Wakers::new();
        let mut state = self.0.lock();
        match polled {
            Poll::Ready(done) => {
                if state.is_full() {
                    state.wake_all(&mut wakers);
                }
                state.pending.remove(name);
                drop(state);
                Some(done)
            }
            Poll::Pending => {
                // Unless it was displaced meanwhile.
                if let Some(set_up) = state.pending.get_mut(name) {
                    set_up.accept = Some(one);
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
