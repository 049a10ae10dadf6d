//! Reliable datagram endpoints: what `fabric-rdm` promises holds on every provider.
//!
//! The endpoints are on the rig's domains; nothing of a case is there twice for two providers.

mod address;
mod completion;
mod connect;
mod death;
mod memory;
mod order;
mod parking;
mod progress;
mod rma;
mod tags;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Rdm:
    address::insert_twice, Needs::SEND,
        "inserting an address twice gives one peer, and after a removal another one"
        .local_only(ONE_PROCESS);
    address::stale_handle, Needs::SEND,
        "the handle of a removed peer is an error, and never another peer"
        .local_only(ONE_PROCESS);
    address::remove_pending, Needs::SEND,
        "what is pending with a peer that is removed ends Canceled, the rest goes on"
        .local_only(ONE_PROCESS);
    address::remove_late_message, Needs::SEND,
        "messages of a removed peer are dropped, and receives of others do not get them"
        .local_only(ONE_PROCESS);
    address::stranger_refused, Needs::SEND,
        "one that was not inserted is refused, and its posts go through once it is"
        .local_only(ONE_PROCESS);
    address::stranger_admitted, Needs::SEND,
        "strangers are admitted up to the bound, with an event, and can be answered"
        .local_only(ONE_PROCESS);
    address::self_send, Needs::SEND,
        "messages to oneself need no connection, and keep the rules of all others"
        .local_only(ONE_PROCESS);
    connect::first_post_queues, Needs::SEND,
        "posts do not wait for the connection: they queue, and arrive in order"
        .local_only(ONE_PROCESS);
    connect::crossing, Needs::SEND,
        "both sides post at once, again and again: one session, and no message lost or twice"
        .local_only(ONE_PROCESS);
    connect::nobody_listens, Needs::SEND,
        "where nothing listens the posts end PeerLost and Canceled after the time, others are untouched"
        .local_only(ONE_PROCESS);
    connect::wrong_incarnation, Needs::SEND,
        "another incarnation at the address is PeerGone at once, and gets nothing"
        .local_only(ONE_PROCESS);
    connect::own_predecessor, Needs::SEND,
        "at the address of an earlier incarnation an endpoint finds itself: that one is PeerGone, and it stays its own peer"
        .local_only(ONE_PROCESS);
    connect::storm, Needs::SEND,
        "many endpoints connect to one at once: each message arrives"
        .local_only(ONE_PROCESS)
        .freedom(Freedom::Whole("which peer's message comes first")).limit_s(120);
    connect::connect_then_remove, Needs::SEND,
        "a peer that is removed while it is being connected to leaves nothing"
        .local_only(ONE_PROCESS)
        .freedom(Freedom::Whole("whether the message is there before the removal"));
    connect::hostile_hello, Needs::SEND,
        "requests that are none are refused, and disturb no peer"
        .local_only(ONE_PROCESS);
    order::mixed_sizes, Needs::SEND,
        "messages of all sizes to one peer meet receives in the order of their posts"
        .local_only(ONE_PROCESS);
    order::eager_behind_rendezvous, Needs::SEND,
        "a short message behind a long one does not overtake it in matching"
        .local_only(ONE_PROCESS);
    tags::mask, Needs::SEND,
        "bits of the mask are ignored, all others count"
        .local_only(ONE_PROCESS);
    tags::tagged_untagged_apart, Needs::SEND,
        "tagged and untagged messages never meet the receives of the other kind"
        .local_only(ONE_PROCESS);
    tags::zero_bytes, Needs::SEND,
        "messages without bytes have tags, immediates and completions"
        .local_only(ONE_PROCESS);
    tags::truncated_lives, Needs::SEND,
        "a longer message is Truncated with its length, of all sizes, and the pair goes on"
        .local_only(ONE_PROCESS);
    parking::max_open_kept, Needs::SEND,
        "no more connections are open than may be, and all peers are reached in turn"
        .local_only(ONE_PROCESS);
    parking::park_keeps_order, Needs::SEND,
        "messages keep their order over connections that are parked and made again"
        .local_only(ONE_PROCESS);
    parking::park_keeps_window, Needs::SEND,
        "messages that wait at a peer without a connection count: as many more are posted as the window has left, and a post \
         that is refused learns of places that become free"
        .local_only(ONE_PROCESS);
    parking::park_races_post, Needs::SEND,
        "both sides post while connections are parked: nothing is lost, and nothing comes twice"
        .local_only(ONE_PROCESS);
    parking::park_unmatched_rendezvous, Needs::SEND,
        "a long message without a receive is no reason to keep a connection, and comes by the next one"
        .local_only(ONE_PROCESS);
    parking::park_under_rma, Needs::ALL,
        "one-sided operations in flight finish before their connection is parked"
        .local_only(ONE_PROCESS);
    parking::all_busy_fair, Needs::SEND,
        "where all connections are busy each peer has its turn"
        .local_only(ONE_PROCESS);
    parking::all_to_all, Needs::SEND,
        "each of many endpoints sends to each, with few connections: every message arrives"
        .local_only(ONE_PROCESS).limit_s(300);
    memory::window_again, Needs::SEND,
        "one message more than the window is Again and says so; those posted are there"
        .local_only(ONE_PROCESS);
    memory::tag_b_behind_a, Needs::SEND,
        "a message behind others without a receive meets its own"
        .local_only(ONE_PROCESS);
    memory::slow_receiver_isolated, Needs::SEND,
        "a peer that posts no receives holds up no other, nor what it sends itself"
        .local_only(ONE_PROCESS);
    memory::bytes_wait_at_sender, Needs::SEND,
        "without room for their bytes messages are there all the same, and their payload waits"
        .local_only(ONE_PROCESS);
    memory::control_when_full, Needs::SEND_RMA,
        "with both windows full one-sided operations and acknowledgements go on"
        .local_only(ONE_PROCESS);
    completion::ok_survives_sender_exit, Needs::SEND,
        "a send that is Ok is received after its sender is gone"
        .local_only(ONE_PROCESS);
    completion::matched_waits, Needs::SEND,
        "with `matched` a send ends when its message has met a receive, of all sizes"
        .local_only(ONE_PROCESS);
    completion::inject_reuse, Needs::SEND,
        "injected bytes may be reused at once, and one too many is refused"
        .local_only(ONE_PROCESS);
    completion::cancel_receive, Needs::SEND,
        "a receive that is canceled has one completion, and takes no message"
        .local_only(ONE_PROCESS);
    completion::cancel_races_match, Needs::SEND,
        "cancel and a message at once: one of them, and cancel says which"
        .local_only(ONE_PROCESS)
        .freedom(Freedom::Whole("whether the message or the cancel comes first"));
    completion::cancel_sent, Needs::SEND,
        "a send that waits is canceled and never arrives; one on its way is not"
        .local_only(ONE_PROCESS);
    completion::counter_exact, Needs::ALL,
        "counters count each operation once, can be waited for, and need no poll"
        .local_only(ONE_PROCESS);
    completion::counter_error, Needs::SEND,
        "a counter counts what fails apart, and wakes who waits"
        .local_only(ONE_PROCESS);
    death::outstanding_end, Needs::SEND,
        "of a peer that is lost the oldest operation is PeerLost, the others Canceled, and no other peer's"
        .local_only(ONE_PROCESS);
    death::buffered_stays, Needs::SEND,
        "messages that came whole stay when their sender is lost; others are gone"
        .local_only(ONE_PROCESS);
    death::directed_receive_ends, Needs::SEND,
        "receives from a lost peer alone end PeerLost, receives from any stay"
        .local_only(ONE_PROCESS);
    death::sticky_until_revive, Needs::SEND_RMA,
        "posts to a lost peer are PeerDown until it is revived, and then go through"
        .local_only(ONE_PROCESS);
    death::no_replay_of_atomics, Needs::ALL,
        "an atomic is executed at most once, whatever is lost and revived"
        .local_only(ONE_PROCESS)
        .freedom(Freedom::Whole("how many were executed before the loss"));
    death::restart_same_address, Needs::SEND,
        "an endpoint at the address of one that is gone gets nothing that was for it"
        .local_only(ONE_PROCESS);
    progress::sleeping_receiver_matches, Needs::SEND,
        "messages meet the receives of an application that sleeps, of all sizes"
        .local_only(ONE_PROCESS);
    progress::sleeping_rendezvous, Needs::SEND,
        "the payload of a sender that sleeps is taken, with and without the right to read it"
        .local_only(ONE_PROCESS);
    progress::idle_no_cpu, Needs::SEND,
        "idle endpoints are not woken"
        .local_only(ONE_PROCESS).exclusive();
    progress::fork_child_refused, Needs::SEND,
        "every call is refused in a forked child, and the parent goes on"
        .local_only(ONE_PROCESS).exclusive();
    rma::rma_table, Needs::ALL,
        "writes, reads and atomics do what they do on connected endpoints, before messages behind them"
        .local_only(ONE_PROCESS);
    rma::refused_before_connecting, Needs::ALL,
        "what can never work is refused by the post, before there is a connection"
        .local_only(ONE_PROCESS);
    rma::remote_access, Needs::ALL,
        "what the target refuses is RemoteAccess, changes nothing, and ends the connection"
        .local_only(ONE_PROCESS);
    connect::dead_rail, Needs::SEND,
        "where one rail of a peer leads nowhere the next one is tried"
        .local_only(ONE_PROCESS);
    connect::one_way_firewall, Needs::SEND,
        "a peer that cannot be reached from here reaches this endpoint, and messages go both ways"
        .local_only(ONE_PROCESS);
    tags::source_filter, Needs::SEND,
        "a receive from one peer takes no message of another"
        .local_only(ONE_PROCESS);
    tags::any_source_order, Needs::SEND,
        "a receive from any takes the messages of each peer in their order"
        .local_only(ONE_PROCESS)
        .freedom(Freedom::Whole("which peer's message comes first"));
    tags::exact_vs_wildcard_age, Needs::SEND,
        "the oldest receive that takes a message has it, however exact it is"
        .local_only(ONE_PROCESS);
    tags::probe_claims_once, Needs::SEND,
        "a message that is claimed is met by no receive, and received once, of all sizes"
        .local_only(ONE_PROCESS);
    tags::claimed_drop, Needs::SEND,
        "a message that is claimed and dropped ends at its sender, and gives its place back"
        .local_only(ONE_PROCESS);
    tags::multi_receive_last, Needs::SEND,
        "messages follow each other in a buffer for many, and one Released comes behind the last"
        .local_only(ONE_PROCESS);
    tags::ten_thousand_posted, Needs::SEND,
        "10,000 receives of three kinds, and the messages for them in reverse"
        .local_only(ONE_PROCESS);
    tags::ten_thousand_unexpected, Needs::SEND,
        "10,000 messages without a receive are received in reverse"
        .local_only(ONE_PROCESS);
    address::survive_shipping, Needs::SEND,
        "an address survives as bytes and text; each flipped bit, a newer version and any other length are refused"
        .local_only(ONE_PROCESS);
    order::behind_what_waits, Needs::SEND_RMA,
        "a write behind messages that wait for a place is not executed before them"
        .local_only(ONE_PROCESS);
    tags::many_masks, Needs::SEND,
        "receives with more masks than there are classes for keep the rules of all others"
        .local_only(ONE_PROCESS);
    parking::oldest_is_parked, Needs::SEND,
        "of the connections without use that of the longest time ago is parked"
        .local_only(ONE_PROCESS);
    parking::park_races_rma, Needs::SEND_RMA,
        "writes are posted while connections are parked and made again: each ends once"
        .local_only(ONE_PROCESS);
    memory::bytes_come_back, Needs::SEND,
        "the bytes of a message that met a receive are room for the next ones"
        .local_only(ONE_PROCESS);
    memory::places_of_all, Needs::SEND,
        "each sender can have its whole window in turn, and all together no more places than there are"
        .local_only(ONE_PROCESS)
        .freedom(Freedom::Whole("how the places are divided"));
    completion::memory_is_free, Needs::SEND,
        "memory can be closed once its operation has ended, of all sizes"
        .local_only(ONE_PROCESS);
    death::revived_on_both_sides, Needs::ALL,
        "two that lost each other meet again once both have revived the other"
        .local_only(ONE_PROCESS);
    progress::woken_by_another_thread, Needs::SEND,
        "a thread that sleeps in wait is woken by what another thread ends"
        .local_only(ONE_PROCESS);
    connect::nobody_answers, Needs::SEND,
        "where an attempt is not answered the posts end after the time, without a poll"
        .local_only(ONE_PROCESS);
    connect::crossing_multihomed, Needs::SEND,
        "endpoints with several rails post at once, each to another rail first: one connection is left"
        .local_only(ONE_PROCESS);
    parking::forgotten_while_parked, Needs::SEND,
        "a parked peer that removed this endpoint and inserted it again is lost, and its posts go through once it is revived"
        .local_only(ONE_PROCESS);
    completion::silent_receives, Needs::SEND,
        "receives without completions take their messages, are counted, and give back their places"
        .local_only(ONE_PROCESS);
    rma::fence_holds, Needs::ALL,
        "a fenced operation waits for the reads before it, before there is a connection too"
        .local_only(ONE_PROCESS);
};

const ONE_PROCESS: &str = "the endpoints are in this process";
