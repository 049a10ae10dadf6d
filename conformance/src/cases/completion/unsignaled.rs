//! Operations without a completion when they succeed, and those that no one waits for.

use crate::prelude::*;

pub(super) fn unsignaled(rig: &Rig) -> Outcome {
    const OPS: usize = 100;
    const EACH: usize = 100;
    let (a, b, source, target) = rig.transfer(OPS * EACH)?;
    let slot = |i: usize| i * EACH..(i + 1) * EACH;
    // Writes and sends in turn; each ends at its place of the one buffer.
    let is_send = |i: usize| i % 2 == 1;
    for i in (0..OPS).filter(|i| is_send(*i)) {
        b.recv(target.slice(slot(i)), i as u64)?;
    }
    for i in 0..OPS {
        let from = source.slice(slot(i));
        let op = if is_send(i) { Op::send(from) } else { Op::write(from, target.at(i * EACH)) };
        let op = op.context(i as u64);
        a.post(&if i == OPS - 1 { op } else { op.unsignaled() })?;
    }
    a.expect_ok(OPS as u64 - 1)?;
    b.expect_each((0..OPS).filter(|i| is_send(*i)))?;
    // The last receive comes behind all of them.
    target.check_pattern(.., rig.pattern(0))?;
    a.expect_none_for(Duration::from_millis(20))
}

pub(super) fn all_unsignaled(rig: &Rig) -> Outcome {
    const DEPTH: usize = 8;
    const WRITES: usize = 100 * DEPTH;
    const EACH: usize = 64;
    let (a, b) = rig.pair_with(|attr| attr.send_depth = DEPTH)?;
    let source = a.patterned(WRITES * EACH, rig.pattern(0))?;
    let target = b.buffer(WRITES * EACH)?;
    for i in 0..WRITES {
        let slot = i * EACH..(i + 1) * EACH;
        let write = Op::write(source.slice(slot), target.at(i * EACH)).context(i as u64);
        a.post_when_room(&write.unsignaled())?;
        check_eq!(a.cq().poll_one()?, None, "a completion after unsignaled write {i}");
    }
    // The first completion is that of an operation which asks for one; all before it is done.
    a.post_when_room(&Op::write(source.slice(..EACH), target.at(0)).context(7))?;
    a.expect_ok(7)?;
    a.settle(&b)?;
    target.check_pattern(.., rig.pattern(0))
}

pub(super) fn unsignaled_error(rig: &Rig) -> Outcome {
    let (a, b, source, target) = rig.transfer(32)?;
    for i in 0..3 {
        let write = Op::write(source.slice(i * 8..i * 8 + 8), target.at(i * 8));
        a.post(&write.context(i as u64).unsignaled())?;
    }
    let bad = Op::write(source.slice(24..32), target.by_wrong_key(24));
    a.post(&bad.context(3).unsignaled())?;
    // Of the good ones nothing is heard.
    a.expect(Done::refused(3).kind(OpKind::Write))?;
    a.expect_none_for(Duration::from_millis(20))?;
    b.expect_disconnected()?;
    rig.eventually(|| target.check_pattern(..24, rig.pattern(0)))?;
    target.check_filled(24.., 0)
}

pub(super) fn unsignaled_flush(rig: &Rig) -> Outcome {
    const BEHIND: usize = 20;
    // Behind an operation that is refused, in one batch with it.
    let (a, b, source, target) = rig.transfer(8)?;
    let lie = target.by_wrong_key(0);
    let mut ops = vec![Op::write(&source, lie).context(0).unsignaled()];
    let write = |i: usize| Op::write(&source, target.at(0)).context(i as u64).unsignaled();
    ops.extend((1..=BEHIND).map(write));
    a.post_batch(&ops)?;
    a.expect(Done::refused(0))?;
    for i in 1..=BEHIND {
        a.expect(Done::canceled(i).kind(OpKind::Write))?;
    }
    a.expect_none_for(Duration::from_millis(20))?;
    b.expect_disconnected()?;
    target.check_filled(.., 0)?;

    // Unmatched, when this side closes.
    let (a, _b) = rig.pair()?;
    let source = a.buffer(8)?;
    for i in 0..BEHIND {
        a.post(&Op::send(&source).context(i as u64).unsignaled())?;
    }
    a.disconnect();
    for i in 0..BEHIND {
        a.expect(Done::canceled(i).kind(OpKind::Send))?;
    }
    a.expect_none_for(Duration::from_millis(20))
}

