//! Which bytes are seen where, and when.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::cases::places::Staggered;
use crate::prelude::*;

pub(super) fn read_own_write(rig: &Rig) -> Outcome {
    let rounds = rig.bulk(300);
    const MAX: usize = 300_000;
    let (a, b) = rig.pair()?;
    // Always to the same place.
    let (source, target) = (Staggered::new(rig, &a, MAX, rounds)?, b.buffer(MAX)?);
    let sink = a.buffer(MAX)?;
    for round in 0..rounds {
        let len = [8, 3000, MAX][round % 3];
        a.post(&Op::write(source.slice(round, len), target.at(0)).unsignaled())?;
        a.run(Op::read(sink.slice(..len), target.at(0)), Done::ok(round))?;
        check_bytes!(sink.bytes(..len)?, source.bytes(round, len), "{len} bytes read back");
    }
    Ok(())
}

pub(super) fn delivery_complete(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 60;
    const MAX: usize = 1 << 20;
    let (a, b) = rig.pair()?;
    let (source, target) = (Staggered::new(rig, &a, MAX, ROUNDS)?, b.buffer(MAX)?);
    let len = |round: usize| [8, 100, 5000, 300_000, MAX][round % 5];
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (report, reports) = mpsc::channel();
        let (done, source, target) = (&done, &source, &target);
        // A thread of the peer that makes no call of the library for it. It spins: to be woken would take longer
        // than bytes that are late.
        scope.spawn(move || {
            for round in 0..ROUNDS {
                loop {
                    match done.load(Ordering::Acquire) {
                        usize::MAX => return,
                        rounds if rounds > round => break,
                        _ => thread::yield_now(),
                    }
                }
                let look = || {
                    let (seen, sent) =
                        (target.bytes(..len(round))?, source.bytes(round, len(round)));
                    check_bytes!(seen, sent, "what the peer sees in round {round}");
                    Ok(())
                };
                // Once a round has failed, it is not received any more.
                drop(report.send(look()));
            }
        });
        let rounds = (0..ROUNDS).try_for_each(|round| {
            let op = Op::write(source.slice(round, len(round)), target.at(0));
            a.run(op.delivery_complete(), Done::ok(round))?;
            done.store(round + 1, Ordering::Release);
            reports.recv().unwrap_or_else(|gone| fail!("the peer's thread to look", "{gone}"))
        });
        done.store(usize::MAX, Ordering::Release);
        rounds
    })?;
    Ok(())
}

