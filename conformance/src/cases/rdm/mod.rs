//! Reliable datagram endpoints: what `fabric-rdm` promises holds on every provider.
//!
//! The endpoints are on the rig's domains, in this process or at the other host, and no case knows where one is. One-sided
//! operations begin at domain a.

mod address;
mod completion;
mod connect;
mod death;
mod memory;
mod notified;
mod order;
mod parking;
mod progress;
mod rma;
mod tags;
mod to_self;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Rdm:
    address::insert_twice, Needs::SEND,
        "inserting an address twice gives one peer, and after a removal another one";
    address::stale_handle, Needs::SEND,
        "the handle of a removed peer is an error, and never another peer";
    address::remove_pending, Needs::SEND,
        "what is pending with a peer that is removed ends Canceled, the rest goes on";
    address::remove_late_message, Needs::SEND,
        "messages of a removed peer are dropped, and receives of others do not get them";
    address::stranger_refused, Needs::SEND,
        "one that was not inserted is refused, and its posts go through once it is";
    address::stranger_admitted, Needs::SEND,
        "strangers are admitted up to the bound, with an event, and can be answered";
    address::self_send, Needs::SEND,
        "messages to oneself need no connection, and keep the rules of all others";
    connect::first_post_queues, Needs::SEND,
        "posts do not wait for the connection: they queue, and arrive in order";
    connect::crossing, Needs::SEND,
        "both sides post at once, again and again: one session, and no message lost or twice";
    connect::nobody_listens, Needs::SEND,
        "where nothing listens the posts end PeerLost and Canceled after the time, others are untouched";
    connect::wrong_incarnation, Needs::SEND,
        "another incarnation at the address is PeerGone at once, and gets nothing";
    connect::own_predecessor, Needs::SEND,
        "at the address of an earlier incarnation an endpoint finds itself: that one is PeerGone, and it stays its own peer";
    connect::storm, Needs::SEND,
        "many endpoints connect to one at once: each message arrives"
        .freedom(Freedom::Whole("which peer's message comes first")).limit_s(120);
    connect::connect_then_remove, Needs::SEND,
        "a peer that is removed while it is being connected to leaves nothing"
        .freedom(Freedom::Whole("whether the message is there before the removal"));
    connect::hostile_hello, Needs::SEND,
        "requests that are none are refused, and disturb no peer";
    order::mixed_sizes, Needs::SEND,
        "messages of all sizes to one peer meet receives in the order of their posts";
    order::eager_behind_rendezvous, Needs::SEND,
        "a short message behind a long one does not overtake it in matching";
    tags::mask, Needs::SEND,
        "bits of the mask are ignored, all others count";
    tags::tagged_untagged_apart, Needs::SEND,
        "tagged and untagged messages never meet the receives of the other kind";
    tags::zero_bytes, Needs::SEND,
        "messages without bytes have tags, immediates and completions";
    tags::truncated_lives, Needs::SEND,
        "a longer message is Truncated with its length, of all sizes, and the pair goes on";
    parking::max_open_kept, Needs::SEND,
        "no more connections are open than may be, and all peers are reached in turn";
    parking::park_keeps_order, Needs::SEND,
        "messages keep their order over connections that are parked and made again";
    parking::park_keeps_window, Needs::SEND,
        "messages that wait at a peer without a connection count: as many more are posted as the window has left, and a post \
         that is refused learns of places that become free";
    parking::park_races_post, Needs::SEND,
        "both sides post while connections are parked: nothing is lost, and nothing comes twice";
    parking::park_unmatched_rendezvous, Needs::SEND,
        "a long message without a receive is no reason to keep a connection, and comes by the next one";
    parking::park_under_rma, Needs::ALL,
        "one-sided operations in flight finish before their connection is parked";
    parking::all_busy_fair, Needs::SEND,
        "where all connections are busy each peer has its turn";
    parking::all_to_all, Needs::SEND,
        "each of many endpoints sends to each, with few connections: every message arrives"
        .limit_s(300);
    memory::window_again, Needs::SEND,
        "one message more than the window is Again and says so; those posted are there";
    memory::tag_b_behind_a, Needs::SEND,
        "a message behind others without a receive meets its own";
    memory::slow_receiver_isolated, Needs::SEND,
        "a peer that posts no receives holds up no other, nor what it sends itself";
    memory::bytes_wait_at_sender, Needs::SEND,
        "without room for their bytes messages are there all the same, and their payload waits";
    memory::control_when_full, Needs::SEND_RMA,
        "with both windows full one-sided operations and acknowledgements go on";
    completion::ok_survives_sender_exit, Needs::SEND,
        "a send that is Ok is received after its sender is gone";
    completion::matched_waits, Needs::SEND,
        "with `matched` a send ends when its message has met a receive, of all sizes";
    completion::inject_reuse, Needs::SEND,
        "injected bytes may be reused at once, and one too many is refused";
    completion::cancel_receive, Needs::SEND,
        "a receive that is canceled has one completion, and takes no message";
    completion::cancel_races_match, Needs::SEND,
        "cancel and a message at once: one of them, and cancel says which"
        .freedom(Freedom::Whole("whether the message or the cancel comes first"));
    completion::cancel_sent, Needs::SEND,
        "a send that waits is canceled and never arrives; one on its way is not";
    completion::counter_exact, Needs::ALL,
        "counters count each operation once, can be waited for, and need no poll";
    completion::counter_error, Needs::SEND,
        "a counter counts what fails apart, and wakes who waits";
    death::outstanding_end, Needs::SEND,
        "of a peer that is lost the oldest operation is PeerLost, the others Canceled, and no other peer's";
    death::buffered_stays, Needs::SEND,
        "messages that came whole stay when their sender is lost; others are gone";
    death::directed_receive_ends, Needs::SEND,
        "receives from a lost peer alone end PeerLost, receives from any stay";
    death::sticky_until_revive, Needs::SEND_RMA,
        "posts to a lost peer, and receives from it alone, are PeerDown until it is revived, and then go through";
    death::no_replay_of_atomics, Needs::ALL,
        "an atomic is executed at most once, whatever is lost and revived"
        .freedom(Freedom::Whole("how many were executed before the loss"));
    death::restart_same_address, Needs::SEND,
        "an endpoint at the address of one that is gone gets nothing that was for it";
    progress::sleeping_receiver_matches, Needs::SEND,
        "messages meet the receives of an application that sleeps, of all sizes";
    progress::sleeping_rendezvous, Needs::SEND,
        "the payload of a sender that sleeps is taken, with and without the right to read it";
    progress::idle_no_cpu, Needs::SEND,
        "idle endpoints are not woken"
        .exclusive();
    progress::fork_child_refused, Needs::SEND,
        "every call is refused in a forked child, and the parent goes on"
        .exclusive();
    rma::rma_table, Needs::ALL,
        "writes, reads and atomics do what they do on connected endpoints, before messages behind them";
    notified::write_notifies, Needs::ALL,
        "a write with immediate data is a completion at its target, of its peer, length and data, in the order of messages; it \
         takes no receive, and its bytes are there";
    notified::write_window, Needs::ALL,
        "writes with immediate data take places as messages do, until their target has taken their completions";
    notified::write_parked, Needs::ALL,
        "writes with immediate data keep their order with messages over connections that are parked and made again";
    notified::write_refused, Needs::ALL,
        "of a write with immediate data that the target refuses, or that ends with its peer, no completion comes";
    rma::refused_before_connecting, Needs::ALL,
        "what can never work is refused by the post, before there is a connection";
    rma::remote_access, Needs::ALL,
        "what the target refuses is RemoteAccess, changes nothing, and ends the connection"
        .freedom(Freedom::Whole("whether what follows is posted before the refusal is known"));
    connect::dead_rail, Needs::SEND,
        "where one rail of a peer leads nowhere the next one is tried";
    connect::one_way_firewall, Needs::SEND,
        "a peer that cannot be reached from here reaches this endpoint, and messages go both ways";
    tags::source_filter, Needs::SEND,
        "a receive from one peer takes no message of another";
    tags::any_source_order, Needs::SEND,
        "a receive from any takes the messages of each peer in their order"
        .freedom(Freedom::Whole("which peer's message comes first"));
    tags::exact_vs_wildcard_age, Needs::SEND,
        "the oldest receive that takes a message has it, however exact it is";
    tags::probe_claims_once, Needs::SEND,
        "a message that is claimed is met by no receive, and received once, of all sizes";
    tags::claimed_drop, Needs::SEND,
        "a message that is claimed and dropped ends at its sender, and gives its place back";
    tags::multi_receive_last, Needs::SEND,
        "messages follow each other in a buffer for many, and one Released comes behind the last";
    tags::ten_thousand_posted, Needs::SEND,
        "10,000 receives of three kinds, and the messages for them in reverse";
    tags::ten_thousand_unexpected, Needs::SEND,
        "10,000 messages without a receive are received in reverse";
    address::survive_shipping, Needs::SEND,
        "an address survives as bytes and text; each flipped bit, a newer version and any other length are refused";
    order::behind_what_waits, Needs::SEND_RMA,
        "a write behind messages that wait for a place is not executed before them";
    tags::many_masks, Needs::SEND,
        "receives with more masks than there are classes for keep the rules of all others";
    parking::oldest_is_parked, Needs::SEND,
        "of the connections without use that of the longest time ago is parked";
    parking::asked_without_end, Needs::SEND,
        "peers that ask for connections without end keep no message of the endpoint itself from going out";
    parking::park_races_rma, Needs::SEND_RMA,
        "writes are posted while connections are parked and made again: each ends once";
    parking::park_under_stream, Needs::SEND_RMA,
        "a connection that is never without a write is parked all the same when another peer waits for its place";
    memory::bytes_come_back, Needs::SEND,
        "the bytes of a message that met a receive are room for the next ones";
    memory::places_of_all, Needs::SEND,
        "each sender can have its whole window in turn, and all together no more places than there are"
        .freedom(Freedom::Whole("how the places are divided"));
    completion::memory_is_free, Needs::SEND,
        "memory can be closed once its operation has ended, of all sizes";
    death::revived_on_both_sides, Needs::ALL,
        "two that lost each other meet again once both have revived the other";
    progress::woken_by_another_thread, Needs::SEND,
        "a thread that sleeps in wait is woken by what another thread ends";
    connect::nobody_answers, Needs::SEND,
        "where an attempt is not answered the posts end after the time, without a poll";
    connect::crossing_multihomed, Needs::SEND,
        "endpoints with several rails post at once, each to another rail first: one connection is left";
    parking::forgotten_while_parked, Needs::SEND,
        "a parked peer that removed this endpoint and inserted it again is lost, and its posts go through once it is revived";
    completion::silent_receives, Needs::SEND,
        "receives without completions take their messages, are counted, and give back their places";
    rma::fence_holds, Needs::ALL,
        "a fenced operation waits for the reads before it, before there is a connection too";
    rma::fenced_messages, Needs::SEND_RMA,
        "a fenced message, of any length, waits for the reads before it, before there is a connection too";
    to_self::self_rma, Needs::ALL,
        "writes and reads to oneself do what they do to any peer, before messages behind them";
    to_self::self_atomics, Needs::ALL,
        "all atomics on one's own memory, with results and without, and behind a fence";
    to_self::self_notified, Needs::ALL,
        "a write to oneself with immediate data is a completion too of its target, in the order of messages";
    to_self::self_window, Needs::ALL,
        "writes to oneself with immediate data take places until their completions are taken, and nothing else does";
    to_self::self_in_order, Needs::ALL,
        "messages and one-sided operations to oneself keep their order, before there is a connection too";
    to_self::self_refused, Needs::ALL,
        "an operation to oneself that is refused is RemoteAccess, and the endpoint is down as its own peer until it is revived"
        .freedom(Freedom::Whole("whether what follows is posted before the refusal is known"));
    to_self::self_canceled, Needs::ALL,
        "operations to oneself that are canceled, or whose peer is removed, end once each, as one and the other side see it"
        .freedom(Freedom::Whole("which are done before"));
    to_self::self_beside_others, Needs::ALL,
        "with a place for one connection an endpoint reaches itself and its peers in turn";
};
