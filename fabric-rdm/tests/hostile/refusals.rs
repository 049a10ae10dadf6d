//! Refusals: peers that refuse for ever, and with absurd numbers.

use std::time::{Duration, Instant};

use fabric_rdm::{Send, Status};

use crate::attacker::*;
use crate::scene::Scene;

/// Kinds of them.
pub(crate) const OVER: u8 = 3;
pub(crate) const STRANGER: u8 = 5;
pub(crate) const BUSY: u8 = 6;

pub(crate) fn refusal(kind: u8) -> Vec<u8> {
    [&[VERSION, kind][..], &[0; 14]].concat()
}

/// The same with the highest number.
fn highest(kind: u8) -> Vec<u8> {
    [&refusal(kind)[..8], &[0xff; 8]].concat()
}

/// A peer that is always busy is not willing.
#[test]
fn busy_for_ever() {
    let scene = Scene::new(|attr| attr.timeouts.connect = Duration::from_millis(300));
    let (attacker, peer) = scene.attacker();
    scene.b.post_send(peer, &Send::inject(b"x").tag(1).context(1)).unwrap();
    let until = Instant::now() + LONG;
    while scene.b.down(peer).unwrap().is_none() {
        assert!(Instant::now() < until, "the send does not end\n{}", scene.b.dump());
        attacker.refuse(&refusal(BUSY), Duration::from_millis(100));
    }
    assert_eq!(scene.done(1).status, Status::PeerLost);
    scene.end();
}

/// All other reasons come to an end.
#[test]
fn refuses_for_ever() {
    let scene = Scene::new(|attr| attr.timeouts.connect = Duration::from_millis(200));
    let datas = [
        refusal(1),
        refusal(4),
        refusal(STRANGER),
        vec![],
        refusal(99),
        vec![0xff; 16],
        highest(4),
        highest(3),
    ];
    for (context, data) in (1..).zip(datas) {
        let (attacker, peer) = scene.attacker();
        scene.b.post_send(peer, &Send::inject(b"x").tag(1).context(context)).unwrap();
        let until = Instant::now() + LONG;
        while scene.b.down(peer).unwrap().is_none() {
            assert!(Instant::now() < until, "the send does not end\n{}", scene.b.dump());
            attacker.refuse(&data, Duration::from_millis(10));
        }
        assert_eq!(scene.done(context).status, Status::PeerLost);
    }
    scene.end();
}

/// A peer that says to come again after the end of the world is asked in time, and one that says at once no sooner than others.
#[test]
fn absurd_appointments() {
    let scene = Scene::new(|attr| {
        // Half of this is the longest time.
        attr.timeouts.connect = Duration::from_secs(12);
        attr.timeouts.retry = Duration::from_millis(500);
    });
    let (mut attacker, peer) = scene.attacker();
    scene.b.post_send(peer, &Send::inject(b"at last").tag(1).context(1)).unwrap();
    let soonest = [&refusal(BUSY)[..15], &[1]].concat();
    let refused = Instant::now();
    assert!(attacker.refuse(&soonest, LONG));
    assert!(attacker.refuse(&highest(BUSY), LONG));
    assert!(refused.elapsed() >= Duration::from_millis(500), "asked at once");
    attacker.accept_confirmed(scene.address());
    attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
    attacker.next(MESSAGE);
    assert_eq!(scene.done(1).status, Status::Ok);
    scene.end();
}
