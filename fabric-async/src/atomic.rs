//! Atomic operations on numbers in a peer's memory: the calls, and their future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fabric::{AtomicOp, AtomicScalar, Completion};

use crate::conn::Conn;
use crate::conn_source::ConnKeeps;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::fetch::{Change, Fetch};
use crate::lease::RemoteTarget;
use crate::op_buffers::OpBuffers;
use crate::op_future::{OpFuture, OpState, PostOp};

/// Atomic operations; each gives the old value.
impl Connection {
    /// Adds to a number in the peer's memory, wrapping; gives the old one.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(8, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(conn.fetch_add(remote.at(0), 5).await?, 0);
    /// assert_eq!(conn.fetch_add(remote.at(0), 1).await?, 5);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`write`](Connection::write); also the fabric's `InvalidArgument` if it is not aligned to 8.
    pub fn fetch_add(&self, at: impl Into<RemoteTarget>, value: u64) -> Atomic<u64> {
        self.fetch(AtomicOp::Add, at, value)
    }

    /// Replaces a number in the peer's memory; gives the old one.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(8, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(conn.swap(remote.at(0), 5).await?, 0);
    /// assert_eq!(conn.swap(remote.at(0), 6).await?, 5);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`fetch_add`](Connection::fetch_add).
    pub fn swap(&self, at: impl Into<RemoteTarget>, value: u64) -> Atomic<u64> {
        self.fetch(AtomicOp::Swap, at, value)
    }

    /// Puts `new` into the peer's memory if `expected` is there; gives what was there.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(8, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(conn.compare_swap(remote.at(0), 0, 5).await?, 0); // it was 0, and is 5
    /// assert_eq!(conn.compare_swap(remote.at(0), 0, 6).await?, 5); // it is 5 still
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`fetch_add`](Connection::fetch_add).
    pub fn compare_swap(
        &self,
        at: impl Into<RemoteTarget>,
        expected: u64,
        new: u64,
    ) -> Atomic<u64> {
        self.fetch_compare_swap(at, expected, new)
    }

    /// Any other operation, on a number of any of the ten types; gives the old one.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use fabric::AtomicOp;
    ///
    /// let remote = conn.request_lease(8, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(conn.fetch(AtomicOp::Max, remote.at(4), 2.5f32).await?, 0.0);
    /// assert_eq!(conn.fetch(AtomicOp::Max, remote.at(4), 1.5f32).await?, 2.5); // and is still
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`fetch_add`](Connection::fetch_add); the fabric's `Unsupported` for what is not defined on the type.
    pub fn fetch<T: AtomicScalar + Unpin>(
        &self,
        op: AtomicOp,
        at: impl Into<RemoteTarget>,
        value: T,
    ) -> Atomic<T> {
        Atomic::new(&self.inner, at.into(), Change::Apply(op, value))
    }

    /// [`compare_swap`](Connection::compare_swap) on a number of any of the ten types.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(8, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(conn.fetch_compare_swap(remote.at(2), 0u16, 7u16).await?, 0);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`fetch_add`](Connection::fetch_add).
    pub fn fetch_compare_swap<T: AtomicScalar + Unpin>(
        &self,
        at: impl Into<RemoteTarget>,
        expected: T,
        new: T,
    ) -> Atomic<T> {
        Atomic::new(&self.inner, at.into(), Change::CompareSwap { expected, new })
    }
}

/// An atomic operation: a future of the old value.
///
/// Dropping it does not take the operation back: it is executed once, or not at all.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// let remote = conn.request_lease(8, std::time::Duration::from_secs(30)).await?;
/// let adds: Vec<_> = (0..4).map(|_| conn.fetch_add(remote.at(0), 1)).collect();
/// for (before, add) in adds.into_iter().enumerate() {
///     assert_eq!(add.await?, before as u64);
/// }
/// # Ok(()) });
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct Atomic<T: AtomicScalar + Unpin> {
    future: OpFuture<Arc<Conn>, Fetch<T>>,
}

impl<T: AtomicScalar + Unpin> Atomic<T> {
    fn new(conn: &Arc<Conn>, at: RemoteTarget, change: Change<T>) -> Self {
        let stage = match Fetch::load(&conn.node.pool, change, at) {
            Ok((fetch, word)) => OpState::Ready(fetch, word),
            Err(error) => OpState::Failed(Some(Err(error))),
        };
        Atomic { future: OpFuture::new(conn.clone(), stage) }
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
    /// let (read, old) = join(read, conn.fetch_add(remote.at(0), 1).fence()).await;
    /// assert_eq!((&*read?, old?), (&[0; 8][..], 0)); // it was read before it was added to
    /// # Ok(()) });
    /// ```
    pub fn fence(mut self) -> Self {
        if let Some(work) = self.future.work() {
            work.fence = true;
        }
        self
    }
}

impl<T: AtomicScalar + Unpin> PostOp<Arc<Conn>> for Fetch<T> {
    type Output = Result<T>;

    fn validate(&self, _conn: &Arc<Conn>, _word: &OpBuffers) -> Result<()> {
        self.at.check()
    }

    #[inline]
    fn post(&self, conn: &Arc<Conn>, word: &OpBuffers, context: u64) -> Result<Option<()>> {
        conn.post(&self.build(word), context)
    }

    #[inline]
    fn keeps(&self, conn: &Arc<Conn>) -> ConnKeeps {
        Conn::keeps(conn, Some(&self.at))
    }

    fn end(&self, conn: &Arc<Conn>, completion: &Completion, word: OpBuffers) -> Result<T> {
        match completion.is_ok() {
            true => Ok(Self::value(word)),
            false => PostOp::<Arc<Conn>>::fail(self, conn.error_of(completion), word),
        }
    }

    fn fail(&self, error: Error, word: OpBuffers) -> Result<T> {
        word.reclaim();
        Err(error)
    }
}

impl<T: AtomicScalar + Unpin> Future for Atomic<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        self.future.poll(cx)
    }
}

impl<T: AtomicScalar + Unpin> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Atomic")
    }
}
