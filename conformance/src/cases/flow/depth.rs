//! How much a queue takes, and what becomes of the rest.

use crate::cases::crowd::{Crowd, depths, places};
use crate::prelude::*;

/// Depths that are no powers of two among them: devices round their rings up.
const DEPTHS: [usize; 5] = [1, 2, 3, 33, 100];

/// Where the operations of a case go: a word to write, one to count in, and half a one.
const WORD: usize = 0;
const COUNT: usize = 8;
const HALF: usize = 16;
/// Bytes of that.
const TARGET: usize = 24;

/// The context of what is to be refused.
const REFUSED: u64 = u64::MAX;

/// An operation of each kind that needs no receive; `local` has 24 bytes.
fn one_sided<'a>(local: &'a Guarded, target: &Guarded, context: u64) -> [Op<'a>; 5] {
    let slot = |i: usize| local.slice(i * 8..i * 8 + 8);
    [
        Op::write(slot(0), target.at(WORD)),
        Op::read(slot(1), target.at(WORD)),
        Op::fetch_atomic(AtomicOp::Add, 1u64, slot(2), target.at(COUNT)),
        // Devices have none of 32 bits, so there this one takes several steps.
        Op::atomic(AtomicOp::Add, 1u32, target.at(HALF)),
        Op::inject_write(b"injected", target.at(WORD)),
    ]
    .map(|op| op.context(context))
}

/// Checks that a full send queue takes nothing, whatever it is.
fn check_full(a: &End, local: &Guarded, target: &Guarded) -> Outcome {
    let sends = [
        Op::send(local).context(REFUSED),
        Op::inject(b"refused").context(REFUSED),
        Op::send(local).context(REFUSED).unsignaled(),
        Op::write(local, target.at(0)).context(REFUSED).immediate(7),
    ];
    for op in one_sided(local, target, REFUSED).iter().chain(&sends) {
        check_err!(a.post(op), Error::Again, "a post beyond the depth");
    }
    check_matches!(batch(a, &sends), Some((0, Error::Again)), "a batch beyond the depth");
    Ok(())
}

