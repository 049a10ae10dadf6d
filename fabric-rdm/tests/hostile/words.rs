//! What is said of messages and windows: of those that never were, twice, too late, and thousands of times.

use fabric::{Access, Region};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, Kind, Recv, Send, Status};

use crate::attacker::*;
use crate::scene::{Scene, resident};

const MANY: usize = 2000;

/// `b` has sent a message with this context to an attacker, that has granted all it has.
fn sent(scene: &Scene, from: Send<'_>) -> (Attacker, fabric_rdm::Peer) {
    let (mut attacker, peer) = scene.connected();
    attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
    scene.b.post_send(peer, &from.tag(1)).unwrap();
    attacker.next(MESSAGE);
    (attacker, peer)
}

fn readable(scene: &Scene, len: usize) -> Region {
    scene.b.domain().alloc(len, Access::REMOTE_READ).unwrap()
}

#[test]
fn of_messages_that_never_were() {
    let scene = Scene::new(|_| ());
    for kind in [FETCH, DONE, MATCHED] {
        for number in [1, 2, u64::MAX] {
            let (mut attacker, peer) = sent(&scene, Send::inject(b"x").context(1));
            scene.done(1);
            attacker.send(&word(kind, number));
            scene.found_out(attacker, peer);
        }
    }
    scene.end();
}

#[test]
fn of_messages_that_went_whole() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = sent(&scene, Send::inject(b"x").context(1));
    assert_eq!(scene.done(1).status, Status::Ok);
    for kind in [FETCH, DONE, MATCHED] {
        for _ in 0..MANY {
            assert!(attacker.send(&word(kind, 0)));
        }
    }
    scene.goes_on(&mut attacker, 0);
    assert_eq!(scene.b.down(peer).unwrap(), None);
    scene.end();
}

#[test]
fn of_one_that_waits_for_its_match() {
    let scene = Scene::new(|_| ());
    for kinds in [[FETCH, MATCHED], [MATCHED, MATCHED], [DONE, MATCHED], [MATCHED, FETCH]] {
        let (mut attacker, peer) = sent(&scene, Send::inject(b"x").matched().context(1));
        for kind in kinds {
            attacker.send(&word(kind, 0));
        }
        let done = scene.done(1);
        assert_eq!((done.kind, done.status), (Kind::Send, Status::Ok));
        scene.goes_on(&mut attacker, 0);
        assert_eq!(scene.b.down(peer).unwrap(), None);
    }
    scene.end();
}

/// Whatever is said of a long message, it ends once.
#[test]
fn of_long_messages() {
    let scene = Scene::new(|_| ());
    let (open, closed) =
        (readable(&scene, 100_000), scene.b.domain().alloc(100_000, Access::empty()).unwrap());
    for from in [&open, &closed] {
        for kinds in [
            &[DONE, DONE, FETCH, FETCH][..],
            &[FETCH, DONE, DONE, FETCH],
            &[FETCH, FETCH, MATCHED, DONE, DONE],
            &[MATCHED, MATCHED, FETCH, MATCHED, DONE],
        ] {
            for matched in [false, true] {
                let send = Send::new(from).context(1);
                let send = if matched { send.matched() } else { send };
                let (mut attacker, peer) = sent(&scene, send);
                for kind in kinds {
                    assert!(attacker.send(&word(*kind, 0)));
                }
                assert_eq!(scene.done(1).status, Status::Ok);
                scene.goes_on(&mut attacker, 0);
                assert_eq!(scene.b.down(peer).unwrap(), None);
                scene.b.remove(peer).unwrap();
            }
        }
    }
    scene.end();
}

