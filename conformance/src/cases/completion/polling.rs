//! What polling gives.

use std::collections::VecDeque;

use crate::cases::crowd::{Crowd, depths, places, post_receives};
use crate::cases::places::Slots;
use crate::prelude::*;

pub(super) fn context_echo(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (local, target) = (a.buffer(8)?, b.buffer(8)?);
    let extremes = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, 0xffff_ffff];
    for context in extremes {
        b.recv(&target, context)?;
        b.recv(Slices::none(), !context)?;
        a.send(&local, context)?;
        a.write(&local, target.at(0), !context)?;
        a.read(&local, target.at(0), context)?;
        a.inject(b"", !context)?;
        for (context, kind) in [
            (context, OpKind::Send),
            (!context, OpKind::Write),
            (context, OpKind::Read),
            (!context, OpKind::Send),
        ] {
            let done = a.expect(Done::ok(context).kind(kind))?;
            check_eq!(done.endpoint, a.id(), "its endpoint");
        }
        for context in [context, !context] {
            let received = b.expect(Done::ok(context).kind(OpKind::Recv))?;
            check_eq!(received.endpoint, b.id(), "its endpoint");
        }
    }
    local.check_filled(.., 0)
}

pub(super) fn shared_queue(rig: &Rig) -> Outcome {
    const ENDS: usize = 16;
    const EACH: usize = 32;
    let Crowd { ends, peers } = Crowd::new(rig, ENDS, depths(EACH, EACH))?;
    // The contexts are the same for all endpoints.
    let sink = peers[0].buffer(ENDS * EACH * 8)?;
    post_receives(&peers, &sink, EACH)?;
    let mut posts: Vec<usize> = (0..ENDS).flat_map(|who| [who; EACH]).collect();
    rig.rng().shuffle(&mut posts);
    let mut posted = [0; ENDS];
    for who in posts {
        let i = posted[who];
        posted[who] += 1;
        ends[who].inject(&((who * EACH + i) as u64).to_ne_bytes(), i as u64)?;
    }

    for (side, of_side) in [("sender", &ends), ("receiver", &peers)] {
        let (place, mut next) = (places(of_side), [0; ENDS]);
        for done in of_side[0].take(ENDS * EACH)? {
            let Some(&who) = place.get(&done.endpoint) else {
                fail!(format!("an endpoint of a {side}"), "{done:?}");
            };
            let expected = (next[who], Status::Ok);
            check_eq!((done.context, done.status), expected, "completion of {side} {who}");
            next[who] += 1;
        }
        check_eq!(next, [EACH as u64; ENDS], "completions of each {side}");
    }
    let expected = (0..(ENDS * EACH) as u64).flat_map(u64::to_ne_bytes).collect::<Vec<_>>();
    check_bytes!(sink.bytes(..)?, expected, "the messages, each at its endpoint's receives");
    Ok(())
}

pub(super) fn poll_batch(rig: &Rig) -> Outcome {
    const SENDS: usize = 100;
    let (a, b) = rig.pair()?;
    let sink = Slots::new(&b, SENDS, 8)?;
    sink.post(&b, 0..SENDS)?;
    for i in 0..SENDS {
        a.inject(&(i as u64).to_ne_bytes(), i as u64)?;
    }
    // When all are sent, all or nearly all are there to be taken by the receiver.
    a.take(SENDS)?;
    let mut rng = rig.rng();
    let mut taken = Vec::new();
    let deadline = rig.deadline(Duration::from_secs(10));
    while taken.len() < SENDS {
        check!(Instant::now() < deadline, "all of {SENDS} completions, not {}", taken.len());
        // A room of none is allowed, and takes none.
        let mut room = vec![Completion::default(); rng.below(8)];
        let got = b.cq().poll(&mut room)?;
        check!(got <= room.len(), "at most {} completions, not {got}", room.len());
        taken.extend(room[..got].iter().map(|done| (done.context, done.status, done.len)));
    }
    let expected: Vec<_> = (0..SENDS as u64).map(|i| (i, Status::Ok, 8)).collect();
    check_eq!(taken, expected, "the completions in order");
    check_eq!(b.cq().poll_one()?, None, "one more");
    let expected = (0..SENDS as u64).flat_map(u64::to_ne_bytes).collect::<Vec<_>>();
    check_bytes!(sink.bytes(..)?, expected, "the messages");
    Ok(())
}

