//! Sends that find no receive, and what goes on beside them.

use crate::cases::crowd::{Crowd, depths, joined};
use crate::cases::places::{Slots, Staggered};
use crate::prelude::*;
use crate::usage::Usage;

/// Bytes of long operations, on a device that has them.
fn long(rig: &Rig) -> usize {
    rig.info().limits.message.min(1 << 20) as usize
}

pub(super) fn slow_consumer(rig: &Rig) -> Outcome {
    const DEPTH: usize = 64;
    const RECEIVES: usize = 4;
    const NAP: Duration = Duration::from_millis(5);
    // What is posted and finds no receive is far more than the memory that may be used for it.
    const MAX_GROWTH: usize = 6 << 20;
    let len = long(rig) / 4;
    let count = rig.count(4 * DEPTH, 64 * DEPTH);
    let (a, b) = rig.pair_with(|attr| attr.send_depth = DEPTH)?;
    let source = Staggered::new(rig, &a, len, count)?;
    let sink = Slots::new(&b, RECEIVES, len)?;
    sink.fill(1)?;
    // Sending and receiving get their memory.
    a.settle(&b)?;
    let before = Usage::now()?.resident_bytes;
    let mut peak = 0;
    thread::scope(|scope| -> Outcome {
        let sender = scope.spawn(|| -> Outcome {
            for i in 0..count {
                a.post_when_room(&Op::send(source.slice(i, len)).unsignaled())?;
            }
            Ok(())
        });
        sink.post(&b, 0..RECEIVES)?;
        let mut next = 0;
        let mut deadline = rig.deadline(Duration::from_secs(10));
        while next < count {
            check!(Instant::now() < deadline, "message {next} of {count} within 10 s");
            thread::sleep(NAP);
            peak = peak.max(Usage::now()?.resident_bytes);
            let mut room = [Completion::default(); RECEIVES];
            let got = b.cq().poll(&mut room)?;
            for done in &room[..got] {
                Done::recv(next, len).check(done)?;
                check_bytes!(sink.seen(next, len)?, source.bytes(next, len), "message {next}");
                b.recv(sink.slot(next), (next + RECEIVES) as u64)?;
                next += 1;
                deadline = rig.deadline(Duration::from_secs(10));
            }
        }
        joined(sender)
    })?;
    let (grown, posted) = (peak.saturating_sub(before), DEPTH * len);
    check!(grown < MAX_GROWTH, "less than {MAX_GROWTH} bytes for {posted} posted, not {grown}");
    check_eq!(a.cq().poll_one()?, None, "a completion of what was unsignaled");
    Ok(())
}

