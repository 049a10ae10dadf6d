//! The pool: registered memory in blocks, so that operations need no registration of their own.
//!
//! Three levels (`inner`). Each thread takes from, and gives to, a *cache* of its own; a cache that is empty or full exchanges some
//! blocks with the *store*, which is one; the store that is empty registers another *extent*, within the bound. Caches are
//! shards behind uncontended locks rather than thread-local variables: so any thread that needs memory can empty them, and nothing is lost when a thread ends.

mod class;
mod inner;
mod metrics;
mod store;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fabric::{Domain, Failure};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::options::PoolOptions;
use crate::timers::Timers;
use crate::wait_queue::Waiter;
use class::class_of;
use inner::PoolInner;
pub use metrics::PoolMetrics;

/// The longest buffer there can be: its size class can be computed.
const MAX_LEN: usize = isize::MAX as usize / 4;

/// Registered memory in blocks of many sizes, bounded; what [`Buffer`]s are made of.
///
/// Memory is registered in extents of 256 KiB and more, once. Peers reach none of it, but for what is under way to them: the
/// target of a long message to a datagram endpoint reads that by a grant. Taking a buffer that is in the
/// thread's cache takes some tens of nanoseconds. Extents without a block in use are kept up to
/// [a bound](crate::NodeBuilder::pool_keep), and deregistered beyond. Any thread may use it; clones are the same pool.
///
/// ```
/// use fabric_async::Node;
///
/// # fn main() -> Result<(), fabric_async::Error> {
/// let node = Node::builder().pool_bytes(16 << 20).build()?;
/// let buffer = node.pool().alloc(1000)?;
/// assert_eq!(buffer.len(), 1000);
/// assert_eq!(node.pool().metrics().in_use, 1);
/// drop(buffer);
/// assert_eq!(node.pool().metrics().in_use, 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Pool {
    owner: Arc<Owner>,
}