/// Pieces of a message go out while it is said to be done, again and again.
#[test]
fn of_one_that_goes_in_pieces() {
    let scene = Scene::new(|_| ());
    let from = readable(&scene, 20_000);
    for kind in [FETCH, DONE, MATCHED] {
        for is_reading in [true, false] {
            let (mut attacker, peer) = scene.attacker();
            attacker.reads = is_reading;
            attacker.receives = 8;
            attacker.connect(scene.address());
            attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
            for context in 0..4 {
                let send = Send::new(&from).tag(1).matched().context(context);
                scene.b.post_send(peer, &send).unwrap();
            }
            attacker.next(MESSAGE);
            for _ in 0..50 {
                assert!(attacker.send(&word(kind, 0)));
            }
            scene.goes_on(&mut attacker, 0);
            attacker.endpoint.disconnect();
            for context in 0..4 {
                scene.done(context);
            }
        }
    }
    scene.end();
}

/// One that fetches without end, and takes no answer.
#[test]
fn fetches_take_no_memory() {
    const FETCHES: usize = 300_000;
    let scene = Scene::new(|_| ());
    let from = readable(&scene, 100_000);
    let (mut attacker, peer) = scene.attacker();
    (attacker.receives, attacker.reads) = (4, false);
    attacker.connect(scene.address());
    attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
    scene.b.post_send(peer, &Send::new(&from).tag(1).context(1)).unwrap();
    attacker.next(MESSAGE);
    let before = resident();
    for _ in 0..FETCHES {
        if !attacker.send(&word(FETCH, 0)) {
            break;
        }
    }
    scene.check();
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for {FETCHES} fetches");
    attacker.endpoint.disconnect();
    scene.done(1);
    scene.end();
}

/// One whose messages all meet a receive, and that takes no word of it: it is found out before that takes much memory.
#[test]
fn answers_take_no_memory() {
    const MESSAGES: u64 = 300_000;
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.attacker();
    (attacker.receives, attacker.reads) = (0, false);
    attacker.connect(scene.address());
    let before = resident();
    let post = || {
        let recv = Recv::new(Pattern::tagged(1).from(peer), scene.inbox.slice(..8)).unsignaled();
        scene.b.post_recv(&recv).is_ok()
    };
    let mut number = 0;
    // It sends no more than it was granted, and knows how much that is without reading it.
    while number < MESSAGES && post() && attacker.send(&message(WANTS_MATCHED, number, 1, 0)) {
        number += 1;
        if number % 16 == 0 {
            scene.until("so many messages", |scene| {
                let is_down = scene.b.down(peer).unwrap().is_some();
                is_down || scene.b.counter(Kind::Recv).successes() > number
            });
        }
    }
    assert_eq!(scene.down(peer), DeathCause::Protocol);
    assert!(number < MESSAGES, "all {number} were taken");
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for {number} messages");
    scene.poll();
    scene.done.borrow_mut().clear();
    scene.end();
}

#[test]
fn grants_that_no_honest_peer_gives() {
    let scene = Scene::new(|_| ());
    let fair = [FAIR[0], 0, FAIR[1], 0];
    let unfair = [
        // Back, of places and of bytes.
        [fair[0] - 1, 0, fair[2], 0],
        [fair[0], 0, fair[2] - 1, 0],
        // Beyond the window.
        [fair[0] + 1, 0, fair[2], 0],
        [fair[0], 0, fair[2] + 1, 0],
        [u64::MAX, 0, fair[2], 0],
        [fair[0], 0, u64::MAX, 0],
        // What was not used.
        [fair[0], 2, fair[2], 0],
        [fair[0], 0, fair[2], 2],
        [u64::MAX, u64::MAX, u64::MAX, u64::MAX],
        [fair[0], u64::MAX, fair[2], 0],
    ];
    for flags in 0..4 {
        for numbers in unfair {
            let (mut attacker, peer) = sent(&scene, Send::inject(b"x").context(1));
            scene.done(1);
            attacker.send(&flow(GRANT, flags, numbers));
            scene.found_out(attacker, peer);
        }
    }
    scene.end();
}

#[test]
fn notices_that_no_honest_peer_gives() {
    let scene = Scene::new(|_| ());
    let windows = (64, 1 << 20);
    for unused in
        [[windows.0 + 1, 0], [0, windows.1 + 1], [u64::MAX, 0], [0, u64::MAX], [u64::MAX; 2]]
    {
        let (mut attacker, peer) = scene.connected();
        attacker.next(GRANT);
        attacker.send(&flow(NOTICE, 0, [unused[0], unused[1], 0, 0]));
        scene.found_out(attacker, peer);
    }
    scene.end();
}

