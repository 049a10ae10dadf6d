//! The pool: it grows, stops at its bound, shrinks, and serves who waits in turn, whichever threads ask.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use common::node;
use fabric_async::{Buffer, Error, Node, block_on};

const MIB: usize = 1 << 20;

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Buffers of `len` bytes until the pool is at its bound.
fn all_of(node: &Node, len: usize) -> Vec<Buffer> {
    std::iter::from_fn(|| node.pool().alloc(len).ok()).collect()
}

#[test]
fn threads_that_grow_it_at_once_are_all_served() {
    const THREADS: usize = 8;
    // Of these an extent has one block each, or eight: what one thread registers, others could take.
    for len in [200_000, 32_000] {
        let node = node(|b| b);
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    let buffers: Vec<_> =
                        (0..50).map(|_| node.pool().alloc(len).unwrap()).collect();
                    drop(buffers);
                });
            }
        });
        let metrics = node.pool().metrics();
        assert_eq!((metrics.in_use, metrics.refusals), (0, 0));
        assert_eq!(metrics.allocations, 50 * THREADS as u64);
    }
}

#[test]
fn it_stops_at_its_bound_and_says_so() {
    let node = node(|b| b.pool_bytes(2 * MIB));
    let buffers = all_of(&node, 256 << 10);
    assert_eq!(buffers.len(), 8);
    let error = node.pool().alloc(1).unwrap_err();
    assert!(matches!(error, Error::PoolExhausted { bound, registered, .. }
        if bound == 2 * MIB && registered == 2 * MIB));
    let text = error.to_string();
    assert!(text.contains("2097152 of 2097152 bytes are registered"), "{text}");
    assert!(node.pool().metrics().refusals > 0);
    drop(buffers);
    assert_eq!(node.pool().alloc(1).unwrap().len(), 1);
    // What can never be had is an error at once, also to who would wait.
    let max = block_on(node.pool().alloc_wait(3 * MIB)).unwrap_err();
    assert!(matches!(max, Error::PoolExhausted { needed, .. } if needed >= 3 * MIB));
}

#[test]
fn memory_that_waits_in_caches_serves_other_lengths() {
    let node = node(|b| b.pool_bytes(2 * MIB));
    // Threads leave theirs in their caches, and end.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| drop((0..100).map(|_| node.pool().alloc(1000)).collect::<Vec<_>>()));
        }
    });
    assert!(node.pool().metrics().cached > 0);
    assert_eq!(node.pool().alloc(2 * MIB).unwrap().len(), 2 * MIB);
    assert_eq!(node.pool().metrics().cached, 0);
}

#[test]
fn what_is_not_in_use_is_kept_up_to_a_bound() {
    let node = node(|b| b.pool_bytes(64 * MIB).pool_keep(4 * MIB));
    let buffers = all_of(&node, MIB);
    assert_eq!((buffers.len(), node.pool().metrics().registered_bytes), (64, 64 * MIB));
    drop(buffers);
    let metrics = node.pool().metrics();
    assert_eq!((metrics.registered_bytes, metrics.deregistrations), (4 * MIB, 60));
    let kept = node.pool().alloc(MIB).unwrap();
    assert_eq!(node.pool().metrics().registrations, 64, "kept memory is used again");
    node.pool().trim();
    assert_eq!(node.pool().metrics().registered_bytes, MIB, "what is in use stays");
    drop(kept);
}

#[test]
fn who_waits_is_served_in_turn_and_may_leave() {
    let node = node(|b| b.pool_bytes(2 * MIB));
    let mut buffers = all_of(&node, 256 << 10);
    let pool = node.pool();
    let mut first = pin!(pool.alloc_wait(200_000));
    let mut second = Box::pin(pool.alloc_wait(200_000));
    let mut third = pin!(pool.alloc_wait(200_000));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
    assert_eq!(pool.metrics().waits, 3);
    buffers.pop();
    assert!(poll(third.as_mut()).is_pending(), "it is not its turn");
    let Poll::Ready(Ok(one)) = poll(first.as_mut()) else { panic!("it is its turn") };
    assert!(poll(third.as_mut()).is_pending());
    drop(second);
    buffers.pop();
    assert!(matches!(poll(third.as_mut()), Poll::Ready(Ok(_))));
    drop(one);
}

#[test]
fn many_that_wait_in_many_threads_all_get_memory() {
    const THREADS: usize = 8;
    let node = node(|b| b.pool_bytes(MIB));
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (node, served) = (&node, &served);
            scope.spawn(move || {
                for round in 0..200 {
                    // Four of the longest are all there is; short ones need extents of their own.
                    let len = [250_000, 100, 5_000, 120_000][(thread + round) % 4];
                    let mut buffer = block_on(node.pool().alloc_wait(len)).unwrap();
                    buffer.fill(thread as u8);
                    std::thread::yield_now();
                    assert!(buffer.iter().all(|byte| *byte == thread as u8));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(served.into_inner(), THREADS * 200);
    assert_eq!(node.pool().metrics().in_use, 0);
}

#[cfg(feature = "serde")]
#[test]
fn metrics_serialize_with_what_is_below() {
    let node = node(|builder| builder);
    let buffer = node.pool().alloc(100).unwrap();
    let metrics = serde_json::to_value(node.pool().metrics()).unwrap();
    assert_eq!(metrics["in_use"], 1);
    let counters = serde_json::to_value(node.domain().counters()).unwrap();
    assert!(counters["posted_sends"].is_u64() && counters["provider"]["wakeups"].is_u64());
    let info = serde_json::to_value(node.domain().info()).unwrap();
    assert_eq!(info["provider"], node.domain().provider());
    drop(buffer);
}
