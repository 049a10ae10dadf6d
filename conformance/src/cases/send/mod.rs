//! Sends and receives.

use crate::prelude::*;

pub(super) mod acceptance;
mod immediate;
mod messages;
mod segments;

pub(super) const CASES: &[Case] = cases! { Send:
    messages::sizes, Needs::SEND,
        "messages of 1 B to 1 MiB, each power of two and its neighbours, arrive exactly"
        .freedom(Freedom::Limits(&["inject"]));
    messages::send_zero, Needs::SEND,
        "an empty message takes a receive, which completes with length 0" .trap();
    messages::recv_no_segments, Needs::SEND, "a receive without memory takes an empty message";
    messages::recv_larger, Needs::SEND,
        "10 B into a receive of 4 KiB: length 10, the rest is untouched";
    messages::recv_exact_fit, Needs::SEND, "a message that just fits its receive arrives";
    messages::fifo, Needs::SEND, "1000 sends arrive in posting order";
    segments::gather, Needs::SEND,
        "1 to the most segments are sent as one message, in their order"
        .freedom(Freedom::Limits(&["send_segments"]));
    segments::scatter_boundaries, Needs::SEND,
        "a message fills uneven segments in order, wherever among them it ends"
        .freedom(Freedom::Limits(&["recv_segments"]));
    segments::zero_segment, Needs::SEND, "empty segments are ignored, and do not count";
    segments::segments_plus1, Needs::SEND,
        "one segment too many is an error of the call, which changes nothing"
        .freedom(Freedom::Limits(&["send_segments", "recv_segments"]));
    immediate::imm, Needs::SEND,
        "immediate data arrives exactly: 0, 1, 2^32-1 and asymmetric bytes";
    immediate::no_imm_flag, Needs::SEND,
        "a plain send brings no immediate data, whatever came before it";
    immediate::inject_reuse, Needs::SEND,
        "the bytes of an inject may be overwritten at once: the original arrives"
        .freedom(Freedom::Limits(&["inject"])).trap();
    immediate::inject_over, Needs::SEND_RMA,
        "one byte too many to inject is an error of the call" .freedom(Freedom::Limits(&["inject"]));
    acceptance::no_recv_pends, Needs::SEND,
        "a send without a receive waits 20 s for it, then both complete" .trap().limit_s(90);
    acceptance::ok_implies_received, Needs::SEND_RMA,
        "what has completed at the sender is received, though the connection ends at once"
        .freedom(Freedom::Statuses("what has not completed when the connection ends is received or canceled",)).trap();
    acceptance::bidir_flood, Needs::SEND,
        "both sides send 64 MiB without a word between them: no deadlock" .trap();
    messages::max_message, Needs::SEND,
        "a message of the declared maximum arrives exactly"
        .exclusive().limit_s(180).freedom(Freedom::Limits(&["message"]));
    messages::over_max, Needs::SEND_RMA, "one byte more than the maximum is an error of the call";
    messages::same_buffer, Needs::SEND,
        "many sends of one buffer at a time arrive as identical copies";
    messages::reply_before_send_completion, Needs::SEND,
        "request completed and reply received may come in either order, both once";
    acceptance::oversize_fatal, Needs::SEND,
        "9 B into a receive of 8: both TooLong, both dead, no byte outside the receive changes" .trap();
};