/// How many of a batch were posted, and why not the next one.
fn batch(a: &End, ops: &[Op<'_>]) -> Option<(usize, Error)> {
    a.post_batch(ops).err().map(|refused| (refused.posted, refused.error))
}

pub(super) fn sq_depth(rig: &Rig) -> Outcome {
    for depth in DEPTHS {
        let (a, b) = rig.pair_with(|attr| attr.send_depth = depth)?;
        let (local, target) = (a.buffer(TARGET)?, b.buffer(TARGET)?);
        let (mut count, mut half) = (0u64, 0u32);
        let mut post = |i: usize| -> Outcome {
            let ops = one_sided(&local, &target, i as u64);
            let kind = i % ops.len();
            a.post(&ops[kind])?;
            (count, half) = (count + u64::from(kind == 2), half + u32::from(kind == 3));
            Ok(())
        };
        // Without a receive it stays, and everything behind it.
        a.send(Slices::none(), 0)?;
        (1..depth).try_for_each(&mut post)?;
        check_full(&a, &local, &target)?;
        b.recv(Slices::none(), 1)?;
        b.expect_ok(1)?;
        for i in depth..2 * depth + 3 {
            a.expect_ok(i - depth)?;
            post(i)?;
            check_full(&a, &local, &target)?;
        }
        a.expect_each(depth + 3..2 * depth + 3)?;
        a.settle(&b)?;
        check_eq!(target.get::<u64>(COUNT)?, count, "the adds that were taken");
        check_eq!(target.get::<u32>(HALF)?, half, "those of 32 bits");
    }
    Ok(())
}

pub(super) fn rq_depth(rig: &Rig) -> Outcome {
    for depth in DEPTHS {
        let (a, b) = (rig.end(rig.domain_a())?, {
            rig.end_with(rig.domain_b(), |attr| attr.recv_depth = depth)?
        });
        let sink = b.buffer(depth * 8)?;
        let target = b.buffer(8)?;
        let slot = |i: usize| i % depth * 8..i % depth * 8 + 8;
        let receive = |i: usize| b.recv(sink.slice(slot(i)), i as u64);
        let check_full = || -> Outcome {
            check_err!(b.recv(&target, REFUSED), Error::Again, "a receive beyond {depth}");
            check_err!(b.recv(Slices::none(), REFUSED), Error::Again, "an empty one");
            Ok(())
        };
        (0..depth).try_for_each(receive)?;
        check_full()?;
        rig.connect(&a, &b)?;
        check_full()?;
        for i in 0..2 * depth + 3 {
            let number = (i as u64).to_ne_bytes();
            // A write with immediate takes a receive, too.
            let op = match i % 3 {
                2 => Op::inject_write(&number, target.at(0)).immediate(i as u32),
                _ => Op::inject(&number),
            };
            a.run(op, Done::ok(i))?;
            b.expect_ok(i)?;
            let at = if i % 3 == 2 { target.bytes(..)? } else { sink.bytes(slot(i))? };
            check_bytes!(at, number, "what operation {i} brought");
            receive(i + depth)?;
            check_full()?;
        }
    }
    Ok(())
}

pub(super) fn cq_reserve(rig: &Rig) -> Outcome {
    const ENDS: usize = 4;
    const DEPTH: usize = 32;
    const MATCHED: usize = DEPTH / 2;
    let crowd = Crowd::new(rig, ENDS, depths(DEPTH, DEPTH))?;
    let Crowd { ends, peers } = &crowd;
    let queue = ends[0].cq();
    let (room, each) = (ENDS * 2 * DEPTH, 2 * DEPTH);
    check_eq!((queue.capacity(), queue.room()), (room, 0), "capacity and room of the full queue");
    check_no_room(rig, queue, (1, 1), 0)?;

    // All that the queue may ever have to hold at once, half of it done, half not; none is taken.
    for (end, peer) in crowd.pairs() {
        end.recv_empty(0..DEPTH as u64)?;
        peer.recv_empty(0..MATCHED as u64)?;
        for i in 0..DEPTH as u64 {
            end.inject(b"", i)?;
        }
        check_err!(end.inject(b"", REFUSED), Error::Again, "a send beyond the depth");
        check_err!(end.recv(Slices::none(), REFUSED), Error::Again, "a receive beyond the depth");
        for i in 0..MATCHED as u64 {
            peer.inject(b"", i)?;
        }
    }
    for done in peers[0].take(ENDS * 2 * MATCHED)? {
        check!(done.is_ok(), "the peers' sends and receives Ok, not {done:?}");
    }
    ends.iter().for_each(|end| end.disconnect());

    // Sends and receives that ended Ok, and all that ended, of each end.
    let place = places(ends);
    let mut seen = [[(0, 0); 2]; ENDS];
    for done in ends[0].take(room)? {
        let Some(&end) = place.get(&done.endpoint) else {
            fail!("a completion of one of the ends", "{done:?}");
        };
        let (good, all) = &mut seen[end][usize::from(done.kind.is_receive())];
        check_eq!(done.context, *all, "context of the next completion of end {end}");
        *all += 1;
        match done.status {
            Status::Ok if *good == *all - 1 => *good += 1,
            Status::Canceled => {}
            status => fail!("Ok up to some point, then Canceled", "{status:?} of {done:?}"),
        }
    }
    check_eq!(queue.poll_one()?, None, "a completion more than there were operations");
    for [sends, receives] in seen {
        check!(sends.0 <= MATCHED as u64, "no more sends Ok than were matched, not {}", sends.0);
        let expected = (MATCHED as u64, DEPTH as u64);
        check_eq!(
            receives,
            expected,
            "receives: those whose senders know that they were Ok, and all"
        );
    }

    // What an end had reserved is there for the next, and no more.
    let Crowd { mut ends, peers } = crowd;
    drop(ends.pop());
    let queue = ends[0].cq().clone();
    check_eq!(queue.room(), each, "room when one end is gone");
    check_no_room(rig, &queue, (DEPTH, DEPTH + 1), each)?;
    let (end, peer) =
        (rig.end_on(rig.domain_a(), &queue, depths(DEPTH, DEPTH))?, rig.end(rig.domain_b())?);
    rig.connect(&end, &peer)?;
    end.settle(&peer)?;
    drop(peers);
    Ok(())
}

/// Checks that the queue refuses an endpoint of these depths, and says why.
fn check_no_room(
    rig: &Rig,
    queue: &fabric::CompletionQueue,
    (sends, recvs): (usize, usize),
    left: usize,
) -> Outcome {
    let builder = rig.domain_a().endpoint().send_depth(sends).recv_depth(recvs);
    let refused = builder.build(queue);
    let error = check_err!(refused, Error::InvalidArgument(_), "an endpoint too many").to_string();
    for number in [sends + recvs, left] {
        let said = error.split(|c: char| !c.is_ascii_digit()).any(|n| n == number.to_string());
        check!(said, "an error that names {number}, not {error:?}");
    }
    Ok(())
}

pub(super) fn again_no_effect(rig: &Rig) -> Outcome {
    const DEPTH: usize = 4;
    const ROUNDS: usize = 10;
    let (a, b) = rig.pair_with(depths(DEPTH, DEPTH))?;
    let (target, sink) = (b.buffer(TARGET)?, b.buffer(8)?);
    let slots = a.buffer(DEPTH * 8)?;
    for round in 0..ROUNDS {
        // A send that waits, and three places behind it.
        target.fill(0)?;
        a.inject(b"accepted", 0)?;
        let local = a.filled(TARGET, 0xee)?;
        let adds: Vec<_> = (1..DEPTH as u64 + 3)
            .map(|i| Op::atomic(AtomicOp::Add, 1u64, target.at(COUNT)).context(i))
            .chain([Op::send(&local).context(REFUSED)])
            .collect();
        check_matches!(batch(&a, &adds), Some((3, Error::Again)), "a batch that fits in part");
        check_full(&a, &local, &target)?;
        for i in 0..DEPTH {
            a.recv(slots.slice(i * 8..i * 8 + 8), i as u64)?;
        }
        check_err!(a.recv(&local, REFUSED), Error::Again, "a receive beyond the depth");
        // Whatever names it was refused, so nothing uses it.
        local.region().close()?;

        b.recv(&sink, 9)?;
        b.expect_ok(9)?;
        check_bytes!(sink.bytes(..)?, b"accepted", "the message that was taken");
        a.expect_each(0..DEPTH as u64)?;
        for i in 0..DEPTH {
            b.run(Op::inject(&[round as u8, i as u8]), Done::ok(i))?;
            a.expect_ok(i)?;
            let got = slots.bytes(i * 8..i * 8 + 2)?;
            check_bytes!(got, [round as u8, i as u8], "message {i} of round {round}");
        }
        // There is room now, and it does not happen later.
        b.recv(&sink, 10)?;
        a.expect_none_for(Duration::from_millis(5))?;
        b.expect_none_for(Duration::from_millis(1))?;
        a.run(Op::inject(b"the last"), Done::ok(11))?;
        b.expect_ok(10)?;
        check_bytes!(sink.bytes(..)?, b"the last", "the next message");
        check_eq!(target.get::<u64>(COUNT)?, 3, "the adds that were taken");
        target.check_filled(..COUNT, 0)?;
        target.check_filled(HALF.., 0)?;
        local.check_filled(.., 0xee)?;
    }
    Ok(())
}