pub(super) fn dc_write_only(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    for (i, len) in [1, 8, 5000, 300_000].into_iter().enumerate() {
        let source = a.patterned(len, rig.pattern(i))?;
        let target = b.buffer_with(len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let op = Op::write(&source, target.at(0)).delivery_complete();
        a.run(op, Done::write(i, len))?;
        target.check_pattern(.., rig.pattern(i))?;
    }
    Ok(())
}

pub(super) fn dc_covers_prior(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 10;
    const WRITES: usize = 30;
    const LEN: usize = 20_000;
    let (a, b) = rig.pair()?;
    let (source, target) = (Staggered::new(rig, &a, LEN, ROUNDS)?, b.buffer(WRITES * LEN)?);
    // Another region, which has nothing to do with the first.
    let last = b.buffer_with(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    for round in 0..ROUNDS {
        let write = |i: usize| Op::write(source.slice(round, LEN), target.at(i * LEN)).unsignaled();
        let mut ops: Vec<_> = (0..WRITES).map(write).collect();
        let flag = Op::write(source.slice(round, 8), last.at(0));
        ops.push(flag.fence().delivery_complete().context(round as u64));
        a.post_batch(&ops)?;
        a.expect_ok(round)?;
        for i in 0..WRITES {
            let seen = target.bytes(i * LEN..(i + 1) * LEN)?;
            check_bytes!(seen, source.bytes(round, LEN), "plain write {i} of round {round}");
        }
        check_bytes!(last.bytes(..)?, source.bytes(round, 8), "the last write of round {round}");
    }
    Ok(())
}

pub(super) fn overlap_writes(rig: &Rig) -> Outcome {
    const WRITES: usize = 500;
    const AREA: usize = 300_000;
    const AT_ONCE: usize = 100;
    let (a, b) = rig.pair()?;
    let (source, target) = (Staggered::new(rig, &a, AREA, WRITES)?, b.buffer(AREA)?);
    let mut model = vec![0; AREA];
    let mut rng = rig.rng();
    for i in 0..WRITES {
        let max = *rng.pick(&[8, 300, 5000, AREA / 4, AREA]);
        let len = 1 + rng.below(max);
        let at = rng.below(AREA - len + 1);
        model[at..at + len].copy_from_slice(source.bytes(i, len));
        a.write(source.slice(i, len), target.at(at), i as u64)?;
        if i >= AT_ONCE {
            a.expect_ok(i - AT_ONCE)?;
        }
    }
    a.expect_each(WRITES - AT_ONCE..WRITES)?;
    a.settle(&b)?;
    check_bytes!(target.bytes(..)?, model, "the area after all writes");
    Ok(())
}

pub(super) fn read_during_write(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 20;
    const READS: usize = 3;
    const LEN: usize = 150_000;
    let (a, b) = rig.pair()?;
    let (reader, _other) = rig.pair()?;
    let source = Staggered::new(rig, &a, LEN, ROUNDS)?;
    let target = b.holding(source.bytes(0, LEN))?;
    let sink = reader.buffer(READS * LEN)?;
    for round in 1..ROUNDS {
        let (old, new) = (source.bytes(round - 1, LEN), source.bytes(round, LEN));
        // Delivery-complete, so that the other endpoint has nothing older to see in the next round.
        let op = Op::write(source.slice(round, LEN), target.at(0));
        a.post(&op.delivery_complete().context(round as u64))?;
        for i in 0..READS {
            reader.read(sink.slice(i * LEN..(i + 1) * LEN), target.at(0), i as u64)?;
        }
        a.expect_ok(round)?;
        for i in 0..READS {
            reader.expect_ok(i)?;
            let seen = sink.bytes(i * LEN..(i + 1) * LEN)?;
            let neither = (0..LEN).find(|&at| seen[at] != old[at] && seen[at] != new[at]);
            check_eq!(neither, None, "byte of read {i} in round {round} that is neither");
        }
        reader.run(Op::read(sink.slice(..LEN), target.at(0)), Done::ok(99))?;
        check_bytes!(sink.bytes(..LEN)?, new, "what is read after the write");
    }
    Ok(())
}

pub(super) fn dc_other_initiator(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 40;
    const MAX: usize = 300_000;
    let (a, b) = rig.pair()?;
    // Another endpoint of the initiator's domain, and one of another domain.
    let elsewhere = rig.extra_domain()?;
    let (near, _near_peer) = rig.pair()?;
    let (far, _far_peer) = rig.pair_on(&elsewhere, rig.domain_b())?;
    let (source, target) = (Staggered::new(rig, &a, MAX, ROUNDS)?, b.buffer(MAX)?);
    let sinks = [near.buffer(MAX)?, far.buffer(MAX)?];
    for round in 0..ROUNDS {
        let len = [8, 5000, 100, MAX][round % 4];
        let op = Op::write(source.slice(round, len), target.at(0));
        a.run(op.delivery_complete(), Done::ok(round))?;
        for (reader, sink) in [&near, &far].into_iter().zip(&sinks) {
            reader.run(Op::read(sink.slice(..len), target.at(0)), Done::ok(round))?;
            check_bytes!(sink.bytes(..len)?, source.bytes(round, len), "what {reader:?} reads");
        }
    }
    Ok(())
}

pub(super) fn relaxed_ordering(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 30;
    const LEN: usize = 100_000;
    let relaxed = |access| access | Access::RELAXED_ORDERING;
    let (a, b) = rig.pair()?;
    // Round i moves the pattern from byte 8 i on.
    let bytes = rig.pattern(0).bytes(LEN + 8 * ROUNDS);
    let source = a.buffer_with(bytes.len(), relaxed(Access::LOCAL_WRITE))?;
    source.put(0, &bytes)?;
    let target = b.buffer_with(LEN, relaxed(Access::ALL))?;
    let (back, sink) = (a.buffer(LEN)?, b.buffer_with(LEN, relaxed(Access::LOCAL_WRITE))?);
    for round in 0..ROUNDS {
        let now = 8 * round..8 * round + LEN;
        let slice = source.slice(now.clone());
        // What delivery-complete says, it says of this memory as well.
        a.run(Op::write(slice, target.at(0)).delivery_complete(), Done::ok(1))?;
        check_bytes!(target.bytes(..)?, bytes[now.clone()], "what the peer's CPU sees");
        a.run(Op::read(&back, target.at(0)), Done::ok(2))?;
        check_bytes!(back.bytes(..)?, bytes[now.clone()], "what is read back");
        // All bytes arrive, though perhaps after the completion that usually says so.
        a.deliver(Op::send(slice).context(4), &b, &sink, Done::recv(3, LEN))?;
        a.expect_ok(4)?;
        rig.eventually(|| {
            check_bytes!(sink.bytes(..)?, bytes[now.clone()], "the message");
            Ok(())
        })?;
    }
    // It is no right, and takes none away.
    let closed = b.buffer_with(8, relaxed(Access::LOCAL_WRITE))?;
    let descriptor = forged_access(&closed.region().remote(), Access::ALL);
    a.run(Op::write(source.slice(..8), descriptor.at(closed.at(0).offset())), Done::refused(5))?;
    closed.check_filled(.., 0)
}
