//! One-sided writes and reads.

use crate::prelude::*;

mod immediate;
mod mix;
mod transfer;
mod visibility;
mod zero;

pub(super) const CASES: &[Case] = &[
    Case::new(
        Group::Rma,
        "write_sizes",
        Needs::SEND_RMA,
        "writes of 1 B to 64 MiB, or the maximum, arrive exactly and touch nothing else",
        transfer::write_sizes,
    )
    .freedom(Freedom::Limits(&["message"])),
    Case::new(
        Group::Rma,
        "read_sizes",
        Needs::RMA,
        "reads of 1 B to 64 MiB, or the maximum, bring the exact bytes and touch nothing else",
        transfer::read_sizes,
    )
    .freedom(Freedom::Limits(&["message"])),
    Case::new(
        Group::Rma,
        "write_zero_badkey",
        Needs::SEND_RMA,
        "an empty write is Ok, whatever its key: nothing is accessed",
        zero::write_zero_badkey,
    )
    .trap(),
    Case::new(
        Group::Rma,
        "read_zero_badkey",
        Needs::SEND_RMA,
        "an empty read is Ok, whatever its key: nothing is accessed",
        zero::read_zero_badkey,
    )
    .trap(),
    Case::new(
        Group::Rma,
        "write_gather",
        Needs::SEND_RMA,
        "1 to the most segments are written as one, in their order",
        transfer::write_gather,
    )
    .freedom(Freedom::Limits(&["send_segments"])),
    Case::new(
        Group::Rma,
        "read_scatter",
        Needs::RMA,
        "a read fills 1 to the most uneven segments in order",
        transfer::read_scatter,
    )
    .freedom(Freedom::Limits(&["send_segments"])),
    Case::new(
        Group::Rma,
        "write_all_offsets",
        Needs::SEND_RMA,
        "writes to offsets 0 to 63, of many lengths, from every alignment: neighbours are intact",
        transfer::write_all_offsets,
    ),
    Case::new(
        Group::Rma,
        "write_silent",
        Needs::SEND_RMA,
        "a plain write completes nothing at the peer and consumes no receive",
        immediate::write_silent,
    ),
    Case::new(
        Group::Rma,
        "write_imm",
        Needs::SEND_RMA,
        "a write with immediate consumes a receive: immediate and length, its buffer untouched",
        immediate::write_imm,
    ),
    Case::new(
        Group::Rma,
        "write_imm_zero",
        Needs::SEND_RMA,
        "an empty write with immediate consumes a receive, whatever its key",
        immediate::write_imm_zero,
    ),
    Case::new(
        Group::Rma,
        "write_imm_no_recv",
        Needs::SEND_RMA,
        "a write with immediate waits for a receive, and is never lost",
        immediate::write_imm_no_recv,
    )
    .trap(),
    Case::new(
        Group::Rma,
        "write_imm_visible",
        Needs::SEND_RMA,
        "all bytes are there when the receive completes that a write with immediate consumed",
        immediate::write_imm_visible,
    ),
    Case::new(
        Group::Rma,
        "write_then_send_visible",
        Needs::SEND_RMA,
        "all bytes of a write are there when the message sent behind it is received",
        immediate::write_then_send_visible,
    ),
    Case::new(
        Group::Rma,
        "mixed_imm_send",
        Needs::SEND_RMA,
        "sends and writes with immediate consume the receives in posting order",
        immediate::mixed_imm_send,
    ),
    Case::new(
        Group::Rma,
        "read_depth",
        Needs::RMA,
        "4 times as many reads as the queue holds, the queue always full: all Ok, all exact",
        transfer::read_depth,
    ),
    Case::new(
        Group::Rma,
        "read_own_write",
        Needs::RMA,
        "a read sees what this endpoint wrote just before",
        visibility::read_own_write,
    ),
    Case::new(
        Group::Rma,
        "delivery_complete",
        Needs::RMA,
        "once a delivery-complete write is done, another thread of the peer sees its bytes",
        visibility::delivery_complete,
    )
    .trap(),
    Case::new(
        Group::Rma,
        "dc_write_only",
        Needs::RMA,
        "a delivery-complete write needs no right to read",
        visibility::dc_write_only,
    ),
    Case::new(
        Group::Rma,
        "dc_covers_prior",
        Needs::RMA,
        "once a fenced delivery-complete write is done, the peer sees the plain ones before it",
        visibility::dc_covers_prior,
    ),
    Case::new(
        Group::Rma,
        "dc_other_initiator",
        Needs::RMA,
        "once a delivery-complete write is done, other initiators read its bytes",
        visibility::dc_other_initiator,
    ),
    Case::new(
        Group::Rma,
        "relaxed_ordering",
        Needs::SEND_RMA,
        "memory with RELAXED_ORDERING gets every byte, in time for delivery-complete, and keeps its rights",
        visibility::relaxed_ordering,
    ),
    Case::new(
        Group::Rma,
        "overlap_writes",
        Needs::SEND_RMA,
        "of overlapping writes of one endpoint the last posted wins, byte by byte",
        visibility::overlap_writes,
    ),
    Case::new(
        Group::Rma,
        "read_during_write",
        Needs::RMA,
        "a read beside another endpoint's write brings bytes that are old or new, no others",
        visibility::read_during_write,
    ),
    Case::new(
        Group::Rma,
        "loopback",
        Needs::SEND_RMA,
        "source and target may be disjoint parts of one region",
        transfer::loopback,
    ),
    Case::new(
        Group::Rma,
        "write_last_byte",
        Needs::SEND_RMA,
        "the last byte of a region can be written and read",
        transfer::write_last_byte,
    ),
    Case::new(
        Group::Rma,
        "inject_write_reuse",
        Needs::SEND_RMA,
        "the bytes of an injected write may be overwritten at once: the original arrives",
        immediate::inject_write_reuse,
    )
    .freedom(Freedom::Limits(&["inject"])),
    Case::new(
        Group::Rma,
        "both_ways_mix",
        Needs::SEND_RMA,
        "both sides write, read and send at a time, at random: all memory as it should be",
        mix::both_ways_mix,
    )
    .soak()
    .limit_s(600),
];
