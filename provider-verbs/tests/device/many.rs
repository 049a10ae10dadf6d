//! Many of everything.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fabric::{Access, Completion, Endpoint, Error, Op, Status};

use crate::held::Held;
use crate::rig::{has_strays, join, listen, open, open_region};

/// Pairs that stay, and pairs that go, on one queue a side.
const STAY: usize = 6;
const GO: usize = 24;
const MESSAGES: u64 = 300;

pub(crate) fn leave_a_shared_queue() {
    let (here, there) = (open(), open());
    let room = (STAY + GO) * 48;
    let (sends, receives) =
        (here.completion_queue(room).unwrap(), there.completion_queue(room).unwrap());
    let listener = listen(&there);
    let pair = || {
        let from = here.endpoint().send_depth(32).recv_depth(16).build(&sends).unwrap();
        let to = there.endpoint().send_depth(16).recv_depth(32).build(&receives).unwrap();
        join(&listener, &from, &to);
        (from, to)
    };
    let staying: Vec<_> = (0..STAY).map(|_| pair()).collect();
    let leaving: Vec<_> = (0..GO).map(|_| pair()).collect();
    let source = here.alloc(256, Access::LOCAL_WRITE).unwrap();
    let target = open_region(&there, 4096);
    let at = target.remote().at(0);
    let (done, sent, got) =
        (AtomicBool::new(false), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let ready = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (queue, taken) in [(&sends, &sent), (&sends, &sent), (&receives, &got)] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let mut out = [Completion::default(); 16];
                    let count = queue.poll(&mut out).unwrap();
                    taken.lock().unwrap().extend_from_slice(&out[..count]);
                    std::thread::yield_now();
                }
            });
        }
        let (source, target, ready) = (&source, &target, &ready);
        // Endpoints that are dropped with work in flight, some of it waiting in software behind a loop.
        scope.spawn(move || {
            for (from, to) in leaving {
                for context in 0..8 {
                    let _ = to.recv(target.slice(1024..1280), context);
                    let _ = from.send(source, context);
                    let _ = from.write(source, at, context);
                    let max = Op::atomic(fabric::AtomicOp::Max, 5u32, target.remote().at(2048));
                    let _ = from.post(&max);
                }
                drop((to, from));
            }
            ready.fetch_add(1, Ordering::Relaxed);
        });
        for (from, to) in &staying {
            scope.spawn(move || {
                for context in 0..MESSAGES {
                    again(|| to.recv(target.slice(2048..2304), context));
                    again(|| from.send(source, context));
                    if context % 3 == 0 {
                        again(|| from.write(source, at, MESSAGES + context));
                    }
                }
                ready.fetch_add(1, Ordering::Relaxed);
            });
        }
        let expected = (MESSAGES + MESSAGES / 3) as usize;
        let of = |taken: &Mutex<Vec<Completion>>, id| {
            taken.lock().unwrap().iter().filter(|one| one.endpoint == id).count()
        };
        for _ in 0..600 {
            let all = staying.iter().all(|(from, to)| {
                of(&sent, from.id()) == expected && of(&got, to.id()) == MESSAGES as usize
            });
            if all && ready.load(Ordering::Relaxed) == STAY + 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_millis(300));
        done.store(true, Ordering::Relaxed);
    });
    let (sent, got) = (sent.into_inner().unwrap(), got.into_inner().unwrap());
    let all_ok = |taken: &[Completion], id, count: u64| {
        let of: Vec<_> = taken.iter().filter(|one| one.endpoint == id).collect();
        assert_eq!(of.len() as u64, count);
        assert!(of.iter().all(|one| one.status == Status::Ok));
    };
    for (from, to) in &staying {
        all_ok(&sent, from.id(), MESSAGES + MESSAGES / 3);
        all_ok(&got, to.id(), MESSAGES);
    }
    for one in &sent {
        assert!(matches!(one.status, Status::Ok | Status::Canceled), "{one:?}");
    }
    assert!(!has_strays(&sends), "{sends:?}");
    assert!(!has_strays(&receives), "{receives:?}");
}

/// Posts, when there is room.
fn again(post: impl Fn() -> fabric::Result<()>) {
    loop {
        match post() {
            Err(Error::Again) => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

/// Whatever libraries keep for good is there before anything is counted.
fn warm_up() -> Held {
    let (a, b) = (open(), open());
    let (qa, qb) = (a.completion_queue(256).unwrap(), b.completion_queue(256).unwrap());
    let (ea, eb) = (a.endpoint().build(&qa).unwrap(), b.endpoint().build(&qb).unwrap());
    join(&listen(&b), &ea, &eb);
    drop((ea, eb, qa, qb, a, b));
    Held::settled()
}

pub(crate) fn domains() {
    let before = warm_up();
    for _ in 0..200 {
        let domain = open();
        let queue = domain.completion_queue(64).unwrap();
        let region = open_region(&domain, 8192);
        drop((queue, region, domain));
    }
    before.is_all();
}

pub(crate) fn pairs() {
    let before = warm_up();
    let (here, there) = (open(), open());
    let listener = listen(&there);
    for round in 0..500 {
        let (qa, qb) = (here.completion_queue(256).unwrap(), there.completion_queue(256).unwrap());
        let from = here.endpoint().build(&qa).unwrap();
        let to = there.endpoint().build(&qb).unwrap();
        join(&listener, &from, &to);
        busy(&here, &from);
        if round % 2 == 0 { drop((from, to)) } else { drop((to, from)) }
    }
    drop((listener, here, there));
    before.is_all();
}

/// Leaves something in flight.
fn busy(domain: &fabric::Domain, endpoint: &Endpoint) {
    let region = domain.alloc(4096, Access::LOCAL_WRITE).unwrap();
    endpoint.recv(&region, 1).unwrap();
    endpoint.send(&region, 2).unwrap();
}

pub(crate) fn pairs_at_once() {
    // Each has a send that waits for its receive, and an emulated CPU is soon busy with nothing but answering those.
    const PAIRS: usize = 60;
    let before = warm_up();
    let (here, there) = (open(), open());
    let listener = listen(&there);
    let (qa, qb) = (here.completion_queue(8000).unwrap(), there.completion_queue(8000).unwrap());
    let all: Vec<_> = (0..PAIRS)
        .map(|_| {
            let from = here.endpoint().send_depth(8).recv_depth(8).build(&qa).unwrap();
            let to = there.endpoint().send_depth(8).recv_depth(8).build(&qb).unwrap();
            join(&listener, &from, &to);
            busy(&here, &from);
            (from, to)
        })
        .collect();
    drop(all);
    assert!(!has_strays(&qa) && !has_strays(&qb), "{qa:?} {qb:?}");
    drop((listener, qa, qb, here, there));
    before.is_all();
}
