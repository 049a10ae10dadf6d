//! Messages without a receive: found, claimed, and then received into memory of their size.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Claimed, Completion, OpId, Peer};

use super::conditions::{Condition, ConditionPlace};
use super::inner::{EndpointInner, RecvPort};
use super::message::{MessageInfo, MessageRoom, info, posted};
use super::source::RdmKeeps;
use crate::buffer::Buffer;
use crate::error::{Error, OpError, Result};
use crate::op_buffers::{OpBuffers, Payload};
use crate::op_future::{OpFuture, OpState, PostOp};

/// Waits for a message that meets no receive, and claims it: see [`Endpoint::claim`](super::Endpoint::claim).
///
/// Dropping it loses nothing: what it has not given out stays there. Of several that wait for the same message, any gets it.
#[must_use = "it claims a message only when it is awaited"]
pub struct ClaimNext {
    inner: Arc<EndpointInner>,
    pattern: Pattern,
    place: ConditionPlace,
    asleep: bool,
}

impl ClaimNext {
    pub(super) fn new(inner: &Arc<EndpointInner>, pattern: Pattern) -> Self {
        let (inner, place) = (inner.clone(), ConditionPlace::default());
        ClaimNext { inner, pattern, place, asleep: false }
    }
}

/// The oldest message of a pattern that is there.
fn find(inner: &Arc<EndpointInner>, pattern: &Pattern) -> Result<Option<Claimed<'static>>> {
    let endpoint = inner.endpoint()?;
    while let Some(probed) = endpoint.peek(pattern)? {
        if let Some(claimed) = endpoint.claim_shared(&probed)? {
            return Ok(Some(claimed));
        }
    }
    Ok(None)
}

impl Future for ClaimNext {
    type Output = Result<ClaimedMessage>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ClaimNext { inner, pattern, place, asleep } = &mut *self;
        let look = |waker: Option<&Waker>| {
            if let (Some(waker), Ok(endpoint)) = (waker, inner.endpoint()) {
                let condition = Condition::Message { seen: endpoint.arrived() };
                inner.driver.queue.conditions.join(place, condition, waker);
            }
            find(inner, pattern).transpose()
        };
        let found = std::task::ready!(inner.driver.wait(asleep, cx, look, || inner.watch()));
        inner.driver.queue.conditions.leave(place);
        Poll::Ready(found.map(|claimed| ClaimedMessage { claimed, inner: inner.clone() }))
    }
}

impl Drop for ClaimNext {
    fn drop(&mut self) {
        self.inner.driver.awake(&mut self.asleep);
        self.inner.driver.queue.conditions.leave(&mut self.place);
    }
}

impl fmt::Debug for ClaimNext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimNext({:?})", self.pattern)
    }
}

/// A message that was claimed: no receive meets it. It is received, or dropped: then it is lost.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
/// # doc::endpoints(async |a, b, to_b, from_a| {
/// use fabric_rdm::matching::Pattern;
///
/// a.send(to_b, a.pool().alloc_from(b"of any length")?).await?;
/// let message = b.claim(Pattern::untagged()).await?;
/// assert_eq!((message.peer(), message.len()), (from_a, 13));
/// let buffer = b.pool().alloc(message.len())?;
/// let (buffer, _) = message.receive(buffer).await?;
/// assert_eq!(*buffer, *b"of any length");
/// # Ok(()) });
/// ```
pub struct ClaimedMessage {
    // Declared first: the endpoint is closed after it.
    claimed: Claimed<'static>,
    inner: Arc<EndpointInner>,
}

impl ClaimedMessage {
    /// The peer that sent it.
    pub fn peer(&self) -> Peer {
        self.claimed.envelope().source
    }

    /// Its tag; `None`: it is untagged.
    pub fn tag(&self) -> Option<u64> {
        self.claimed.envelope().tag
    }

    /// Its bytes, as its sender says: do not allocate so many without a bound of your own.
    pub fn len(&self) -> usize {
        usize::try_from(self.claimed.envelope().len).unwrap_or(usize::MAX)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Receives it. A future as [`RecvMessage`](super::RecvMessage) is; the message is lost if it is dropped, or fails.
    ///
    /// # Errors
    /// As of [`Endpoint::recv`](super::Endpoint::recv); the fabric's `InvalidState` if the peer was lost before all of the
    /// message had come, or removed.
    pub fn receive<P: MessageRoom>(self, into: P) -> ReceiveClaimed<P> {
        let to = RecvPort(self.inner.clone());
        let stage = match into.load() {
            Ok(buffers) => {
                let work =
                    ClaimedWork { claimed: RefCell::new(self.claimed), payload: PhantomData };
                OpState::Ready(work, buffers)
            }
            Err((buffer, error)) => OpState::Failed(Some(Err(OpError { error, buffer }))),
        };
        ReceiveClaimed { future: OpFuture::new(to, stage) }
    }

    /// Receives it into a buffer of the pool that is as long as it; waits while the pool has no memory.
    ///
    /// # Errors
    /// `PoolExhausted`: it is longer than the pool may ever be. Else as [`receive`](ClaimedMessage::receive).
    pub async fn receive_alloc(self) -> Result<(Buffer, MessageInfo)> {
        let len = self.len();
        // A receive needs memory, if only for no bytes.
        let buffer = self.inner.node.pool.alloc_wait_dirty(len.max(1)).await?;
        let (mut buffer, info) = self.receive(buffer).await?;
        buffer.truncate(len);
        Ok((buffer, info))
    }
}

impl fmt::Debug for ClaimedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimedMessage({:?})", self.claimed.envelope())
    }
}

/// The receive of a message that was claimed: see [`ClaimedMessage::receive`].
#[must_use = "nothing is received until it is awaited"]
pub struct ReceiveClaimed<P: MessageRoom> {
    future: OpFuture<RecvPort, ClaimedWork<P>>,
}

struct ClaimedWork<P> {
    claimed: RefCell<Claimed<'static>>,
    payload: PhantomData<fn() -> P>,
}

impl<P: MessageRoom> PostOp<RecvPort> for ClaimedWork<P> {
    type Output = Result<(P::Back, MessageInfo), OpError<P::Back>>;

    fn validate(&self, _to: &RecvPort, _buffers: &OpBuffers) -> Result<()> {
        Ok(())
    }

    fn post(&self, _to: &RecvPort, buffers: &OpBuffers, context: u64) -> Result<Option<OpId>> {
        let Some(into) = buffers.slice() else {
            let text = "an empty buffer has no memory to receive into: allocate one";
            return Err(fabric::Error::invalid("recv", text).into());
        };
        posted(self.claimed.borrow_mut().receive(into, context))
    }

    fn keeps(&self, _to: &RecvPort) -> RdmKeeps {
        RdmKeeps::default()
    }

    fn end(&self, _to: &RecvPort, completion: &Completion, buffers: OpBuffers) -> Self::Output {
        match info(completion) {
            Ok(info) => Ok((P::unload(buffers), info)),
            Err(error) => self.fail(error, buffers),
        }
    }

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output {
        Err(OpError { error, buffer: <P as Payload>::unload(buffers) })
    }
}

impl<P: MessageRoom> Future for ReceiveClaimed<P> {
    type Output = Result<(P::Back, MessageInfo), OpError<P::Back>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.poll(cx)
    }
}

impl<P: MessageRoom> fmt::Debug for ReceiveClaimed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiveClaimed")
    }
}
