//! Receive queues that endpoints share, on a provider that is not always right.

use std::sync::Arc;

use fabric::{
    Access, Capabilities, CompletionQueue, Domain, Endpoint, Error, Recv, Region,
    SharedReceiveQueue, Status,
};
use fabric_core::{RawCompletion, Side, Token};

use crate::null::{Control, NullProvider, Receives};
use crate::rig::{connect, domain_of, drain, run};

const DEPTH: usize = 4;

/// A provider whose endpoints can share receives.
fn sharing() -> NullProvider {
    NullProvider::new().edit(|info| {
        info.capabilities |= Capabilities::SHARED_RECEIVES;
        info.limits.shared_depth = DEPTH;
    })
}

struct Shared {
    receives: SharedReceiveQueue,
    region: Region,
    queue: CompletionQueue,
    domain: Domain,
    control: Arc<Control>,
    inside: Arc<Receives>,
}

impl Shared {
    fn new() -> Self {
        let provider = sharing();
        let control = provider.control();
        let domain = domain_of(provider);
        let queue = domain.completion_queue(64).unwrap();
        let receives = domain.shared_receive_queue(DEPTH, &queue).unwrap();
        let region = domain.alloc(64, Access::ALL).unwrap();
        let inside = control.receives();
        Shared { receives, region, queue, domain, control, inside }
    }

    fn endpoint(&self) -> Endpoint {
        let builder = self.domain.endpoint().send_depth(8).shared_receives(&self.receives);
        let endpoint = builder.build(&self.queue).unwrap();
        connect(&endpoint);
        endpoint
    }

    fn post(&self, contexts: std::ops::Range<u64>) {
        contexts.for_each(|context| self.receives.recv(&self.region, context).unwrap());
    }

