//! Completion queues: exactly once, in order, never lost.

mod polling;
mod unsignaled;
pub(super) mod waiting;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Completion:
    unsignaled::unsignaled, Needs::SEND_RMA,
        "99 unsignaled operations and 1 signaled: one completion, all effects";
    unsignaled::all_unsignaled, Needs::SEND_RMA,
        "an endpoint that posts nothing but unsignaled operations never wedges";
    unsignaled::unsignaled_error, Needs::RMA,
        "an unsignaled operation that fails has a completion" .trap();
    unsignaled::unsignaled_flush, Needs::SEND_RMA,
        "unsignaled operations that are canceled complete once each, in order" .trap();
    polling::context_echo, Needs::SEND_RMA, "contexts come back exactly, the extremes too";
    polling::shared_queue, Needs::SEND,
        "16 endpoints on one queue: each completion names its endpoint";
    polling::poll_batch, Needs::SEND, "polling for fewer than there are keeps the rest, in order";
    polling::poll_empty, Needs::SEND, "polling an empty queue gives none, which is no error";
    waiting::wait_wakeup, Needs::SEND, "a thread that sleeps on its queue wakes for a completion";
    waiting::wait_race, Needs::SEND, "a completion between poll and arm is not slept through";
    waiting::wait_after_full, Needs::SEND,
        "completions that a post found, looking for room, are not slept through";
    waiting::wait_timeout, Needs::SEND,
        "a wait for nothing ends when its time has passed, not before and not much later" .exclusive();
    polling::exactly_once, Needs::SEND_RMA,
        "10^5 operations of every kind (10^6 in a soak run) complete once each, in order";
    waiting::fd_poll, Needs::SEND,
        "an armed descriptor is readable in epoll no later than the next completion";
    waiting::fd_polled, Needs::SEND,
        "a completion that is polled for makes an armed descriptor readable all the same";
    waiting::fd_drive, Needs::SEND_RMA,
        "a sleeper that drives is woken for a message; one that does not come is a target all the same";
    polling::late_poll, Needs::RMA,
        "what was done before the connection ended is reported so, though polled for afterwards";
    polling::depth_counts_untaken, Needs::SEND,
        "operations that are done count against the depth until their completions are taken";
    unsignaled::unsignaled_post_only, Needs::SEND_RMA,
        "10^5 unsignaled operations of an application that never polls do not wedge";
    unsignaled::unsignaled_slot, Needs::SEND,
        "an unsignaled send that is matched makes room for another, without polls";
    unsignaled::lazy, Needs::SEND_RMA,
        "lazy operations complete, in order, though nothing follows and whether one polls for them, sleeps or comes late";
};
