//! A completion queue never overflows: endpoints reserve their depths when they are made.

use std::net::Ipv4Addr;
use std::time::Duration;

use fabric::{Access, Completion, DisconnectReason, Domain, Op, Status};
use fabric_core::EndpointAttr;
use fabric_core::attr::MAX_CQ_CAPACITY;
use fabric_core::attr::MAX_DEPTH;

use crate::null::NullProvider;
use crate::rig::{Rig, connect, domain, domain_of, drain, invalid, run};

fn attr(send_depth: usize, recv_depth: usize) -> EndpointAttr {
    let mut attr = EndpointAttr::default();
    attr.send_depth = send_depth;
    attr.recv_depth = recv_depth;
    attr
}

#[test]
fn an_endpoint_reserves_both_depths() {
    let (domain, _) = domain();
    let queue = domain.completion_queue(100).unwrap();
    let one = domain.endpoint().attr(attr(30, 12)).build(&queue).unwrap();
    assert_eq!(queue.room(), 58);
    drop(one);
    assert_eq!(queue.room(), 100);
}

#[test]
fn with_a_queue_for_each_side_each_reserves_its_own() {
    let (domain, _) = domain();
    let sends = domain.completion_queue(40).unwrap();
    let recvs = domain.completion_queue(20).unwrap();
    let one = domain.endpoint().attr(attr(30, 12)).build_with(&sends, &recvs).unwrap();
    assert_eq!((sends.room(), recvs.room()), (10, 8));
    // The send side fits, the receive side does not: nothing stays reserved.
    let text = invalid(domain.endpoint().attr(attr(10, 9)).build_with(&sends, &recvs));
    assert!(text.contains("room for 9") && text.contains("has 8 of 20"), "{text}");
    assert_eq!((sends.room(), recvs.room()), (10, 8));
    drop(one);
    assert_eq!((sends.room(), recvs.room()), (40, 20));
}

#[test]
fn beyond_the_capacity_the_error_names_both_numbers() {
    let (domain, control) = domain();
    let queue = domain.completion_queue(100).unwrap();
    let _one = domain.endpoint().attr(attr(60, 20)).build(&queue).unwrap();
    let text = invalid(domain.endpoint().attr(attr(20, 1)).build(&queue));
    assert!(text.contains("room for 21"), "{text}");
    assert!(text.contains("20 of 100 left"), "{text}");
    assert_eq!(control.endpoints(), 1);
    assert_eq!(queue.room(), 20);
    domain.endpoint().attr(attr(10, 10)).build(&queue).unwrap();
}

#[test]
fn a_full_queue_holds_everything_both_sides_can_have_in_flight() {
    let (domain, control) = domain();
    let queue = domain.completion_queue(24).unwrap();
    let region = domain.alloc(64, Access::ALL).unwrap();
    let endpoints: Vec<_> =
        (0..3).map(|_| domain.endpoint().attr(attr(5, 3)).build(&queue).unwrap()).collect();
    assert_eq!(queue.room(), 0);
    for endpoint in &endpoints {
        connect(endpoint);
        (0..5).for_each(|context| endpoint.send(&region, context).unwrap());
        (5..8).for_each(|context| endpoint.recv(&region, context).unwrap());
        control.link(endpoint.id()).lose(DisconnectReason::PeerLost);
    }
    let all = drain(&queue);
    assert_eq!(all.len(), 24);
    assert_eq!(all.iter().filter(|c| c.1 == Status::Canceled).count(), 9);
}

#[test]
fn room_of_a_dropped_endpoint_is_reserved_until_its_completions_are_taken() {
    let (domain, control) = domain();
    let queue = domain.completion_queue(16).unwrap();
    let region = domain.alloc(64, Access::ALL).unwrap();
    let endpoint = domain.endpoint().attr(attr(8, 8)).build(&queue).unwrap();
    connect(&endpoint);
    control.link(endpoint.id()).hold();
    (0..3).for_each(|context| endpoint.send(&region, context).unwrap());
    drop(endpoint);
    assert_eq!(queue.room(), 13);
    let text = invalid(domain.endpoint().attr(attr(8, 8)).build(&queue));
    assert!(text.contains("13 of 16 left"), "{text}");
    let mut one = [Completion::default()];
    for room in 14..=16 {
        assert_eq!(queue.poll(&mut one).unwrap(), 1);
        assert_eq!(queue.room(), room);
    }
    domain.endpoint().attr(attr(8, 8)).build(&queue).unwrap();
}

