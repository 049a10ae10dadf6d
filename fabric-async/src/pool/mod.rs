//! The pool: registered memory in blocks, so that nobody registers per operation.
//!
//! Three levels. Each thread takes from, and gives to, a *cache* of its own; a cache that is empty or full exchanges some
//! blocks with the *store*, which is one; the store that is empty registers another *extent*, within the bound. Caches are
//! shards behind uncontended locks rather than thread-local variables: so they can be emptied by whoever needs the
//! memory, and nothing is lost when a thread ends.
//!
//! Lock order: a cache, then the store. Extents are registered and deregistered outside of both.

mod class;
mod store;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use fabric::Domain;

use crate::block::{Block, Extent};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::line::{Line, Ticket};
use crate::lock;
use class::{block_len, blocks_of, cached, cached_classes, class_of};
use store::Store;

/// Registered memory in blocks of many sizes, bounded; what [`Buffer`]s are made of.
///
/// Memory is registered in extents of 256 KiB and more, once, without any right for peers. Taking a buffer that is in the
/// thread's cache takes some tens of nanoseconds. Extents of which no block is in use are kept up to
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
struct Owner(Arc<Home>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// How a pool is made.
#[derive(Clone, Debug)]
pub(crate) struct PoolOptions {
    /// Most bytes that are registered at a time.
    pub(crate) bytes: usize,
    /// Bytes of extents without use that stay registered.
    pub(crate) keep: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { bytes: 1 << 30, keep: 64 << 20 }
    }
}

/// What a pool does and did.
///
/// ```
/// let node = fabric_async::Node::builder().build()?;
/// for _ in 0..100 {
///     node.pool().alloc(1000)?;
/// }
/// let metrics = node.pool().metrics();
/// assert_eq!((metrics.allocations, metrics.registrations), (100, 1)); // memory is registered once
/// assert_eq!((metrics.in_use, metrics.refusals), (0, 0));
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolMetrics {
    /// Blocks that buffers, or operations in flight, have.
    pub in_use: usize,
    /// Blocks that wait in the caches of threads.
    pub cached: usize,
    /// Bytes that are registered now.
    pub registered_bytes: usize,
    /// Buffers taken so far.
    pub allocations: u64,
    /// Extents registered so far.
    pub registrations: u64,
    /// Extents deregistered so far.
    pub deregistrations: u64,
    /// How often [`Pool::alloc_wait`] had to wait.
    pub waits: u64,
    /// How often the bound, or the system, refused memory.
    pub refusals: u64,
}

/// One thread's cache, or some threads'.
#[repr(align(128))] // two lines, which processors fetch together: neighbours are other threads'
struct Cache(Mutex<CacheState>);

struct CacheState {
    /// By class.
    stacks: Box<[Vec<Block>]>,
    taken: u64,
    given: u64,
    /// The pool is gone: blocks are freed.
    closed: bool,
}

/// What the blocks of a pool know of it.
pub(crate) struct Home {
    domain: Domain,
    options: PoolOptions,
    caches: Box<[Cache]>,
    store: Mutex<Store>,
    /// Bytes registered, or about to be.
    registered: AtomicUsize,
    /// Who waits for memory, in order.
    line: Line,
    next_id: AtomicU64,
    registrations: AtomicU64,
    deregistrations: AtomicU64,
    waits: AtomicU64,
    refusals: AtomicU64,
}

/// Threads are numbered as they come, so that few share a cache.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

impl Home {
    fn new(domain: &Domain, options: PoolOptions) -> Self {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        let cache = || CacheState {
            stacks: (0..cached_classes()).map(|_| Vec::new()).collect(),
            taken: 0,
            given: 0,
            closed: false,
        };
        let caches = (0..(2 * threads).next_power_of_two()).map(|_| Cache(Mutex::new(cache())));
        Home {
            domain: domain.clone(),
            options,
            caches: caches.collect(),
            store: Mutex::default(),
            registered: AtomicUsize::new(0),
            line: Line::default(),
            next_id: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            deregistrations: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        }
    }

