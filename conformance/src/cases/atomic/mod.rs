//! One-sided atomics.
//!
//! An atomic and what follows it have no order unless a fence says so, and the target's CPU sees it by the next
//! receive; so the cases here wait for completions, and then settle before they look at the memory.

mod contended;
mod effect;
mod elements;
mod linear;
mod queue;
mod refused;

use crate::prelude::*;

/// Atomics, and sends to settle with.
const NEEDS: Needs = Needs::ATOMIC.and(Capabilities::SEND);

pub(super) const CASES: &[Case] = cases! { Atomic:
    effect::faa, NEEDS, "fetch-add returns the old value; the memory wraps, of every integer type";
    effect::cas_hit, NEEDS, "compare-and-swap that finds what it expects returns it and swaps";
    effect::cas_miss, NEEDS,
        "compare-and-swap that finds something else returns that and changes nothing";
    effect::faa_zero_reads, NEEDS, "fetch-add of zero reads the element and leaves it";
    effect::endian, NEEDS, "operands, results and memory are numbers in host order on both sides";
    effect::all_ops_types, NEEDS,
        "every operation on every type, plain and fetching, equals the reference: extremes, NaN, signed zeros";
    effect::neighbours, NEEDS,
        "atomics of 8, 16 and 32 bits leave the adjacent bytes alone, at every place of a word";
    refused::misaligned, NEEDS,
        "a misaligned element is an error of the call, and the endpoint lives on";
    refused::misaligned_wire, Needs::ATOMIC.forged_wire(),
        "a forged misaligned request is refused by the target, which changes nothing";
    refused::oob, Needs::ATOMIC,
        "an element before or behind the region: RemoteAccess, nothing changed" .trap();
    refused::no_perm, Needs::ATOMIC,
        "a region that peers may read and write only: RemoteAccess, nothing changed" .trap();
    refused::readonly_key, Needs::ATOMIC,
        "a region that peers may read only: RemoteAccess, nothing changed" .trap();
    contended::contended_faa, NEEDS,
        "8 endpoints fetch-add one word: the total is exact, every returned value is unique";
    contended::cas_spinlock, NEEDS.and(Capabilities::RMA),
        "4 endpoints count under a lock of compare-and-swap: the counter is exact"
        .freedom(Freedom::Counts("how often an endpoint tries until the lock is free is open"));
    contended::contended_float, NEEDS,
        "4 endpoints add whole numbers to a f64 and a f32: the sums are exact";
    contended::contended_narrow, NEEDS,
        "4 endpoints add to neighbours in one word: each of them is exact";
    linear::linearizable, NEEDS,
        "8 initiators, all operations and widths on two words: what each found fits one order of all";
    queue::depth, NEEDS.min_limits(&[("send_depth", queue::DEPTH as u64)]),
        "more atomics than the depth, and than any device does at a time: all Ok, in order, once each";
    queue::emulated_silent, NEEDS,
        "a u32 add finishes while its initiator sleeps; one poll takes it";
    queue::emulated_blocks_write, NEEDS.and(Capabilities::RMA),
        "a write behind a refused u32 add never happens";
    queue::emulated_single_posts, NEEDS.and(Capabilities::RMA),
        "a fenced write that is posted by itself behind a u32 add waits for it";
    effect::right_only, NEEDS,
        "every operation works on a region that grants atomics and nothing else";
    effect::result_anywhere, NEEDS,
        "the old value goes to any offset of local memory, and nowhere beside it";
    queue::two_targets, NEEDS, "atomics to the same place of two targets do not mix";
    refused::last_word, NEEDS,
        "the final 8 bytes of a region are in reach, the 8 behind them are not";
    contended::cpu_coherent, NEEDS.cpu_scope(),
        "the target's CPU adds at the same time: the totals are exact"
        .local_only("the target's CPU adds as fast as the initiator");
};
