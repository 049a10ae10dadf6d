//! Datagram endpoints: unreliable messages without connections.
//!
//! A network may lose what these cases send, on loopback too where a buffer is full, so they send again what does not come, a few
//! times; what comes is checked to the byte. What never comes is a failure.

mod addresses;
mod ending;
mod mail;
mod passing;
mod refusing;

use crate::prelude::*;

/// What the cases need.
const DATAGRAMS: Needs = Needs::NOTHING.and(Capabilities::DATAGRAMS);

const ALONE: &str = "the second process serves connected endpoints alone";

pub(super) const CASES: &[Case] = cases! { Datagram:
    refusing::declared, Needs::NOTHING,
        "an endpoint can be made where the capability is declared, with a limit above zero; elsewhere the call is Unsupported"
        .local_only(ALONE) .freedom(Freedom::Whole("whether a device has datagrams is its own"));
    passing::all_lengths, DATAGRAMS,
        "datagrams of 0 B to the longest, in several segments, with immediate data and without, injected: whole, and from whom"
        .local_only(ALONE);
    passing::oldest_first, DATAGRAMS,
        "each datagram takes the receive that was posted first; completions of both queues come in posting order"
        .local_only(ALONE);
    passing::too_long_for_its_receive, DATAGRAMS,
        "a datagram longer than its receive ends that TooLong, writes nothing beyond it, and the next one comes"
        .local_only(ALONE) .trap();
    passing::no_receive, DATAGRAMS,
        "datagrams that find no receive are dropped, and counted where the device counts; the next one with a receive comes"
        .local_only(ALONE);
    passing::many_to_one, DATAGRAMS,
        "8 senders to one receiver: every datagram comes whole and with the address of its sender"
        .local_only(ALONE);
    passing::both_ways, DATAGRAMS,
        "the source of a datagram can be answered, and an endpoint sends to itself"
        .local_only(ALONE);
    passing::asleep, DATAGRAMS,
        "a thread that sleeps in wait is woken by a datagram, armed by hand too"
        .local_only(ALONE);
    passing::unsignaled, DATAGRAMS,
        "unsignaled datagrams have no completion, take no room for good, and let go of their regions"
        .local_only(ALONE);
    passing::threads, DATAGRAMS,
        "threads that send and poll at the same handles: each operation completes once, and no datagram is damaged"
        .local_only(ALONE);
    addresses::survive_shipping, DATAGRAMS,
        "an address survives as bytes and text; each flipped bit, a newer version and any other length are refused, with what is wrong"
        .local_only(ALONE);
    addresses::of_others, DATAGRAMS,
        "an address of another kind or family, and the handle of another endpoint, are errors of the call"
        .local_only(ALONE);
    addresses::dead, DATAGRAMS,
        "datagrams to an endpoint that is gone end Ok, and nothing else ends or changes"
        .local_only(ALONE);
    refusing::too_long, DATAGRAMS,
        "a datagram beyond the limit is refused where it is posted, which names both numbers, and nothing of it is sent" .trap()
        .local_only(ALONE);
    refusing::arguments, DATAGRAMS,
        "what cannot be made or posted is an error of the call, without effect"
        .local_only(ALONE);
    refusing::depth, DATAGRAMS,
        "the queues hold their depths exactly; then Again, and each completion makes one place"
        .local_only(ALONE);
    refusing::secured, DATAGRAMS.secured(fabric::Security::Authenticated),
        "a domain with security makes no datagram endpoints, and says why"
        .local_only(ALONE);
    refusing::fork_child, DATAGRAMS,
        "every call is refused in a forked child, and the parent goes on"
        .local_only(ALONE) .exclusive();
    ending::posted_are_canceled, DATAGRAMS,
        "receives that are left when the endpoint is dropped end Canceled, each once, in their order, and give back their room"
        .local_only(ALONE);
    ending::region_dropped, DATAGRAMS,
        "a region whose handle is dropped while a receive is posted lives until that ends; closing it is Busy"
        .local_only(ALONE);
    ending::under_fire, DATAGRAMS,
        "endpoints that come and go while datagrams arrive: each receive ends once, and memory that was let go stays untouched"
        .local_only(ALONE);
};
