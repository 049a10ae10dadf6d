//! Datagrams to addresses.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fabric::{AddressHandle, Completion, Op};

use super::inner::{DatagramInner, ToAddress};
use crate::conn_source::ConnKeeps;
use crate::error::{Error, OpError, Result};
use crate::op_buffers::{OpBuffers, Payload, SliceVec};
use crate::op_future::{OpFuture, OpState, PostOp};
use crate::transfer::{Transfer, TransferKind};

/// A datagram to an address: a future that gives the buffer back, or fails with the buffer in the error.
///
/// - Nothing happens until it is polled. While the endpoint's `send_depth` is reached it waits for room.
/// - That it is done says that the buffer is free again, and no more: whether the datagram arrives is not known.
/// - Dropping it before it was posted: nothing happens. Dropping it later: the datagram goes its way, and its buffer returns to the
///   pool.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/datagrams.rs")); }
/// # doc::datagrams(async |client, server| {
/// let to_server = client.resolve(&server.address()).await?;
/// // A buffer, a part of one, or up to four in a row.
/// let parts = vec![client.pool().alloc_from(b"two ")?, client.pool().alloc_from(b"parts")?];
/// client.send_to(&to_server, parts).immediate(7).await?;
/// let datagram = server.recv_from().await?;
/// assert_eq!((&*datagram, datagram.immediate), (&b"two parts"[..], Some(7)));
/// # Ok(()) });
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct SendDatagram<P: Payload> {
    future: OpFuture<ToAddress, Transfer<P>>,
}

impl<P: Payload> SendDatagram<P> {
    pub(super) fn new(inner: &Arc<DatagramInner>, to: &AddressHandle, payload: P) -> Self {
        let what = TransferKind::Send { immediate: None };
        let stage = match payload.load() {
            Ok(buffers) => OpState::Ready(Transfer::new(what), buffers),
            Err((buffer, error)) => OpState::Failed(Some(Err(OpError { error, buffer }))),
        };
        let port = ToAddress { inner: inner.clone(), to: to.clone() };
        SendDatagram { future: OpFuture::new(port, stage) }
    }

    /// 32 bits that come with the datagram.
    pub fn immediate(mut self, value: u32) -> Self {
        if let Some(work) = self.future.work() {
            work.what = TransferKind::Send { immediate: Some(value) };
        }
        self
    }
}

/// Posts a datagram; `None`: there is no room now.
fn post(to: &ToAddress, op: &Op<'_>, context: u64) -> Result<Option<()>> {
    match to.inner.endpoint.post_to(&to.to, &op.context(context)) {
        Ok(()) => Ok(Some(())),
        Err(fabric::Error::Again) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

impl<P: Payload> PostOp<ToAddress> for Transfer<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    fn validate(&self, _to: &ToAddress, _buffers: &OpBuffers) -> Result<()> {
        Ok(())
    }

    fn post(&self, to: &ToAddress, buffers: &OpBuffers, context: u64) -> Result<Option<()>> {
        let mut scratch = SliceVec::new();
        post(to, &self.build(buffers, &mut scratch), context)
    }

    fn keeps(&self, to: &ToAddress) -> ConnKeeps {
        to.inner.keeps()
    }

    fn end(&self, _to: &ToAddress, completion: &Completion, buffers: OpBuffers) -> Self::Output {
        match completion.is_ok() {
            true => Ok(P::unload(buffers)),
            false => PostOp::<ToAddress>::fail(self, Error::of(completion.status, None), buffers),
        }
    }

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output {
        Err(OpError { error, buffer: P::unload(buffers) })
    }
}

impl<P: Payload> Future for SendDatagram<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.poll(cx)
    }
}

impl<P: Payload> fmt::Debug for SendDatagram<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendDatagram")
    }
}

/// A short datagram that is copied when it is posted: a future of that, which waits for room as [`SendDatagram`] does. Dropped
/// before, nothing happens.
#[must_use = "nothing is sent until it is awaited"]
pub struct InjectDatagram<'a> {
    future: OpFuture<ToAddress, InjectWork<'a>>,
}

/// What is injected.
struct InjectWork<'a> {
    bytes: &'a [u8],
    immediate: Option<u32>,
}

impl<'a> InjectDatagram<'a> {
    pub(super) fn new(inner: &Arc<DatagramInner>, to: &AddressHandle, bytes: &'a [u8]) -> Self {
        let work = InjectWork { bytes, immediate: None };
        let port = ToAddress { inner: inner.clone(), to: to.clone() };
        let stage = OpState::Ready(work, OpBuffers::Nothing);
        InjectDatagram { future: OpFuture::new(port, stage) }
    }

    /// 32 bits that come with the datagram.
    pub fn immediate(mut self, value: u32) -> Self {
        if let Some(work) = self.future.work() {
            work.immediate = Some(value);
        }
        self
    }
}

impl PostOp<ToAddress> for InjectWork<'_> {
    type Output = Result<()>;

    fn validate(&self, _to: &ToAddress, _buffers: &OpBuffers) -> Result<()> {
        Ok(())
    }

    /// Its completion, which no future waits for, wakes those that wait for room.
    fn post(&self, to: &ToAddress, _buffers: &OpBuffers, context: u64) -> Result<Option<()>> {
        let op = Op::inject(self.bytes);
        post(to, &self.immediate.map_or(op, |value| op.immediate(value)), context)
    }

    fn keeps(&self, to: &ToAddress) -> ConnKeeps {
        to.inner.keeps()
    }

    fn end(&self, _to: &ToAddress, completion: &Completion, _buffers: OpBuffers) -> Result<()> {
        completion.is_ok().then_some(()).ok_or_else(|| Error::of(completion.status, None))
    }

    fn fail(&self, error: Error, _buffers: OpBuffers) -> Result<()> {
        Err(error)
    }
}

impl Future for InjectDatagram<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.future.poll_posted(cx));
        match self.future.slot() {
            Some(_) => Poll::Ready(Ok(())),
            None => self.future.poll(cx),
        }
    }
}

impl fmt::Debug for InjectDatagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InjectDatagram")
    }
}