pub(super) fn poll_empty(rig: &Rig) -> Outcome {
    let unbound = rig.domain_a().completion_queue(16)?;
    let idle = rig.end(rig.domain_a())?;
    let (a, b) = rig.pair()?;
    a.settle(&b)?;
    let mut room = [Completion::default(); 4];
    for (queue, what) in [
        (&unbound, "a queue without endpoints"),
        (&**idle.cq(), "the queue of an endpoint that is not connected"),
        (&**a.cq(), "a queue whose completions were taken"),
        (&**b.cq(), "the peer's"),
    ] {
        for _ in 0..100 {
            check_eq!(queue.poll(&mut room)?, 0, "completions of {what}");
            check_eq!(queue.poll_one()?, None, "a completion of {what}");
        }
    }
    a.settle(&b)
}

pub(super) fn exactly_once(rig: &Rig) -> Outcome {
    const DEPTH: usize = 128;
    const RECEIVES: usize = 100;
    const SLOTS: usize = 64;
    let total = rig.bulk(rig.count(100_000, 1_000_000)) as u64;
    let (a, b) = rig.pair_with(|attr| attr.send_depth = DEPTH)?;
    let target = b.buffer(SLOTS * 8)?;
    let constants = b.patterned(SLOTS * 8, rig.pattern(0))?;
    let into = a.buffer(DEPTH * 8)?;
    let sink = Slots::new(&b, RECEIVES, 8)?;
    let constant = rig.pattern(0).bytes(SLOTS * 8);
    let bytes = |slot: usize| slot * 8..slot * 8 + 8;
    sink.post(&b, 0..RECEIVES)?;

    let mut rng = rig.rng();
    // What must complete (and the slot of what a read reads), what must arrive, the last write of each slot.
    let mut signaled: VecDeque<(u64, OpKind, usize)> = VecDeque::new();
    let mut sent: VecDeque<u64> = VecDeque::new();
    let mut written = [0u64; SLOTS];
    let (mut next, mut received) = (0u64, 0u64);
    // Reads posted and taken, so numbered because unsignaled operations in between may have made room already.
    let (mut reading, mut read) = (0, 0);
    let mut deadline = rig.deadline(Duration::from_secs(10));
    let mut room = [Completion::default(); 32];
    while next < total || !signaled.is_empty() || !sent.is_empty() {
        let in_time = Instant::now() < deadline;
        check!(in_time, "a completion within 10 s; {next} of {total} were posted");
        // As many as fit.
        while next < total {
            let number = next.to_ne_bytes();
            // What does not fit is drawn again, the same: so the operations do not depend on time.
            let mut draw = rng.clone();
            let kind = *draw.pick(&[OpKind::Send, OpKind::Write, OpKind::Read]);
            let slot = draw.below(SLOTS);
            let op = match kind {
                OpKind::Send => Op::inject(&number),
                OpKind::Write => Op::inject_write(&number, target.at(slot * 8)),
                _ => Op::read(into.slice(bytes(reading % DEPTH)), constants.at(slot * 8)),
            };
            // Reads are signaled, since what they read is looked at; and the last of all.
            let quiet = draw.below(4) == 0 && kind != OpKind::Read && next + 1 < total;
            let op = op.context(next);
            match a.post(&if quiet { op.unsignaled() } else { op }) {
                Err(Error::Again) => break,
                result => result?,
            }
            rng = draw;
            match kind {
                OpKind::Send => sent.push_back(next),
                OpKind::Write => written[slot] = next,
                _ => reading += 1,
            }
            if !quiet {
                signaled.push_back((next, kind, slot));
            }
            next += 1;
        }
        let got = a.cq().poll(&mut room)?;
        for done in &room[..got] {
            let Some((context, kind, slot)) = signaled.pop_front() else {
                fail!("no more completions than signaled operations", "{done:?}");
            };
            Done::ok(context).kind(kind).check(done)?;
            if kind == OpKind::Read {
                let own = bytes(read % DEPTH);
                read += 1;
                let seen = into.bytes(own.clone())?;
                check_bytes!(seen, constant[bytes(slot)], "what read {context} got");
                into.put(own.start, &[0; 8])?;
            }
            deadline = rig.deadline(Duration::from_secs(10));
        }
        let got = b.cq().poll(&mut room)?;
        for done in &room[..got] {
            Done::recv(received, 8).check(done)?;
            let Some(number) = sent.pop_front() else {
                fail!("no more receives than sends", "{done:?}");
            };
            let i = received as usize;
            check_bytes!(sink.seen(i, 8)?, number.to_ne_bytes(), "message {i}");
            b.recv(sink.slot(i), received + RECEIVES as u64)?;
            received += 1;
            deadline = rig.deadline(Duration::from_secs(10));
        }
    }
    check_eq!(a.cq().poll_one()?, None, "one more completion of the initiator");
    check_eq!(b.cq().poll_one()?, None, "one more receive");
    // One more message, to the next receive in line, and all writes are visible.
    a.run(Op::inject(b"the end."), Done::ok(total))?;
    b.expect_ok(received)?;
    let written = written.into_iter().flat_map(u64::to_ne_bytes).collect::<Vec<_>>();
    check_bytes!(target.bytes(..)?, written, "the last write of each slot");
    Ok(())
}

