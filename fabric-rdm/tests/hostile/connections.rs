//! Requests, strangers, parking, and peers that say nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabric::Access;
use fabric_core::Error;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, EndpointIdentity, RdmAttr, Recv, Send, Status};

use crate::attacker::*;
use crate::refusals::{BUSY, OVER, STRANGER, refusal};
use crate::scene::Scene;

/// Connects, as soon as there is room.
fn connect_when_room(scene: &Scene, attacker: &mut Attacker) {
    let until = Instant::now() + LONG;
    while let Err(error) = attacker.dial(scene.address()) {
        assert!(matches!(&error, Error::Rejected(data) if data[1] == BUSY), "{error}");
        assert!(Instant::now() < until, "no room\n{}", scene.b.dump());
        attacker.numbers.session += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The same, and confirms it.
fn confirm_when_room(scene: &Scene, attacker: &mut Attacker) {
    connect_when_room(scene, attacker);
    let frame = attacker.confirmation();
    attacker.send(&frame);
}

#[test]
fn parks_twice_and_goes_on() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.attacker();
    // The answer has no receive yet.
    (attacker.receives, attacker.reads) = (0, false);
    attacker.connect(scene.address());
    attacker.send(&word(PARK, 0));
    attacker.send(&word(PARK, 0));
    scene.goes_on(&mut attacker, 0);
    attacker.send(&word(PARK, 0));
    scene.goes_on(&mut attacker, 1);
    (attacker.receives, attacker.reads) = (64, true);
    (0..8).for_each(|slot| attacker.repost(slot));
    attacker.next(PARK);
    attacker.ended();
    assert_eq!(scene.b.down(peer).unwrap(), None);
    // What was said is remembered.
    scene.b.post_send(peer, &Send::inject(b"again").tag(1).context(1)).unwrap();
    attacker.numbers.sent = 2;
    attacker.accept(scene.address());
    // Too early: heard or dropped, and the connection goes on.
    attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
    attacker.next(CONFIRM);
    attacker.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
    attacker.next(MESSAGE);
    assert_eq!(scene.done(1).status, Status::Ok);
    scene.end();
}

/// Numbers that do not go on where the parked connection was. With none at all it is one that inserted this side again.
#[test]
fn forgets_what_was_said() {
    let scene = Scene::new(|_| ());
    for (sent, received) in [(0, 0), (2, 0), (1, 1), (1 << 40, 0), (1, 1 << 40)] {
        let (mut attacker, peer) = scene.connected();
        scene.goes_on(&mut attacker, 0);
        attacker.send(&word(PARK, 0));
        attacker.next(PARK);
        attacker.ended();
        attacker.numbers.session += 1;
        (attacker.numbers.sent, attacker.numbers.received) = (sent, received);
        let refused = attacker.dial(scene.address());
        assert!(matches!(&refused, Err(Error::Rejected(data)) if data[1] == OVER), "{refused:?}");
        let is_new = (sent, received) == (0, 0);
        let cause = if is_new { DeathCause::Lost } else { DeathCause::Protocol };
        assert_eq!(scene.down(peer), cause);
    }
    scene.end();
}

/// Nothing of this side was on such a connection: it is an attempt that failed, and others follow until their time is over.
#[test]
fn accepts_and_says_nothing() {
    let scene = Scene::new(|attr| attr.timeouts.connect = Duration::from_secs(5));
    let (mut attacker, peer) = scene.attacker();
    let long = scene.inbox.slice(..100_000);
    for context in 0..10 {
        scene.b.post_send(peer, &Send::new(long).tag(1).context(context)).unwrap();
    }
    attacker.accept_confirmed(scene.address());
    scene.check();
    attacker.endpoint.disconnect();
    attacker.accept_confirmed(scene.address());
    for context in 0..10 {
        let expected = if context == 0 { Status::PeerLost } else { Status::Canceled };
        assert_eq!(scene.done(context).status, expected);
    }
    assert_eq!(scene.down(peer), DeathCause::Unreachable);
    scene.end();
}

/// Each request ends the connection before it; higher lives and sessions bring nothing.
#[test]
fn reconnects_without_end() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.connected();
    scene.goes_on(&mut attacker, 0);
    for round in 2..60 {
        attacker.numbers.session = if round % 8 == 0 { (1 << 48) - 1 } else { round };
        attacker.numbers.life = if round % 2 == 0 { round as u32 } else { 0 };
        attacker.numbers.flags = (round % 3 == 0).into();
        assert!(matches!(attacker.dial(scene.address()), Err(Error::Rejected(_))));
    }
    assert_eq!(scene.down(peer), DeathCause::Lost);
    // The highest life goes on too, after each revival.
    for round in 100..103 {
        scene.b.revive(peer).unwrap();
        attacker.numbers = Numbers { session: round * 1000, life: u32::MAX, ..Numbers::default() };
        if attacker.dial(scene.address()).is_ok() {
            let frame = attacker.confirmation();
            attacker.send(&frame);
            scene.goes_on(&mut attacker, 0);
            attacker.endpoint.disconnect();
        }
        scene.down(peer);
    }
    scene.end();
}

