//! What goes wrong without an attacker.

use std::thread;
use std::time::{Duration, Instant};

use fabric::{Access, Op};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, Recv, Send, Status};

use crate::attacker::LONG;
use crate::scene::Scene;

/// Places are free when completions of a receive for many are taken: the peer learns of it though nothing is called after that.
#[test]
#[ignore = "`take` frees places, and nothing sends the grants until the next turn of progress"]
fn places_of_many() {
    let scene = Scene::new(|attr| {
        (attr.window.places.window, attr.window.places.reserved) = (4, 4);
    });
    let many = Recv::new(Pattern::tagged(1), scene.inbox.slice(..1000)).of_many(8);
    scene.b.post_recv(&many).unwrap();
    for _ in 0..4 {
        scene.c.post_send(scene.to_b, &Send::inject(b"x").tag(1)).unwrap();
    }
    for _ in 0..4 {
        assert!(scene.c.wait_one(Some(LONG)).unwrap().is_ok());
    }
    // The endpoint's own thread sleeps by now.
    thread::sleep(Duration::from_millis(100));
    assert_eq!(scene.b.poll(&mut [Completion::default(); 8]).unwrap(), 4);
    let until = Instant::now() + Duration::from_secs(5);
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

/// Two threads that wait both sleep.
#[test]
#[ignore = "a thread that waits wakes the one that sleeps on the descriptors, though that is one of the application too"]
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
#[ignore = "`cancel_send` does not look at the link after it took the first of its queue out"]
fn behind_what_was_canceled() {
    let scene = Scene::new(|attr| {
        (attr.window.places.window, attr.window.places.reserved) = (4, 4);
    });
    let d = fabric_rdm::Endpoint::new(&crate::attacker::domain(), &{
        let mut attr = fabric_rdm::RdmAttr::default();
        attr.listen = Some(crate::attacker::loopback());
        attr
    })
    .unwrap();
    let to_b = d.insert(scene.address()).unwrap();
    let target = scene.b.domain().alloc(8, Access::REMOTE_WRITE).unwrap();
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
    let done = d.wait_one(Some(Duration::from_secs(5))).unwrap();
    assert_eq!((done.context, done.status), (9, Status::Ok));
    scene.end();
}
