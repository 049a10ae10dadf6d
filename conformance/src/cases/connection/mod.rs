//! Connecting, accepting, rejecting, listening.

mod ending;
mod listening;
mod making;
mod private_data;
pub(super) mod steps;
mod strangers;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Connection:
    making::connect_basic, Needs::SEND,
        "a request, an accept, one Connected on each side, and messages both ways; by IPv4 and IPv6";
    private_data::data_sizes, Needs::NOTHING,
        "private data of connect (0 to 48 B) and accept (0 to 160 B) arrive at their exact length" .trap();
    private_data::data_zero_tail, Needs::NOTHING,
        "private data that ends in zeros, or is nothing else, keeps its length";
    private_data::data_max1, Needs::NOTHING,
        "a byte too much of private data is an error of the call; it can be repeated with less";
    private_data::reject_data, Needs::NOTHING,
        "a rejected connector gets Rejected once, with 0, 1 or 112 bytes exactly" .trap();
    listening::refuse, Needs::NOTHING, "no listener: Refused, once";
    listening::listen_unspecified, Needs::SEND,
        "listening on the unspecified address: local_addr has the real port, and an address of the device or all";
    making::connect_timeout, Needs::NOTHING,
        "no answer: TimedOut, not before the time-out of 1 s and within 2 s" .exclusive();
    ending::cancel_connect, Needs::SEND,
        "dropped or disconnected while connecting: one ConnectFailed(Canceled), nothing else";
    listening::listen_twice, Needs::NOTHING,
        "a second listener on an address is AddrInUse, until the first is gone";
    listening::listen_close_pending, Needs::SEND,
        "the listener closes: waiting requests are Refused, one that was taken can still be accepted" .trap();
    listening::listen_close_forked, Needs::NOTHING,
        "a listener that is dropped refuses, though a forked child has its descriptors" .exclusive();
    listening::backlog_burst, Needs::NOTHING,
        "64 connects at once, backlog 64: all are connected, each to its own";
    listening::backlog_full, Needs::NOTHING,
        "backlog 4, no accept, 5 connects: exactly one Refused, and the others wait"
        .freedom(Freedom::Whole("which of the connects comes last, and is refused, is open"));
    listening::backlog_left, Needs::NOTHING.and(Capabilities::REQUEST_CANCEL),
        "backlog 1: a connector that leaves while its request waits gives up its place, and is not asked about"
        .freedom(Freedom::Whole("how many connects are refused until its leaving is known is open"));
    listening::taken_left, Needs::NOTHING.and(Capabilities::REQUEST_CANCEL),
        "of a request that was taken it is known when its peer has left, and that it was answered";
    making::accept_late, Needs::SEND,
        "accepted after 2 s: connected, and nothing was reported before";
    ending::accept_gone, Needs::NOTHING,
        "accepting a connector that has left: the call succeeds, then one Disconnected";
    ending::dropped_at_once, Needs::NOTHING,
        "either side drops its endpoint as soon as it can: the other is Connected, then Disconnected(Remote), within 2 s"
        .freedom(Freedom::Whole("whether the dropped one was connected by then is open"));
    ending::accept_half_open, Needs::NOTHING.and(Capabilities::PROCESSES),
        "accepting a connector that falls silent in the middle: one Disconnected when the timer ends"
        .exclusive();
    strangers::foreign_peer, Needs::SEND,
        "a listener of another protocol: one clear failure in time; a foreign client leaves a listener intact"
        .freedom(Freedom::Statuses("another protocol is Unreachable, Refused (there is no listener of the provider's own) or TimedOut"));
    strangers::inward_address, Needs::SEND,
        "::1 and 127.0.0.1 without a listener: a clear failure in time, and other connections are unharmed"
        .freedom(Freedom::Whole("whether a device reaches these addresses is its own, and says so by the call or an event"));
    making::prepost_recv, Needs::SEND,
        "receives posted before connecting match what the peer sends at once";
    making::reply_at_once, Needs::SEND,
        "the taker of a message may answer it: the connection is established, and an event has said so";
    making::post_before_connected, Needs::ALL,
        "what is posted to a send queue before the connection is established is NotConnected, and never happens"
        .trap();
    making::acceptor_sends_first, Needs::SEND_RMA, "the accepting side sends and writes first";
    making::cross_connect, Needs::SEND, "A connects to B and B to A at once: two connections";
    making::self_connect, Needs::ALL, "both ends on one domain: every operation works";
    ending::reconnect_1000, Needs::SEND,
        "1000 connections one after the other: no descriptor, thread or memory leaks" .exclusive();
    private_data::double_accept, Needs::SEND,
        "a request is answered once, an endpoint connects once: InvalidState, and nothing breaks";
    private_data::accept_after_reject, Needs::SEND,
        "a request that was rejected cannot be accepted, and the other way round: InvalidState";
    making::peer_addr, Needs::NOTHING,
        "both sides agree on both addresses, and the listener knows who asks";
    making::source_port, Needs::NOTHING,
        "an endpoint connects from the port that is asked for; from a listener's it is AddrInUse, until that is gone";
    listening::events_pollable, Needs::NOTHING,
        "the event queue's descriptor is readable exactly while an event waits";
};
