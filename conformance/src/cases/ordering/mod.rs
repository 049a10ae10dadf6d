//! What an operation finds done, and what may still be under way.

use crate::prelude::*;

mod cells;
mod completions;
mod fences;
mod target;
mod witness;

pub(super) const CASES: &[Case] = cases! { Ordering:
    target::waw, Needs::SEND_RMA, "of 10^4 writes of one word the last one stays";
    target::raw, Needs::RMA, "a read sees the write posted just before it, many of both in flight";
    target::saw, Needs::SEND_RMA, "a short send never overtakes the long write before it" .trap();
    target::sas_mixed_size, Needs::SEND,
        "1 MiB then 1 B, again and again: received in posting order";
    target::atomic_after_write, Needs::ALL, "an atomic finds what the write before it wrote";
    fences::read_fence_send, Needs::SEND_RMA,
        "a fenced send of a buffer that a read fills sends the fresh bytes" .trap();
    fences::read_nofence_send, Needs::SEND_RMA,
        "the same without fence: bytes old or new, and a healthy endpoint";
    fences::atomic_fence_write, Needs::ALL,
        "a fenced write finds the atomic before it done, its result too";
    fences::read_fence_write_same_addr, Needs::RMA,
        "a read does not see the fenced write behind it";
    cells::write_after_send, Needs::SEND_RMA,
        "a write behind a send that waits for its receive waits as well";
    cells::read_after_send, Needs::SEND_RMA,
        "a read behind a send that waits for its receive finds what is there afterwards";
    cells::atomic_after_send, Needs::ALL,
        "an atomic behind a send that waits for its receive waits as well";
    cells::read_after_read, Needs::SEND_RMA,
        "a read sees nothing older than the read before it, while another endpoint counts";
    cells::read_fence_atomic, Needs::ALL, "a long read does not see the fenced atomic behind it";
    cells::atomic_fence_send, Needs::ALL,
        "a fenced send of what an atomic has found sends just that";
    cells::atomic_fence_read, Needs::ALL, "a fenced read finds what the atomic before it has left";
    cells::atomic_fence_atomic, Needs::ALL,
        "a fenced atomic finds what the atomic before it has left";
    completions::completion_order, Needs::ALL,
        "sends, writes, reads and atomics, long and short, complete in posting order" .trap();
    completions::completion_order_emulated, Needs::ALL,
        "what is posted behind an atomic that devices emulate completes behind it";
    completions::cross_endpoint, Needs::SEND_RMA,
        "endpoints on one queue do not wait for each other, and all complete";
    target::imm_order, Needs::SEND_RMA, "immediates of sends and writes arrive ascending";
    fences::fence_first, Needs::SEND_RMA,
        "a fence with nothing to wait for costs no time" .exclusive();
    witness::witness, Needs::SEND_RMA,
        "10^6 pairs of a write and a send over overlapping memory: each receive finds its write"
        .soak().limit_s(1800);
};