    #[inline]
    fn cache(&self) -> MutexGuard<'_, CacheState> {
        lock(&self.caches[thread_number() & (self.caches.len() - 1)].0)
    }

    /// Takes a block of the class: from the cache, the store, or new memory.
    #[inline]
    fn take(self: &Arc<Self>, class: usize) -> Result<Block> {
        let mut cache = self.cache();
        if let Some(block) = cache.stacks.get_mut(class).and_then(Vec::pop) {
            cache.taken += 1;
            return Ok(block);
        }
        drop(cache);
        self.take_slowly(class)
    }

    #[cold]
    fn take_slowly(self: &Arc<Self>, class: usize) -> Result<Block> {
        if let Some(block) = self.take_stored(class) {
            return Ok(block);
        }
        match self.grow(class) {
            Err(_) if self.reclaim() => match self.take_stored(class) {
                Some(block) => Ok(block),
                None => self.grow(class),
            },
            grown => grown,
        }
    }

    /// Takes a block from the store, and some more for this thread's cache.
    fn take_stored(&self, class: usize) -> Option<Block> {
        let mut cache = self.cache();
        let mut store = lock(&self.store);
        let block = store.take(class)?;
        cache.taken += 1;
        let more = if self.line.is_empty() { cached(class) / 2 } else { 0 };
        if let Some(stack) = cache.stacks.get_mut(class) {
            stack.extend((0..more).map_while(|_| store.take(class)));
        }
        Some(block)
    }

    /// Registers one more extent, if the bound allows it, and takes its first block: one from the store could be gone to
    /// another thread already.
    fn grow(self: &Arc<Self>, class: usize) -> Result<Block> {
        let (len, count) = (block_len(class), blocks_of(class));
        let size = len.saturating_mul(count);
        let most = self.options.bytes;
        let room = |now: usize| now.checked_add(size).filter(|sum| *sum <= most);
        if self.registered.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(self.exhausted(class));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        match Extent::cut(&self.domain, self, (id, class), (len, count)) {
            Ok((first, others)) => {
                self.registrations.fetch_add(1, Ordering::Relaxed);
                self.cache().taken += 1;
                lock(&self.store).add(others);
                Ok(first)
            }
            Err(error) => {
                // An extent that was never made does not give its room back by being dropped.
                self.registered.fetch_sub(size, Ordering::AcqRel);
                self.refusals.fetch_add(1, Ordering::Relaxed);
                self.line.wake_first();
                Err(error.into())
            }
        }
    }

    #[cold]
    fn exhausted(&self, class: usize) -> Error {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Error::PoolExhausted {
            needed: block_len(class) * blocks_of(class),
            registered: self.registered.load(Ordering::Relaxed),
            bound: self.options.bytes,
        }
    }

    /// Empties all caches and gives back what is not in use. True if that freed something for another class, or
    /// found blocks.
    fn reclaim(&self) -> bool {
        let mut found = false;
        for cache in &self.caches {
            let mut cache = lock(&cache.0);
            let mut store = lock(&self.store);
            for block in cache.stacks.iter_mut().flat_map(|stack| stack.drain(..)) {
                found = true;
                store.give(block);
            }
        }
        let idle = lock(&self.store).shrink(0);
        found | !idle.is_empty()
        // `idle` is deregistered here, outside the locks.
    }

    /// Takes a block back.
    #[inline]
    pub(crate) fn give(&self, block: Block) {
        let class = block.extent().class;
        let mut cache = self.cache();
        cache.given += 1;
        // Who joins the line looks into every cache afterwards: either it finds this block, or this sees the line, since both
        // hold the cache's lock.
        let room = if cache.closed || !self.line.is_empty() { 0 } else { cached(class) };
        if let Some(stack) = cache.stacks.get_mut(class).filter(|stack| stack.len() < room) {
            stack.push(block);
            return;
        }
        self.give_slowly(cache, class, block);
    }

    #[cold]
    fn give_slowly(&self, mut cache: MutexGuard<'_, CacheState>, class: usize, block: Block) {
        if cache.closed {
            drop(cache);
            return;
        }
        let mut store = lock(&self.store);
        store.give(block);
        if let Some(stack) = cache.stacks.get_mut(class) {
            let keep = stack.len() / 2;
            stack.drain(keep..).for_each(|block| store.give(block));
        }
        let waited_for = !self.line.is_empty();
        let idle = store.shrink(if waited_for { 0 } else { self.options.keep });
        drop(store);
        drop(cache);
        drop(idle);
        self.line.wake_first();
    }

    /// An extent is gone.
    pub(crate) fn deregistered(&self, bytes: usize) {
        self.registered.fetch_sub(bytes, Ordering::AcqRel);
        self.deregistrations.fetch_add(1, Ordering::Relaxed);
        self.line.wake_first();
    }

    fn close(&self) {
        for cache in &self.caches {
            let mut cache = lock(&cache.0);
            cache.closed = true;
            let blocks: Vec<_> = cache.stacks.iter_mut().flat_map(|s| s.drain(..)).collect();
            drop(cache);
            drop(blocks);
        }
        let all = std::mem::take(&mut *lock(&self.store));
        drop(all);
        let mut waiting = Vec::new();
        self.line.all(&mut waiting);
        waiting.into_iter().for_each(std::task::Waker::wake);
    }
}

