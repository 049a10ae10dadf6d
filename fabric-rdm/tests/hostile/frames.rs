//! Frames that are none, frames at the wrong time, and confirmations.

use fabric_core::RemoteRegion;
use fabric_rdm::{Address, DeathCause, EndpointIdentity, HostIdentity, Kind, Send, Status};

use crate::attacker::*;
use crate::scene::Scene;

fn any_region() -> RemoteRegion {
    RemoteRegion::from_parts(7, 0, 1 << 20, fabric::Access::REMOTE_READ)
}

/// One frame of each kind, well formed.
fn all_kinds(attacker: &Attacker) -> Vec<Vec<u8>> {
    let offered = [&message(OFFERED, 0, 1, 9)[..], &any_region().to_bytes()].concat();
    vec![
        attacker.confirmation(),
        whole(0, 1, b""),
        message(PIECES, 0, 1, 9),
        message(FETCHED, 0, 1, 9),
        offered,
        data(0, b"12345"),
        word(FETCH, 0),
        offer(0, any_region()),
        word(DONE, 0),
        word(MATCHED, 0),
        flow(GRANT, 0, [2, 0, 0, 0]),
        flow(NOTICE, 0, [0; 4]),
        word(PARK, 0),
    ]
}

fn is_refused(scene: &Scene, frame: &[u8]) {
    let (mut attacker, peer) = scene.connected();
    attacker.send(frame);
    scene.found_out(attacker, peer);
}

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn random_bytes() {
    let scene = Scene::new(|_| ());
    let mut random = Random(1);
    for round in 0..60 {
        let (mut attacker, peer) = scene.connected();
        for _ in 0..20 {
            let mut frame: Vec<u8> =
                (0..random.below(100)).map(|_| random.below(256) as u8).collect();
            // Some that look like frames.
            if round % 2 == 0 && !frame.is_empty() {
                frame[0] = random.below(12) as u8;
                let zeros = frame.len().min(8);
                frame[1..zeros].fill(0);
            }
            if !attacker.send(&frame) {
                break;
            }
        }
        scene.poll();
        scene.b.remove(peer).unwrap();
    }
    scene.end();
}

#[test]
fn cut_off_at_every_length() {
    let scene = Scene::new(|_| ());
    let kinds = all_kinds(&Attacker::new(&scene.domain));
    for frame in kinds {
        // All lengths of what has one length; some of a confirmation.
        for len in (0..frame.len()).filter(|len| *len < 48 || len % 8 == 0) {
            // A piece of no message is none either, and a confirmation never comes twice.
            is_refused(&scene, &frame[..len]);
        }
    }
    scene.end();
}

#[test]
fn trailing_bytes() {
    let scene = Scene::new(|_| ());
    for mut frame in all_kinds(&Attacker::new(&scene.domain)) {
        frame.push(0);
        is_refused(&scene, &frame);
        frame.resize(8192, 0);
        is_refused(&scene, &frame);
    }
    scene.end();
}

#[test]
fn unknown_kinds_and_flags() {
    let scene = Scene::new(|_| ());
    for kind in [0, 11, 12, 64, 127, 128, 255] {
        is_refused(&scene, &word(kind, 0));
    }
    for frame in all_kinds(&Attacker::new(&scene.domain)) {
        for (at, value) in [(1, 0x40), (1, 0x80), (2, 1), (7, 1)] {
            // What is at 7 of a message is its immediate.
            let mut frame = frame.clone();
            frame[at] |= value;
            is_refused(&scene, &frame);
        }
    }
    // Two ways at once, and what has no flag.
    for flags in [PIECES | FETCHED, PIECES | OFFERED, FETCHED | OFFERED] {
        is_refused(&scene, &message(flags, 0, 1, 9));
    }
    let mut untagged = message(0, 0, 1, 0);
    untagged[1] = 0;
    is_refused(&scene, &untagged);
    for flags in [0, TAGGED | WANTS_MATCHED] {
        let mut immediate = message(flags, 0, 1, 0);
        immediate[4] = 1;
        is_refused(&scene, &immediate);
        immediate[1] |= IMMEDIATE;
        immediate[3] = 1;
        is_refused(&scene, &immediate);
    }
    is_refused(&scene, &flow(GRANT, 4, [0; 4]));
    is_refused(&scene, &flow(NOTICE, 0, [0, 0, 1, 0]));
    is_refused(&scene, &flow(NOTICE, 0, [0, 0, 0, 1]));
    // More places are free than were used.
    is_refused(&scene, &word(PARK, 1));
    is_refused(&scene, &word(CONFIRM, 1));
    scene.end();
}

/// A frame that is longer than a slot.
#[test]
fn longer_than_a_slot() {
    let scene = Scene::new(|_| ());
    for len in [8193 - 32, 100_000] {
        let (mut attacker, peer) = scene.connected();
        attacker.send(&whole(0, 1, &vec![1; len]));
        scene.down(peer);
        attacker.ended();
    }
    scene.end();
}