/// How often a peer says that it tried is of no account for the next ones, also when it was removed.
#[test]
fn high_sessions_go_with_their_peer() {
    let mut scene = Scene::new(|_| ());
    for _ in 0..2 {
        let (mut attacker, peer) = scene.attacker();
        for step in 1..5 {
            attacker.numbers.session = step << 32;
            attacker.dial(scene.address()).unwrap();
        }
        scene.b.remove(peer).unwrap();
    }
    // As if they had never met.
    scene.b.remove(scene.to_c).unwrap();
    scene.c.remove(scene.to_b).unwrap();
    scene.to_c = scene.b.insert(scene.c.address()).unwrap();
    scene.to_b = scene.c.insert(scene.b.address()).unwrap();
    scene.end();
}

/// Attempts that are not confirmed take the place of each other.
#[test]
fn never_confirms_and_tries_again() {
    let scene = Scene::new(|_| ());
    let (mut attacker, peer) = scene.attacker();
    for session in 1..100 {
        attacker.numbers.session = session;
        attacker.dial(scene.address()).unwrap();
    }
    assert!(scene.b.connections().unwrap() <= 2);
    let frame = attacker.confirmation();
    attacker.send(&frame);
    scene.goes_on(&mut attacker, 0);
    assert_eq!(scene.b.down(peer).unwrap(), None);
    scene.end();
}

#[test]
fn strangers_up_to_the_bound() {
    const BOUND: usize = 8;
    let scene = Scene::new(|attr| attr.max_strangers = BOUND as u32);
    for _ in 0..3 {
        let mut strangers: Vec<_> = (0..BOUND).map(|_| Attacker::new(&scene.domain)).collect();
        strangers.iter_mut().for_each(|stranger| stranger.connect(scene.address()));
        for _ in 0..BOUND {
            let refused = Attacker::new(&scene.domain).dial(scene.address());
            assert!(
                matches!(&refused, Err(Error::Rejected(data)) if data[1] == STRANGER),
                "{refused:?}"
            );
        }
        strangers.iter_mut().for_each(|stranger| scene.goes_on(stranger, 0));
        // Those that are lost keep their places until they are removed.
        strangers[0].endpoint.disconnect();
        let admitted = scene.admitted();
        assert_eq!(admitted.len(), BOUND);
        admitted.into_iter().for_each(|peer| scene.b.remove(peer).unwrap());
    }
    scene.end();
}

/// Where there is no room for one more peer's reserve, strangers are refused and leave nothing.
#[test]
fn strangers_without_reserve() {
    let scene = Scene::new(|attr| {
        attr.max_strangers = 4;
        (attr.window.places.total, attr.window.places.window) = (6, 2);
    });
    for _ in 0..3 {
        let mut strangers: Vec<_> = (0..2).map(|_| Attacker::new(&scene.domain)).collect();
        strangers.iter_mut().for_each(|stranger| stranger.connect(scene.address()));
        for _ in 0..4 {
            assert!(Attacker::new(&scene.domain).dial(scene.address()).is_err());
        }
        strangers.iter_mut().for_each(|stranger| scene.goes_on(stranger, 0));
        let admitted = scene.admitted();
        assert_eq!(admitted.len(), 2);
        admitted.into_iter().for_each(|peer| scene.b.remove(peer).unwrap());
        assert!(scene.b.dump().starts_with("1 peers"), "{}", scene.b.dump());
    }
    scene.end();
}

/// One that means another identity, or speaks of messages that never were, is no peer.
#[test]
fn refused_strangers_are_not_admitted() {
    let scene = Scene::new(|attr| attr.max_strangers = 4);
    for _ in 0..8 {
        let mut stranger = Attacker::new(&scene.domain);
        let other = EndpointIdentity::random().unwrap();
        let request = hello(stranger.identity, other, stranger.numbers);
        assert!(stranger.dial_with(scene.address(), &request).is_err());
        stranger.identity = EndpointIdentity::random().unwrap();
        stranger.numbers.session = 1 << 40;
        assert!(stranger.dial(scene.address()).is_err());
    }
    assert_eq!(scene.admitted(), []);
    Attacker::new(&scene.domain).connect(scene.address());
    scene.end();
}