impl Pool {
    pub(crate) fn new(domain: &Domain, options: PoolOptions) -> Self {
        Pool { owner: Arc::new(Owner(Arc::new(Home::new(domain, options)))) }
    }

    fn home(&self) -> &Arc<Home> {
        &self.owner.0
    }

    /// A buffer of `len` bytes, now or not at all. What is in it is what its last user left: bytes of this process, so
    /// write all that you send, or take [`alloc_zeroed`](Pool::alloc_zeroed).
    ///
    /// ```
    /// use fabric_async::{Error, Node};
    ///
    /// let node = Node::builder().pool_bytes(1 << 20).build()?;
    /// let mut buffer = node.pool().alloc(100)?;
    /// buffer.fill(7);
    /// assert_eq!(*buffer, [7; 100]);
    /// assert!(matches!(node.pool().alloc(2 << 20), Err(Error::PoolExhausted { .. })));
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// `PoolExhausted` at the bound; a `NoMemory` of the fabric if the system refuses to register more.
    #[inline]
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        if len == 0 {
            return Ok(Buffer::empty());
        }
        if len > self.home().options.bytes {
            return Err(self.home().exhausted(class_of(len.min(isize::MAX as usize / 4))));
        }
        Ok(Buffer::new(self.home().take(class_of(len))?, len))
    }

    /// As [`alloc`](Pool::alloc), all bytes zero.
    ///
    /// ```
    /// let node = fabric_async::Node::shared()?;
    /// drop(node.pool().alloc_from(b"secret")?);
    /// assert_eq!(*node.pool().alloc_zeroed(6)?, [0; 6]);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc).
    pub fn alloc_zeroed(&self, len: usize) -> Result<Buffer> {
        let mut buffer = self.alloc(len)?;
        buffer.fill(0);
        Ok(buffer)
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
        let mut buffer = self.alloc(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// A buffer of `len` bytes, once there is memory for it: waits while the pool is at its bound, first come, first
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
        AllocWait { pool: self.clone(), len, ticket: Ticket::default() }
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
        self.home().reclaim();
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
        let home = self.home();
        let mut metrics = PoolMetrics {
            registered_bytes: home.registered.load(Ordering::Relaxed),
            registrations: home.registrations.load(Ordering::Relaxed),
            deregistrations: home.deregistrations.load(Ordering::Relaxed),
            waits: home.waits.load(Ordering::Relaxed),
            refusals: home.refusals.load(Ordering::Relaxed),
            ..PoolMetrics::default()
        };
        let mut given = 0;
        for cache in &home.caches {
            let cache = lock(&cache.0);
            metrics.cached += cache.stacks.iter().map(Vec::len).sum::<usize>();
            metrics.allocations += cache.taken;
            given += cache.given;
        }
        metrics.in_use = metrics.allocations.wrapping_sub(given) as usize;
        metrics
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
    ticket: Ticket,
}

impl Future for AllocWait {
    type Output = Result<Buffer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let home = this.pool.home().clone();
        let first = !this.ticket.waits();
        // Who comes later does not pass those who wait.
        if home.line.may_pass(&this.ticket) {
            match this.pool.alloc(this.len) {
                Err(Error::PoolExhausted { needed, bound, .. }) if needed <= bound => {}
                done => {
                    home.line.leave(&mut this.ticket);
                    return Poll::Ready(done);
                }
            }
        }
        if first {
            home.waits.fetch_add(1, Ordering::Relaxed);
        }
        home.line.join(&mut this.ticket, cx.waker());
        // Between the refusal and the place in line something may have come back.
        if home.line.may_pass(&this.ticket)
            && let Ok(buffer) = this.pool.alloc(this.len)
        {
            home.line.leave(&mut this.ticket);
            return Poll::Ready(Ok(buffer));
        }
        Poll::Pending
    }
}

impl Drop for AllocWait {
    fn drop(&mut self) {
        let home = self.pool.home().clone();
        home.line.leave(&mut self.ticket);
    }
}