#[test]
fn before_the_confirmation() {
    let scene = Scene::new(|_| ());
    let kinds = all_kinds(&Attacker::new(&scene.domain));
    let (mut attacker, peer) = scene.attacker();
    attacker.dial(scene.address()).unwrap();
    for frame in &kinds[1..] {
        assert!(attacker.send(frame));
    }
    let frame = attacker.confirmation();
    assert!(attacker.send(&frame));
    scene.goes_on(&mut attacker, 0);
    assert_eq!(scene.b.down(peer).unwrap(), None);
    // The second one is one too many.
    assert!(attacker.send(&frame));
    scene.found_out(attacker, peer);
    scene.end();
}

#[test]
fn confirmation_of_the_acceptor() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.attacker();
    scene.b.post_send(peer, &Send::inject(b"x").context(1)).unwrap();
    attacker.accept_confirmed(scene.address());
    let frame = attacker.confirmation();
    assert!(attacker.send(&frame));
    assert_eq!(scene.down(peer), DeathCause::Protocol);
    assert_eq!(scene.done(1).status, Status::PeerLost);
    scene.end();
}

/// It may say where it is, and not where others are.
#[test]
fn another_identity_confirms() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.attacker();
    attacker.dial(scene.address()).unwrap();
    let rail = attacker.address().rails().next().unwrap();
    let host = HostIdentity::from_bytes([0; 16]);
    for identity in [scene.c.address().identity(), scene.address().identity()] {
        let address = Address::new(identity, host, &[rail]).unwrap();
        let frame = [&word(CONFIRM, 0)[..], &windows(FAIR), &address.to_bytes()].concat();
        attacker.send(&frame);
        attacker.numbers.session += 1;
    }
    scene.found_out(attacker, peer);
    assert_eq!(&scene.b.address_of(scene.to_c).unwrap(), scene.c.address());
    scene.end();
}

#[test]
fn absurd_windows() {
    let scene = Scene::new(|attr| attr.timeouts.connect = std::time::Duration::from_secs(4));
    let absurd = [
        [0, 1 << 20, 8192],
        [1 << 33, 1 << 20, 8192],
        [u64::MAX, u64::MAX, u64::MAX],
        [64, 1 << 63, 8192],
        [64, 1 << 20, 0],
        [64, 1 << 20, 511],
    ];
    for windows in absurd {
        let (mut attacker, peer) = scene.attacker();
        attacker.windows = windows;
        attacker.connect(scene.address());
        scene.found_out(attacker, peer);
    }
    // Of an acceptor it is as if no such program were there.
    let (mut attacker, peer) = scene.attacker();
    attacker.windows = absurd[0];
    scene.b.post_send(peer, &Send::inject(b"x").context(1)).unwrap();
    attacker.accept(scene.address());
    assert_eq!(scene.done(1).status, Status::PeerLost);
    assert_eq!(scene.down(peer), DeathCause::Unreachable);
    scene.end();
}

/// The widest windows that are allowed, and none for bytes.
#[test]
fn wide_and_narrow_windows() {
    let scene = Scene::new(|_| ());
    let windows = [[u32::MAX.into(), i64::MAX as u64, u64::MAX], [1, 0, 512], [1, 1 << 20, 512]];
    for (context, windows) in (1..).zip(windows) {
        let (mut attacker, peer) = scene.attacker();
        attacker.windows = windows;
        attacker.connect(scene.address());
        attacker.send(&flow(GRANT, 0, [windows[0], 0, windows[1], 0]));
        let from = scene.inbox.slice(1000..3000);
        scene.b.post_send(peer, &Send::new(from).tag(1).context(context)).unwrap();
        let head = attacker.next(MESSAGE);
        match head[1] & (PIECES | FETCHED | OFFERED) {
            0 => assert_eq!(head.len(), 32 + 2000),
            PIECES => {
                let mut left: usize = 2000;
                while left > 0 {
                    let piece = attacker.next(DATA);
                    assert!(piece.len() <= 512);
                    left -= piece.len() - 16;
                }
            }
            _ => assert!(attacker.send(&word(DONE, 0))),
        }
        let done = scene.done(context);
        assert_eq!((done.kind, done.status), (Kind::Send, Status::Ok), "{windows:?}");
    }
    scene.end();
}

#[test]
fn damaged_confirmations() {
    let scene = Scene::new(|_| ());
    let address = Address::new(
        EndpointIdentity::random().unwrap(),
        HostIdentity::from_bytes([0; 16]),
        &[([127, 0, 0, 1], 9).into()],
    );
    let mut address = address.unwrap().to_bytes();
    address[20] ^= 1;
    for rest in [vec![], windows(FAIR), [windows(FAIR), address].concat(), vec![0; 4000]] {
        let (mut attacker, peer) = scene.attacker();
        attacker.dial(scene.address()).unwrap();
        attacker.send(&[word(CONFIRM, 0), rest].concat());
        scene.found_out(attacker, peer);
    }
    scene.end();
}