pub(super) fn depth_counts_untaken(rig: &Rig) -> Outcome {
    const DEPTH: usize = 8;
    let (a, b) = rig.pair_with(depths(DEPTH, DEPTH))?;
    let (source, sink) = (a.patterned(8, rig.pattern(0))?, b.buffer(DEPTH * 8)?);
    let slot = |i: usize| sink.slice(i * 8..i * 8 + 8);
    for i in 0..DEPTH {
        b.recv(slot(i), i as u64)?;
        a.send(&source, i as u64)?;
    }
    // They get done meanwhile on both sides; no completion is taken.
    let until = rig.deadline(Duration::from_millis(100));
    while Instant::now() < until {
        check_err!(a.send(&source, 99), Error::Again, "a send beyond the depth");
        check_err!(b.recv(slot(0), 99), Error::Again, "a receive beyond the depth");
        thread::sleep(Duration::from_millis(1));
    }
    // One taken, one more; on either side.
    for i in DEPTH..2 * DEPTH {
        b.expect_ok(i - DEPTH)?;
        b.recv(slot(i - DEPTH), i as u64)?;
        check_err!(b.recv(slot(0), 99), Error::Again, "a receive beyond the depth, after {i}");
        a.expect_ok(i - DEPTH)?;
        a.send(&source, i as u64)?;
        check_err!(a.send(&source, 99), Error::Again, "a send beyond the depth, after {i}");
    }
    // What was refused has left no trace.
    for i in DEPTH..2 * DEPTH {
        b.expect_ok(i)?;
        a.expect_ok(i)?;
    }
    a.expect_none_for(Duration::from_millis(20))?;
    b.expect_none_for(Duration::from_millis(1))?;
    for i in 0..DEPTH {
        sink.check_pattern(i * 8..i * 8 + 8, rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn late_poll(rig: &Rig) -> Outcome {
    const LEN: usize = 4096;
    for end in ["disconnect", "the peer's disconnect", "the peer's drop"] {
        let (a, b) = rig.pair()?;
        let (sink, source) = (a.buffer(LEN)?, b.patterned(LEN, rig.pattern(0))?);
        let cell = b.buffer(8)?;
        a.post(&Op::read(&sink, source.at(0)).context(0))?;
        a.post(&Op::inject_write(&1u64.to_ne_bytes(), cell.at(0)).context(1).unsignaled())?;
        rig.eventually(|| sink.check_pattern(.., rig.pattern(0)))?;
        rig.eventually(|| {
            check_bytes!(cell.bytes(..)?, 1u64.to_ne_bytes(), "the write behind the read");
            Ok(())
        })?;
        // That this side has heard so takes a moment more.
        thread::sleep(rig.scaled(Duration::from_millis(100)));
        match end {
            "disconnect" => a.disconnect(),
            "the peer's disconnect" => b.disconnect(),
            _ => drop(b),
        }
        a.expect_disconnected()?;
        a.expect_ok(0)?;
        a.expect_none_for(Duration::from_millis(5))?;
    }
    Ok(())
}
