//! What the application does meanwhile: it removes the attacker, claims its messages, and posts to it.

use std::time::Duration;

use fabric::Access;
use fabric_core::RemoteRegion;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, Peer, Recv, Send, Status};

use crate::attacker::*;
use crate::scene::Scene;

const HUGE: u64 = 1 << 60;

fn receive(scene: &Scene, context: u64) {
    let recv = Recv::new(Pattern::tagged(1), scene.inbox.slice(..4096)).context(context);
    scene.b.post_recv(&recv).unwrap();
}

/// Brings a connection to a state; says which operations of `b` have not ended then.
type Prepare = fn(&Scene, &mut Attacker, Peer) -> Vec<u64>;

/// In whatever state a peer is removed, what is pending ends once, and what it says after that is of no effect.
#[test]
fn removed_in_every_state() {
    let states: [Prepare; 8] = [
        // Dialed, without an answer.
        |scene, _, peer| {
            scene.b.post_send(peer, &Send::inject(b"x").context(1)).unwrap();
            vec![1]
        },
        // Accepted, and not confirmed.
        |scene, attacker, peer| {
            attacker.dial(scene.address()).unwrap();
            scene.b.post_send(peer, &Send::inject(b"x").context(1)).unwrap();
            vec![1]
        },
        // Without a grant.
        |scene, attacker, peer| {
            attacker.connect(scene.address());
            scene.goes_on(attacker, 0);
            scene.b.post_send(peer, &Send::inject(b"x").context(1)).unwrap();
            vec![1]
        },
        // With messages that were not taken.
        |scene, attacker, peer| {
            (attacker.receives, attacker.reads) = (2, false);
            attacker.connect(scene.address());
            attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
            scene.goes_on(attacker, 0);
            for context in 0..30 {
                let from = scene.inbox.slice(..if context % 2 == 0 { 8 } else { 60_000 });
                scene.b.post_send(peer, &Send::new(from).context(context)).unwrap();
            }
            attacker.send(&word(FETCH, 1));
            (0..30).collect()
        },
        // Within pieces, with a receive and without.
        |scene, attacker, _| {
            attacker.connect(scene.address());
            attacker.next(GRANT);
            receive(scene, 1);
            for number in 0..2 {
                attacker.send(&message(PIECES, number, 1, 1000));
                attacker.send(&data(number, b"the beginning"));
            }
            scene.goes_on(attacker, 2);
            vec![1]
        },
        // Before an answer to a fetch.
        |scene, attacker, _| {
            attacker.connect(scene.address());
            receive(scene, 1);
            attacker.send(&message(FETCHED, 0, 1, HUGE));
            attacker.next(FETCH);
            vec![1]
        },
        // While its memory is read.
        |scene, attacker, _| {
            attacker.connect(scene.address());
            receive(scene, 1);
            let remote = RemoteRegion::from_parts(u64::MAX, 0, HUGE, Access::REMOTE_READ);
            attacker.send(&[&message(OFFERED, 0, 1, HUGE)[..], &remote.to_bytes()].concat());
            vec![1]
        },
        // While it is parked.
        |scene, attacker, peer| {
            (attacker.receives, attacker.reads) = (0, false);
            attacker.connect(scene.address());
            attacker.send(&word(PARK, 0));
            scene.goes_on(attacker, 0);
            scene.b.post_send(peer, &Send::inject(b"x").context(1)).unwrap();
            vec![1]
        },
    ];
    let scene = Scene::new(|_| ());
    for (number, prepare) in states.into_iter().enumerate() {
        let (mut attacker, peer) = scene.attacker();
        let contexts = prepare(&scene, &mut attacker, peer);
        scene.b.remove(peer).unwrap();
        if number == 6 {
            // The message may come after the removal.
            receive_own(&scene);
        }
        for context in contexts {
            let status = scene.done(context).status;
            assert!(status != Status::Truncated, "{status:?} in state {number}");
        }
        for frame in [word(PARK, 0), word(FETCH, 0), data(0, b"more"), whole(1, 1, b"x")] {
            attacker.send(&frame);
        }
        scene.check();
        assert!(scene.b.down(peer).is_err());
    }
    scene.end();
}

