//! What fits into a queue, and who waits for whom.

mod depth;
mod stalled;

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[
    Case::new(
        Group::Flow,
        "sq_depth",
        Needs::ALL,
        "a send queue holds its depth exactly, whatever the operations; then Again, and each completion makes one place",
        depth::sq_depth,
    ),
    Case::new(
        Group::Flow,
        "rq_depth",
        Needs::SEND_RMA,
        "a receive queue holds its depth exactly, before connecting too; then Again, and each completion makes one place",
        depth::rq_depth,
    ),
    Case::new(
        Group::Flow,
        "cq_reserve",
        Needs::SEND,
        "a completion queue takes no endpoint that it may have no room for, and loses nothing of those it took",
        depth::cq_reserve,
    )
    .freedom(Freedom::Statuses("a send that is matched when the connection ends completes Ok or canceled"))
    .trap(),
    Case::new(
        Group::Flow,
        "slow_consumer",
        Needs::SEND,
        "a receiver that polls now and then gets everything, and what it did not ask for takes none of its memory",
        stalled::slow_consumer,
    )
    .exclusive()
    .local_only("the receiver's memory is looked at"),
    Case::new(
        Group::Flow,
        "stalled_send_reverse",
        Needs::ALL,
        "while the initiator's send finds no receive, all that its peer does in the other direction completes",
        stalled::stalled_send_reverse,
    )
    .trap(),
    Case::new(
        Group::Flow,
        "stalled_both",
        Needs::SEND_RMA,
        "a read and then a send without a receive, on both sides: the reads complete, and with receives the sends",
        stalled::stalled_both,
    )
    .trap(),
    Case::new(
        Group::Flow,
        "one_slow_of_many",
        Needs::SEND_RMA,
        "of 8 connections one is stalled: the others do not wait for it",
        stalled::one_slow_of_many,
    ),
    Case::new(
        Group::Flow,
        "again_no_effect",
        Needs::ALL,
        "what was refused with Again holds on to nothing and never happens, of batches the rest that did not fit",
        depth::again_no_effect,
    ),
];
