//! Messages to peers.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fabric_rdm::{Completion, OpId, Peer, Send as Message};

use super::inner::{EndpointInner, ToPeer};
use super::message::{MessagePayload, error, posted};
use super::room::RoomPlace;
use super::source::RdmKeeps;
use crate::error::{Error, OpError, Result};
use crate::op_buffers::{OpBuffers, Payload};
use crate::op_future::{OpFuture, OpState, Port, PostOp};

/// A message to a peer: a future that gives the buffer back, or fails with the buffer in the error.
///
/// - Nothing happens until it is polled. Messages to a peer are posted in the order of their first polls, and meet receives in
///   that order.
/// - It waits for room while the endpoint's `send_depth` is reached, or the peer has no place for one more message without a
///   receive: it never fails for that. If it is not polled within 50 ms of there being some, others pass it.
/// - It is done when the peer's *library* has the message, which then survives this side; with
///   [`matched`](SendMessage::matched), when it has met a receive. A long one (`RdmAttr::rendezvous`, 32 KiB unless set) stays
///   here until it is received, and so does one that the peer has no bytes for: a task that awaits it first, and then does what
///   the peer waits for, waits for ever.
/// - Dropping it before it was posted: nothing happens. Dropping it later: the message goes its way, and its buffer returns to
///   the pool when it has.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
/// # doc::endpoints(async |a, b, to_b, _| {
/// use fabric_rdm::matching::Pattern;
///
/// let buffer = a.send(to_b, a.pool().alloc_from(b"hello")?).await?; // there is no receive yet
/// let (received, info) = b.recv(Pattern::untagged(), b.pool().alloc(64)?).await?;
/// assert_eq!(received[..info.len], *buffer);
/// # Ok(()) });
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct SendMessage<P: MessagePayload> {
    future: OpFuture<ToPeer, SendWork<P>>,
}

/// What is sent.
struct SendWork<P> {
    tag: Option<u64>,
    immediate: Option<u32>,
    matched: bool,
    fence: bool,
    payload: PhantomData<fn() -> P>,
}

impl<P: MessagePayload> SendMessage<P> {
    pub(super) fn new(inner: &Arc<EndpointInner>, peer: Peer, payload: P) -> Self {
        let (tag, immediate, matched, fence) = Default::default();
        let stage = match payload.load() {
            Ok(buffers) => {
                let work = SendWork { tag, immediate, matched, fence, payload: PhantomData };
                OpState::Ready(work, buffers)
            }
            Err((buffer, error)) => OpState::Failed(Some(Err(OpError { error, buffer }))),
        };
        SendMessage { future: OpFuture::new(ToPeer { inner: inner.clone(), peer }, stage) }
    }

    fn with(mut self, change: impl FnOnce(&mut SendWork<P>)) -> Self {
        self.future.work().map(change);
        self
    }

    /// Gives it a tag, so that only tagged receives take it.
    pub fn tag(self, tag: u64) -> Self {
        self.with(|message| message.tag = Some(tag))
    }

    /// 32 bits that come with the message.
    pub fn immediate(self, value: u32) -> Self {
        self.with(|message| message.immediate = Some(value))
    }

    /// Done only when it has met a receive.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// # use fabric_rdm::matching::Pattern;
    /// let sent = a.send(to_b, a.pool().alloc(8)?).matched();
    /// let received = b.recv(Pattern::untagged(), b.pool().alloc(8)?);
    /// let (sent, received) = futures_util::future::join(sent, received).await;
    /// # (sent?, received?);
    /// # Ok(()) });
    /// ```
    pub fn matched(self) -> Self {
        self.with(|message| message.matched = true)
    }

    /// Has it start only when every earlier read and atomic operation to that peer has finished.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// # use fabric_rdm::matching::Pattern;
    /// let memory = b.node().domain().alloc(8, fabric::Access::ALL)?;
    /// let read = a.read(to_b, a.pool().alloc(8)?, memory.remote().at(0));
    /// let sent = a.send(to_b, a.pool().alloc_from(b"I have read it")?).fence();
    /// let received = b.recv(Pattern::untagged(), b.pool().alloc(64)?);
    /// let (read, sent, received) = futures_util::future::join3(read, sent, received).await;
    /// assert_eq!(*read?, [0; 8]); // over by the time of the message: the peer may use the memory again
    /// # (sent?, received?);
    /// # Ok(()) });
    /// ```
    pub fn fence(self) -> Self {
        self.with(|message| message.fence = true)
    }
}

