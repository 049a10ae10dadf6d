//! What one end reaches of the other by itself: long messages, which the receiver takes from the sender's memory, and long reads
//! and writes, which the initiator executes behind what was posted before.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Access, Endpoint, Memory, Op, OpKind, Region, Slices, Status};
use side::Side;

const SOON: Duration = Duration::from_secs(20);
const LEN: usize = 5 << 20;

/// Two ends of a connection, of domains of this process.
fn pair(one: &Side, other: &Side) -> (Endpoint, Endpoint) {
    let listener = other.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (near, far) = (one.endpoint(), other.endpoint());
    near.connect(listener.local_addr(), &[]).unwrap();
    listener.accept(Some(SOON)).unwrap().accept(&far, &[]).unwrap();
    for end in [&near, &far] {
        end.wait_connected(Some(SOON)).unwrap();
    }
    (near, far)
}

/// Bytes that say where they are.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|at| (at * 31 + seed).to_ne_bytes());
    words.take(len).collect()
}

fn fill(region: &Region, len: usize, seed: usize) {
    region.write_at(0, &bytes(len, seed)).unwrap();
}

fn is_whole(region: &Region, len: usize, seed: usize) -> bool {
    region.to_vec(..len).unwrap() == bytes(len, seed)
}

/// Each poll finds the completion of a write that was executed at once: what comes from the peer is found all the same.
#[test]
fn one_that_always_finds_something_hears_its_peer() {
    const POLLS: u32 = 10_000;
    let (one, other) = (Side::new(64), Side::new(64));
    let (near, far) = pair(&one, &other);
    let to = other.region.remote();
    let empty = Cell::new(0);
    // A write, and polls until one finds something: the first, unless another thread is in the connection just then.
    let write = || {
        near.write(one.region.slice(8..16), to.at(8), 1).unwrap();
        loop {
            match one.queue.poll_one().unwrap() {
                Some(found) => return found.context,
                None => empty.set(empty.get() + 1),
            }
        }
    };
    // Whether the message came; none: a poll before that found nothing.
    let hears = || {
        near.recv(one.region.slice(..8), 7).unwrap();
        // From here on progress is this thread's.
        (0..POLLS).for_each(|_| assert_eq!(write(), 1));
        empty.set(0);
        far.send(other.region.slice(..8), 2).unwrap();
        let came = (0..POLLS).any(|_| write() == 7);
        // Its last write may have ended behind the message.
        while one.queue.poll_one().unwrap().is_some() {}
        (!came || empty.get() == 0).then_some(came)
    };
    let heard = (0..100).find_map(|_| hears());
    assert_eq!(heard, Some(true), "{POLLS} polls, and nothing came");
}

/// Operations that the end's process did by itself, as its dump says.
fn by_itself(end: &Endpoint) -> u64 {
    loop {
        // It says nothing while the connection is busy.
        let dump = end.dump();
        if let Some((before, _)) = dump.split_once(" operations by itself") {
            return before.rsplit(' ').next().unwrap().parse().unwrap();
        }
    }
}

#[test]
fn messages_of_all_lengths_come_whole() {
    let (one, other) = (Side::new(LEN), Side::new(LEN));
    let (near, far) = pair(&one, &other);
    let long = 16 << 10;
    for (seed, len) in [1, long - 1, long, long + 1, 1 << 20, (1 << 20) + 64, (1 << 20) + 65, LEN]
        .into_iter()
        .enumerate()
    {
        fill(&one.region, len, seed);
        other.region.fill(0xAA).unwrap();
        // In two pieces, with some room behind the message.
        let half = len / 2;
        let pieces = [other.region.slice(..half), other.region.slice(half..LEN.min(len + 9))];
        let before = by_itself(&far);
        far.recv(Slices::from(&pieces[usize::from(half == 0)..]), 1).unwrap();
        near.send(one.region.slice(..len), 2).unwrap();
        let came = other.queue.wait_one(Some(SOON)).unwrap();
        assert!(came.is_ok() && came.len == len, "{came:?}");
        assert!(one.queue.wait_one(Some(SOON)).unwrap().is_ok());
        assert!(is_whole(&other.region, len, seed), "{len} bytes");
        assert_eq!(by_itself(&far) > before, len >= long, "{len} bytes");
    }
}

#[test]
fn memory_of_the_heap_goes_through_the_rings() {
    let (one, other) = (Side::new(64), Side::new(LEN));
    let (near, far) = pair(&one, &other);
    let memory = Memory::zeroed(LEN).unwrap();
    let region = one.domain.register(&memory, Access::LOCAL_WRITE).unwrap();
    fill(&region, LEN, 5);
    far.recv(&other.region, 1).unwrap();
    near.send(&region, 2).unwrap();
    assert!(other.queue.wait_one(Some(SOON)).unwrap().is_ok());
    assert!(is_whole(&other.region, LEN, 5));
    assert_eq!(by_itself(&far), 0);
}

