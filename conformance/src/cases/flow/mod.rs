//! What fits into a queue, and who waits for whom.

mod depth;
mod stalled;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Flow:
    depth::sq_depth, Needs::ALL,
        "a send queue holds its depth exactly, whatever the operations; then Again, and each completion makes one place";
    depth::rq_depth, Needs::SEND_RMA,
        "a receive queue holds its depth exactly, before connecting too; then Again, and each completion makes one place";
    depth::cq_reserve, Needs::SEND,
        "a completion queue takes no endpoint that it may have no room for, and loses nothing of those it took"
        .freedom(Freedom::Statuses("a send that is matched when the connection ends completes Ok or canceled")).trap();
    stalled::slow_consumer, Needs::SEND,
        "a receiver that polls now and then gets everything, and what it did not ask for takes none of its memory"
        .exclusive().local_only("the receiver's memory is looked at");
    stalled::stalled_send_reverse, Needs::ALL,
        "while the initiator's send finds no receive, all that its peer does in the other direction completes"
        .trap();
    stalled::stalled_both, Needs::SEND_RMA,
        "a read and then a send without a receive, on both sides: the reads complete, and with receives the sends"
        .trap();
    stalled::one_slow_of_many, Needs::SEND_RMA,
        "of 8 connections one is stalled: the others do not wait for it";
    depth::again_no_effect, Needs::ALL,
        "what was refused with Again holds on to nothing and never happens, of batches the rest that did not fit";
};