/// Empties the pool when the last handle is gone; buffers that are out then free themselves.
struct Owner(Arc<PoolInner>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Pool {
    pub(crate) fn new(domain: &Domain, options: PoolOptions, timers: &Arc<Timers>) -> Self {
        Pool { owner: Arc::new(Owner(Arc::new(PoolInner::new(domain, options, timers)))) }
    }

    fn inner(&self) -> &Arc<PoolInner> {
        &self.owner.0
    }

    /// A buffer of `len` bytes, all zero, now or not at all.
    ///
    /// ```
    /// use fabric_async::{Error, Node};
    ///
    /// let node = Node::builder().pool_bytes(1 << 20).build()?;
    /// drop(node.pool().alloc_from(b"secret")?);
    /// let buffer = node.pool().alloc(100)?;
    /// assert_eq!(*buffer, [0; 100]);
    /// assert!(matches!(node.pool().alloc(2 << 20), Err(Error::PoolExhausted { .. })));
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// `PoolExhausted` at the bound; a `NoMemory` of the fabric if the system refuses to register more, or for more bytes than a
    /// process can have.
    #[inline]
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        let mut buffer = self.alloc_dirty(len)?;
        buffer.fill(0);
        Ok(buffer)
    }

    /// As [`alloc`](Pool::alloc), without the zeroing: what is in the buffer is what its last user left, bytes of this
    /// process. For those who write all that they send, or read into it.
    ///
    /// ```
    /// let node = fabric_async::Node::shared()?;
    /// let mut buffer = node.pool().alloc_dirty(6)?;
    /// buffer.fill(7); // all of it, before it goes to a peer
    /// assert_eq!(*buffer, [7; 6]);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc).
    #[inline]
    pub fn alloc_dirty(&self, len: usize) -> Result<Buffer> {
        if len == 0 {
            return Ok(Buffer::empty());
        }
        if len > MAX_LEN {
            let text = format!("{len} bytes are more than a buffer can have");
            return Err(fabric::Error::NoMemory(Failure::new("alloc", text)).into());
        }
        if len > self.inner().options.bytes {
            return Err(self.inner().exhausted(class_of(len)));
        }
        Ok(Buffer::new(self.inner().take(class_of(len))?, len))
    }

    /// A buffer with these bytes in it.
    ///
    /// ```
    /// let buffer = fabric_async::Node::shared()?.pool().alloc_from(b"hello")?;
    /// assert_eq!(*buffer, *b"hello");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc).
    pub fn alloc_from(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.alloc_dirty(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// A buffer of `len` bytes, all zero, once there is memory for it: waits while the pool is at its bound, first come, first
    /// served. Dropping the future gives up the place.
    ///
    /// ```
    /// use fabric_async::{Error, Node, block_on};
    ///
    /// let node = Node::builder().pool_bytes(1 << 20).build()?;
    /// let all = node.pool().alloc(1 << 20)?;
    /// assert!(matches!(node.pool().alloc(64), Err(Error::PoolExhausted { .. })));
    /// let pool = node.pool().clone();
    /// let waiter = std::thread::spawn(move || block_on(pool.alloc_wait(64)));
    /// drop(all);
    /// assert_eq!(waiter.join().unwrap()?.len(), 64);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future's error is that of [`alloc`](Pool::alloc) if the length alone exceeds the bound, or if the system
    /// refuses to register more.
    pub fn alloc_wait(&self, len: usize) -> AllocWait {
        AllocWait { pool: self.clone(), len, dirty: false, waiter: Waiter::default() }
    }

    /// As [`alloc_wait`](Pool::alloc_wait), without the zeroing.
    #[cfg(any(feature = "tokio", feature = "rdm"))]
    pub(crate) fn alloc_wait_dirty(&self, len: usize) -> AllocWait {
        AllocWait { pool: self.clone(), len, dirty: true, waiter: Waiter::default() }
    }

    /// Deregisters everything that is not in use.
    ///
    /// ```
    /// let node = fabric_async::Node::builder().build()?;
    /// drop(node.pool().alloc(1000)?);
    /// assert!(node.pool().metrics().registered_bytes > 0); // kept for the next one
    /// node.pool().trim();
    /// assert_eq!(node.pool().metrics().registered_bytes, 0);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn trim(&self) {
        self.inner().reclaim();
    }

    /// What it does and did. The numbers are of about one moment.
    ///
    /// ```
    /// let node = fabric_async::Node::builder().build()?;
    /// let buffers = [node.pool().alloc(64)?, node.pool().alloc(100_000)?];
    /// assert_eq!(node.pool().metrics().in_use, 2);
    /// drop(buffers);
    /// assert_eq!(node.pool().metrics().in_use, 0);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn metrics(&self) -> PoolMetrics {
        self.inner().metrics()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({:?})", self.metrics())
    }
}

/// A buffer that waits for memory: see [`Pool::alloc_wait`].
///
/// ```
/// use fabric_async::{AllocWait, Node, block_on};
///
/// let node = Node::builder().pool_bytes(1 << 20).build()?;
/// let all = node.pool().alloc(1 << 20)?;
/// let waiting: AllocWait = node.pool().alloc_wait(64);
/// drop(all);
/// assert_eq!(block_on(waiting)?.len(), 64);
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct AllocWait {
    pool: Pool,
    len: usize,
    dirty: bool,
    waiter: Waiter,
}

impl Future for AllocWait {
    type Output = Result<Buffer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AllocWait { pool, len, dirty, waiter } = &mut *self;
        let inner = pool.inner();
        let is_first = !waiter.waits();
        let polled = inner.queue.poll(waiter, cx, |is_turn| {
            if !is_turn {
                return None;
            }
            match if *dirty { pool.alloc_dirty(*len) } else { pool.alloc(*len) } {
                Err(Error::PoolExhausted { needed, bound, .. }) if needed <= bound => None,
                done => Some(done),
            }
        });
        if is_first && polled.is_pending() {
            inner.waited();
        }
        polled
    }
}

impl Drop for AllocWait {
    fn drop(&mut self) {
        let inner = self.pool.inner().clone();
        inner.queue.leave(&mut self.waiter);
    }
}
