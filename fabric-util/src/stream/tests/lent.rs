//! What does not go by the stream: messages that the target takes from the peer's memory, and what an end executes by itself; in
//! both cases between the turns of other connections.

use std::time::Duration;

use super::conn::{Peer, linked_with, rest};
use super::*;
use crate::progress::Progress;
use crate::stream::wire::frame::MAX_PAYLOAD;
use crate::stream::{AckPolicy, Timer};

const FRAME: usize = MAX_PAYLOAD as usize;
const FRAMES: usize = 6;
/// Bytes of a message that are in the stream.
const BEGINNING: usize = 64;
const LEN: usize = BEGINNING + FRAMES * FRAME;

/// Frames of a message whose bytes are as [`Wire::fetch`](super::wire::Wire) finds them, but for its beginning, and of one behind it.
fn frames() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut frame = |kind, len: usize, seq| {
        let ask = matches!(kind, Kind::Send { .. });
        Header { kind, ask, len: len as u32, ack: 0, credit: 100, seq }.encode(&mut bytes);
        if ask {
            bytes.resize(bytes.len() + len, 7);
        }
    };
    frame(Kind::Send { total: LEN as u32, imm: None }, BEGINNING, 0);
    for number in 0..FRAMES {
        let from = RemoteAddr { key: 1, addr: (BEGINNING + number * FRAME) as u64 };
        frame(Kind::Lent { from, more: number + 1 < FRAMES }, FRAME, 0);
    }
    frame(Kind::Send { total: 8, imm: None }, 8, 1);
    bytes
}

/// An end that a lent message comes to, and another behind it. The first is not to stall.
fn target() -> (Peer, Vec<u8>) {
    let (near, _far) = linked_with(Some(Duration::from_secs(10)));
    let mut memory = vec![0u8; LEN];
    {
        let mut conn = near.lock();
        for number in 0..2 {
            let segments =
                [Segment::new(memory.as_mut_ptr(), if number == 0 { LEN } else { 8 }, 0)];
            let work = RecvWork::new(Token::new(0, 0, Side::Recv, number), &segments);
            // SAFETY: the memory is kept as long as the connection.
            unsafe { conn.link.post_recv(&[work]) }.unwrap();
        }
        conn.flush(AckPolicy::Now);
    }
    near.wire.reaches.set(true);
    near.wire.back.borrow_mut().bytes.extend(frames());
    (near, memory)
}

#[test]
fn a_long_lent_message_leaves_others_their_turns() {
    let (near, memory) = target();
    let (mut turns, mut before) = (0, 0);
    while near.turn() == Progress::More {
        turns += 1;
        let now = near.wire.fetched.replace(before);
        assert!(now - before <= 2 * FRAME, "{} bytes in a turn", now - before);
        near.wire.fetched.set(now);
        before = now;
    }
    assert!(turns >= FRAMES / 2, "{turns} turns");
    assert_eq!((near.wire.fetched.get(), take(&near.recvs).len()), (FRAMES * FRAME, 2));
    assert!(memory[..8].iter().all(|byte| *byte == 7), "the one behind it");
    let whole = (BEGINNING..LEN).all(|at| memory[at] == at as u8);
    assert!(whole);
}

#[test]
fn one_that_ends_in_the_middle_of_it_takes_no_more() {
    for by in ["this side", "a peer that takes it back"] {
        let (near, _memory) = target();
        assert_eq!(near.turn(), Progress::More);
        let before = near.wire.fetched.get();
        near.wire.reaches.set(false);
        if by == "this side" {
            near.lock().end(End::Local);
        }
        while near.turn() == Progress::More {}
        near.conn.reported();
        let after = near.wire.fetched.get();
        assert!(after - before <= if by == "this side" { 0 } else { FRAME }, "{by}");
        if by != "this side" {
            assert_eq!((near.ended(), take(&near.recvs).len()), (None, 0), "its end follows");
            near.lock().end(End::Local);
            near.conn.reported();
        }
        assert_eq!(statuses(&take(&near.recvs)), [Status::Canceled; 2], "{by}");
    }
}

#[test]
fn operations_that_it_executes_itself_get_on() {
    const LOOKS: u32 = 12;
    let (mut near, far) = linked_with(Some(Duration::from_secs(10)));
    near.wire.reaches.set(true);
    // One goes by the stream, and those behind it wait.
    near.send(0, 8);
    let segments = [Segment::new(near.memory.as_mut_ptr().cast(), 8 * near.memory.len(), 0)];
    let (imm, segments) = (None, [segments[0]; 4]);
    for number in 1..8 * LOOKS {
        let op = SendOp::Write { to: RemoteAddr { key: 1, addr: 0 }, imm };
        let token = Token::new(0, 0, Side::Send, number);
        let mut conn = near.lock();
        // SAFETY: the memory is kept as long as the connection.
        unsafe { conn.post(&[SendWork::new(token, op, &segments, SendFlags::SIGNALED)]) }.unwrap();
    }
    assert_eq!(near.turn(), Progress::Idle, "they wait");
    far.turn();
    for look in 0..LOOKS {
        assert_eq!(near.turn(), Progress::More, "they are executed, some at a time");
        near.lock().expired(Timer::Stall);
        near.conn.reported();
        assert_eq!(near.ended(), None, "after {look} looks");
    }
    rest(&near, &far);
    assert_eq!(statuses(&take(&near.sends)), vec![Status::Ok; 8 * LOOKS as usize]);
}
