//! Futures that are dropped at random: the dice, and who counts.

#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// A generator of numbers, good enough for dice (xorshift64*).
pub struct Dice(u64);

impl Dice {
    /// Of the seed in `FABRIC_ASYNC_SEED`, or of the clock's; it is printed.
    pub fn new(what: &str) -> Self {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = setting("FABRIC_ASYNC_SEED").unwrap_or(clock.as_nanos() as u64);
        println!("{what}: FABRIC_ASYNC_SEED={seed}");
        Dice(seed | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// How many futures are to be dropped at an await point by this run; a few, unless `FABRIC_ASYNC_CANCELS` says otherwise.
pub fn wanted() -> u64 {
    setting("FABRIC_ASYNC_CANCELS").unwrap_or(60_000)
}

/// How futures ended.
#[derive(Default)]
pub struct Counts {
    pub done: AtomicU64,
    /// Dropped at an await point: they had been polled, and were pending.
    pub dropped: AtomicU64,
}

impl Counts {
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// A future whose end is counted by kind.
pub struct Counted<F> {
    future: Pin<Box<F>>,
    pending: bool,
    counts: Arc<Counts>,
}

impl<F: Future> Counted<F> {
    pub fn new(future: F, counts: &Arc<Counts>) -> Self {
        Counted { future: Box::pin(future), pending: false, counts: counts.clone() }
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.future.as_mut().poll(cx);
        self.pending = polled.is_pending();
        if !self.pending {
            self.counts.done.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        if self.pending {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