    fn unknown(&self, count: usize) -> bool {
        format!("{:?}", self.queue).contains(&format!("unknown_tokens: {count}"))
    }
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, that is the point, and Miri looks for leaks")]
fn what_an_endpoint_may_still_touch_stays() {
    for stops in [true, false] {
        let shared = Shared::new();
        let (first, second) = (shared.endpoint(), shared.endpoint());
        shared.post(0..3);
        shared.control.go_on(true);
        drop(first);
        shared.control.go_on(!stops);
        assert!(shared.inside.bring(second.id(), 8), "the others go on");
        assert_eq!(drain(&shared.queue), [(0, Status::Ok)]);
        let Shared { receives, region, queue, domain, control, .. } = shared;
        drop((region, receives, second));
        // Which of them it would have taken is not known; a completion would say that the memory is free.
        assert_eq!(drain(&queue), []);
        assert_eq!((control.registrations(), domain.counters().leaked_regions), (1, 2));
    }
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, that is the point, and Miri looks for leaks")]
fn a_queue_that_cannot_be_stopped_keeps_its_memory() {
    let Shared { receives, region, queue, domain, control, inside } = Shared::new();
    receives.recv(&region, 1).unwrap();
    control.go_on(true);
    drop((region, receives));
    assert_eq!(drain(&queue), []);
    assert_eq!((control.registrations(), domain.counters().leaked_regions), (1, 1));
    // The device goes on; what it says of a queue that is gone names nothing.
    assert!(inside.bring(fabric::EndpointId(1), 64));
    assert_eq!(drain(&queue), []);
}

#[test]
fn what_is_left_of_a_queue_ends_by_its_own_name() {
    let shared = Shared::new();
    let endpoint = shared.endpoint();
    shared.post(0..3);
    let Shared { receives, region, queue, control, .. } = shared;
    let id = receives.id();
    drop((receives, region));
    assert!(queue.poll_one().unwrap().is_none(), "the endpoint keeps it");
    drop(endpoint);
    for context in 0..3 {
        let done = queue.poll_one().unwrap().unwrap();
        assert_eq!((done.context, done.status, done.endpoint), (context, Status::Canceled, id));
    }
    assert_eq!(control.registrations(), 0);
}

#[test]
fn completions_of_what_is_not_in_flight_are_counted_and_ignored() {
    let shared = Shared::new();
    shared.post(0..2);
    let endpoint = shared.endpoint();
    let [first, second] = shared.inside.take_tokens()[..] else { panic!("two are posted") };
    let ok = |token| RawCompletion::new(token, Status::Ok);
    shared.inside.forge(ok(first));
    shared.inside.forge(ok(first));
    assert_eq!(drain(&shared.queue), [(0, Status::Ok)]);
    // Its slot is another receive's now, whose number is another too.
    shared.post(2..3);
    let again = shared.inside.take_tokens()[0];
    assert_ne!(first, again);
    shared.inside.forge(ok(first));
    shared.inside.forge(ok(first.with_sequence(1 << 19)));
    shared.inside.forge(ok(Token::new(first.slot(), first.generation() ^ 1, Side::Recv, 0)));
    assert_eq!(drain(&shared.queue), []);
    assert!(shared.unknown(4), "{:?}", shared.queue);
    shared.inside.forge(ok(again));
    shared.inside.forge(ok(second));
    assert_eq!(drain(&shared.queue), [(2, Status::Ok), (1, Status::Ok)]);
    assert!(shared.receives.is_empty() && shared.unknown(4));
    drop(endpoint);
}

#[test]
fn a_completion_names_its_endpoint_also_when_that_is_gone() {
    let shared = Shared::new();
    let endpoint = shared.endpoint();
    shared.post(0..2);
    let (id, link) = (endpoint.id(), &shared.inside);
    assert!(link.bring(id, 8));
    drop(endpoint);
    assert!(link.bring(id, 9));
    for (context, len) in [(0, 8), (1, 9)] {
        let done = shared.queue.poll_one().unwrap().unwrap();
        assert_eq!((done.context, done.endpoint, done.len), (context, id, len));
    }
}

#[test]
fn one_completion_of_a_lost_device_ends_all_in_posting_order() {
    for known in [true, false] {
        let shared = Shared::new();
        let endpoint = shared.endpoint();
        shared.post(0..3);
        assert!(shared.inside.bring(endpoint.id(), 8));
        assert_eq!(drain(&shared.queue), [(0, Status::Ok)]);
        // In the slot of the first.
        shared.post(3..4);
        let last = *shared.inside.take_tokens().last().unwrap();
        let token = if known { last } else { last.with_sequence(1 << 19) };
        let mut all = RawCompletion::new(token, Status::PeerLost);
        all.flushes_earlier = true;
        shared.inside.forge(all);
        shared.inside.forge(all);
        assert_eq!(drain(&shared.queue), run(1, 3, Status::PeerLost));
        assert!(shared.receives.is_empty() && shared.unknown(0));
        shared.post(0..DEPTH as u64);
    }
}

#[test]
fn what_the_provider_refuses_takes_no_place() {
    let shared = Shared::new();
    let recvs: Vec<_> = (0..3).map(|context| Recv::new(&shared.region, context)).collect();
    for max in [0, 1] {
        shared.inside.take_up_to(max);
        let stopped = shared.receives.post_recvs(&recvs).unwrap_err();
        assert_eq!((stopped.posted, shared.receives.len()), (max, max));
        assert!(matches!(stopped.error, Error::Again));
    }
    shared.inside.take_up_to(usize::MAX);
    shared.receives.post_recvs(&recvs).unwrap();
    assert!(matches!(shared.receives.recv(&shared.region, 9), Err(Error::Again)));
    assert_eq!((shared.receives.len(), shared.receives.posted()), (4, 4));
    // A completion makes its place once it is taken.
    let endpoint = shared.endpoint();
    assert!(shared.inside.bring(endpoint.id(), 8));
    assert_eq!(drain(&shared.queue), [(0, Status::Ok)]);
    shared.receives.recv(&shared.region, 9).unwrap();
    assert!(matches!(shared.receives.recv(&shared.region, 9), Err(Error::Again)));
}

/// An endpoint that comes to nothing takes no other one's place in the queue of the receives.
#[test]
fn one_that_is_not_made_leaves_the_others() {
    let provider = sharing();
    let control = provider.control();
    let domain = domain_of(provider);
    // At the place of its queue that the other one would have in a queue of its own.
    let queue = domain.completion_queue(64).unwrap();
    let first = domain.endpoint().send_depth(8).recv_depth(8).build(&queue).unwrap();
    connect(&first);
    let receives = domain.shared_receive_queue(DEPTH, &queue).unwrap();
    let region = domain.alloc(64, Access::ALL).unwrap();
    first.recv(&region, 1).unwrap();
    let room = queue.room();
    let sends = domain.completion_queue(64).unwrap();
    control.make_none(true);
    let builder = domain.endpoint().send_depth(8).shared_receives(&receives);
    assert!(builder.build_with(&sends, &queue).is_err());
    control.make_none(false);
    assert_eq!((queue.room(), sends.room()), (room, 64));
    assert_eq!(drain(&queue), []);
    assert!(control.link(first.id()).bring(8, None));
    assert_eq!(drain(&queue), [(1, Status::Ok)]);
}
