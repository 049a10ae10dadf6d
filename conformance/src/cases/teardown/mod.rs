//! The end of connections and of handles: everything completes, nothing stays behind.

mod closing;
mod dropping;
mod flushed;
mod leaks;
mod orders;
mod stalled;
mod unsent;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Teardown:
    closing::close_flush, Needs::ALL,
        "a connection is closed or dropped under work: each operation completes once, in order, Ok and then canceled"
        .freedom(Freedom::Statuses("what is on its way when the connection ends completes Ok or canceled"));
    closing::peer_close, Needs::SEND,
        "the peer disconnects, shuts down, or drops its endpoint or all it has: one Disconnected(Remote), receives canceled"
        .freedom(Freedom::Statuses("a send that the peer's end overtakes is canceled, or its peer lost"));
    unsent::close_unsent, Needs::SEND_RMA,
        "closed or dropped while more is due to the peer than the transport holds: Disconnected(Remote), what arrived is there"
        .freedom(Freedom::Statuses("what is on its way when the connection ends completes Ok, canceled, or with its peer lost"));
    unsent::domain_unsent, Needs::SEND_RMA,
        "endpoints and their domain are dropped while more is due to the peers than the transport holds: Disconnected(Remote)"
        .freedom(Freedom::Statuses("what is on its way when the connection ends completes Ok, canceled, or with its peer lost"));
    unsent::refused_unsent, Needs::SEND_RMA,
        "the target leaves when it hears of a refusal, behind answers that are not sent yet: they come, and the refusal";
    closing::event_first, Needs::SEND_RMA,
        "when a completion says Canceled, the event of the connection's end is in its queue";
    dropping::drop_keeps_other, Needs::SEND,
        "an endpoint is dropped: completions of the others on its queue stay, its own come once each"
        .freedom(Freedom::Statuses("whether the last sends are known to be done when their endpoint goes is open"));
    closing::shutdown_drains, Needs::ALL,
        "shutdown waits until all that was posted is done, unsignaled too, and then disconnects; or says that it is not";
    dropping::queue_handles_dropped, Needs::SEND,
        "an endpoint works without a handle of its queue, within its depth, and its regions go with it";
    orders::drop_orders, Needs::SEND_RMA,
        "the handles of a side are dropped in every order, with work in flight: what is left works, and the peer hears of it";
    dropping::endpoint_drop_frees_regions, Needs::SEND_RMA,
        "an endpoint is dropped with work in flight and without polls: its regions close at once; completions come later";
    closing::double_close, Needs::SEND,
        "closing again, from both sides, before and after connecting, is harmless and reports nothing new"
        .freedom(Freedom::Statuses("of two that close at once, each may hear of the other first"));
    dropping::close_in_poll_loop, Needs::SEND,
        "two threads poll a queue and drop its endpoints as their completions come: no deadlock, nothing lost"
        .freedom(Freedom::Counts("which thread takes a completion is open"));
    stalled::stalled, Needs::ALL,
        "a peer that posts no receive: after `stall`, polled or not, Disconnected(Stalled), all canceled in order; the peer hears of it";
    stalled::stalled_unsignaled, Needs::SEND_RMA,
        "the same of unsignaled operations: what does not complete ends the connection";
    stalled::stalled_not_if_slow, Needs::SEND,
        "sends that find a receive four times in `stall`, so that some always wait: the connection stays for five of it";
    stalled::stalled_not_if_idle, Needs::ALL,
        "for four times `stall` receives wait, and all else is done, unsignaled too: the connection stays, and works";
    leaks::leak_check, Needs::NOTHING,
        "after the whole run, descriptors, threads and memory are back to what they were at its start"
        .last();
};
