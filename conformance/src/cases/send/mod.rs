//! Sends and receives.

use crate::prelude::*;

mod acceptance;
mod immediate;
mod messages;
mod segments;

pub(super) const CASES: &[Case] = &[
    Case::new(
        Group::Send,
        "sizes",
        Needs::SEND,
        "messages of 1 B to 1 MiB, each power of two and its neighbours, arrive exactly",
        messages::sizes,
    )
    .freedom(Freedom::Limits(&["inject"])),
    Case::new(
        Group::Send,
        "send_zero",
        Needs::SEND,
        "an empty message takes a receive, which completes with length 0",
        messages::send_zero,
    )
    .trap(),
    Case::new(
        Group::Send,
        "recv_no_segments",
        Needs::SEND,
        "a receive without memory takes an empty message",
        messages::recv_no_segments,
    ),
    Case::new(
        Group::Send,
        "recv_larger",
        Needs::SEND,
        "10 B into a receive of 4 KiB: length 10, the rest is untouched",
        messages::recv_larger,
    ),
    Case::new(
        Group::Send,
        "recv_exact_fit",
        Needs::SEND,
        "a message that just fits its receive arrives",
        messages::recv_exact_fit,
    ),
    Case::new(
        Group::Send,
        "fifo",
        Needs::SEND,
        "1000 sends arrive in posting order",
        messages::fifo,
    ),
    Case::new(
        Group::Send,
        "gather",
        Needs::SEND,
        "1 to the most segments are sent as one message, in their order",
        segments::gather,
    )
    .freedom(Freedom::Limits(&["send_segments"])),
    Case::new(
        Group::Send,
        "scatter_boundaries",
        Needs::SEND,
        "a message fills uneven segments in order, wherever among them it ends",
        segments::scatter_boundaries,
    )
    .freedom(Freedom::Limits(&["recv_segments"])),
    Case::new(
        Group::Send,
        "zero_segment",
        Needs::SEND,
        "empty segments are ignored, and do not count",
        segments::zero_segment,
    ),
    Case::new(
        Group::Send,
        "segments_plus1",
        Needs::SEND,
        "one segment too many is an error of the call, which changes nothing",
        segments::segments_plus1,
    )
    .freedom(Freedom::Limits(&["send_segments", "recv_segments"])),
    Case::new(
        Group::Send,
        "imm",
        Needs::SEND,
        "immediate data arrives exactly: 0, 1, 2^32-1 and asymmetric bytes",
        immediate::imm,
    ),
    Case::new(
        Group::Send,
        "no_imm_flag",
        Needs::SEND,
        "a plain send brings no immediate data, whatever came before it",
        immediate::no_imm_flag,
    ),
    Case::new(
        Group::Send,
        "inject_reuse",
        Needs::SEND,
        "the bytes of an inject may be overwritten at once: the original arrives",
        immediate::inject_reuse,
    )
    .freedom(Freedom::Limits(&["inject"]))
    .trap(),
    Case::new(
        Group::Send,
        "inject_over",
        Needs::SEND_RMA,
        "one byte too many to inject is an error of the call",
        immediate::inject_over,
    )
    .freedom(Freedom::Limits(&["inject"])),
    Case::new(
        Group::Send,
        "no_recv_pends",
        Needs::SEND,
        "a send without a receive waits 20 s for it, then both complete",
        acceptance::no_recv_pends,
    )
    .trap()
    .limit_s(90),
    Case::new(
        Group::Send,
        "ok_implies_received",
        Needs::SEND_RMA,
        "what has completed at the sender is received, though the connection ends at once",
        acceptance::ok_implies_received,
    )
    .freedom(Freedom::Statuses(
        "what has not completed when the connection ends is received or canceled",
    ))
    .trap(),
    Case::new(
        Group::Send,
        "bidir_flood",
        Needs::SEND,
        "both sides send 64 MiB without a word between them: no deadlock",
        acceptance::bidir_flood,
    )
    .trap(),
    Case::new(
        Group::Send,
        "max_message",
        Needs::SEND,
        "a message of the declared maximum arrives exactly",
        messages::max_message,
    )
    .exclusive()
    .limit_s(180)
    .freedom(Freedom::Limits(&["message"])),
    Case::new(
        Group::Send,
        "over_max",
        Needs::SEND_RMA,
        "one byte more than the maximum is an error of the call",
        messages::over_max,
    ),
    Case::new(
        Group::Send,
        "same_buffer",
        Needs::SEND,
        "many sends of one buffer at a time arrive as identical copies",
        messages::same_buffer,
    ),
    Case::new(
        Group::Send,
        "reply_before_send_completion",
        Needs::SEND,
        "request completed and reply received may come in either order, both once",
        messages::reply_before_send_completion,
    ),
    Case::new(
        Group::Send,
        "oversize_fatal",
        Needs::SEND,
        "9 B into a receive of 8: both TooLong, both dead, no byte outside the receive changes",
        acceptance::oversize_fatal,
    )
    .trap(),
];
