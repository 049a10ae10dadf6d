//! What blocks move between: caches, store, extents.
//!
//! Lock order: a cache, then the store. Extents are registered and deregistered, and wakers called, outside of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fabric::Domain;
use fabric_util::sync::{Mutex, MutexGuard};

use super::class::{block_len, blocks_of, cached, cached_classes};
use super::metrics::PoolMetrics;
use super::store::Store;
use crate::block::{Block, BlockOwner, Extent};
use crate::error::{Error, Result};
use crate::options::PoolOptions;
use crate::timers::Timers;
use crate::wait_queue::WaitQueue;
use crate::wakers::Wakers;

/// One thread's cache, or some threads'.
#[repr(align(128))] // two lines, which processors fetch together: neighbours are other threads'
pub(super) struct Cache(pub(super) Mutex<CacheState>);

pub(super) struct CacheState {
    /// By class.
    stacks: Box<[Vec<Block>]>,
    taken: u64,
    given: u64,
    /// The pool is gone: blocks are freed.
    closed: bool,
}

/// What the blocks of a pool know of it.
pub(crate) struct PoolInner {
    domain: Domain,
    pub(super) options: PoolOptions,
    caches: Box<[Cache]>,
    store: Mutex<Store>,
    /// Bytes registered, or about to be.
    registered: AtomicUsize,
    /// Futures that wait for memory.
    pub(super) queue: Arc<WaitQueue>,
    next_id: AtomicU64,
    registrations: AtomicU64,
    deregistrations: AtomicU64,
    waits: AtomicU64,
    refusals: AtomicU64,
    leaks: AtomicU64,
}

/// Threads are numbered as they come, so that few share a cache.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

impl PoolInner {
    pub(super) fn new(domain: &Domain, options: PoolOptions, timers: &Arc<Timers>) -> Self {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        let cache = || CacheState {
            stacks: (0..cached_classes()).map(|_| Vec::new()).collect(),
            taken: 0,
            given: 0,
            closed: false,
        };
        let caches = (0..(2 * threads).next_power_of_two()).map(|_| Cache(Mutex::new(cache())));
        PoolInner {
            domain: domain.clone(),
            options,
            caches: caches.collect(),
            store: Mutex::default(),
            registered: AtomicUsize::new(0),
            queue: WaitQueue::new(timers),
            next_id: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            deregistrations: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            leaks: AtomicU64::new(0),
        }
    }

    #[inline]
    fn cache(&self) -> MutexGuard<'_, CacheState> {
        self.caches[thread_number() & (self.caches.len() - 1)].0.lock()
    }

    /// Takes a block of the class: from the cache, the store, or new memory.
    #[inline]
    pub(super) fn take(self: &Arc<Self>, class: usize) -> Result<Block> {
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
        let mut store = self.store.lock();
        let block = store.take(class)?;
        cache.taken += 1;
        let more = if self.queue.is_empty() { cached(class) / 2 } else { 0 };
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
        let max = self.options.bytes;
        let room = |now: usize| now.checked_add(size).filter(|sum| *sum <= max);
        if self.registered.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(self.exhausted(class));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        match Extent::cut(&self.domain, self.clone(), (id, class), (len, count)) {
            Ok((first, others)) => {
                self.registrations.fetch_add(1, Ordering::Relaxed);
                self.cache().taken += 1;
                self.store.lock().add(others);
                Ok(first)
            }
            Err(error) => {
                // An extent that was never made does not give its room back by being dropped.
                self.registered.fetch_sub(size, Ordering::AcqRel);
                self.refusals.fetch_add(1, Ordering::Relaxed);
                self.queue.wake_first(&mut Wakers::new());
                Err(error.into())
            }
        }
    }

    #[cold]
    pub(super) fn exhausted(&self, class: usize) -> Error {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Error::PoolExhausted {
            needed: block_len(class) * blocks_of(class),
            registered: self.registered.load(Ordering::Relaxed),
            bound: self.options.bytes,
        }
    }

    /// Empties all caches and gives back what is not in use. True if that freed something for another class, or
    /// found blocks.
    pub(super) fn reclaim(&self) -> bool {
        let mut found = false;
        for cache in &self.caches {
            let mut cache = cache.0.lock();
            let mut store = self.store.lock();
            for block in cache.stacks.iter_mut().flat_map(|stack| stack.drain(..)) {
                found = true;
                store.give(block);
            }
        }
        let idle = self.store.lock().shrink(0);
        found | !idle.is_empty()
        // `idle` is deregistered here, outside the locks.
    }

    #[cold]
    fn give_slowly(&self, mut cache: MutexGuard<'_, CacheState>, class: usize, block: Block) {
        if cache.closed {
            drop(cache);
            return;
        }
        let mut store = self.store.lock();
        store.give(block);
        if let Some(stack) = cache.stacks.get_mut(class) {
            let keep = stack.len() / 2;
            stack.drain(keep..).for_each(|block| store.give(block));
        }
        let waited_for = !self.queue.is_empty();
        let idle = store.shrink(if waited_for { 0 } else { self.options.keep });
        drop(store);
        drop(cache);
        drop(idle);
        self.queue.wake_first(&mut Wakers::new());
    }

    pub(super) fn close(&self) {
        for cache in &self.caches {
            let mut cache = cache.0.lock();
            cache.closed = true;
            let blocks: Vec<_> = cache.stacks.iter_mut().flat_map(|s| s.drain(..)).collect();
            drop(cache);
            drop(blocks);
        }
        let all = std::mem::take(&mut *self.store.lock());
        drop(all);
        self.queue.wake_all(&mut Wakers::new());
    }

    /// Somebody waits for memory.
    pub(super) fn waited(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> PoolMetrics {
        let mut metrics = PoolMetrics {
            registered_bytes: self.registered.load(Ordering::Relaxed),
            registrations: self.registrations.load(Ordering::Relaxed),
            deregistrations: self.deregistrations.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
            leaks: self.leaks.load(Ordering::Relaxed),
            ..PoolMetrics::default()
        };
        let mut given = 0;
        for cache in &self.caches {
            let cache = cache.0.lock();
            metrics.cached += cache.stacks.iter().map(Vec::len).sum::<usize>();
            metrics.allocations += cache.taken;
            given += cache.given;
        }
        metrics.in_use = metrics.allocations.wrapping_sub(given) as usize;
        metrics
    }
}

impl BlockOwner for PoolInner {
    #[inline]
    fn give(&self, block: Block) {
        let class = block.extent().class;
        let mut cache = self.cache();
        cache.given += 1;
        // A future that joins the queue looks into every cache afterwards. Both hold the cache's lock, so either it finds
        // this block, or this thread sees the queue.
        let room = if cache.closed || !self.queue.is_empty() { 0 } else { cached(class) };
        if let Some(stack) = cache.stacks.get_mut(class).filter(|stack| stack.len() < room) {
            stack.push(block);
            return;
        }
        self.give_slowly(cache, class, block);
    }

    fn deregistered(&self, bytes: usize) {
        self.registered.fetch_sub(bytes, Ordering::AcqRel);
        self.deregistrations.fetch_add(1, Ordering::Relaxed);
        self.queue.wake_first(&mut Wakers::new());
    }

    fn leaked(&self) {
        self.leaks.fetch_add(1, Ordering::Relaxed);
    }
}
