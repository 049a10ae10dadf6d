//! Sends, writes and reads: futures that take a buffer and give it back.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::ready;
use std::task::{Context, Poll};

use fabric::{Completion, Op};

use crate::conn::Conn;
use crate::conn_source::ConnKeeps;
use crate::error::{Error, OpError, Result};
use crate::op_buffers::{OpBuffers, Payload, SliceVec};
use crate::op_future::{OpFuture, OpState, PostOp};
use crate::transfer::{Transfer, TransferKind};

/// A send, write or read: a future that gives the buffer back, or fails with the buffer in the error.
///
/// - Nothing happens until it is polled. Operations of a connection are posted in the order of their first polls, and
///   take effect in that order, as [`fabric::contract`] says.
/// - While the connection's send queue is full it waits its turn. If it is not polled within 50 ms of that, others pass it.
/// - Dropping it before it was posted: nothing happens. Dropping it later: the operation finishes or not, and its buffer
///   returns to the pool when it has.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// # let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
/// // Both are under way at once.
/// let buffer = conn.node().pool().alloc_from(b"hello")?;
/// let (write, send) = (conn.write(buffer, remote.at(0)), conn.send(conn.alloc(8)?));
/// let (write, send) = futures_util::future::join(write, send).await;
/// assert_eq!((&*write?, send?.len()), (&b"hello"[..], 8)); // both buffers are ours again
/// # assert_eq!(peer.recv().await?.len(), 8);
/// # Ok(()) });
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct Operation<P: Payload> {
    future: OpFuture<Arc<Conn>, Transfer<P>>,
}

impl<P: Payload> Operation<P> {
    #[inline]
    pub(crate) fn new(conn: &Arc<Conn>, payload: P, what: TransferKind) -> Self {
        let stage = match payload.load() {
            Ok(buffers) => OpState::Ready(Transfer::new(what), buffers),
            Err((buffer, error)) => OpState::Failed(Some(Err(OpError { error, buffer }))),
        };
        Operation { future: OpFuture::new(conn.clone(), stage) }
    }

    /// Posts it, as the first poll does, and does not wait for its end; its buffer goes back to the pool at that.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_posted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.future.poll_posted(cx));
        self.future.detach();
        Poll::Ready(())
    }

    /// The outcome, if it has ended; registers no waker.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_take(&mut self) -> Option<Result<P::Back, OpError<P::Back>>> {
        self.future.try_take()
    }

    /// Has it start only when every earlier read and atomic operation of the connection has finished.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use futures_util::future::join;
    ///
    /// let remote = conn.request_lease(8, std::time::Duration::from_secs(30)).await?;
    /// let read = conn.read(conn.alloc(8)?, remote.at(0));
    /// let write = conn.write(conn.node().pool().alloc_from(&[1; 8])?, remote.at(0)).fence();
    /// let (read, write) = join(read, write).await;
    /// write?;
    /// assert_eq!(*read?, [0; 8]); // what was there before the write
    /// # Ok(()) });
    /// ```
    pub fn fence(mut self) -> Self {
        if let Some(work) = self.future.work() {
            work.fence = true;
        }
        self
    }

    /// Of a write: done only when the target's processor, and every other peer of it, can see the bytes. Other operations
    /// refuse it, with an error of the fabric (`Unsupported`).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// conn.write(conn.node().pool().alloc_from(b"hello")?, remote.at(0)).delivered().await?;
    /// assert_eq!(peer.local_lease(remote.id()).unwrap().get::<[u8; 5]>(0)?, *b"hello");
    /// // A send is done when the peer has it anyway.
    /// assert!(conn.send(conn.alloc(8)?).delivered().await.is_err());
    /// # Ok(()) });
    /// ```
    pub fn delivered(mut self) -> Self {
        match &mut self.future.stage {
            OpState::Ready(Transfer { what: TransferKind::Write { delivered, .. }, .. }, _) => {
                *delivered = true
            }
            OpState::Ready(..) => {
                let over = std::mem::replace(&mut self.future.stage, OpState::Over);
                if let OpState::Ready(_, buffers) = over {
                    let text = "only writes can be awaited until they are delivered";
                    let error = fabric::Error::unsupported("delivered", "fabric", text).into();
                    let failed = OpError { error, buffer: P::unload(buffers) };
                    self.future.stage = OpState::Failed(Some(Err(failed)));
                }
            }
            _ => {}
        }
        self
    }
}

impl<P: Payload> PostOp<Arc<Conn>> for Transfer<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    #[inline]
    fn validate(&self, conn: &Arc<Conn>, buffers: &OpBuffers) -> Result<()> {
        match self.target() {
            None => conn.check_message(buffers.len()),
            Some(at) => at.check(),
        }
    }

    #[inline]
    fn post(&self, conn: &Arc<Conn>, buffers: &OpBuffers, context: u64) -> Result<Option<()>> {
        let mut scratch = SliceVec::new();
        let op: Op<'_> = self.build(buffers, &mut scratch);
        conn.post(&op, context)
    }

    #[inline]
    fn keeps(&self, conn: &Arc<Conn>) -> ConnKeeps {
        Conn::keeps(conn, self.target())
    }

    #[inline]
    fn end(&self, conn: &Arc<Conn>, completion: &Completion, buffers: OpBuffers) -> Self::Output {
        match completion.is_ok() {
            true => Ok(P::unload(buffers)),
            false => PostOp::<Arc<Conn>>::fail(self, conn.error_of(completion), buffers),
        }
    }

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output {
        Err(OpError { error, buffer: P::unload(buffers) })
    }
}

impl<P: Payload> Future for Operation<P> {
    type Output = Result<P::Back, OpError<P::Back>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.poll(cx)
    }
}

impl<P: Payload> fmt::Debug for Operation<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operation")
    }
}
