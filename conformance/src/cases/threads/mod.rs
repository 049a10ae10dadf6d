//! Many threads at the same handles.
//!
//! Which thread comes first is open, so transcripts agree in what ended and how, not in when.

mod closing;
mod crowded;
mod everything;
mod waiters;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Threads:
    crowded::mt_post, Needs::SEND_RMA,
        "8 threads post to one endpoint: everything happens once, each thread's operations in its order"
        .freedom(Freedom::Counts("which thread posts first is open"));
    crowded::mt_poll, Needs::SEND_RMA,
        "4 threads poll one queue: each completion goes to one of them, each endpoint's in order"
        .freedom(Freedom::Counts("which thread polls first is open"));
    everything::mt_everything, Needs::ALL,
        "4 threads post, poll, register and close at random: the outcome is that of the model"
        .freedom(Freedom::Counts("which thread posts and polls first is open"));
    closing::close_vs_post, Needs::SEND_RMA,
        "a connection ends while threads post: what was taken completes once, Ok and then canceled; the rest NotConnected"
        .freedom(Freedom::Whole("where among the posts the connection ends is open"));
    closing::dereg_vs_post, Needs::SEND_RMA,
        "a region closes while a thread posts with it: Busy, or closed for all posts from then on; nothing touches it later"
        .freedom(Freedom::Counts("how many operations come before the region closes is open"));
    waiters::wait_many, Needs::SEND,
        "two sleep on one queue: a completion wakes the one that is left, and no thread takes another's wake-up"
        .freedom(Freedom::Counts("which thread takes a completion is open"));
};
