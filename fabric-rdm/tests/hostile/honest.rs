//! What goes wrong without an attacker.

use std::thread;
use std::time::{Duration, Instant};

use fabric::{Access, Armed, Op};
use fabric_core::Error;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, Endpoint, PostError, RdmAttr, Recv, Send, Status};

use crate::attacker::{LONG, domain, loopback};
use crate::scene::Scene;

/// Places are free when completions of a receive for many are taken: the peer learns of it though nothing is called after that.
#[test]
fn places_of_many() {
    let scene = Scene::new(|attr| {
        (attr.window.places.window, attr.window.places.reserved) = (4, 4);
    });
    let many = Recv::new(Pattern::tagged(1), scene.inbox.slice(..1000)).of_many(8);
    scene.b.post_recv(&many).unwrap();
    for _ in 0..4 {
        // That the place of an earlier message is free is said when it is asked for.
        while scene.c.post_send(scene.to_b, &Send::inject(b"x").tag(1)).is_err() {
            scene.c.poll(&mut []).unwrap();
        }
    }
    for _ in 0..4 {
        assert!(scene.c.wait_one(Some(LONG)).unwrap().is_ok());
    }
    // It asks for more once; and the thread of the other endpoint sleeps by then.
    assert!(scene.c.post_send(scene.to_b, &Send::inject(b"x").tag(1)).is_err());
    scene.c.poll(&mut []).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(scene.b.poll(&mut [Completion::default(); 8]).unwrap(), 4);
    let until = Instant::now() + LONG;
    while scene.c.post_send(scene.to_b, &Send::inject(b"x").tag(1).unsignaled()).is_err() {
        assert!(Instant::now() < until, "no place\n{}", scene.b.dump());
        scene.c.poll(&mut []).unwrap();
    }
    scene.b.counter(fabric_rdm::Kind::Recv).wait_for(6, 0, Some(LONG)).unwrap();
}

/// Processor time of this thread.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// A post from a closed region is refused, and nothing else happens.
#[test]
fn from_a_closed_region() {
    let scene = Scene::new(|_| ());
    let closed = scene.b.domain().alloc(1 << 20, Access::REMOTE_READ).unwrap();
    closed.close().unwrap();
    for peer in [scene.to_c, scene.b.insert(scene.address()).unwrap()] {
        for len in [1, 64, 1000, 100_000] {
            let refused = scene.b.post_send(peer, &Send::new(closed.slice(..len)).tag(1));
            let is_state = matches!(refused, Err(PostError::Fabric(Error::InvalidState(_))));
            assert!(is_state, "{len} B: {refused:?}");
            assert_eq!(scene.b.down(peer).unwrap(), None, "after {len} B");
        }
    }
    scene.end();
}

/// A time beyond all clocks is one that no descriptor waits for.
#[test]
fn waits_without_end() {
    let scene = Scene::new(|attr| attr.timeouts.connect = Duration::from_secs(u64::MAX / 2));
    scene.b.post_send(scene.to_c, &Send::inject(b"x").tag(1).matched().context(1)).unwrap();
    let until = Instant::now() + LONG;
    while scene.c.probe(&Pattern::tagged(1)).unwrap().is_none() {
        assert!(Instant::now() < until, "no message\n{}", scene.b.dump());
    }
    scene.b.park_all().unwrap();
    scene.until("no connection", |scene| scene.b.connections().unwrap() == 0);
    scene.b.descriptor().unwrap();
    scene.until("a descriptor that waits", |scene| scene.b.arm().unwrap() == Armed::Waiting);
    let inbox = scene.c.domain().alloc(8, Access::LOCAL_WRITE).unwrap();
    scene.c.post_recv(&Recv::new(Pattern::tagged(1), &inbox)).unwrap();
    assert!(scene.c.wait_one(Some(LONG)).unwrap().is_ok());
    assert_eq!(scene.done(1).status, Status::Ok);
    scene.end();
}

/// Looking at an idle endpoint gives an event loop nothing to poll for.
#[test]
fn looks_change_nothing() {
    let scene = Scene::new(|_| ());
    scene.b.descriptor().unwrap();
    scene.until("a descriptor that waits", |scene| scene.b.arm().unwrap() == Armed::Waiting);
    for _ in 0..3 {
        // What came meanwhile is taken, and something may come in the middle of the looks.
        scene.until("a descriptor that waits behind looks", |scene| {
            scene.b.down(scene.to_c).unwrap();
            scene.b.address_of(scene.to_c).unwrap();
            scene.b.connections().unwrap();
            scene.b.max_inject().unwrap();
            scene.b.has_room(None).unwrap();
            scene.b.dump();
            scene.b.arm().unwrap() == Armed::Waiting
        });
    }
}

