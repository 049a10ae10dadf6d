//! What an endpoint waits for beside its operations: events of peers, counters, the end of its sends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use fabric_rdm::{Counter, PeerEvent};

use super::conditions::{Condition, ConditionPlace};
use super::inner::EndpointInner;
use crate::error::Result;
use crate::wait_queue::Waiter;

/// The next event of a peer: see [`Endpoint::next_event`](super::Endpoint::next_event). Dropping it loses none.
#[must_use = "no event is taken until it is awaited"]
pub struct NextEvent {
    inner: Arc<EndpointInner>,
    waiter: Waiter,
    asleep: bool,
}

impl NextEvent {
    pub(super) fn new(inner: &Arc<EndpointInner>) -> Self {
        NextEvent { inner: inner.clone(), waiter: Waiter::default(), asleep: false }
    }
}

impl Future for NextEvent {
    type Output = Result<PeerEvent>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<PeerEvent>> {
        let NextEvent { inner, waiter, asleep } = &mut *self;
        let attempt = |is_turn: bool| {
            let taken = match inner.endpoint() {
                Ok(endpoint) if is_turn => endpoint.poll_event().map_err(Into::into),
                Ok(_) => inner.driver.refusal().map_or(Ok(None), Err),
                Err(error) => Err(error),
            };
            taken.transpose()
        };
        let queue = &inner.driver.queue.events;
        let look = |waker: Option<&Waker>| queue.look(waiter, waker, attempt);
        inner.driver.wait(asleep, cx, look, || inner.watch())
    }
}

impl Drop for NextEvent {
    fn drop(&mut self) {
        self.inner.driver.awake(&mut self.asleep);
        self.inner.driver.queue.events.leave(&mut self.waiter);
    }
}

impl fmt::Debug for NextEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextEvent")
    }
}

/// Waits until a counter has reached a number: see [`Endpoint::reached`](super::Endpoint::reached). Dropping it has no effect.
#[must_use = "it waits only when it is awaited"]
pub struct CounterReached {
    counter: Counter,
    successes: u64,
    errors: u64,
    wait: ConditionWait,
}

impl CounterReached {
    pub(super) fn new(
        inner: &Arc<EndpointInner>,
        counter: Counter,
        successes: u64,
        errors: u64,
    ) -> Self {
        CounterReached { counter, successes, errors, wait: ConditionWait::new(inner) }
    }
}

impl Future for CounterReached {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let CounterReached { counter, successes, errors, wait } = &mut *self;
        let look = || match counter.wait_for(*successes, *errors, Some(std::time::Duration::ZERO)) {
            Ok(()) => Some(Ok(())),
            Err(fabric::Error::TimedOut(_)) => None,
            Err(error) => Some(Err(error.into())),
        };
        let condition = || {
            let (successes, errors) = (*successes, *errors);
            Condition::Count { counter: counter.clone(), successes, errors }
        };
        wait.poll(cx, look, condition)
    }
}

impl fmt::Debug for CounterReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CounterReached({:?} of {})", self.counter.successes(), self.successes)
    }
}

/// Waits until no send is outstanding.
pub(super) struct Idle(ConditionWait);

impl Idle {
    pub(super) fn new(inner: &Arc<EndpointInner>) -> Self {
        Idle(ConditionWait::new(inner))
    }
}

impl Future for Idle {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let inner = self.0.inner.clone();
        let look = || match inner.endpoint().and_then(|it| Ok(it.outstanding()?)) {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        };
        self.0.poll(cx, look, || Condition::Idle)
    }
}

/// A future that waits for a condition.
struct ConditionWait {
    inner: Arc<EndpointInner>,
    place: ConditionPlace,
    asleep: bool,
}

impl ConditionWait {
    fn new(inner: &Arc<EndpointInner>) -> Self {
        let (inner, place) = (inner.clone(), ConditionPlace::default());
        ConditionWait { inner, place, asleep: false }
    }

    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut() -> Option<Result<T>>,
        condition: impl Fn() -> Condition,
    ) -> Poll<Result<T>> {
        let ConditionWait { inner, place, asleep } = self;
        let conditions = &inner.driver.queue.conditions;
        let look = |waker: Option<&Waker>| {
            if let Some(waker) = waker {
                conditions.join(place, condition(), waker);
            }
            look().or_else(|| inner.driver.refusal().map(Err))
        };
        let outcome = ready!(inner.driver.wait(asleep, cx, look, || inner.watch()));
        conditions.leave(place);
        Poll::Ready(outcome)
    }
}

impl Drop for ConditionWait {
    fn drop(&mut self) {
        self.inner.driver.awake(&mut self.asleep);
        self.inner.driver.queue.conditions.leave(&mut self.place);
    }
}
