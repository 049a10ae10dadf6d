//! What an endpoint waits for beside its operations: events of peers, writes to its memory, counters, the end of its sends.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use fabric_rdm::{Completion, Counter, Peer, PeerEvent};

use super::conditions::{Condition, ConditionPlace};
use super::inner::EndpointInner;
use super::source::RdmSource;
use crate::error::Result;
use crate::following::poll_following;
use crate::wait_queue::{WaitQueue, Waiter};

/// What comes to an endpoint, one after the other, and each to one future.
trait Coming: Sized {
    fn queue(source: &RdmSource) -> &Arc<WaitQueue>;
    fn take(endpoint: &fabric_rdm::Endpoint) -> fabric::Result<Option<Self>>;
}

/// Waits for the next one. Dropped, it loses none.
struct NextComing<T: Coming> {
    inner: Arc<EndpointInner>,
    waiter: Waiter,
    asleep: bool,
    what: PhantomData<fn() -> T>,
}

impl<T: Coming> NextComing<T> {
    fn new(inner: &Arc<EndpointInner>) -> Self {
        let (inner, waiter) = (inner.clone(), Waiter::default());
        NextComing { inner, waiter, asleep: false, what: PhantomData }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let NextComing { inner, waiter, asleep, .. } = self;
        let attempt = |is_turn: bool| {
            let taken = match inner.endpoint() {
                Ok(endpoint) if is_turn => T::take(endpoint).map_err(Into::into),
                Ok(_) => inner.driver.refusal().map_or(Ok(None), Err),
                Err(error) => Err(error),
            };
            taken.transpose()
        };
        let queue = T::queue(&inner.driver.queue);
        let look = |waker: Option<&Waker>| queue.look(waiter, waker, attempt);
        inner.driver.wait(asleep, cx, look, || inner.watch())
    }
}

impl<T: Coming> Drop for NextComing<T> {
    fn drop(&mut self) {
        self.inner.driver.awake(&mut self.asleep);
        T::queue(&self.inner.driver.queue).leave(&mut self.waiter);
    }
}

impl Coming for PeerEvent {
    fn queue(source: &RdmSource) -> &Arc<WaitQueue> {
        &source.events
    }

    fn take(endpoint: &fabric_rdm::Endpoint) -> fabric::Result<Option<Self>> {
        endpoint.poll_event()
    }
}

/// The next event of a peer: see [`Endpoint::next_event`](super::Endpoint::next_event). Dropping it loses none.
#[must_use = "no event is taken until it is awaited"]
pub struct NextEvent(NextComing<PeerEvent>);

impl NextEvent {
    pub(super) fn new(inner: &Arc<EndpointInner>) -> Self {
        NextEvent(NextComing::new(inner))
    }
}

impl Future for NextEvent {
    type Output = Result<PeerEvent>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<PeerEvent>> {
        self.0.poll(cx)
    }
}

impl fmt::Debug for NextEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextEvent")
    }
}

/// A peer has written into memory of this side, with [`Endpoint::write_notify`](super::Endpoint::write_notify) or in another way
/// with immediate data; its bytes are visible.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
/// # doc::endpoints(async |a, b, to_b, to_a| {
/// use fabric_async::rdm::WriteNotification;
///
/// let memory = b.node().domain().alloc(64, fabric::Access::ALL)?;
/// a.write_notify(to_b, a.pool().alloc_from(b"hello")?, memory.remote().at(0), 42).await?;
/// assert_eq!(b.notified().await?, WriteNotification { peer: to_a, immediate: 42, len: 5 });
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteNotification {
    /// The writer.
    pub peer: Peer,
    /// Its 32 bits.
    pub immediate: u32,
    /// Bytes written.
    pub len: usize,
}

impl Coming for WriteNotification {
    fn queue(source: &RdmSource) -> &Arc<WaitQueue> {
        &source.notified
    }

    fn take(endpoint: &fabric_rdm::Endpoint) -> fabric::Result<Option<Self>> {
        let mut one = [Completion::default()];
        let taken = endpoint.take_written(&mut one)?;
        let Completion { peer, immediate, len, .. } = one[0];
        Ok(peer.filter(|_| taken > 0).map(|peer| {
            let (immediate, len) = (immediate.unwrap_or_default(), len as usize);
            WriteNotification { peer, immediate, len }
        }))
    }
}

/// The next notification: see [`Endpoint::notified`](super::Endpoint::notified). Dropping it loses none.
#[must_use = "nothing is received until it is awaited"]
pub struct NextNotification(NextComing<WriteNotification>);

impl NextNotification {
    pub(super) fn new(inner: &Arc<EndpointInner>) -> Self {
        NextNotification(NextComing::new(inner))
    }
}

impl Future for NextNotification {
    type Output = Result<WriteNotification>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<WriteNotification>> {
        let next = ready!(self.0.poll(cx));
        // An endpoint that writes to itself has one more place now.
        self.0.inner.settle_if_room_is_awaited();
        Poll::Ready(next)
    }
}

impl fmt::Debug for NextNotification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextNotification")
    }
}

/// Notifications one after the other, as a [`Stream`](futures_core::Stream): see
/// [`Endpoint::notifications`](super::Endpoint::notifications).
#[must_use = "nothing is received until it is polled"]
#[derive(Debug)]
pub struct NotificationStream {
    /// `None`: it failed, as the last item said.
    next: Option<NextNotification>,
}

impl NotificationStream {
    pub(super) fn new(inner: &Arc<EndpointInner>) -> Self {
        NotificationStream { next: Some(NextNotification::new(inner)) }
    }
}

impl futures_core::Stream for NotificationStream {
    type Item = Result<WriteNotification>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        poll_following(&mut self.next, cx, |last| NextNotification::new(&last.0.inner))
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