impl<P: MessagePayload> PostOp<ToPeer> for SendWork<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    fn validate(&self, _to: &ToPeer, _buffers: &OpBuffers) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn post(&self, to: &ToPeer, buffers: &OpBuffers, context: u64) -> Result<Option<OpId>> {
        let message = buffers.slice().map_or_else(|| Message::inject(&[]), Message::new);
        let mut message = message.context(context);
        if let Some(tag) = self.tag {
            message = message.tag(tag);
        }
        if let Some(value) = self.immediate {
            message = message.immediate(value);
        }
        if self.matched {
            message = message.matched();
        }
        if self.fence {
            message = message.fence();
        }
        posted(to.inner.endpoint()?.post_send(to.peer, &message))
    }

    #[inline]
    fn keeps(&self, _to: &ToPeer) -> RdmKeeps {
        RdmKeeps::default()
    }

    #[inline]
    fn end(&self, _to: &ToPeer, completion: &Completion, buffers: OpBuffers) -> Self::Output {
        match completion.is_ok() {
            true => Ok(P::unload(buffers)),
            false => self.fail(error(completion), buffers),
        }
    }

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output {
        Err(OpError { error, buffer: <P as Payload>::unload(buffers) })
    }
}

impl<P: MessagePayload> Future for SendMessage<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.poll(cx)
    }
}

impl<P: MessagePayload> fmt::Debug for SendMessage<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendMessage")
    }
}

/// A short message that is copied when it is posted: a future of that, not of its end.
///
/// It waits for room as [`SendMessage`] does. That it fails later is known by the peer's
/// [event](super::Endpoint::next_event) and the [counters](super::Endpoint::counter) alone. Dropped before it was posted,
/// nothing happens.
#[must_use = "nothing is sent until it is awaited"]
pub struct Inject<'a> {
    to: ToPeer,
    bytes: &'a [u8],
    tag: Option<u64>,
    immediate: Option<u32>,
    place: RoomPlace,
    asleep: bool,
}

/// What no slot has: the completion of a message that fails concerns no future.
const NOBODY: u64 = u64::MAX;

impl<'a> Inject<'a> {
    pub(super) fn new(inner: &Arc<EndpointInner>, peer: Peer, bytes: &'a [u8]) -> Self {
        let (tag, immediate, place, asleep) = Default::default();
        Inject { to: ToPeer { inner: inner.clone(), peer }, bytes, tag, immediate, place, asleep }
    }

    /// Gives it a tag, so that only tagged receives take it.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = Some(tag);
        self
    }

    /// 32 bits that come with the message.
    pub fn immediate(mut self, value: u32) -> Self {
        self.immediate = Some(value);
        self
    }
}

impl Future for Inject<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Inject { to, bytes, tag, immediate, place, asleep } = &mut *self;
        let post = || {
            let mut message = Message::inject(bytes).context(NOBODY).unsignaled();
            if let Some(tag) = *tag {
                message = message.tag(tag);
            }
            if let Some(value) = *immediate {
                message = message.immediate(value);
            }
            posted(to.inner.endpoint()?.post_send(to.peer, &message))
        };
        let look = |waker: Option<&Waker>| match to.is_turn(place, waker) {
            true => post().transpose(),
            false => to.driver().refusal().map(Err),
        };
        let posted = std::task::ready!(to.driver().wait(asleep, cx, look, || to.watch()));
        to.leave(place);
        // A counter may have reached its number by it.
        to.inner.settle_if_awaited();
        Poll::Ready(posted.map(drop))
    }
}

impl Drop for Inject<'_> {
    fn drop(&mut self) {
        self.to.driver().awake(&mut self.asleep);
        self.to.leave(&mut self.place);
    }
}

impl fmt::Debug for Inject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inject({} bytes)", self.bytes.len())
    }
}
