//! The cells of the contract's table "Order at the target" that the other files leave out, one case each.

use fabric::AtomicScalar;

use crate::prelude::*;

/// Long enough that a read that is not waited for shows.
const LEN: usize = 400_000;
const ROUNDS: usize = 20;

pub(super) fn write_after_send(rig: &Rig) -> Outcome {
    behind_send(rig, "write", |_, at| Op::inject_write(&NEW, at))
}

pub(super) fn read_after_send(rig: &Rig) -> Outcome {
    behind_send(rig, "read", |into, at| Op::read(into.slice(..8), at))
}

pub(super) fn atomic_after_send(rig: &Rig) -> Outcome {
    behind_send(rig, "add", |into, at| {
        let sum = number(NEW).wrapping_sub(number(OLD));
        Op::fetch_atomic(AtomicOp::Add, sum, into.slice(..8), at)
    })?;
    // One that devices emulate.
    behind_send(rig, "swap", |into, at| {
        Op::fetch_atomic(AtomicOp::Swap, number(NEW), into.slice(..8), at)
    })
}

const OLD: [u8; 8] = *b"before..";
const NEW: [u8; 8] = *b"later...";

fn number(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

/// Posts an operation behind a send that finds no receive: it takes effect when the receive is there, not before.
fn behind_send(
    rig: &Rig,
    what: &str,
    op: for<'a> fn(&'a Guarded, fabric::RemoteSlice) -> Op<'a>,
) -> Outcome {
    let (a, b) = rig.pair()?;
    let (into, target) = (a.buffer(8)?, b.buffer(8)?);
    for _ in 0..ROUNDS {
        into.fill(0xdd)?;
        target.put(0, &OLD)?;
        a.post_batch(&[Op::send(Slices::none()).context(1), op(&into, target.at(0)).context(2)])?;
        a.expect_none_for(Duration::from_millis(10))?;
        check_bytes!(target.bytes(..)?, OLD, "the target while the send before the {what} waits");
        into.check_filled(.., 0xdd)?;
        if what == "read" {
            // Nothing has looked at it yet, so this is what the read finds.
            target.put(0, &NEW)?;
        }
        b.recv(Slices::none(), 3)?;
        b.expect_ok(3)?;
        a.expect_each([1, 2])?;
        a.settle(&b)?;
        check_bytes!(target.bytes(..)?, NEW, "the target after the {what}");
        match what {
            "read" => check_bytes!(into.bytes(..)?, NEW, "what was read behind the send"),
            "write" => into.check_filled(.., 0xdd)?,
            _ => check_bytes!(into.bytes(..)?, OLD, "what the {what} found"),
        }
    }
    Ok(())
}

pub(super) fn read_after_read(rig: &Rig) -> Outcome {
    /// A byte, for bytes of one operation have no order.
    const LAST: u8 = 200;
    const READS: usize = 3;
    let (a, b) = rig.pair()?;
    let (writer, _other) = rig.pair()?;
    let target = b.buffer(1)?;
    let sink = a.buffer(READS * usize::from(LAST))?;
    // Another endpoint counts up, and what one read has seen, the next does not see undone.
    for value in 1..=LAST {
        writer.post(&Op::inject_write(&[value], target.at(0)).context(value.into()))?;
        for i in 0..READS {
            let place = (usize::from(value) - 1) * READS + i;
            a.post_when_room(&Op::read(sink.slice(place..place + 1), target.at(0)))?;
        }
        if value.is_multiple_of(20) {
            a.take(20 * READS)?;
            writer.take(20)?;
        }
    }
    let seen = sink.bytes(..)?;
    let back = seen.windows(2).position(|pair| pair[0] > pair[1]);
    check_eq!(back, None, "read that saw a newer byte than the read behind it, of {seen:?}");
    Ok(())
}

pub(super) fn read_fence_atomic(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (sink, target) = (a.buffer(LEN)?, b.buffer(LEN)?);
    // The last word of a long read.
    let word = LEN - 8;
    for round in 0..ROUNDS as u64 {
        sink.fill(0xdd)?;
        target.set(word, 2 * round)?;
        let add = if round.is_multiple_of(2) {
            Op::atomic(AtomicOp::Add, 1u64, target.at(word))
        } else {
            Op::atomic(AtomicOp::Or, 1u64, target.at(word))
        };
        a.post_batch(&[Op::read(&sink, target.at(0)).context(1), add.fence().context(2)])?;
        a.expect_each([1, 2])?;
        a.settle(&b)?;
        let (found, left) = (sink.get::<u64>(word)?, target.get::<u64>(word)?);
        check_eq!((found, left), (2 * round, 2 * round + 1), "what was read, and what is left");
    }
    Ok(())
}

pub(super) fn atomic_fence_send(rig: &Rig) -> Outcome {
    behind_atomic(rig, 0x0102_0304_0506_0708u64)?;
    behind_atomic(rig, 0x0102u16)
}

/// Sends what an atomic has found, many times.
fn behind_atomic<T: AtomicScalar>(rig: &Rig, start: T) -> Outcome {
    let size = size_of::<T>();
    let (a, b) = rig.pair()?;
    let (old, word, sink) = (a.buffer(size)?, b.buffer(8)?, b.buffer(size)?);
    for _ in 0..ROUNDS {
        old.fill(0xdd)?;
        word.set(0, start)?;
        let before = word.bytes(..size)?;
        b.recv(&sink, 1)?;
        a.post_batch(&[
            Op::fetch_atomic(AtomicOp::Add, start, old.slice(..), word.at(0)).context(2),
            Op::send(&old).fence().context(3),
        ])?;
        b.expect(Done::recv(1, size))?;
        check_bytes!(sink.bytes(..)?, before, "what the atomic has found, as received");
        a.expect_each([2, 3])?;
    }
    Ok(())
}

pub(super) fn atomic_fence_read(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (word, seen) = (b.buffer(8)?, a.buffer(8)?);
    for round in 1..=ROUNDS as u64 {
        // A device's own, and one that some emulate.
        for (op, left) in [(AtomicOp::Add, 3 * round), (AtomicOp::Max, 5 * round)] {
            word.set(0, 2 * round)?;
            seen.fill(0xdd)?;
            let operand = if op == AtomicOp::Add { round } else { 5 * round };
            a.post_batch(&[
                Op::atomic(op, operand, word.at(0)).context(1),
                Op::read(&seen, word.at(0)).fence().context(2),
            ])?;
            a.expect_each([1, 2])?;
            check_eq!(seen.get::<u64>(0)?, left, "what is read behind {op}, round {round}");
        }
    }
    Ok(())
}

pub(super) fn atomic_fence_atomic(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (word, old) = (b.buffer(8)?, a.buffer(24)?);
    for round in 0..ROUNDS as u64 {
        word.set(0, 100 * round)?;
        let at = word.at(0);
        // By turns a device's own and one that some emulate, each with what the one before has left.
        a.post_batch(&[
            Op::fetch_atomic(AtomicOp::Add, 1u64, old.slice(..8), at).context(1),
            Op::fetch_atomic(AtomicOp::Swap, 7u64, old.slice(8..16), at).fence().context(2),
            Op::fetch_atomic(AtomicOp::Add, 2u64, old.slice(16..), at).fence().context(3),
        ])?;
        a.expect_each(1..=3)?;
        a.settle(&b)?;
        let found = [old.get::<u64>(0)?, old.get(8)?, old.get(16)?];
        check_eq!(found, [100 * round, 100 * round + 1, 7], "what they found in round {round}");
        check_eq!(word.get::<u64>(0)?, 9, "what they left");
    }
    Ok(())
}
