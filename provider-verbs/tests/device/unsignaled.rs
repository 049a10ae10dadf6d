//! Unsignaled operations that succeed right before their connection ends: nothing of theirs stays busy.

use std::time::{Duration, Instant};

use fabric::{AtomicOp, Error, Op, Region, RemoteRegion, Status};

use crate::peers::{Peer, died};
use crate::rig::{SOON, Side, end_of, has_strays, join, listen, open_region};

/// So long a region may stay busy after the end.
const BOUND: Duration = Duration::from_secs(2);
const LIVENESS: Duration = Duration::from_secs(10);

/// Takes completions until the region closes; gives those that came.
fn close(side: &Side, region: &Region) -> Vec<(u64, Status)> {
    let start = Instant::now();
    let mut taken = Vec::new();
    loop {
        while let Some(one) = side.queue.poll_one().unwrap() {
            taken.push((one.context, one.status));
        }
        match region.close() {
            Ok(()) => break,
            Err(Error::Busy) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < BOUND, "it stays busy; {taken:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("closed after {:.2?}", start.elapsed());
    assert!(!has_strays(&side.queue), "{:?}", side.queue);
    taken
}

/// What the tail of the send queue is made of.
type Tail = fn(&Side, &Region, RemoteRegion);

/// Waits until the last byte at the target has this value.
fn arrives(target: &Region, value: u8) {
    let until = Instant::now() + SOON.unwrap();
    while target.get::<u8>(4095).unwrap() != value {
        assert!(Instant::now() < until, "it never arrives");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The acknowledgement is on its way back.
    std::thread::sleep(Duration::from_millis(800));
}

fn writes(from: &Side, source: &Region, at: RemoteRegion) {
    for _ in 0..3 {
        from.endpoint.post(&Op::write(source, at.at(0)).unsignaled()).unwrap();
    }
}

fn a_read_behind_a_signaled_write(from: &Side, source: &Region, at: RemoteRegion) {
    from.endpoint.post(&Op::write(source, at.at(0)).context(7)).unwrap();
    from.endpoint.post(&Op::read(source.slice(..64), at.at(0)).unsignaled()).unwrap();
}

/// Of operations that the device lacks.
fn a_loop(from: &Side, source: &Region, at: RemoteRegion) {
    from.endpoint.post(&Op::atomic(AtomicOp::Or, 1_u32, at.at(0)).unsignaled()).unwrap();
    from.endpoint.post(&Op::write(source, at.at(0)).unsignaled()).unwrap();
    let last = at.at(4092);
    from.endpoint
        .post(&Op::fetch_atomic(AtomicOp::Or, 0_u32, source.slice(..4), last).unsignaled())
        .unwrap();
}

/// This side disconnects, or the peer goes.
pub(crate) fn leave_nothing_busy() {
    let tails: [(&str, Tail); 3] = [
        ("writes", writes),
        ("a read behind a signaled write", a_read_behind_a_signaled_write),
        ("a loop", a_loop),
    ];
    for (name, post) in tails {
        for remote in [false, true] {
            println!("{name}, {}", if remote { "the peer goes" } else { "disconnect" });
            let (from, to) = (Side::new(LIVENESS), Side::new(LIVENESS));
            join(&listen(&to.domain), &from.endpoint, &to.endpoint);
            let source = open_region(&from.domain, 4096);
            let target = open_region(&to.domain, 4096);
            source.fill(5).unwrap();
            post(&from, &source, target.remote());
            arrives(&target, 5);
            let _other = if remote {
                drop(to.endpoint);
                None
            } else {
                from.endpoint.disconnect();
                Some(to.endpoint)
            };
            end_of(&from.endpoint, Duration::from_secs(5));
            let taken = close(&from, &source);
            // They succeeded: the unsignaled ones have no completion.
            let signaled = name == "a read behind a signaled write";
            assert_eq!(taken, if signaled { vec![(7, Status::Ok)] } else { vec![] }, "{name}");
        }
    }
}

/// The peer's process is killed.
pub(crate) fn leave_nothing_busy_when_the_peer_dies() {
    let side = Side::new(LIVENESS);
    let peer = Peer::start("idle", &side);
    let region = open_region(&side.domain, 64);
    for _ in 0..2 {
        side.endpoint.post(&Op::send(&region).unsignaled()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    peer.signal(libc::SIGKILL);
    died(end_of(&side.endpoint, Duration::from_secs(5)));
    assert_eq!(close(&side, &region), []);
}