/// What is left of a dropped endpoint must not be credited to a later one, however much its place in the
/// queue's table was reused meanwhile.
#[test]
#[cfg_attr(miri, ignore = "two thousand endpoints take Miri minutes, and show it nothing new")]
fn later_tenants_of_a_place_owe_nothing_for_earlier_ones() {
    let (domain, control) = domain();
    let queue = domain.completion_queue(64).unwrap();
    let region = domain.alloc(64, Access::ALL).unwrap();
    let make = |domain: &Domain| domain.endpoint().attr(attr(4, 1)).build(&queue).unwrap();
    let first = make(&domain);
    connect(&first);
    control.link(first.id()).hold();
    (0..3).for_each(|context| first.send(&region, context).unwrap());
    control.link(first.id()).release(2);
    drop(first);
    // Generations of a place differ by 11 bits of the token.
    for _ in 0..(1 << 11) - 1 {
        drop(make(&domain));
    }
    let last = make(&domain);
    assert_eq!(drain(&queue), [(0, Status::Ok), (1, Status::Ok), (2, Status::Canceled)]);
    assert_eq!(queue.room(), 64 - 5);
    connect(&last);
    control.link(last.id()).hold();
    (0..4).for_each(|context| last.send(&region, context).unwrap());
    assert!(matches!(last.send(&region, 9), Err(fabric::Error::Again)));
    control.link(last.id()).release(4);
    assert_eq!(drain(&queue), run(0, 4, Status::Ok));
}

#[test]
fn a_capacity_outside_the_limit_names_it() {
    let (domain, _) = domain();
    assert!(invalid(domain.completion_queue(0)).contains("1..=1048576"));
    assert!(invalid(domain.completion_queue((1 << 20) + 1)).contains("1048577"));
}

/// A device whose limits are as large as numbers are: nothing overflows, whatever is asked for.
#[test]
fn limits_that_lie_are_not_believed() {
    let provider = NullProvider::new().edit(|info| {
        let limits = &mut info.limits;
        limits.send_segments = usize::MAX;
        limits.recv_segments = usize::MAX;
        limits.send_depth = usize::MAX;
        limits.recv_depth = usize::MAX;
        limits.cq_capacity = usize::MAX;
        limits.inject = usize::MAX;
        limits.endpoints = usize::MAX;
        limits.regions = usize::MAX;
        limits.region_len = u64::MAX;
        limits.message = u64::MAX;
        limits.backlog = usize::MAX;
    });
    let control = provider.control();
    let domain = domain_of(provider);
    let text = invalid(domain.completion_queue(usize::MAX));
    assert!(text.contains(&MAX_CQ_CAPACITY.to_string()), "{text}");
    let queue = domain.completion_queue(1 << 10).unwrap();
    for depth in [usize::MAX, usize::MAX / 2 + 1, MAX_DEPTH + 1] {
        let text = invalid(domain.endpoint().send_depth(depth).build(&queue));
        assert!(text.contains("send_depth") && text.contains(&MAX_DEPTH.to_string()), "{text}");
        invalid(domain.endpoint().recv_depth(depth).build(&queue));
    }
    for len in [usize::MAX, usize::MAX / 2, usize::MAX - 4096] {
        assert!(domain.alloc(len, Access::ALL).is_err());
    }
    // As many segments as fit into memory, of one region and of many.
    let count = if cfg!(miri) { 100 } else { 40_000 };
    let region = domain.alloc(64, Access::ALL).unwrap();
    let many: Vec<_> = (0..count).map(|_| domain.alloc(8, Access::ALL).unwrap()).collect();
    let settings = domain.endpoint().send_depth(4).recv_depth(4);
    let settings = settings.send_segments(usize::MAX).recv_segments(usize::MAX);
    let endpoint = settings.build(&queue).unwrap();
    connect(&endpoint);
    for slices in [vec![region.slice(..8); count], many.iter().map(|one| one.slice(..)).collect()] {
        endpoint.post(&Op::send(slices.as_slice()).context(1)).unwrap();
        endpoint.recv(slices.as_slice(), 2).unwrap();
        assert_eq!(drain(&queue), [(1, Status::Ok)]);
        assert!(control.link(endpoint.id()).bring(8, None));
        assert_eq!(drain(&queue), [(2, Status::Ok)]);
    }
    let slices: Vec<_> = many.iter().map(|one| one.slice(..)).collect();
    endpoint.recv(slices.as_slice(), 3).unwrap();
    drop((many, region, endpoint));
    assert_eq!(drain(&queue), [(3, Status::Canceled)]);
    assert_eq!(control.registrations(), 0);
}

/// Times without end are as good as none.
#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn times_may_be_as_long_as_numbers_are() {
    let rig = Rig::new();
    let long = Duration::MAX;
    rig.endpoint.post(&rig.write(1)).unwrap();
    assert!(rig.queue.wait_one(Some(long)).unwrap().is_ok());
    rig.endpoint.shutdown(long).unwrap();
    rig.endpoint.wait_disconnected(Some(long)).unwrap();
    let listener = rig.domain.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    rig.control.request(listener.id(), b"");
    drop(listener.accept(Some(long)).unwrap());
    let builder = || rig.domain.endpoint().send_depth(1).recv_depth(1);
    for (setting, builder) in [
        ("connect_timeout", builder().connect_timeout(long)),
        ("liveness", builder().liveness(Some(long))),
        ("stall", builder().stall(Some(long))),
    ] {
        match builder.build(&rig.queue) {
            Ok(endpoint) => connect(&endpoint),
            Err(error) => assert!(error.to_string().contains(setting), "{error}"),
        }
    }
}