#[test]
fn a_message_too_long_for_its_receive_ends_both() {
    let (one, other) = (Side::new(LEN), Side::new(LEN));
    let (near, far) = pair(&one, &other);
    far.recv(other.region.slice(..LEN - 1), 1).unwrap();
    near.send(&one.region, 2).unwrap();
    assert_eq!(other.queue.wait_one(Some(SOON)).unwrap().status, Status::TooLong);
    assert_eq!(one.queue.wait_one(Some(SOON)).unwrap().status, Status::TooLong);
}

/// The sender takes its memory back in the middle, and changes it: what is received is whole, or canceled.
#[test]
fn a_message_that_is_taken_back_is_whole_or_not_there() {
    let (mut whole, mut canceled) = (0, 0);
    for round in 0..30_usize {
        let (one, other) = (Side::new(LEN), Side::new(LEN));
        let (near, far) = pair(&one, &other);
        far.recv(&other.region, 1).unwrap();
        fill(&one.region, LEN, round);
        near.send(&one.region, 2).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros((round * round * 37 % 5000) as u64) {}
        near.disconnect();
        // Its completion gives the memory back.
        one.queue.wait_one(Some(SOON)).unwrap();
        one.region.fill(0xFF).unwrap();
        let came = other.queue.wait_one(Some(SOON)).unwrap();
        if came.is_ok() {
            assert!(is_whole(&other.region, LEN, round), "round {round}");
            whole += 1;
        } else {
            assert_eq!(came.status, Status::Canceled);
            canceled += 1;
        }
        far.wait_disconnected(Some(SOON)).unwrap();
        thread::yield_now();
    }
    println!("{whole} whole, {canceled} canceled");
}

/// Behind a message that waits for a receive, in the order of their posts.
#[test]
fn long_writes_and_reads_wait_for_what_is_before_them() {
    const PART: usize = 1 << 20;
    let (one, other) = (Side::new(LEN), Side::new(LEN));
    let (near, far) = pair(&one, &other);
    let to = other.region.remote();
    let before = by_itself(&near);
    fill(&one.region, LEN, 3);
    let ops = [
        Op::send(one.region.slice(..8)).context(0),
        Op::write(one.region.slice(PART..2 * PART), to.at(PART as u64)).context(1),
        Op::read(one.region.slice(2 * PART..3 * PART), to.at(PART as u64)).context(2),
        Op::send(one.region.slice(8..16)).context(3),
        Op::write(one.region.slice(3 * PART..LEN), to.at(3 * PART as u64)).context(4),
    ];
    near.post_batch(&ops).unwrap();
    assert!(one.queue.wait_one(Some(Duration::from_millis(50))).is_err(), "nothing ends");
    assert_eq!(other.region.to_vec(PART..PART + 8).unwrap(), [0; 8], "the message waits");
    far.recv(other.region.slice(..8), 1).unwrap();
    far.recv(other.region.slice(8..16), 2).unwrap();
    for context in 0..5 {
        let done = one.queue.wait_one(Some(SOON)).unwrap();
        assert!(done.is_ok() && done.context == context, "{done:?}");
    }
    for context in [1, 2] {
        let came = other.queue.wait_one(Some(SOON)).unwrap();
        assert!(came.kind == OpKind::Recv && came.context == context, "{came:?}");
    }
    let all = bytes(LEN, 3);
    assert!(other.region.to_vec(PART..2 * PART).unwrap() == all[PART..2 * PART]);
    assert!(one.region.to_vec(2 * PART..3 * PART).unwrap() == all[PART..2 * PART]);
    assert!(other.region.to_vec(3 * PART..LEN).unwrap() == all[3 * PART..]);
    assert_eq!(by_itself(&near) - before, 3);
}

/// What it goes to was open when it was posted, and is closed when its turn comes.
#[test]
fn what_is_closed_meanwhile_is_refused() {
    let (one, other) = (Side::new(LEN), Side::new(LEN));
    let (near, far) = pair(&one, &other);
    let region = other.domain.alloc(LEN, Access::ALL).unwrap();
    let from = region.remote().at(0);
    // So that the file it is in has come.
    near.read(one.region.slice(..8), from, 0).unwrap();
    assert!(one.queue.wait_one(Some(SOON)).unwrap().is_ok());
    let ops = [Op::send(one.region.slice(..8)).context(1), Op::read(&one.region, from).context(2)];
    near.post_batch(&ops).unwrap();
    region.close().unwrap();
    far.recv(other.region.slice(..8), 1).unwrap();
    let ends = [1, 2].map(|_| one.queue.wait_one(Some(SOON)).unwrap());
    assert_eq!(
        ends.map(|end| (end.context, end.status)),
        [(1, Status::Ok), (2, Status::RemoteAccess)]
    );
    assert!(other.queue.wait_one(Some(SOON)).unwrap().is_ok());
}
