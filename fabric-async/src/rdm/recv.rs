//! Receives of one message.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, OpId, Recv};

use super::inner::{EndpointInner, RecvPort};
use super::message::{MessageInfo, MessageRoom, info, posted};
use super::source::RdmKeeps;
use crate::error::{Error, OpError, Result};
use crate::op_buffers::{OpBuffers, Payload};
use crate::op_future::{OpFuture, OpState, PostOp};

/// A receive of one message: a future of the buffer and what is known of the message, or of an error with the buffer in it.
///
/// - Nothing happens until it is polled, or [`posted`](RecvMessage::posted). Receives are posted in the order of their first
///   polls, and take messages in that order. At the endpoint's `recv_depth` it waits for room.
/// - A message that is longer than the buffer ends it as [`Error::Truncated`]: what fits is there, the rest is lost.
/// - Dropping it before it has met a message cancels it: the message that it would have taken goes to another receive, and the
///   buffer returns to the pool at once.
/// - Dropping it *after* it has met one loses that message: its sender ends `Ok`, no other receive gets it, and the buffer
///   returns to the pool when the payload has come. To lose none, keep the future, or [cancel](RecvMessage::cancel)
///   it.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
/// # doc::endpoints(async |a, b, to_b, from_a| {
/// use fabric_rdm::matching::Pattern;
///
/// // Any tag of 0x100 to 0x1ff, from that peer alone, into a part of a buffer.
/// let pattern = Pattern::tagged(0x100).ignoring(0xff).from(from_a);
/// let received = b.recv(pattern, b.pool().alloc(64)?.slice(8..));
/// a.inject(to_b, b"hello").tag(0x123).await?;
/// let (buffer, info) = received.await?;
/// assert_eq!((&buffer[8..8 + info.len], info.tag), (&b"hello"[..], Some(0x123)));
/// # Ok(()) });
/// ```
#[must_use = "nothing is received until it is awaited"]
pub struct RecvMessage<P: MessageRoom> {
    future: OpFuture<RecvPort, RecvWork<P>>,
}

/// What is received.
pub(super) struct RecvWork<P> {
    pattern: Pattern,
    payload: PhantomData<fn() -> P>,
}

impl<P: MessageRoom> RecvMessage<P> {
    pub(super) fn new(inner: &Arc<EndpointInner>, pattern: Pattern, into: P) -> Self {
        let stage = match into.load() {
            Ok(buffers) => OpState::Ready(RecvWork { pattern, payload: PhantomData }, buffers),
            Err((buffer, error)) => OpState::Failed(Some(Err(OpError { error, buffer }))),
        };
        RecvMessage { future: OpFuture::new(RecvPort(inner.clone()), stage) }
    }

    /// Posts it, if it is not yet, and waits for room for that only: from then on it takes its message, whether it is polled or
    /// not. Why it could not be posted, the future itself says.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// use fabric_rdm::matching::Pattern;
    ///
    /// let mut received = b.recv(Pattern::untagged(), b.pool().alloc(8)?);
    /// received.posted().await;
    /// a.send(to_b, a.pool().alloc_from(b"hello")?).matched().await?; // it is met
    /// assert_eq!(received.await?.1.len, 5);
    /// # Ok(()) });
    /// ```
    pub async fn posted(&mut self) {
        poll_fn(|cx| self.future.poll_posted(cx)).await;
    }

    /// Ends it now, and loses nothing: the buffer, and the message if it had met one, for whose payload this waits.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// use fabric_rdm::matching::Pattern;
    ///
    /// let mut received = b.recv(Pattern::untagged(), b.pool().alloc(8)?);
    /// received.posted().await;
    /// let (_buffer, message) = received.cancel().await?;
    /// assert!(message.is_none());
    /// # drop((a, to_b));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As of the receive, but for its cancellation.
    pub async fn cancel(
        mut self,
    ) -> Result<(P::Back, Option<MessageInfo>), OpError<<P as Payload>::Back>> {
        self.future.cancel();
        match self.await {
            Ok((buffer, info)) => Ok((buffer, Some(info))),
            Err(OpError { error: Error::Failed(fabric::Status::Canceled), buffer }) => {
                Ok((buffer, None))
            }
            Err(failed) => Err(failed),
        }
    }
}

impl<W: PostOp<RecvPort>> OpFuture<RecvPort, W> {
    /// Has it end without a message, or without a further one.
    pub(super) fn cancel(&mut self) {
        match std::mem::replace(&mut self.stage, OpState::Over) {
            OpState::Ready(work, buffers) => {
                let canceled = work.fail(Error::Failed(fabric::Status::Canceled), buffers);
                self.stage = OpState::Failed(Some(canceled));
            }
            OpState::InFlight(work, number, posted) => {
                self.stage = OpState::InFlight(work, number, posted);
                if let Ok(endpoint) = self.port.0.endpoint() {
                    // If it cannot be, it has met its message, or ended.
                    let _ = endpoint.cancel(posted);
                }
            }
            over => self.stage = over,
        }
    }
}

/// Posts a receive into one piece of memory.
pub(super) fn post(
    to: &RecvPort,
    buffers: &OpBuffers,
    recv: impl FnOnce(fabric::Slice<'_>) -> Recv<'_>,
) -> Result<Option<OpId>> {
    let Some(into) = buffers.slice() else {
        let text = "an empty buffer has no memory to receive into: allocate one";
        return Err(fabric::Error::invalid("recv", text).into());
    };
    posted(to.0.endpoint()?.post_recv(&recv(into)))
}

impl<P: MessageRoom> PostOp<RecvPort> for RecvWork<P> {
    type Output = Result<(P::Back, MessageInfo), OpError<P::Back>>;

    fn validate(&self, _to: &RecvPort, _buffers: &OpBuffers) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn post(&self, to: &RecvPort, buffers: &OpBuffers, context: u64) -> Result<Option<OpId>> {
        post(to, buffers, |into| Recv::new(self.pattern, into).context(context))
    }

    #[inline]
    fn keeps(&self, _to: &RecvPort) -> RdmKeeps {
        RdmKeeps::default()
    }

    #[inline]
    fn end(&self, _to: &RecvPort, completion: &Completion, buffers: OpBuffers) -> Self::Output {
        match info(completion) {
            Ok(info) => Ok((P::unload(buffers), info)),
            Err(error) => self.fail(error, buffers),
        }
    }

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output {
        Err(OpError { error, buffer: P::unload(buffers) })
    }
}

impl<P: MessageRoom> Future for RecvMessage<P> {
    type Output = Result<(P::Back, MessageInfo), OpError<P::Back>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.poll(cx)
    }
}

impl<P: MessageRoom> fmt::Debug for RecvMessage<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvMessage")
    }
}