/// So that a receive of a test ends that met no message.
fn receive_own(scene: &Scene) {
    scene.c.post_send(scene.to_b, &Send::inject(b"x").tag(1).unsignaled()).unwrap();
}

/// A message in pieces that is claimed and dropped: what comes of it has to be what it said.
#[test]
fn claimed_and_dropped() {
    let scene = Scene::new(|_| ());
    for len in [900, 901] {
        let (mut attacker, peer) = scene.connected();
        attacker.next(GRANT);
        attacker.send(&message(PIECES, 0, 1, 1000));
        attacker.send(&data(0, &[1; 100]));
        scene.goes_on(&mut attacker, 1);
        let probed = scene.b.probe(&Pattern::tagged(1)).unwrap().unwrap();
        drop(scene.b.claim(&probed).unwrap().unwrap());
        attacker.send(&data(0, &vec![1; len]));
        if len == 900 {
            scene.goes_on(&mut attacker, 2);
            attacker.send(&data(0, b"x"));
        }
        scene.found_out(attacker, peer);
    }
    scene.end();
}

/// Heads of messages whose pieces never come, each claimed and dropped: their places are not free before the pieces have come.
#[test]
fn claimed_and_dropped_without_end() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.connected();
    let pattern = Pattern::tagged(1).from(peer);
    for number in 0.. {
        if !attacker.send(&message(PIECES, number, 1, 2000)) {
            break;
        }
        scene.until("a message, or the end", |scene| {
            if let Some(probed) = scene.b.probe(&pattern).unwrap() {
                drop(scene.b.claim(&probed).unwrap());
                return true;
            }
            scene.b.down(peer).unwrap().is_some()
        });
        assert!(number < 1000, "{}", scene.b.dump());
    }
    assert_eq!(scene.down(peer), DeathCause::Protocol);
    scene.end();
}

/// A message is claimed, and its sender is lost before all of it was there.
#[test]
fn claimed_and_lost() {
    let scene = Scene::new(|_| ());
    for flags in [PIECES, FETCHED] {
        let (mut attacker, peer) = scene.connected();
        attacker.next(GRANT);
        attacker.send(&message(flags, 0, 1, 1000));
        scene.goes_on(&mut attacker, 1);
        let probed = scene.b.probe(&Pattern::tagged(1)).unwrap().unwrap();
        let mut claimed = scene.b.claim(&probed).unwrap().unwrap();
        attacker.endpoint.disconnect();
        scene.down(peer);
        assert!(claimed.receive(scene.inbox.slice(..100), 1).is_err());
    }
    scene.end();
}

/// Both dial at once; the attacker answers nothing, whichever attempt should win.
#[test]
fn dials_across() {
    let scene = Scene::new(|attr| {
        attr.timeouts.connect = Duration::from_millis(1200);
        attr.timeouts.attempt = Duration::from_millis(400);
        attr.timeouts.crossing = Duration::from_millis(200);
    });
    for context in 0..6 {
        let (mut attacker, peer) = scene.attacker();
        scene.b.post_send(peer, &Send::inject(b"x").context(context)).unwrap();
        attacker.numbers.flags = u8::from(context % 2 == 0);
        attacker.numbers.session = 1 + context;
        let _ = attacker.dial(scene.address());
        assert_eq!(scene.done(context).status, Status::PeerLost);
        assert!(scene.b.down(peer).unwrap().is_some());
    }
    scene.end();
}

/// Dropped in the middle of everything.
#[test]
fn dropped_meanwhile() {
    let scene = Scene::new(|attr| attr.max_strangers = 8);
    let mut attackers: Vec<_> = (0..4).map(|_| Attacker::new(&scene.domain)).collect();
    for (number, attacker) in attackers.iter_mut().enumerate() {
        attacker.dial(scene.address()).unwrap();
        if number > 0 {
            let frame = attacker.confirmation();
            attacker.send(&frame);
        }
        receive(&scene, number as u64);
        match number {
            1 => attacker.send(&message(FETCHED, 0, 1, HUGE)),
            2 => attacker.send(&word(PARK, 0)),
            _ => true,
        };
    }
    for peer in scene.admitted() {
        let _ = scene.b.post_send(peer, &Send::inject(b"x"));
    }
    drop(scene);
    attackers.iter_mut().for_each(Attacker::ended);
}
