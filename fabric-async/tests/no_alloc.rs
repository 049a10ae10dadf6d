//! Operations allocate nothing, once they are warm.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{exposed, node, pair};
use fabric_async::{Wait, block_on};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: forwards to the system's allocator; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}

/// Runs `step` until it is warm, and then a thousand times without an allocation by this thread: but for the few times
/// that a queue, the provider's too, grows because more piled up than ever before, when this thread was long kept waiting.
async fn allocates_nothing(what: &str, step: impl AsyncFnMut()) {
    allocates_at_most(10, what, step).await;
}

async fn allocates_at_most(most: usize, what: &str, mut step: impl AsyncFnMut()) {
    for _ in 0..3000 {
        step().await;
    }
    let before = ALLOCATIONS.get();
    for _ in 0..1000 {
        step().await;
    }
    let count = ALLOCATIONS.get() - before;
    assert!(count <= most, "{what}: {count}");
}

#[test]
fn operations() {
    for wait in [Wait::Busy, Wait::Blocking, Wait::Adaptive] {
        let node = node(|b| b.wait(wait));
        block_on(async {
            let (a, b) = pair(&node).await;
            let (_region, remote) = exposed(&node, 4096);
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
            allocates_nothing("notifications", async || {
                drop(a.write_notify(a.alloc(8).unwrap(), remote.at(8), 7).await.unwrap());
                b.notified().await.unwrap();
            })
            .await;
            let shared = a.alloc(64).unwrap().share();
            allocates_nothing("shared memory", async || {
                drop(a.write(shared.clone(), remote.at(0)).await.unwrap());
            })
            .await;
            // How many are under way at once depends on the moment; queues grow a few times, to what is most.
            allocates_at_most(20, "dropped futures", async || {
                let mut dropped = Box::pin(async {
                    drop(a.write(a.alloc(64).unwrap(), remote.at(0)).await);
                });
                let mut once = true;
                std::future::poll_fn(|cx| {
                    if std::mem::take(&mut once) {
                        let _ = dropped.as_mut().poll(cx);
                    }
                    std::task::Poll::Ready(())
                })
                .await;
                // The test's own box.
                ALLOCATIONS.set(ALLOCATIONS.get() - 1);
            })
            .await;
        });
    }
}