pub(super) fn unsignaled_post_only(rig: &Rig) -> Outcome {
    const WRITES: usize = 100_000;
    const SLOTS: usize = 1000;
    let (a, b) = rig.pair()?;
    let target = b.buffer(SLOTS * 8)?;
    let sink = b.buffer(8)?;
    b.recv(&sink, 1)?;
    for i in 0..WRITES {
        let number = (i as u64).to_ne_bytes();
        let write = Op::inject_write(&number, target.at(i % SLOTS * 8)).context(i as u64);
        a.post_when_room(&write.unsignaled())?;
    }
    a.post_when_room(&Op::inject(b"the end.").unsignaled())?;
    // When the peer has that, it has all of it.
    b.expect_ok(1)?;
    check_bytes!(sink.bytes(..)?, b"the end.", "the message behind the writes");
    let last = (WRITES - SLOTS..WRITES).flat_map(|i| (i as u64).to_ne_bytes());
    check_bytes!(target.bytes(..)?, last.collect::<Vec<_>>(), "the last write of each slot");
    // The first poll of all finds nothing.
    check_eq!(a.cq().poll_one()?, None, "a completion of what was unsignaled");
    Ok(())
}

pub(super) fn unsignaled_slot(rig: &Rig) -> Outcome {
    const DEPTH: usize = 4;
    const SENDS: usize = DEPTH + 3;
    let (a, b) = rig.pair_with(|attr| attr.send_depth = DEPTH)?;
    let (source, sink) = (a.patterned(SENDS * 8, rig.pattern(0))?, b.buffer(SENDS * 8)?);
    let slot = |i: usize| i * 8..i * 8 + 8;
    let send = |i: usize| Op::send(source.slice(slot(i))).context(i as u64).unsignaled();
    for i in 0..DEPTH {
        a.post(&send(i))?;
    }
    check_err!(a.post(&send(0)), Error::Again, "a send beyond the depth");
    for i in DEPTH..SENDS {
        b.recv(sink.slice(slot(i - DEPTH)), i as u64)?;
        // No poll on this side; the other takes what has come.
        a.post_when_room(&send(i))?;
        b.expect_ok(i)?;
        check_err!(a.post(&send(0)), Error::Again, "a send beyond the depth, after send {i}");
    }
    for i in SENDS..SENDS + DEPTH {
        b.recv(sink.slice(slot(i - DEPTH)), i as u64)?;
        b.expect_ok(i)?;
    }
    sink.check_pattern(.., rig.pattern(0))?;
    a.expect_none_for(Duration::from_millis(20))
}

pub(super) fn lazy(rig: &Rig) -> Outcome {
    const EACH: usize = 5000;
    let (a, b, source, target) = rig.transfer(EACH)?;
    for round in 0..60 {
        let base = 10 * round;
        let ops = [
            Op::inject(b"short"),
            Op::send(source.slice(..EACH)),
            Op::write(source.slice(..EACH), target.at(0)),
            Op::send(source.slice(..64)),
            Op::read(source.slice(..8), target.at(0)),
            Op::inject(b"last"),
        ];
        // As many as there are, from each of them on.
        let ops = &ops[round as usize % ops.len()..];
        for (i, op) in ops.iter().enumerate() {
            let context = base + i as u64;
            if op.kind() == OpKind::Send {
                b.recv(&target, context)?;
            }
            // In every other round one of them is not.
            let op = if round % 2 == 1 && i == 1 { *op } else { op.lazy() };
            a.post(&op.context(context))?;
        }
        for i in 0..ops.len() {
            let context = base + i as u64;
            let done = match round % 3 {
                0 => a.expect(Done::ok(context))?,
                1 => a.cq().wait_one(Some(rig.scaled(Duration::from_secs(10))))?,
                _ => {
                    thread::sleep(Duration::from_millis(2));
                    a.expect(Done::ok(context))?
                }
            };
            check_eq!((done.context, done.status), (context, Status::Ok), "a lazy operation");
        }
        for (i, _) in ops.iter().enumerate().filter(|(_, op)| op.kind() == OpKind::Send) {
            b.expect_ok(base + i as u64)?;
        }
    }
    Ok(())
}
