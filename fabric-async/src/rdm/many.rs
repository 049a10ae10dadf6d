//! Receives of many messages into one buffer.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, OpId, Recv};

use super::inner::{EndpointInner, RecvPort};
use super::message::{MessageInfo, error, info};
use super::recv::post;
use super::source::RdmKeeps;
use crate::buffer::Buffer;
use crate::error::{Error, OpError, Result};
use crate::op_buffers::{BufferRange, OpBuffers, Payload};
use crate::op_future::{OpFuture, OpState, Port, PostOp};
use crate::op_slab::Phase;
use crate::wakers::discard;

/// Messages that arrive one behind the other in one buffer, as a [`Stream`](futures_core::Stream): see
/// [`Endpoint::recv_many`](super::Endpoint::recv_many).
///
/// - It takes messages until less than its minimum is free, or as many came as the buffer has words of 8 bytes, 64 at least, or it
///   is [released](RecvMany::release); then the stream ends, and the buffer is yours again by `release`.
/// - The bytes of a message that it gave are [copied](RecvMany::copy) out, or looked at in the buffer once that is released.
/// - It may be polled, or not, at any time: messages that were not asked for yet wait in the buffer.
/// - Dropping it takes no further message; those that it had taken are lost, and the buffer returns to the pool when the last of
///   them has come.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
/// # doc::endpoints(async |a, b, to_b, _| {
/// use fabric_rdm::matching::Pattern;
/// use futures_util::StreamExt;
///
/// for text in ["one", "two", "three"] {
///     a.inject(to_b, text.as_bytes()).await?;
/// }
/// let mut many = b.recv_many(Pattern::untagged(), b.pool().alloc(4096)?, 1024);
/// let (one, two) = (many.next().await.unwrap()?, many.next().await.unwrap()?);
/// let mut bytes = [0; 3];
/// many.copy(&two, &mut bytes)?;
/// assert_eq!(&bytes, b"two");
/// let third = many.next().await.unwrap()?;
/// let buffer = many.release().await?;
/// assert_eq!((&buffer[one.range()], &buffer[third.range()]), (&b"one"[..], &b"three"[..]));
/// # Ok(()) });
/// ```
#[must_use = "nothing is received until it is polled"]
pub struct RecvMany {
    future: OpFuture<RecvPort, ManyWork>,
    asleep: bool,
    /// The end, or why it could not begin, was said.
    is_over: bool,
}

/// One message of a [`RecvMany`]: what is known of it, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageInMany {
    info: MessageInfo,
    offset: usize,
}

impl MessageInMany {
    /// Where its bytes are in the buffer.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.info.len
    }
}

impl Deref for MessageInMany {
    type Target = MessageInfo;

    fn deref(&self) -> &MessageInfo {
        &self.info
    }
}

/// The most messages that a buffer takes: what is known of each is kept until it is asked for, and empty ones use no room.
fn max_messages(len: usize) -> u64 {
    (len / 8).max(64) as u64
}

struct ManyWork {
    pattern: Pattern,
    min_free: usize,
}

impl RecvMany {
    pub(super) fn new(
        inner: &Arc<EndpointInner>,
        pattern: Pattern,
        buffer: Buffer,
        min_free: usize,
    ) -> Self {
        let len = buffer.len();
        let buffers = OpBuffers::One(BufferRange::new(buffer, 0, len));
        let stage = OpState::Ready(ManyWork { pattern, min_free }, buffers);
        let future = OpFuture::new(RecvPort(inner.clone()), stage);
        RecvMany { future, asleep: false, is_over: false }
    }

    /// Posts it, if it is not yet, and waits for room for that only: from then on it takes messages.
    pub async fn posted(&mut self) {
        poll_fn(|cx| self.future.poll_posted(cx)).await;
    }

    /// Copies the bytes of a message that came: as many as `into` has room for, from its beginning.
    ///
    /// # Errors
    /// The fabric's `InvalidArgument`: the message is of another buffer, or the buffer was never posted.
    pub fn copy(&self, message: &MessageInMany, into: &mut [u8]) -> Result<()> {
        let wrong = || fabric::Error::invalid("copy", "the message is none of this buffer");
        let slab = &self.future.port.driver().slab;
        let number = self.future.slot().ok_or_else(wrong)?;
        let slot = slab.lock(number).ok_or_else(wrong)?;
        let all = slot.buffers.slice().ok_or_else(wrong)?;
        if message.range().end > all.len() {
            return Err(wrong().into());
        }
        let len = into.len().min(message.info.len);
        Ok(all.read_at(message.offset, &mut into[..len])?)
    }