/// Requests that come at once are counted one by one.
#[test]
fn burst_of_strangers() {
    const MAX: u32 = 4;
    let scene = Scene::new(|attr| (attr.max_strangers, attr.max_open) = (1000, MAX));
    for _ in 0..10 {
        let mut strangers: Vec<_> = (0..32).map(|_| Attacker::new(&scene.domain)).collect();
        let to = scene.address().rails().next().unwrap();
        for stranger in &mut strangers {
            let request = hello(stranger.identity, scene.address().identity(), stranger.numbers);
            stranger.endpoint.connect(to, &request).unwrap();
        }
        for stranger in &strangers {
            let _ = stranger.endpoint.wait_connected(Some(LONG));
        }
        let open = scene.b.connections().unwrap();
        assert!(open <= MAX, "{open} connections are open");
        drop(strangers);
        scene.admitted().into_iter().for_each(|peer| scene.b.remove(peer).unwrap());
    }
    scene.end();
}

fn two_places(attr: &mut RdmAttr) {
    (attr.max_open, attr.max_strangers) = (2, 8);
    attr.timeouts.attempt = Duration::from_millis(1500);
}

/// Connections that nothing comes by keep no room from others.
#[test]
fn silence_keeps_no_room() {
    let scene = Scene::new(two_places);
    let mut strangers: Vec<_> = (0..2).map(|_| Attacker::new(&scene.domain)).collect();
    strangers.iter_mut().for_each(|stranger| connect_when_room(&scene, stranger));
    scene.end();
}

/// Nor do those that answer no parking.
#[test]
fn unanswered_parking_keeps_no_room() {
    let scene = Scene::new(two_places);
    let mut strangers: Vec<_> = (0..2).map(|_| Attacker::new(&scene.domain)).collect();
    for stranger in &mut strangers {
        confirm_when_room(&scene, stranger);
        scene.goes_on(stranger, 0);
    }
    scene.end();
}

/// Nor those that take nothing of what the library says to them.
#[test]
fn answers_that_are_not_taken_keep_no_room() {
    let scene = Scene::new(two_places);
    let mut strangers: Vec<_> = (0..2).map(|_| Attacker::new(&scene.domain)).collect();
    for stranger in &mut strangers {
        (stranger.receives, stranger.reads) = (0, false);
        confirm_when_room(&scene, stranger);
        stranger.send(&flow(GRANT, 0, [FAIR[0], 0, FAIR[1], 0]));
        scene.goes_on(stranger, 0);
    }
    scene.end();
}

/// Nor those that grant nothing to messages that wait for them.
#[test]
fn messages_without_a_grant_keep_no_room() {
    let scene = Scene::new(two_places);
    let mut strangers: Vec<_> = (0..2).map(|_| Attacker::new(&scene.domain)).collect();
    for stranger in &mut strangers {
        confirm_when_room(&scene, stranger);
        scene.goes_on(stranger, 0);
    }
    for peer in scene.admitted() {
        scene.b.post_send(peer, &Send::inject(b"x").tag(1).unsignaled()).unwrap();
    }
    scene.end();
}

/// Meanwhile no more are parked than room is wanted for, however often those that want it try.
#[test]
fn unanswered_parking_parks_no_others() {
    let scene = Scene::new(|attr| {
        two_places(attr);
        attr.timeouts.attempt = LONG;
    });
    let mut silent = Attacker::new(&scene.domain);
    confirm_when_room(&scene, &mut silent);
    scene.goes_on(&mut silent, 0);
    // Used later than that of the other.
    scene.check();
    let (_third, peer) = scene.attacker();
    scene.b.post_send(peer, &Send::inject(b"x").tag(1).context(1)).unwrap();
    silent.next(PARK);
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        scene.poll();
        assert_eq!(scene.c.connections().unwrap(), 1, "{}", scene.b.dump());
        std::thread::sleep(Duration::from_millis(1));
    }
    scene.b.remove(peer).unwrap();
    scene.poll();
    scene.done.borrow_mut().clear();
    scene.end();
}

/// Nor is a peer unreachable that was not asked, since there was no place for its connection.
#[test]
fn no_place_is_no_reason() {
    let scene = Scene::new(|attr| {
        (attr.max_open, attr.max_strangers) = (1, 8);
        attr.timeouts.attempt = LONG;
        attr.timeouts.connect = Duration::from_millis(500);
    });
    let mut silent = Attacker::new(&scene.domain);
    confirm_when_room(&scene, &mut silent);
    scene.goes_on(&mut silent, 0);
    let peer = scene.b.insert(&Attacker::new(&scene.domain).address()).unwrap();
    scene.b.post_send(peer, &Send::inject(b"x").tag(1).context(1)).unwrap();
    silent.next(PARK);
    // Longer than a peer is waited for that answers.
    std::thread::sleep(Duration::from_millis(6000));
    assert_eq!(scene.b.down(peer).unwrap(), None, "{}", scene.b.dump());
    // It is asked now, in vain.
    drop(silent);
    assert_eq!(scene.down(peer), DeathCause::Unreachable);
    assert_eq!(scene.done(1).status, Status::PeerLost);
}

