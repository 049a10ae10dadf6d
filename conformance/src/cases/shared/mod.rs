//! Receive queues that endpoints share.

mod ending;
mod server;
mod taking;
mod waiting;

use crate::prelude::*;

/// What the cases need.
const SHARED: Needs = Needs::ALL.and(Capabilities::SHARED_RECEIVES);

const ANY_SENDER: Freedom = Freedom::Whole("which sender's message takes a receive is open");

pub(super) const CASES: &[Case] = cases! { Shared:
    taking::oldest_first, SHARED,
        "each message takes the receive that was posted first, from every sender, and its completion names the endpoint";
    taking::all_sizes, SHARED,
        "messages of 0 B to the longest, in several segments, with immediate data, injected: into the receive they took";
    taking::write_imm, SHARED,
        "a write with immediate data consumes a shared receive, one without does not";
    taking::idle_take_none, SHARED,
        "one endpoint takes every receive there is, whatever other endpoints are connected: none is set aside";
    taking::depth, SHARED,
        "a shared queue holds its depth exactly, before any endpoint too; then Again, and each completion makes one place";
    taking::arguments, SHARED,
        "what cannot be made or posted is an error of the call, without effect" .trap();
    waiting::waits_at_sender, SHARED,
        "a message without a receive waits, and holds up only what its sender posted behind it"
        .freedom(ANY_SENDER);
    waiting::posted_one_by_one, SHARED,
        "as receives come, one at a time, the messages of all senders are taken, each whole and in its sender's order"
        .freedom(ANY_SENDER);
    waiting::scarce, SHARED,
        "8 senders, 2 receives at a time: every message comes once, whole, in its sender's order, and nothing behind overtakes"
        .freedom(ANY_SENDER);
    waiting::behind_is_executed_once, SHARED,
        "writes, atomics and unsignaled injects behind a message that waits are executed once, after it";
    ending::stalled, SHARED,
        "of two senders that wait for a receive, that with `stall` ends Stalled and takes none; the other's message comes";
    ending::rest_stays, SHARED,
        "endpoints that end leave the receives to the others, and cancel none";
    ending::too_long, SHARED,
        "a message longer than its receive: TooLong at both ends, and the other endpoints go on";
    ending::in_the_middle, SHARED,
        "an end in the middle of a message: its receive ends once, or stays for others; none is lost"
        .freedom(Freedom::Whole("how much of the message had come is open"));
    ending::while_waiting, SHARED,
        "a sender that waits and ends takes no receive; the others that wait get theirs"
        .freedom(ANY_SENDER);
    ending::last_of_all, SHARED,
        "without its handle the queue is there as long as an endpoint; then what is left is Canceled, by the queue's name";
};