    /// Has it take no further message, waits for those that it had taken, and gives the buffer back. Those that were not asked
    /// for are in the buffer, and cannot be distinguished any more: ask until the stream ends to have all.
    ///
    /// # Errors
    /// Why it could not be posted.
    pub async fn release(mut self) -> Result<Buffer, OpError<Buffer>> {
        self.future.cancel();
        match poll_fn(|cx| self.future.poll(cx)).await {
            Err(OpError { error: Error::Failed(fabric::Status::Canceled), buffer }) => Ok(buffer),
            released => released,
        }
    }

    /// Has it take no further message: the stream goes on with those that it had taken, and then ends.
    pub fn stop(&mut self) {
        self.future.cancel();
    }

    /// The next message that came; `Some(None)`: there will be none.
    fn next(&self, number: u32, waker: Option<&Waker>) -> Option<Option<Completion>> {
        let fresh = waker.cloned();
        let mut slot = self.future.port.driver().slab.lock(number)?;
        let message = slot.keeps.messages.as_mut().and_then(VecDeque::pop_front);
        if message.is_some() || slot.phase == Phase::Done {
            return Some(message);
        }
        let old = std::mem::replace(&mut slot.waker, fresh);
        drop(slot);
        discard(old);
        None
    }
}

impl futures_core::Stream for RecvMany {
    type Item = Result<MessageInMany>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        ready!(self.future.poll_posted(cx));
        let Some(number) = self.future.slot() else {
            self.is_over = true;
            let failed = ready!(self.future.poll(cx)).err();
            // It was stopped before it was posted.
            let is_stop = |error: &Error| matches!(error, Error::Failed(fabric::Status::Canceled));
            return Poll::Ready(failed.map(|it| it.error).filter(|it| !is_stop(it)).map(Err));
        };
        let mut asleep = self.asleep;
        let port = self.future.port.clone();
        let look = |waker: Option<&Waker>| match self.next(number, waker) {
            None => port.driver().refusal().map(Err),
            Some(next) => Some(Ok(next)),
        };
        let next = port.driver().wait(&mut asleep, cx, look, || port.watch());
        self.asleep = asleep;
        let item = match ready!(next) {
            Ok(Some(message)) => match info(&message) {
                Ok(info) => Some(Ok(MessageInMany { info, offset: message.offset as usize })),
                Err(error) => Some(Err(error)),
            },
            Ok(None) => None,
            Err(refusal) => Some(Err(refusal)),
        };
        self.is_over = item.is_none();
        Poll::Ready(item)
    }
}

impl Drop for RecvMany {
    fn drop(&mut self) {
        self.future.port.driver().awake(&mut self.asleep);
    }
}

impl PostOp<RecvPort> for ManyWork {
    type Output = Result<Buffer, OpError<Buffer>>;

    fn validate(&self, _to: &RecvPort, _buffers: &OpBuffers) -> Result<()> {
        Ok(())
    }

    fn post(&self, to: &RecvPort, buffers: &OpBuffers, context: u64) -> Result<Option<OpId>> {
        let min_free = self.min_free as u64;
        post(to, buffers, |into| {
            let bound = max_messages(into.len());
            Recv::new(self.pattern, into).of_many(min_free).max_messages(bound).context(context)
        })
    }

    fn keeps(&self, _to: &RecvPort) -> RdmKeeps {
        RdmKeeps { lease: None, messages: Some(VecDeque::new()) }
    }

    fn end(&self, _to: &RecvPort, completion: &Completion, buffers: OpBuffers) -> Self::Output {
        match completion.is_ok() {
            true => Ok(<Buffer as Payload>::unload(buffers)),
            false => self.fail(error(completion), buffers),
        }
    }

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output {
        Err(OpError { error, buffer: <Buffer as Payload>::unload(buffers) })
    }
}

impl fmt::Debug for RecvMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvMany")
    }
}
