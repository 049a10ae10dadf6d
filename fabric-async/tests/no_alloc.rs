//! Operations allocate nothing, once they are warm: no thread of the process does, the node's and the provider's included.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use common::{exposed, node, pair};
use fabric::{Access, Capabilities};
#[cfg(feature = "tokio")]
use fabric_async::Stream;
use fabric_async::{WaitStrategy, block_on};
#[cfg(feature = "tokio")]
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Counting;

/// Of all threads.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Of this one.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Of this thread, and of all.
fn allocations() -> (usize, usize) {
    (OWN.get(), ALLOCATIONS.load(Ordering::Relaxed))
}

// SAFETY: forwards to the system's allocator; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        OWN.set(OWN.get() + 1);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `step` until it is warm, and then a thousand times without an allocation: but for the few times that a queue, the
/// provider's too, grows because more piled up than ever before, when a thread was long kept waiting. On a busy machine that
/// may be often; what a step allocates itself it allocates each time.
async fn allocates_nothing(what: &str, mut step: impl AsyncFnMut()) {
    for _ in 0..3000 {
        step().await;
    }
    let mut counts = Vec::new();
    for _ in 0..5 {
        let before = allocations();
        for _ in 0..1000 {
            step().await;
        }
        let after = allocations();
        counts.push((after.0 - before.0, after.1 - before.1));
        if counts.iter().any(|&(own, all)| own <= 10 && all <= 10) {
            return;
        }
    }
    panic!("{what}: in each thousand, by this thread and by all: {counts:?}");
}

// The only test of this program, as all threads are counted.
#[test]
fn operations() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    let after = allocations();
    // The test's harness has a thread as well.
    assert!(after.0 - before.0 == 1 && after.1 > before.1, "the counters count");
    for wait in [WaitStrategy::Busy, WaitStrategy::Blocking, WaitStrategy::Adaptive] {
        let node = node(|b| b.wait(wait));
        block_on(async {
            let (a, b) = pair(&node).await;
            let (region, remote) = exposed(&node, 4096);
            allocates_nothing("messages", async || {
                drop(a.send(a.alloc(100).unwrap()).await.unwrap());
                drop(b.recv().await.unwrap());
            })
            .await;
            allocates_nothing("writes and reads", async || {
                let buffer = a.write(a.alloc(64).unwrap(), remote.at(0)).await.unwrap();
                drop(a.read(buffer, remote.at(0)).await.unwrap());
            })
            .await;
            allocates_nothing("atomics", async || {
                a.fetch_add(remote.at(0), 1).await.unwrap();
            })
            .await;
            if node.domain().info().capabilities.contains(Capabilities::GRANTS) {
                let grant = b.grant(&region, 64..128, Access::REMOTE).await.unwrap();
                let part = grant.remote();
                allocates_nothing("a grant", async || {
                    let buffer = a.write(a.alloc(64).unwrap(), part.at(0)).await.unwrap();
                    drop(a.read(buffer, part.at(0)).await.unwrap());
                    a.fetch_add(part.at(0), 1).await.unwrap();
                })
                .await;
            }
            allocates_nothing("notifications", async || {
                drop(a.write_notify(a.alloc(8).unwrap(), remote.at(8), 7).await.unwrap());
                b.notified().await.unwrap();
            })
            .await;
            let mut parts = Some(vec![a.alloc(100).unwrap(), a.alloc(28).unwrap()]);
            allocates_nothing("several buffers at once", async || {
                let written = a.write(parts.take().unwrap(), remote.at(0)).await.unwrap();
                parts = Some(a.read(written, remote.at(0)).await.unwrap());
            })
            .await;
            let shared = a.alloc(64).unwrap().share();
            allocates_nothing("shared memory", async || {
                drop(a.write(shared.clone(), remote.at(0)).await.unwrap());
            })
            .await;
            // How many are under way at once depends on the moment, up to the burst: so the pool and the queues first grow to
            // more than the measured steps can ever need.
            let dropped = async |burst| {
                for _ in 0..burst {
                    let mut dropped = pin!(async {
                        drop(a.write(a.alloc(64).unwrap(), remote.at(0)).await);
                    });
                    poll_fn(|cx| {
                        let _ = dropped.as_mut().poll(cx);
                        Poll::Ready(())
                    })
                    .await;
                }
                // It ends after those before it.
                drop(a.write(a.alloc(64).unwrap(), remote.at(0)).await.unwrap());
            };
            for _ in 0..100 {
                let held: Vec<_> = (0..100).map(|_| a.alloc(64).unwrap()).collect();
                drop(held);
                dropped(64).await;
            }
            allocates_nothing("dropped futures", async || dropped(8).await).await;
            #[cfg(feature = "tokio")]
            {
                let (mut from, mut to) = (Stream::from(a), Stream::from(b));
                let mut bytes = [1; 5000];
                allocates_nothing("streams", async || {
                    from.write_all(&bytes).await.unwrap();
                    to.read_exact(&mut bytes).await.unwrap();
                })
                .await;
            }
        });
    }
}
