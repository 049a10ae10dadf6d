//! The data path allocates nothing, once it is warm.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod null;
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fabric::{Access, Completion, Error, Op, Recv, Slice};
use rig::Rig;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: forwards to the system's allocator; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `step` until it is warm, and then often without an allocation by this thread.
#[track_caller]
fn allocates_nothing(mut step: impl FnMut()) {
    (0..if cfg!(miri) { 3 } else { 64 }).for_each(|_| step());
    let before = ALLOCATIONS.get();
    (0..rig::rounds(1000)).for_each(|_| step());
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

fn poll(rig: &Rig, count: usize) {
    let mut out = [Completion::default(); 128];
    assert_eq!(rig.queue.poll(&mut out).unwrap(), count);
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}

#[test]
fn post_and_poll() {
    let rig = Rig::new();
    allocates_nothing(|| {
        rig.endpoint.post(&rig.write(1)).unwrap();
        poll(&rig, 1);
    });
}

#[test]
fn injects_reads_and_atomics() {
    let rig = Rig::new();
    allocates_nothing(|| {
        rig.endpoint.inject(b"12345678", 1).unwrap();
        rig.endpoint.read(rig.region.slice(..8), rig.at(0), 2).unwrap();
        rig.endpoint.fetch_add(1u64, rig.region.slice(..8), rig.at(0), 3).unwrap();
        poll(&rig, 3);
    });
}

#[test]
fn batches() {
    let rig = Rig::with(|b| b);
    allocates_nothing(|| {
        rig.endpoint.post_batch(&[rig.write(1); 100]).unwrap();
        poll(&rig, 100);
    });
}

#[test]
fn batches_with_many_segments_of_two_regions() {
    let rig = Rig::with(|b| b.send_segments(8));
    let other = rig.domain.alloc(64, Access::ALL).unwrap();
    let slices: [Slice<'_>; 8] = std::array::from_fn(|i| {
        if i % 2 == 0 { rig.region.slice(i..i + 1) } else { other.slice(i..i + 1) }
    });
    allocates_nothing(|| {
        rig.endpoint.post_batch(&[Op::send(&slices); 40]).unwrap();
        poll(&rig, 40);
    });
}

#[test]
fn unsignaled() {
    let rig = Rig::with(|b| b);
    allocates_nothing(|| rig.endpoint.post(&rig.write(1).unsignaled()).unwrap());
    allocates_nothing(|| rig.endpoint.post_batch(&[rig.write(1).unsignaled(); 20]).unwrap());
}

#[test]
fn receives() {
    let rig = Rig::with(|b| b);
    allocates_nothing(|| {
        rig.endpoint.post_recvs(&[Recv::new(rig.region.slice(..8), 1); 40]).unwrap();
        (0..40).for_each(|_| assert!(rig.link.bring(8, None)));
        poll(&rig, 40);
    });
}

#[test]
fn a_full_queue() {
    let rig = Rig::new();
    allocates_nothing(|| {
        while rig.endpoint.post(&rig.write(1)).is_ok() {}
        assert!(matches!(rig.endpoint.post(&rig.write(1)), Err(Error::Again)));
        poll(&rig, 8);
    });
}
