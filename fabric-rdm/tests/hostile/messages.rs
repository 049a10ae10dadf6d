//! Messages, pieces of them, and offers of their payload, that no honest peer sends.

use std::time::{Duration, Instant};

use fabric::Access;
use fabric_core::RemoteRegion;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, Kind, Recv, Status};

use crate::attacker::*;
use crate::scene::Scene;

const HUGE: u64 = 1 << 60;

/// Windows of `b` that are soon full.
fn small(attr: &mut fabric_rdm::RdmAttr) {
    (attr.window.places.window, attr.window.places.reserved) = (4, 4);
    (attr.window.bytes.window, attr.window.bytes.reserved) = (4096, 4096);
}

/// `b` receives what has this tag into the first `len` bytes of its inbox.
fn receive(scene: &Scene, tag: u64, len: usize) {
    let recv = Recv::new(Pattern::tagged(tag), scene.inbox.slice(..len)).context(tag);
    scene.b.post_recv(&recv).unwrap();
}

/// An attacker that sends these is found out.
fn is_refused(scene: &Scene, frames: &[Vec<u8>]) {
    let (mut attacker, peer) = scene.connected();
    attacker.next(GRANT);
    for frame in frames {
        attacker.send(frame);
    }
    scene.found_out(attacker, peer);
}

#[test]
fn numbers() {
    let scene = Scene::new(|_| ());
    let first = whole(0, 1, b"first");
    is_refused(&scene, &[first.clone(), first.clone()]);
    is_refused(&scene, &[first.clone(), whole(2, 1, b"third")]);
    is_refused(&scene, &[first, whole(1, 1, b"second"), whole(0, 1, b"first")]);
    is_refused(&scene, &[whole(u64::MAX, 1, b"last")]);
    is_refused(&scene, &[whole(1, 1, b"second")]);
    scene.end();
}

#[test]
fn more_than_the_window() {
    let scene = Scene::new(small);
    let (mut attacker, peer) = scene.connected();
    attacker.next(GRANT);
    for number in 0..5 {
        attacker.send(&whole(number, number, b"whole"));
    }
    assert_eq!(scene.down(peer), DeathCause::Protocol);
    // What came within the window stays, and nothing else.
    for tag in 0..4 {
        receive(&scene, tag, 64);
        assert_eq!(scene.done(tag).status, Status::Ok);
    }
    assert!(scene.b.probe(&Pattern::tagged(4)).unwrap().is_none());
    scene.b.remove(peer).unwrap();
    scene.end();
}

#[test]
fn more_bytes_than_granted() {
    let scene = Scene::new(small);
    is_refused(&scene, &[message(PIECES, 0, 1, 4097)]);
    is_refused(&scene, &[message(PIECES, 0, 1, HUGE)]);
    is_refused(&scene, &[message(PIECES, 0, 1, u64::MAX)]);
    is_refused(&scene, &[message(PIECES, 0, 1, 4000), message(PIECES, 1, 1, u64::MAX)]);
    is_refused(&scene, &[whole(0, 1, &[0; 4000]), whole(1, 1, &[0; 97])]);
    scene.end();
}