pub(super) fn stalled_send_reverse(rig: &Rig) -> Outcome {
    const BEHIND: usize = 8;
    for len in [8, long(rig)] {
        let (a, b, stalled, inbox) = rig.transfer(len)?;
        let (mine, target) = (a.buffer(len + 8)?, b.buffer(len)?);
        mine.put_pattern(..len, rig.pattern(1))?;
        let (into, source, received) = (b.buffer(len + 8)?, b.buffer(len)?, a.buffer(len)?);
        source.put_pattern(.., rig.pattern(2))?;
        a.recv(&received, 50)?;
        // There is no receive for it, and more waits behind it than any socket takes.
        a.send(&stalled, 0)?;
        for i in 1..=BEHIND {
            a.write(&stalled, target.at(0), i as u64)?;
        }

        b.run(Op::read(into.slice(..len), mine.at(0)), Done::ok(0))?;
        into.check_pattern(..len, rig.pattern(1))?;
        b.write(&source, mine.at(0), 1)?;
        b.fetch_add(5u64, into.slice(len..), mine.at(len), 2)?;
        b.send(&source, 3)?;
        b.expect_each(1..=3)?;
        a.expect_ok(50)?;
        received.check_pattern(.., rig.pattern(2))?;
        mine.check_pattern(..len, rig.pattern(2))?;
        check_eq!(mine.get::<u64>(len)?, 5, "the word that was added to");
        a.expect_none_for(Duration::from_millis(20))?;
        target.check_filled(.., 0)?;

        b.recv(&inbox, 4)?;
        b.expect_ok(4)?;
        a.expect_each(0..=BEHIND)?;
        a.settle(&b)?;
        inbox.check_pattern(.., rig.pattern(0))?;
        target.check_pattern(.., rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn stalled_both(rig: &Rig) -> Outcome {
    for len in [8, long(rig)] {
        let (a, b) = rig.pair()?;
        let ends = [&a, &b];
        let make = |salt: usize| -> Result<Vec<Guarded>, Failed> {
            ends.iter().map(|end| end.patterned(len, rig.pattern(salt))).collect()
        };
        let (shown, said) = (make(1)?, make(2)?);
        let (read, heard) = (make(3)?, make(4)?);
        for (i, end) in ends.iter().enumerate() {
            end.read(&read[i], shown[1 - i].at(0), 1)?;
            end.send(&said[i], 2)?;
        }
        for (i, end) in ends.iter().enumerate() {
            end.expect_ok(1)?;
            read[i].check_pattern(.., rig.pattern(1))?;
        }
        for end in ends {
            end.expect_none_for(Duration::from_millis(20))?;
        }
        a.recv(&heard[0], 3)?;
        b.recv(&heard[1], 3)?;
        for (i, end) in ends.iter().enumerate() {
            // A send and a receive end in either order.
            let done = [end.next()?, end.next()?];
            for (context, kind) in [(2, OpKind::Send), (3, OpKind::Recv)] {
                let ok = |done: &Completion| {
                    (done.context, done.kind, done.status) == (context, kind, Status::Ok)
                };
                check_eq!(done.iter().filter(|done| ok(done)).count(), 1, "{kind:?}s in {done:?}");
            }
            heard[i].check_pattern(.., rig.pattern(2))?;
        }
    }
    Ok(())
}

pub(super) fn one_slow_of_many(rig: &Rig) -> Outcome {
    const ENDS: usize = 8;
    const BEHIND: usize = 20;
    const DEPTH: usize = BEHIND + 1;
    let rounds = rig.count(200, 5000);
    let len = long(rig) / 8;
    let crowd = Crowd::new(rig, ENDS, depths(DEPTH, DEPTH))?;
    let Crowd { ends, peers } = &crowd;
    let (slow, its_peer) = (&ends[0], &peers[0]);
    let source = slow.patterned(len, rig.pattern(0))?;
    let (inbox, target) = (its_peer.buffer(len)?, its_peer.buffer(len)?);
    slow.send(&source, 0)?;
    for i in 1..=BEHIND {
        slow.write(&source, target.at(0), i as u64)?;
    }

    let sink = its_peer.buffer(ENDS * 8)?;
    for round in 0..rounds as u64 {
        for (i, (end, peer)) in crowd.pairs().enumerate().skip(1) {
            peer.recv(sink.slice(i * 8..i * 8 + 8), round)?;
            end.inject(&(round << 8 | i as u64).to_ne_bytes(), round)?;
        }
        // All ends of a side share its queue.
        for side in [slow, its_peer] {
            for done in side.take(ENDS - 1)? {
                check!(done.endpoint != side.id(), "nothing of the stalled one, not {done:?}");
                check_eq!((done.context, done.status), (round, Status::Ok), "{:?}", done.kind);
            }
        }
        let expected = (1..ENDS as u64).flat_map(|i| (round << 8 | i).to_ne_bytes());
        let expected: Vec<_> = expected.collect();
        check_bytes!(sink.bytes(8..)?, expected, "the messages of round {round}");
    }
    check_eq!(slow.state(), EndpointState::Connected, "state of the stalled end");
    target.check_filled(.., 0)?;

    its_peer.recv(&inbox, 1)?;
    its_peer.expect_ok(1)?;
    slow.expect_each(0..=BEHIND)?;
    slow.settle(its_peer)?;
    inbox.check_pattern(.., rig.pattern(0))?;
    target.check_pattern(.., rig.pattern(0))
}
