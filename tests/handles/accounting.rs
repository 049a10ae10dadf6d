//! Depth: posted minus (taken and unsignaled retired) is at most the depth, exactly.

use fabric::{
    BatchError, Completion, DisconnectReason, EndpointState, Error, OpKind, Recv, Status,
};
use fabric_core::RawCompletion;

use crate::rig::{Rig, rounds, run};

#[test]
fn exactly_the_depth_fits_and_one_more_is_again() {
    let rig = Rig::with(|b| b.send_depth(5).recv_depth(3));
    for context in 0..5 {
        rig.endpoint.post(&rig.write(context)).unwrap();
    }
    assert!(matches!(rig.endpoint.post(&rig.write(9)), Err(Error::Again)));
    for context in 5..8 {
        rig.endpoint.recv(&rig.region, context).unwrap();
    }
    assert!(matches!(rig.endpoint.recv(&rig.region, 9), Err(Error::Again)));
}

#[test]
fn again_has_no_effect() {
    let rig = Rig::with(|b| b.send_depth(2));
    rig.endpoint.post(&rig.write(0)).unwrap();
    rig.endpoint.post(&rig.write(1)).unwrap();
    for _ in 0..10 {
        assert!(matches!(rig.endpoint.post(&rig.write(9)), Err(Error::Again)));
    }
    assert_eq!(rig.link.posted().0, 2);
    assert_eq!(rig.drain(), run(0, 2, Status::Ok));
    assert_eq!(rig.endpoint.counters().again, 10);
    assert_eq!(rig.endpoint.counters().posted_sends, 2);
}

#[test]
fn a_completion_counts_until_it_is_taken() {
    let rig = Rig::with(|b| b.send_depth(4));
    for context in 0..4 {
        rig.endpoint.post(&rig.write(context)).unwrap();
    }
    // The full post reaps what has completed. That is not taking it.
    assert!(matches!(rig.endpoint.post(&rig.write(9)), Err(Error::Again)));
    let mut one = [Completion::default()];
    for context in 0..100 {
        assert_eq!(rig.queue.poll(&mut one).unwrap(), 1);
        assert_eq!(one[0].context, context);
        // One taken, room for one.
        rig.endpoint.post(&rig.write(context + 4)).unwrap();
        assert!(matches!(rig.endpoint.post(&rig.write(9)), Err(Error::Again)));
    }
}