#[test]
fn more_writes_with_data_than_the_window() {
    let scene = Scene::new(small);
    let target = scene.b.domain().alloc(8, Access::ALL).unwrap();
    let (mut attacker, peer) = scene.connected();
    attacker.next(GRANT);
    for number in 0..5 {
        attacker.write(b"12345678", target.remote().at(0), number);
    }
    // Taking the first ones before the last has come would make a place for it.
    let until = Instant::now() + LONG;
    while scene.b.down(peer).unwrap().is_none() {
        assert!(Instant::now() < until, "in vain: the peer's death\n{}", scene.b.dump());
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(scene.down(peer), DeathCause::Protocol);
    for number in 0..4 {
        let done = scene.done(0);
        assert_eq!((done.kind, done.peer), (Kind::RecvWrite, Some(peer)));
        assert_eq!((done.len, done.immediate), (8, Some(number)));
    }
    scene.b.remove(peer).unwrap();
    scene.end();
}

/// A write leaves the receive that it takes as it was: what an earlier message left there is none.
#[test]
fn a_write_with_data_is_no_message() {
    let scene = Scene::new(|_| ());
    let target = scene.b.domain().alloc(4096, Access::ALL).unwrap();
    let (mut attacker, peer) = scene.connected();
    attacker.next(GRANT);
    let message = whole(0, 1, &[7; 1000]);
    attacker.send(&message);
    for number in 0..50 {
        attacker.write(&message[..32], target.remote().at(0), number);
        assert_eq!(scene.done(0).immediate, Some(number));
    }
    receive(&scene, 1, 1000);
    assert_eq!(scene.done(1).len, 1000);
    assert!(scene.b.probe(&Pattern::tagged(1)).unwrap().is_none());
    scene.b.remove(peer).unwrap();
    scene.end();
}

/// One place is lost for each, until there are none for others.
#[test]
fn refused_messages_keep_no_place() {
    let scene = Scene::new(|attr| {
        small(attr);
        attr.window.places.total = 16;
    });
    for _ in 0..20 {
        is_refused(&scene, &[message(PIECES, 0, 1, HUGE)]);
    }
    scene.end();
}

#[test]
fn lengths_that_are_not_those_of_the_payload() {
    let scene = Scene::new(|_| ());
    for (len, payload) in [(0, 1), (1, 0), (5, 4), (4, 5), (HUGE, 8), (u64::MAX, 8)] {
        is_refused(&scene, &[[message(0, 0, 1, len), vec![0; payload]].concat()]);
    }
    for flags in [PIECES, FETCHED] {
        is_refused(&scene, &[message(flags, 0, 1, 0)]);
    }
    scene.end();
}

#[test]
fn pieces_that_do_not_belong() {
    let scene = Scene::new(|_| ());
    let head = message(PIECES, 0, 1, 10);
    // Longer than the message, at once and in the end; with a receive and without.
    for is_posted in [false, true] {
        for pieces in [vec![11], vec![5, 6], vec![10, 1], vec![0], vec![5, 0]] {
            if is_posted {
                receive(&scene, 1, 4);
            }
            let pieces = pieces.iter().map(|len| data(0, &vec![7; *len]));
            let frames: Vec<_> = std::iter::once(head.clone()).chain(pieces).collect();
            let is_whole = frames.len() == 3 && frames[1].len() == 16 + 10;
            is_refused(&scene, &frames);
            if is_posted {
                let expected = if is_whole { Status::Truncated } else { Status::PeerLost };
                assert_eq!(scene.done(1).status, expected);
            }
        }
    }
    is_refused(&scene, &[data(0, b"of none")]);
    is_refused(&scene, &[head, data(1, b"of another")]);
    is_refused(&scene, &[whole(0, 1, b"whole"), data(0, b"more")]);
    is_refused(&scene, &[message(FETCHED, 0, 1, 9), data(0, b"unwanted")]);
    is_refused(&scene, &[data(u64::MAX, b"of none")]);
    scene.end();
}

#[test]
fn pieces_that_never_come() {
    let scene = Scene::new(|_| ());
    for (context, len) in [(1, 100), (2, 50_000)] {
        let (mut attacker, peer) = scene.connected();
        attacker.next(GRANT);
        receive(&scene, context, 1000);
        attacker.send(&message(PIECES, 0, context, len));
        attacker.send(&data(0, b"the beginning"));
        // Without a receive too.
        attacker.send(&message(PIECES, 1, 99, len));
        attacker.send(&data(1, b"the beginning"));
        scene.goes_on(&mut attacker, 2);
        attacker.endpoint.disconnect();
        assert_eq!(scene.down(peer), DeathCause::Lost);
        assert_eq!(scene.done(context).status, Status::PeerLost);
        assert!(scene.b.probe(&Pattern::tagged(99)).unwrap().is_none());
    }
    scene.end();
}

/// The length of a message that is fetched takes nothing here.
#[test]
fn fetched_without_end() {
    let scene = Scene::new(|_| ());
    for (context, len) in [(1, HUGE), (2, u64::MAX)] {
        let (mut attacker, peer) = scene.connected();
        receive(&scene, context, 1000);
        attacker.send(&message(FETCHED, 0, context, len));
        assert_eq!(attacker.next(FETCH), word(FETCH, 0));
        for _ in 0..100 {
            attacker.send(&data(0, &[1; 512]));
        }
        scene.goes_on(&mut attacker, 1);
        assert_eq!(scene.b.down(peer).unwrap(), None);
        attacker.endpoint.disconnect();
        assert_eq!(scene.done(context).status, Status::PeerLost);
    }
    scene.end();
}

/// A fair one is read as far as there is room.
#[test]
fn offers() {
    let scene = Scene::new(|_| ());
    let region = scene.domain.alloc(4096, Access::REMOTE_READ).unwrap();
    region.fill(7).unwrap();
    let remote = region.remote();
    let head = |flags| message(flags, 0, 1, 2000);
    let cases: [(Vec<Vec<u8>>, Status); 6] = [
        // Twice, in any order.
        (vec![offer(0, remote), offer(0, remote)], Status::Ok),
        // Not all of the message.
        (
            vec![offer(0, RemoteRegion::from_parts(1, 0, 1999, Access::REMOTE_READ))],
            Status::PeerLost,
        ),
        (vec![offer(0, RemoteRegion::from_parts(1, 0, 0, Access::REMOTE_READ))], Status::PeerLost),
        // Keys that open nothing.
        (
            vec![offer(0, RemoteRegion::from_parts(u64::MAX, 0, 4096, Access::REMOTE_READ))],
            Status::PeerLost,
        ),
        (
            vec![offer(
                0,
                RemoteRegion::from_parts(remote.key(), u64::MAX - 9, 4096, Access::REMOTE_READ),
            )],
            Status::PeerLost,
        ),
        // And pieces of what was offered.
        (
            vec![
                offer(0, RemoteRegion::from_parts(u64::MAX, 0, 4096, Access::REMOTE_READ)),
                data(0, b"more"),
            ],
            Status::PeerLost,
        ),
    ];
    for (frames, expected) in cases {
        let (mut attacker, peer) = scene.connected();
        receive(&scene, 1, 4096);
        attacker.send(&head(FETCHED));
        attacker.next(FETCH);
        for frame in frames {
            attacker.send(&frame);
        }
        let done = scene.done(1);
        // The second offer may come before the first one is read.
        assert!(done.status == expected || done.status == Status::PeerLost, "{done:?}");
        if done.is_ok() {
            assert_eq!(scene.inbox.to_vec(..2000).unwrap(), [7; 2000]);
        }
        scene.b.remove(peer).unwrap();
    }
    // Of no message: it may be one whose receive has ended.
    let (mut attacker, peer) = scene.connected();
    for number in [0, 5, u64::MAX] {
        attacker.send(&offer(number, remote));
    }
    scene.goes_on(&mut attacker, 0);
    assert_eq!(scene.b.down(peer).unwrap(), None);
    // Of one that waits for a receive, and was not fetched.
    attacker.send(&message(FETCHED, 1, 9, 2000));
    attacker.send(&offer(1, remote));
    scene.found_out(attacker, peer);
    scene.end();
}

/// With the head, and as the first word: regions that are shorter than the message are not read.
#[test]
fn offers_with_the_message() {
    let scene = Scene::new(|_| ());
    let region = scene.domain.alloc(4096, Access::REMOTE_READ).unwrap();
    let (key, base) = (region.remote().key(), region.remote().to_bytes());
    let offered =
        |len, remote: RemoteRegion| [&message(OFFERED, 0, 1, len)[..], &remote.to_bytes()].concat();
    let remote = |key, len| RemoteRegion::from_parts(key, 0, len, Access::REMOTE_READ);
    // Shorter: it is fetched, or that is the end.
    let (mut attacker, _) = scene.connected();
    receive(&scene, 1, 100);
    attacker.send(&offered(2000, remote(key, 1999)));
    attacker.send(&data(0, &[3; 2000]));
    assert!(matches!(scene.done(1).status, Status::Truncated | Status::PeerLost));
    // As long as it likes to be, with a key that opens nothing.
    for len in [2000, HUGE, u64::MAX] {
        let (mut attacker, peer) = scene.connected();
        receive(&scene, 1, 100);
        attacker.send(&offered(len, remote(u64::MAX, u64::MAX)));
        assert_eq!(scene.done(1).status, Status::PeerLost);
        scene.down(peer);
    }
    // What is read is what there is room for.
    let (mut attacker, _) = scene.connected();
    receive(&scene, 1, 100);
    attacker.send(&[&message(OFFERED, 0, 1, 4096)[..], &base].concat());
    assert_eq!(scene.done(1).status, Status::Truncated);
    attacker.next(DONE);
    scene.end();
}

/// A piece that is longer than the receive, and then an offer: more was taken than there is room for.
#[test]
fn offer_after_a_piece() {
    let scene = Scene::new(|_| ());
    let region = scene.domain.alloc(4096, Access::REMOTE_READ).unwrap();
    for flags in [FETCHED, PIECES] {
        let (mut attacker, peer) = scene.connected();
        attacker.next(GRANT);
        receive(&scene, 1, 10);
        attacker.send(&message(flags, 0, 1, 1000));
        if flags == FETCHED {
            attacker.next(FETCH);
        }
        attacker.send(&data(0, &[1; 100]));
        attacker.send(&offer(0, region.remote()));
        let done = scene.done(1);
        assert!(matches!(done.status, Status::Truncated | Status::PeerLost), "{done:?}");
        scene.b.remove(peer).unwrap();
    }
    scene.end();
}