/// What waits at itself when the endpoint removes itself is canceled: it met no receive.
#[test]
fn removes_itself() {
    let scene = Scene::new(|_| ());
    let me = scene.b.insert(scene.address()).unwrap();
    scene.b.post_send(me, &Send::inject(b"one").tag(1).context(1)).unwrap();
    scene.b.post_send(me, &Send::inject(b"two").tag(1).matched().context(2)).unwrap();
    scene.poll();
    let first = scene.done.borrow_mut().pop();
    scene.b.remove(me).unwrap();
    // Without a wait for its receive, one ends when it is there.
    let expected = if first.is_some() { Status::Ok } else { Status::Canceled };
    assert_eq!(first.unwrap_or_else(|| scene.done(1)).status, expected);
    assert_eq!(scene.done(2).status, Status::Canceled);
    scene.end();
}

/// Two threads that wait both sleep.
#[test]
fn two_threads_wait() {
    let scene = Scene::new(|_| ());
    let time = Duration::from_secs(1);
    let wait = || {
        let before = used();
        assert!(scene.b.wait_one(Some(time)).is_err());
        used() - before
    };
    let both = thread::scope(|scope| {
        let other = scope.spawn(wait);
        wait() + other.join().unwrap()
    });
    assert!(both < time / 4, "{both:?} of the processor, in {time:?}");
    scene.end();
}

/// What waits behind messages that are canceled goes.
#[test]
fn behind_what_was_canceled() {
    let scene = Scene::new(|attr| {
        (attr.window.places.window, attr.window.places.reserved) = (4, 4);
    });
    let d = Endpoint::new(&domain(), &{
        let mut attr = RdmAttr::default();
        attr.listen = Some(loopback());
        attr
    })
    .unwrap();
    let to_b = d.insert(scene.address()).unwrap();
    let target = scene.b.domain().alloc(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let source = d.domain().alloc(8, Access::empty()).unwrap();
    let sends: Vec<_> = (0..6)
        .map(|context| d.post_send(to_b, &Send::inject(b"x").tag(1).context(context)).unwrap())
        .collect();
    d.post(to_b, &Op::write(&source, target.remote().at(0)).context(9)).unwrap();
    scene.b.insert(d.address()).unwrap();
    for context in 0..4 {
        assert_eq!(d.wait_one(Some(LONG)).unwrap().context, context);
    }
    assert!(d.wait_one(Some(Duration::from_millis(100))).is_err());
    for send in &sends[4..] {
        assert!(d.cancel(*send).unwrap());
        assert_eq!(d.wait_one(Some(LONG)).unwrap().status, Status::Canceled);
    }
    let done = d.wait_one(Some(LONG)).unwrap();
    assert_eq!((done.context, done.status), (9, Status::Ok));
    scene.end();
}

/// Long messages of two peers, to an endpoint that has room for one connection: each time one of them is parked for the other.
#[test]
fn long_messages_while_parking() {
    const ROUNDS: u64 = 500;
    let scene = Scene::new(|attr| attr.max_open = 1);
    let d = Endpoint::new(&domain(), &{
        let mut attr = RdmAttr::default();
        attr.listen = Some(loopback());
        attr
    })
    .unwrap();
    scene.b.insert(d.address()).unwrap();
    let d_to_b = d.insert(scene.address()).unwrap();
    let region = |of: &Endpoint| {
        of.domain().alloc(100_000, Access::REMOTE_READ | Access::GRANTS_ONLY).unwrap()
    };
    let (from_c, from_d) = (region(&scene.c), region(&d));
    for round in 0..ROUNDS {
        for context in 0..2 {
            let recv = Recv::new(Pattern::tagged(1), scene.inbox.slice(..100_000));
            scene.b.post_recv(&recv.context(context)).unwrap();
        }
        scene.c.post_send(scene.to_b, &Send::new(&from_c).tag(1).context(round)).unwrap();
        d.post_send(d_to_b, &Send::new(&from_d).tag(1).context(round)).unwrap();
        for context in 0..2 {
            let done = scene.done(context);
            let dumps = || [&scene.b, &scene.c, &d].map(Endpoint::dump).join("\n");
            assert_eq!(done.status, Status::Ok, "in round {round}\n{}", dumps());
        }
        for end in [&scene.c, &d] {
            let done = end.wait_one(Some(LONG)).unwrap();
            assert_eq!((done.context, done.status), (round, Status::Ok));
        }
    }
    scene.end();
}
