//! In the steady state matching allocates nothing.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fabric_rdm::Peer;
use fabric_rdm::matching::{Envelope, MatchLimits, Matcher, Pattern, Receive, ReceiveId};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what each thread allocates.
struct Counting;

// SAFETY: it does as `System`, which is one.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // While a thread ends it has no count, and none is wanted.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the rules of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the rules of the trait.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Receives that find messages and messages that find receives, exact and masked.
fn some_traffic(matcher: &mut Matcher<u64, u64>, ids: &mut Vec<ReceiveId>, round: u64) {
    let pattern = |number: u64| match number % 3 {
        0 => Pattern::tagged(number).from(Peer::from_bits(number % 7)),
        1 => Pattern::tagged(number),
        _ => Pattern::tagged(number & !0xff).ignoring(0xff),
    };
    let envelope = |number: u64| {
        let source = Peer::from_bits(number % 7);
        Envelope { source, tag: Some(number), len: 8 }
    };
    let receive = |number: u64| Receive::new(pattern(number), 64);
    for number in round * 60..round * 60 + 60 {
        assert!(matcher.arrive(envelope(number * 3), 0).is_ok());
    }
    for number in (round * 60..round * 60 + 60).rev() {
        ids.push(matcher.post(receive(number * 3), 0, |_| ()).unwrap());
    }
    for number in round * 60..round * 60 + 60 {
        ids.push(matcher.post(receive(number), 0, |_| ()).unwrap());
    }
    for number in (round * 60..round * 60 + 60).rev() {
        assert!(matcher.arrive(envelope(number), 0).is_ok());
    }
    // What has no partner.
    matcher.remove_peer(Peer::from_bits(round % 7), |_, _| (), |_| ());
    for id in ids.drain(..) {
        let _ = matcher.cancel(id);
    }
    while let Some((id, _)) = matcher.probe(&Pattern::tagged(0).ignoring(!0)) {
        assert!(matcher.claim(id).is_some());
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    let limits = MatchLimits { receives: 200, messages: 200 };
    let (mut matcher, mut ids) = (Matcher::new(limits).unwrap(), Vec::new());
    let mut traffic = |rounds: std::ops::Range<u64>| {
        rounds.for_each(|round| some_traffic(&mut matcher, &mut ids, round));
        ALLOCATIONS.get()
    };
    let mut before = traffic(0..500);
    assert!(before > 0, "it counts");
    // What hashes fill badly grows once more, at any time; no more often than that.
    let is_steady = (1..=5).any(|turn| {
        let after = traffic(turn * 500..turn * 500 + 500);
        std::mem::replace(&mut before, after) == after
    });
    assert!(is_steady, "it goes on allocating");
}
