//! Reads, writes and atomic operations on the memory of peers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fabric::{AtomicScalar, Op};
use fabric_rdm::{Completion, OpId, Peer};

use super::inner::{EndpointInner, ToPeer};
use super::message::{error, posted};
use super::source::RdmKeeps;
use crate::error::{Error, OpError, Result};
use crate::fetch::{Change, Fetch};
use crate::lease::RemoteTarget;
use crate::op_buffers::{OpBuffers, Payload, SliceVec};
use crate::op_future::{OpFuture, OpState, PostOp};
use crate::transfer::{Transfer, TransferKind};

/// A write to a peer's memory, or a read of it: a future that gives the buffer back, or fails with the buffer in the error.
///
/// It is posted at its first poll, and waits for room at the endpoint's `send_depth`. Operations to a peer take effect in the
/// order of their posts, as [`fabric::contract`] says. Dropped before it was posted, nothing happens; dropped later, it goes on,
/// and its buffer returns to the pool when it has ended.
#[must_use = "nothing is sent until it is awaited"]
pub struct OneSided<P: Payload> {
    future: OpFuture<ToPeer, Transfer<P>>,
}

impl<P: Payload> OneSided<P> {
    pub(super) fn new(
        inner: &Arc<EndpointInner>,
        peer: Peer,
        payload: P,
        what: TransferKind,
    ) -> Self {
        let stage = match payload.load() {
            Ok(buffers) => OpState::Ready(Transfer::new(what), buffers),
            Err((buffer, error)) => OpState::Failed(Some(Err(OpError { error, buffer }))),
        };
        OneSided { future: OpFuture::new(ToPeer { inner: inner.clone(), peer }, stage) }
    }

    /// Has it start only when every earlier read and atomic operation to the peer has finished.
    pub fn fence(mut self) -> Self {
        if let Some(work) = self.future.work() {
            work.fence = true;
        }
        self
    }
}

/// Posts a one-sided operation.
fn post(to: &ToPeer, op: Op<'_>, context: u64) -> Result<Option<OpId>> {
    posted(to.inner.endpoint()?.post(to.peer, &op.context(context)))
}

impl<P: Payload> PostOp<ToPeer> for Transfer<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    fn validate(&self, _to: &ToPeer, _buffers: &OpBuffers) -> Result<()> {
        self.target().map_or(Ok(()), RemoteTarget::check)
    }

    #[inline]
    fn post(&self, to: &ToPeer, buffers: &OpBuffers, context: u64) -> Result<Option<OpId>> {
        let mut scratch = SliceVec::new();
        post(to, self.build(buffers, &mut scratch), context)
    }

    fn keeps(&self, _to: &ToPeer) -> RdmKeeps {
        let lease = self.target().and_then(|at| at.lease.clone());
        RdmKeeps { lease, messages: None }
    }

    #[inline]
    fn end(&self, _to: &ToPeer, completion: &Completion, buffers: OpBuffers) -> Self::Output {
        match completion.is_ok() {
            true => Ok(P::unload(buffers)),
            false => PostOp::<ToPeer>::fail(self, error(completion), buffers),
        }
    }

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output {
        Err(OpError { error, buffer: P::unload(buffers) })
    }
}

impl<P: Payload> Future for OneSided<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.poll(cx)
    }
}

impl<P: Payload> fmt::Debug for OneSided<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneSided")
    }
}

/// An atomic operation on a number in a peer's memory: a future of the old value.
///
/// Dropping it once it was posted does not take the operation back: it is executed once, or not at all.
#[must_use = "nothing is sent until it is awaited"]
pub struct FetchAtomic<T: AtomicScalar + Unpin> {
    future: OpFuture<ToPeer, Fetch<T>>,
}

impl<T: AtomicScalar + Unpin> FetchAtomic<T> {
    pub(super) fn new(
        inner: &Arc<EndpointInner>,
        peer: Peer,
        at: RemoteTarget,
        change: Change<T>,
    ) -> Self {
        let stage = match Fetch::load(&inner.node.pool, change, at) {
            Ok((fetch, word)) => OpState::Ready(fetch, word),
            Err(error) => OpState::Failed(Some(Err(error))),
        };
        FetchAtomic { future: OpFuture::new(ToPeer { inner: inner.clone(), peer }, stage) }
    }

    /// Has it start only when every earlier read and atomic operation to the peer has finished.
    pub fn fence(mut self) -> Self {
        if let Some(work) = self.future.work() {
            work.fence = true;
        }
        self
    }
}

impl<T: AtomicScalar + Unpin> PostOp<ToPeer> for Fetch<T> {
    type Output = Result<T>;

    fn validate(&self, _to: &ToPeer, _word: &OpBuffers) -> Result<()> {
        self.at.check()
    }

    fn post(&self, to: &ToPeer, word: &OpBuffers, context: u64) -> Result<Option<OpId>> {
        post(to, self.build(word), context)
    }

    fn keeps(&self, _to: &ToPeer) -> RdmKeeps {
        RdmKeeps { lease: self.at.lease.clone(), messages: None }
    }

    fn end(&self, _to: &ToPeer, completion: &Completion, word: OpBuffers) -> Result<T> {
        match completion.is_ok() {
            true => Ok(Self::value(word)),
            false => PostOp::<ToPeer>::fail(self, error(completion), word),
        }
    }

    fn fail(&self, error: Error, word: OpBuffers) -> Result<T> {
        word.reclaim();
        Err(error)
    }
}

impl<T: AtomicScalar + Unpin> Future for FetchAtomic<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        self.future.poll(cx)
    }
}

impl<T: AtomicScalar + Unpin> fmt::Debug for FetchAtomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FetchAtomic")
    }
}
