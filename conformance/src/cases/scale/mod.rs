//! Many endpoints at a time, and what becomes of the others when something runs out.

mod churn;
mod crowds;
mod descriptors;
mod queues;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Scale:
    crowds::endpoints_1000, Needs::SEND.min_limits(&[("endpoints", 1000), ("cq_capacity", 8000)]),
        "1000 connections at a time on one queue a side: each carries a message and its answer"
        .limit_s(180).exclusive();
    crowds::fan_in, Needs::SEND.min_limits(&[("cq_capacity", 64 * 24)]),
        "64 endpoints flood one target: none gets less than 1/8 of the mean through"
        .freedom(Freedom::Counts("how many messages each endpoint gets through is open")).exclusive();
    queues::completion_queues, Needs::SEND,
        "as many completion queues as declared, 1200 at most, each armed in each way: the last one works as the first"
        .limit_s(120).exclusive();
    churn::churn, Needs::SEND_RMA,
        "100 connections (1000 in a soak run) come and go beside one under load: it loses nothing, and nothing leaks"
        .freedom(Freedom::Counts("how many messages go by meanwhile is open")).exclusive();
    descriptors::fd_exhaust, Needs::SEND,
        "out of descriptors: every call says so, connections that stand go on, all works when there are some again"
        .freedom(Freedom::Counts("how many descriptors a connection takes is the provider's own")).exclusive();
};
