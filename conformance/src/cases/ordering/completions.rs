//! Order of completions.

use crate::cases::crowd::{Crowd, depths, places};
use crate::cases::places::Staggered;
use crate::prelude::*;

pub(super) fn completion_order(rig: &Rig) -> Outcome {
    const AT_ONCE: usize = 64;
    const SHORT: usize = 500;
    const LONG: usize = 200_000;
    let count = rig.bulk(1000);
    let (a, b) = rig.pair()?;
    // Operation i sends or writes the pattern from byte 8 i on, or reads it from the peer. What follows a long read
    // is done at the peer long before it.
    let mut rng = rig.rng();
    let plan: Vec<(OpKind, usize)> = (0..count)
        .map(|_| match rng.below(6) {
            0 => (OpKind::Send, rng.below(SHORT)),
            1 => (OpKind::Write, rng.below(SHORT)),
            2 => (OpKind::Write, 0),
            3 => (OpKind::Read, rng.below(SHORT)),
            4 => (OpKind::Read, LONG),
            _ => (OpKind::Atomic, 8),
        })
        .collect();
    let bytes = rig.pattern(0).bytes(LONG + 8 * count);
    let (source, remote) = (a.holding(&bytes)?, b.holding(&bytes)?);
    let (target, counter) = (b.buffer(count * SHORT)?, b.buffer(8)?);
    let (sink, inbox) = (a.buffer(AT_ONCE * LONG)?, b.buffer(AT_ONCE * SHORT)?);
    let mut counted = Vec::new();
    for i in 0..count + AT_ONCE {
        if let Some(done) = i.checked_sub(AT_ONCE) {
            let (kind, len) = plan[done];
            a.expect(Done::ok(done).kind(kind).len(len))?;
            let expected = &bytes[8 * done..8 * done + len];
            let (letter, place) = (done % AT_ONCE * SHORT, done % AT_ONCE * LONG);
            match kind {
                OpKind::Send => {
                    b.expect(Done::recv(done, len))?;
                    check_bytes!(inbox.bytes(letter..letter + len)?, expected, "message {done}");
                }
                OpKind::Read => {
                    check_bytes!(sink.bytes(place..place + len)?, expected, "read {done}");
                }
                OpKind::Atomic => counted.push(sink.get::<u64>(place)?),
                _ => {}
            }
        }
        let Some(&(kind, len)) = plan.get(i) else { continue };
        let from = source.slice(8 * i..8 * i + len);
        let (letter, place) = (i % AT_ONCE * SHORT, i % AT_ONCE * LONG);
        let into = sink.slice(place..place + len);
        let op = match kind {
            OpKind::Send => {
                b.recv(inbox.slice(letter..letter + SHORT), i as u64)?;
                Op::send(from)
            }
            OpKind::Write => Op::write(from, target.at(i * SHORT)),
            OpKind::Read => Op::read(into, remote.at(8 * i)),
            _ => Op::fetch_atomic(AtomicOp::Add, 1u64, into, counter.at(0)),
        };
        a.post(&op.context(i as u64))?;
    }

    a.settle(&b)?;
    for (i, (kind, len)) in plan.into_iter().enumerate() {
        let written = if kind == OpKind::Write { len } else { 0 };
        let place = i * SHORT..i * SHORT + written;
        check_bytes!(target.bytes(place.clone())?, bytes[8 * i..8 * i + written], "write {i}");
        target.check_filled(place.end..(i + 1) * SHORT, 0)?;
    }
    // Without fences atomics have no order among themselves; each was there once.
    counted.sort_unstable();
    let expected: Vec<_> = (0..counted.len() as u64).collect();
    check_eq!(counted, expected, "old values of the counter");
    Ok(())
}