/// Recalls, wishes and words that say nothing new, thousands of times.
#[test]
fn windows_without_end() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = sent(&scene, Send::inject(b"x").context(1));
    scene.done(1);
    let before = resident();
    for round in 0..MANY {
        let flags = round as u8 & 3;
        assert!(attacker.send(&flow(GRANT, flags, [FAIR[0], 1, FAIR[1], 1])));
        assert!(attacker.send(&flow(NOTICE, flags, [0; 4])));
    }
    scene.goes_on(&mut attacker, 0);
    assert_eq!(scene.b.down(peer).unwrap(), None);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    scene.end();
}

/// Messages that have a place and were not sent are said to be free.
#[test]
fn freed_before_they_were_sent() {
    let scene = Scene::new(|attr| attr.connection_depth = 8);
    let (mut attacker, peer) = scene.attacker();
    (attacker.receives, attacker.reads) = (1, false);
    attacker.windows = [8, 1 << 20, 8192];
    attacker.connect(scene.address());
    attacker.send(&flow(GRANT, 0, [8, 0, 1 << 20, 0]));
    scene.goes_on(&mut attacker, 0);
    // Some are under way, the others have no room in the connection.
    for context in 0..8 {
        scene.b.post_send(peer, &Send::inject(b"x").tag(1).context(context)).unwrap();
    }
    attacker.send(&flow(GRANT, 0, [8, 8, 1 << 20, 8]));
    scene.goes_on(&mut attacker, 1);
    // Before it is parked they go.
    attacker.send(&word(PARK, 8));
    attacker.reads = true;
    for slot in 0..16 {
        attacker.repost(slot);
    }
    attacker.next(PARK);
    attacker.ended();
    for context in 0..8 {
        assert_eq!(scene.done(context).status, Status::Ok);
    }
    scene.end();
}

/// Places that were free are so no more.
#[test]
fn parks_with_fewer_freed() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.connected();
    attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
    scene.goes_on(&mut attacker, 0);
    scene.b.post_send(peer, &Send::inject(b"x").tag(1).context(1)).unwrap();
    attacker.next(MESSAGE);
    assert_eq!(scene.done(1).status, Status::Ok);
    attacker.send(&flow(GRANT, 0, [FAIR[0] + 1, 1, FAIR[1], 1]));
    scene.goes_on(&mut attacker, 1);
    attacker.send(&word(PARK, 0));
    scene.found_out(attacker, peer);
    scene.end();
}

/// What is asked back is given back, also when the connection had no room for that word at once.
#[test]
fn recalled_when_full() {
    const DEPTH: usize = 8;
    let scene = Scene::new(|attr| attr.connection_depth = DEPTH as u32);
    let from = readable(&scene, 100_000);
    let (mut attacker, peer) = scene.attacker();
    (attacker.receives, attacker.reads) = (1, false);
    attacker.connect(scene.address());
    attacker.next(GRANT);
    let all = [FAIR[0], 0, FAIR[1], 0];
    attacker.send(&flow(GRANT, 0, all));
    scene.goes_on(&mut attacker, 0);
    // Half of the depth is for messages, and the other half for offers.
    for context in 0..4 {
        scene.b.post_send(peer, &Send::new(&from).tag(1).context(context)).unwrap();
    }
    for number in 0..4 {
        attacker.send(&word(FETCH, number));
    }
    attacker.send(&flow(GRANT, 3, all));
    scene.goes_on(&mut attacker, 1);
    attacker.reads = true;
    (0..64).for_each(|slot| attacker.repost(slot));
    let notice = attacker.next(NOTICE);
    assert_eq!(notice[8..16], (FAIR[0] - 4).to_le_bytes());
    attacker.endpoint.disconnect();
    for context in 0..4 {
        scene.done(context);
    }
    scene.end();
}
