//! One-sided writes and reads.

use crate::prelude::*;

mod immediate;
mod mix;
mod transfer;
mod visibility;
mod zero;

pub(super) const CASES: &[Case] = cases! { Rma:
    transfer::write_sizes, Needs::SEND_RMA,
        "writes of 1 B to 64 MiB, or the maximum, arrive exactly and touch nothing else"
        .freedom(Freedom::Limits(&["message"]));
    transfer::read_sizes, Needs::RMA,
        "reads of 1 B to 64 MiB, or the maximum, bring the exact bytes and touch nothing else"
        .freedom(Freedom::Limits(&["message"]));
    zero::write_zero_badkey, Needs::SEND_RMA,
        "an empty write is Ok, whatever its key: nothing is accessed" .trap();
    zero::read_zero_badkey, Needs::SEND_RMA,
        "an empty read is Ok, whatever its key: nothing is accessed" .trap();
    transfer::write_gather, Needs::SEND_RMA,
        "1 to the most segments are written as one, in their order"
        .freedom(Freedom::Limits(&["send_segments"]));
    transfer::read_scatter, Needs::RMA,
        "a read fills 1 to the most uneven segments in order" .freedom(Freedom::Limits(&["send_segments"]));
    transfer::write_all_offsets, Needs::SEND_RMA,
        "writes to offsets 0 to 63, of many lengths, from every alignment: neighbours are intact";
    immediate::write_silent, Needs::SEND_RMA,
        "a plain write completes nothing at the peer and consumes no receive";
    immediate::write_imm, Needs::SEND_RMA,
        "a write with immediate consumes a receive: immediate and length, its buffer untouched";
    immediate::write_imm_zero, Needs::SEND_RMA,
        "an empty write with immediate consumes a receive, whatever its key";
    immediate::write_imm_no_recv, Needs::SEND_RMA,
        "a write with immediate waits for a receive, and is never lost" .trap();
    immediate::write_imm_visible, Needs::SEND_RMA,
        "all bytes are there when the receive completes that a write with immediate consumed";
    immediate::write_then_send_visible, Needs::SEND_RMA,
        "all bytes of a write are there when the message sent behind it is received";
    immediate::mixed_imm_send, Needs::SEND_RMA,
        "sends and writes with immediate consume the receives in posting order";
    transfer::read_depth, Needs::RMA,
        "4 times as many reads as the queue holds, the queue always full: all Ok, all exact";
    visibility::read_own_write, Needs::RMA, "a read sees what this endpoint wrote just before";
    visibility::delivery_complete, Needs::RMA,
        "once a delivery-complete write is done, another thread of the peer sees its bytes" .trap();
    visibility::dc_write_only, Needs::RMA, "a delivery-complete write needs no right to read";
    visibility::dc_covers_prior, Needs::RMA,
        "once a fenced delivery-complete write is done, the peer sees the plain ones before it";
    visibility::dc_other_initiator, Needs::RMA,
        "once a delivery-complete write is done, other initiators read its bytes";
    visibility::relaxed_ordering, Needs::SEND_RMA,
        "memory with RELAXED_ORDERING gets every byte, in time for delivery-complete, and keeps its rights";
    visibility::overlap_writes, Needs::SEND_RMA,
        "of overlapping writes of one endpoint the last posted wins, byte by byte";
    visibility::read_during_write, Needs::RMA,
        "a read beside another endpoint's write brings bytes that are old or new, no others";
    transfer::loopback, Needs::SEND_RMA, "source and target may be disjoint parts of one region";
    transfer::write_last_byte, Needs::SEND_RMA, "the last byte of a region can be written and read";
    immediate::inject_write_reuse, Needs::SEND_RMA,
        "the bytes of an injected write may be overwritten at once: the original arrives"
        .freedom(Freedom::Limits(&["inject"]));
    mix::both_ways_mix, Needs::SEND_RMA,
        "both sides write, read and send at a time, at random: all memory as it should be"
        .soak().limit_s(600);
};