/// An answer to a fetch that comes when the connection is as good as parked: it is no use, and fetched anew.
#[test]
fn offer_while_parking() {
    let scene = Scene::new(|attr| attr.max_open = 1);
    let (mut attacker, peer) = scene.attacker();
    confirm_when_room(&scene, &mut attacker);
    let recv = Recv::new(Pattern::tagged(1), scene.inbox.slice(..4096)).context(1);
    scene.b.post_recv(&recv).unwrap();
    let region = attacker.domain.alloc(2000, Access::REMOTE_READ).unwrap();
    attacker.send(&message(FETCHED, 0, 1, 2000));
    attacker.next(FETCH);
    // It is parked for `c`.
    scene.c.post_send(scene.to_b, &Send::inject(b"of c").tag(2).unsignaled()).unwrap();
    attacker.next(PARK);
    attacker.send(&offer(0, region.remote()));
    attacker.send(&word(PARK, 0));
    attacker.ended();
    drop(region);
    attacker.numbers.sent = 1;
    attacker.accept_confirmed(scene.address());
    attacker.send(&flow(NOTICE, 0, [0; 4]));
    assert_eq!(attacker.next(FETCH), word(FETCH, 0));
    attacker.send(&data(0, &[9; 2000]));
    assert_eq!(scene.done(1).status, Status::Ok);
    assert_eq!(scene.b.down(peer).unwrap(), None);
    attacker.endpoint.disconnect();
    scene.end();
}

/// A receive whose payload was fetched ends though the sender parks, and is gone before it sends any.
#[test]
fn gone_after_a_fetch() {
    let scene = Scene::new(|attr| {
        attr.max_open = 1;
        attr.timeouts.connect = Duration::from_millis(1000);
    });
    let (mut attacker, peer) = scene.attacker();
    confirm_when_room(&scene, &mut attacker);
    let recv = Recv::new(Pattern::tagged(1), scene.inbox.slice(..4096)).context(1);
    scene.b.post_recv(&recv).unwrap();
    attacker.send(&message(FETCHED, 0, 1, 2000));
    attacker.next(FETCH);
    scene.c.post_send(scene.to_b, &Send::inject(b"of c").tag(2).unsignaled()).unwrap();
    attacker.next(PARK);
    attacker.send(&word(PARK, 0));
    attacker.ended();
    drop(attacker);
    assert_eq!(scene.done(1).status, Status::PeerLost);
    assert_eq!(scene.b.down(peer).unwrap(), Some(DeathCause::Unreachable));
    scene.end();
}

/// A connection that breaks while it is being parked may have been the end of what was to come: that is found out at once.
fn broken_while_parking(begin: impl FnOnce(&mut Attacker)) {
    let scene = Scene::new(|attr| attr.max_open = 1);
    let (mut attacker, peer) = scene.attacker();
    confirm_when_room(&scene, &mut attacker);
    let recv = Recv::new(Pattern::tagged(1).from(peer), scene.inbox.slice(..4096)).context(1);
    scene.b.post_recv(&recv).unwrap();
    begin(&mut attacker);
    scene.c.post_send(scene.to_b, &Send::inject(b"of c").tag(2).unsignaled()).unwrap();
    attacker.next(PARK);
    attacker.endpoint.disconnect();
    let begun = Instant::now();
    while !attacker.refuse(&refusal(OVER), Duration::from_millis(10)) {
        scene.poll();
        assert!(begun.elapsed() < LONG, "{}", scene.b.dump());
    }
    assert_eq!(scene.done(1).status, Status::PeerLost);
    assert_eq!(scene.b.down(peer).unwrap(), Some(DeathCause::Lost));
    scene.end();
}

#[test]
fn broken_while_payload_was_fetched() {
    broken_while_parking(|attacker| {
        attacker.send(&message(FETCHED, 0, 1, 2000));
        attacker.next(FETCH);
    });
}

#[test]
fn broken_between_pieces() {
    // Of a message that has met no receive: one that is posted later may meet it.
    broken_while_parking(|attacker| {
        attacker.send(&message(PIECES, 0, 2, 2000));
        attacker.send(&data(0, &[1; 100]));
    });
}

/// Frames without end hold up no call, nor other peers.
#[test]
fn flood() {
    let scene = Scene::new(|_| ());
    let is_over = AtomicBool::new(false);
    let mut attackers: Vec<_> = (0..2).map(|_| scene.connected().0).collect();
    std::thread::scope(|scope| {
        for attacker in &mut attackers {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(attacker.send(&flow(NOTICE, 0, [0; 4])));
                }
            });
        }
        for _ in 0..20 {
            scene.check();
            std::thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    scene.end();
}
