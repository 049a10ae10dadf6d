//! Counts what is allocated, by the thread that looks and by all of the process: for programs of one test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Whether the counters count.
pub(crate) fn check_counters() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    let after = allocations();
    // The test's harness has a thread as well.
    assert!(after.0 - before.0 == 1 && after.1 > before.1, "the counters count");
}

/// Runs `step` until it is warm, and then `times` without an allocation: but for the few times that a queue, the provider's
/// too, grows because more piled up than ever before, when a thread was long kept waiting. On a busy machine that may be
/// often; what a step allocates itself it allocates each time.
pub(crate) async fn allocates_nothing(what: &str, times: usize, mut step: impl AsyncFnMut()) {
    for _ in 0..3 * times {
        step().await;
    }
    let few = times / 100;
    let mut counts = Vec::new();
    for _ in 0..5 {
        let before = allocations();
        for _ in 0..times {
            step().await;
        }
        let after = allocations();
        counts.push((after.0 - before.0, after.1 - before.1));
        if counts.iter().any(|&(own, all)| own <= few && all <= few) {
            return;
        }
    }
    panic!("{what}: in {times} each, by this thread and by all: {counts:?}");
}