pub(super) fn completion_order_emulated(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 50;
    let (a, b) = rig.pair()?;
    let (source, sink, olds) = (a.buffer(8)?, a.buffer(8)?, a.buffer(24)?);
    let (target, inbox, words) = (b.buffer(8)?, b.buffer(8)?, b.buffer(40)?);
    words.put(0, &0.25f64.to_ne_bytes())?;
    for round in 0..ROUNDS {
        source.put_pattern(.., rig.pattern(round))?;
        b.recv(&inbox, 9)?;
        // In turn what some devices have to emulate and what all can do at once. Without fences atomics may pass
        // each other, so each has a word of its own.
        a.post_batch(&[
            Op::fetch_atomic(AtomicOp::Add, 1.5f64, olds.slice(..8), words.at(0)).context(0),
            Op::write(&source, target.at(0)).context(1),
            Op::fetch_atomic(AtomicOp::Xor, 0xffu8, olds.slice(8..9), words.at(8)).context(2),
            Op::read(&sink, target.at(0)).context(3),
            Op::atomic(AtomicOp::Max, round as i16, words.at(16)).context(4),
            Op::fetch_atomic(AtomicOp::Add, 1u64, olds.slice(16..), words.at(24)).context(5),
            Op::atomic(AtomicOp::Swap, round as u32, words.at(32)).context(6),
            Op::send(&source).fence().context(7),
        ])?;
        a.expect_each(0..8)?;
        b.expect_ok(9)?;
        for buffer in [&target, &sink, &inbox] {
            buffer.check_pattern(.., rig.pattern(round))?;
        }
        check_bytes!(olds.bytes(..8)?, (0.25 + 1.5 * round as f64).to_ne_bytes(), "old sum");
        check_bytes!(olds.bytes(8..9)?, [[0, 0xff][round % 2]], "old bits");
        check_bytes!(olds.bytes(16..)?, (round as u64).to_ne_bytes(), "old count");
        check_bytes!(words.bytes(16..18)?, (round as i16).to_ne_bytes(), "the greatest round");
        check_bytes!(words.bytes(32..36)?, (round as u32).to_ne_bytes(), "the last round");
    }
    Ok(())
}

pub(super) fn cross_endpoint(rig: &Rig) -> Outcome {
    const ENDS: usize = 8;
    const EACH: usize = 100;
    const LEN: usize = 3000;
    let crowd = Crowd::new(rig, ENDS, depths(EACH, EACH))?;
    let (waiting, peer) = (&crowd.ends[0], &crowd.peers[0]);
    // Operation i of endpoint e is number e EACH + i.
    let source = Staggered::new(rig, waiting, LEN, ENDS * EACH)?;
    let (target, inbox) = (peer.buffer(ENDS * EACH * LEN)?, peer.buffer(LEN)?);
    // The first endpoint waits for a receive; no other waits for it.
    waiting.send(source.slice(0, LEN), 0)?;
    for i in 0..EACH {
        for (e, a) in crowd.ends.iter().enumerate().filter(|(e, _)| i + e > 0) {
            let at = e * EACH + i;
            a.write(source.slice(at, LEN), target.at(at * LEN), i as u64)?;
        }
    }
    let place = places(&crowd.ends);
    let mut next = [0; ENDS];
    let mut take = |count: usize| -> Outcome {
        for done in waiting.take(count)? {
            let Some(&e) = place.get(&done.endpoint) else {
                fail!("a completion of one of the endpoints", "{done:?}");
            };
            Done::ok(next[e]).check(&done)?;
            next[e] += 1;
        }
        Ok(())
    };
    take((ENDS - 1) * EACH)?;
    waiting.expect_none_for(Duration::from_millis(20))?;
    peer.recv(&inbox, 1)?;
    take(EACH)?;
    check_eq!(next, [EACH as u64; ENDS], "completions of each endpoint");

    peer.expect_ok(1)?;
    check_bytes!(inbox.bytes(..)?, source.bytes(0, LEN), "the message");
    crowd.pairs().try_for_each(|(a, b)| a.settle(b))?;
    target.check_filled(..LEN, 0)?;
    for at in 1..ENDS * EACH {
        let seen = target.bytes(at * LEN..(at + 1) * LEN)?;
        check_bytes!(seen, source.bytes(at, LEN), "write {at}");
    }
    Ok(())
}