#[test]
fn completions_come_in_posting_order_however_they_are_taken() {
    let rig = Rig::with(|b| b.send_depth(64));
    let mut next = (0, 0);
    for round in 0..rounds(1000) {
        for _ in 0..=(round * 7 % 40) {
            match rig.endpoint.post(&rig.write(next.0)) {
                Ok(()) => next.0 += 1,
                Err(Error::Again) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut out = [Completion::default(); 48];
        let room = round * 5 % 48;
        let taken = rig.queue.poll(&mut out[..room]).unwrap();
        for completion in &out[..taken] {
            assert_eq!(completion.context, next.1);
            next.1 += 1;
        }
    }
    assert!(next.1 > 0);
    assert_eq!(rig.drain(), run(next.1, (next.0 - next.1) as usize, Status::Ok));
}

#[test]
fn the_two_sides_count_apart() {
    let rig = Rig::with(|b| b.send_depth(1).recv_depth(1));
    rig.endpoint.post(&rig.write(1)).unwrap();
    rig.endpoint.recv(&rig.region, 2).unwrap();
    assert!(matches!(rig.endpoint.post(&rig.write(9)), Err(Error::Again)));
    assert!(matches!(rig.endpoint.recv(&rig.region, 9), Err(Error::Again)));
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    rig.endpoint.post(&rig.write(3)).unwrap();
    assert!(matches!(rig.endpoint.recv(&rig.region, 9), Err(Error::Again)));
}

#[test]
fn a_batch_that_stops_says_how_many_were_posted() {
    let rig = Rig::with(|b| b.send_depth(5).recv_depth(3));
    let ops: Vec<_> = (0..8).map(|context| rig.write(context)).collect();
    let Err(BatchError { posted, error }) = rig.endpoint.post_batch(&ops) else { panic!() };
    assert_eq!(posted, 5);
    assert!(matches!(error, Error::Again));
    assert_eq!(rig.drain(), run(0, 5, Status::Ok));
    let recvs: Vec<_> = (0..4).map(|context| Recv::new(&rig.region, context)).collect();
    let Err(BatchError { posted, error }) = rig.endpoint.post_recvs(&recvs) else { panic!() };
    assert_eq!(posted, 3);
    assert!(matches!(error, Error::Again));
}

#[test]
fn a_batch_longer_than_a_chunk_is_posted_whole_and_in_order() {
    let rig = Rig::with(|b| b.send_depth(200).recv_depth(200));
    let ops: Vec<_> = (0..150).map(|context| rig.write(context)).collect();
    rig.endpoint.post_batch(&ops).unwrap();
    assert_eq!(rig.drain(), run(0, 150, Status::Ok));
    assert!(rig.link.posted().1 < 150, "a batch must reach the provider as batches");
}

#[test]
fn a_bad_operation_inside_a_batch_stops_there() {
    let rig = Rig::new();
    let bad = fabric::Op::write(rig.region.slice(4095..4097), rig.at(0));
    let ops = [rig.write(0), rig.write(1), bad, rig.write(3)];
    let Err(BatchError { posted, error }) = rig.endpoint.post_batch(&ops) else { panic!() };
    assert_eq!(posted, 2);
    assert!(matches!(error, Error::InvalidArgument(_)));
    assert_eq!(rig.drain(), run(0, 2, Status::Ok));
}

#[test]
fn what_a_provider_refuses_takes_no_room() {
    let rig = Rig::with(|b| b.send_depth(4));
    rig.link.take_up_to(1);
    for round in 0..10 {
        let first = round * 2;
        let ops = [rig.write(first), rig.write(first + 1), rig.write(9), rig.write(9)];
        let Err(BatchError { posted, .. }) = rig.endpoint.post_batch(&ops) else { panic!() };
        assert_eq!(posted, 1);
        rig.endpoint.post(&rig.write(first + 1)).unwrap();
        assert_eq!(rig.drain(), run(first, 2, Status::Ok));
    }
}

#[test]
fn a_completion_tells_what_it_was() {
    let rig = Rig::new();
    rig.endpoint.send(rig.region.slice(..24), 1).unwrap();
    rig.endpoint.read(rig.region.slice(..16), rig.at(0), 2).unwrap();
    rig.endpoint.fetch_add(1u64, rig.region.slice(..8), rig.at(0), 3).unwrap();
    rig.endpoint.inject(b"four", 4).unwrap();
    rig.endpoint.recv(&rig.region, 5).unwrap();
    assert!(rig.link.bring(100, Some(0xdead_beef)));
    let mut out = [Completion::default(); 8];
    assert_eq!(rig.queue.poll(&mut out).unwrap(), 5);
    let reported: Vec<_> =
        out[..5].iter().map(|c| (c.context, c.kind, c.len, c.immediate)).collect();
    assert_eq!(
        reported,
        [
            (1, OpKind::Send, 24, None),
            (2, OpKind::Read, 16, None),
            (3, OpKind::Atomic, 8, None),
            (4, OpKind::Send, 4, None),
            (5, OpKind::Recv, 100, Some(0xdead_beef)),
        ]
    );
    assert!(out[..5].iter().all(|c| c.is_ok() && c.endpoint == rig.endpoint.id()));
}

#[test]
fn what_follows_a_failure_is_canceled_in_order() {
    let rig = Rig::new();
    rig.link.hold();
    (0..4).for_each(|context| rig.endpoint.post(&rig.write(context)).unwrap());
    rig.endpoint.recv(&rig.region, 10).unwrap();
    rig.endpoint.recv(&rig.region, 11).unwrap();
    rig.link.release(1);
    rig.link.fail_next(Status::RemoteAccess);
    rig.link.release(1);
    let mut expected = vec![(0, Status::Ok), (1, Status::RemoteAccess)];
    expected.extend(run(2, 2, Status::Canceled));
    expected.extend(run(10, 2, Status::Canceled));
    assert_eq!(rig.drain(), expected);
    assert!(matches!(rig.endpoint.post(&rig.write(9)), Err(Error::NotConnected)));
    assert!(matches!(rig.endpoint.recv(&rig.region, 9), Err(Error::NotConnected)));
    let reason = rig.endpoint.wait_disconnected(None).unwrap();
    assert_eq!(reason, DisconnectReason::OperationFailed);
}

/// As over a device whose queue pair has failed: it takes what the provider, which knows, would refuse.
#[test]
fn nothing_is_taken_behind_a_post_that_found_the_connection_over() {
    for found_by_receive in [false, true] {
        let rig = Rig::new();
        rig.link.refuse_next(Error::NotConnected);
        let found = match found_by_receive {
            true => rig.endpoint.recv(&rig.region, 1),
            false => rig.endpoint.post(&rig.write(1)),
        };
        assert!(matches!(found, Err(Error::NotConnected)), "{found:?}");
        assert_eq!(rig.endpoint.state(), EndpointState::Dead);
        assert!(matches!(rig.endpoint.post(&rig.write(2)), Err(Error::NotConnected)));
        assert!(matches!(rig.endpoint.recv(&rig.region, 3), Err(Error::NotConnected)));
        assert_eq!(rig.drain(), []);
        rig.link.lose(DisconnectReason::Remote);
        assert_eq!(rig.endpoint.wait_disconnected(None).unwrap(), DisconnectReason::Remote);
    }
    // A refusal for another reason leaves the endpoint as it was.
    let rig = Rig::new();
    rig.link.refuse_next(Error::Again);
    assert!(matches!(rig.endpoint.post(&rig.write(1)), Err(Error::Again)));
    rig.endpoint.post(&rig.write(2)).unwrap();
    assert_eq!(rig.drain(), [(2, Status::Ok)]);
}

#[test]
fn a_failed_completion_ends_the_endpoint_even_before_the_event() {
    let rig = Rig::new();
    rig.link.hold();
    rig.endpoint.post(&rig.write(1)).unwrap();
    rig.link.forge(RawCompletion::new(rig.link.held()[0], Status::PeerLost));
    assert_eq!(rig.drain(), [(1, Status::PeerLost)]);
    assert_eq!(rig.endpoint.state(), EndpointState::Dead);
    assert!(matches!(rig.endpoint.post(&rig.write(2)), Err(Error::NotConnected)));
    rig.link.lose(DisconnectReason::PeerLost);
    assert_eq!(rig.endpoint.wait_disconnected(None).unwrap(), DisconnectReason::PeerLost);
}

#[test]
fn what_no_operation_has_is_not_delivered() {
    let rig = Rig::new();
    rig.link.hold();
    rig.endpoint.post(&rig.write(1)).unwrap();
    let token = rig.link.held()[0];
    rig.link.release(1);
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    // Once more, of the future, of the other side, of no endpoint.
    for bits in [0, 1, 1 << 32, 1 << 33, 1 << 44, u64::MAX] {
        let forged = fabric_core::Token::from_bits(token.to_bits() ^ bits);
        rig.link.forge(RawCompletion::new(forged, Status::Internal));
    }
    assert_eq!(rig.drain(), []);
    assert!(format!("{:?}", rig.queue).contains("unknown_tokens: 6"));
    rig.link.release(1);
    rig.endpoint.post(&rig.write(2)).unwrap();
    rig.link.release(1);
    assert_eq!(rig.drain(), [(2, Status::Ok)]);
}

#[test]
fn a_signaled_operation_whose_completion_never_came_is_told_all_the_same() {
    let rig = Rig::new();
    rig.link.hold();
    (0..3).for_each(|context| rig.endpoint.post(&rig.write(context)).unwrap());
    rig.link.forge(RawCompletion::new(rig.link.held()[2], Status::Ok));
    // Room for one: what is reported at once waits for the next poll.
    let mut one = [Completion::default()];
    let mut reported = Vec::new();
    while rig.queue.poll(&mut one).unwrap() == 1 {
        reported.push((one[0].context, one[0].status));
    }
    assert_eq!(reported, [(0, Status::Internal), (1, Status::Internal), (2, Status::Ok)]);
}

#[test]
fn counters_add_up() {
    let rig = Rig::new();
    rig.endpoint.post(&rig.write(0)).unwrap();
    rig.endpoint.post(&rig.write(1).unsignaled()).unwrap();
    rig.endpoint.post(&rig.write(2)).unwrap();
    rig.endpoint.recv(&rig.region, 3).unwrap();
    rig.endpoint.recv(&rig.region, 4).unwrap();
    rig.link.bring(100, None);
    rig.link.lose(DisconnectReason::PeerLost);
    rig.drain();
    let counters = rig.endpoint.counters();
    assert_eq!((counters.posted_sends, counters.posted_recvs, counters.posted_bytes), (3, 2, 24));
    assert_eq!((counters.received, counters.received_bytes), (1, 100));
    assert_eq!((counters.completed, counters.errors), (4, 1));
    let Rig { endpoint, domain, .. } = rig;
    drop(endpoint);
    assert_eq!(domain.counters(), counters, "a domain remembers its endpoints that are gone");
}

#[test]
fn one_failure_can_tell_of_everything_before_it() {
    let rig = Rig::with(|b| b.send_depth(8));
    rig.link.hold();
    for context in 0..6 {
        let write = rig.write(context);
        rig.endpoint.post(&if context % 2 == 0 { write } else { write.unsignaled() }).unwrap();
    }
    let last = *rig.link.held().last().unwrap();
    let mut all = RawCompletion::new(last, Status::Canceled);
    all.flushes_earlier = true;
    rig.link.forge(all);
    assert_eq!(rig.drain(), run(0, 6, Status::Canceled));
    // Reported again, it has nothing to report, and is no mistake.
    rig.link.forge(all);
    assert_eq!(rig.drain(), []);
    assert!(format!("{:?}", rig.queue).contains("unknown_tokens: 0"), "{:?}", rig.queue);
}
