//! What the peer hears of writes: nothing, or an immediate, or the message behind them.

use crate::cases::places::{Slots, Staggered};
use crate::prelude::*;

/// Lengths around which providers change their ways.
const LENS: [usize; 8] = [1, 8, 100, 2049, 4097, 70_000, 300_000, MAX];
const MAX: usize = 1 << 20;

pub(super) fn write_silent(rig: &Rig) -> Outcome {
    let (a, b, source, target) = rig.transfer(100_000)?;
    let sink = b.filled(16, 0xee)?;
    b.recv(&sink, 1)?;
    let mut at = 0;
    for (i, len) in [0, 1, 8, 500, 5000, 90_000].into_iter().enumerate() {
        a.run(Op::write(source.slice(at..at + len), target.at(at)), Done::ok(i))?;
        at += len;
    }
    b.expect_none_for(Duration::from_millis(100))?;

    // The receive is still there for the message.
    a.send(source.slice(..9), 99)?;
    b.expect(Done::recv(1, 9))?;
    a.expect_ok(99)?;
    sink.check_pattern(..9, rig.pattern(0))?;
    sink.check_filled(9.., 0xee)?;
    target.check_pattern(..at, rig.pattern(0))?;
    target.check_filled(at.., 0)
}

pub(super) fn write_imm(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let sink = b.filled(64, 0xee)?;
    let immediates = [0, 1, 0x0102_0304, u32::MAX];
    for (i, len) in LENS.into_iter().enumerate() {
        let source = a.patterned(len, rig.pattern(i))?;
        let target = b.buffer(len)?;
        let value = immediates[i % immediates.len()];
        // The receive may be shorter than what is written, or have no memory at all.
        let into = if i.is_multiple_of(2) { (&sink).into() } else { Slices::none() };
        let op = Op::write(&source, target.at(0)).immediate(value).context(i as u64);
        a.deliver(op, &b, into, Done::recv_write(i, len, value))?;
        target.check_pattern(.., rig.pattern(i))?;
        sink.check_filled(.., 0xee)?;
        a.expect(Done::write(i, len))?;
    }
    Ok(())
}

pub(super) fn write_imm_zero(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let target = b.filled(64, 0xee)?;
    let sink = b.filled(64, 0xee)?;
    let honest = target.region().remote();
    let end = honest.at(honest.len());
    let places = [honest.at(0), end, forged_key(&honest, !honest.key()).at(0)];
    for (i, place) in places.into_iter().enumerate() {
        let (op, value) = (Op::write(Slices::none(), place).context(i as u64), 1 + i as u32);
        a.deliver(op.immediate(value), &b, &sink, Done::recv_write(i, 0, value))?;
        a.expect_ok(i)?;
    }
    a.settle(&b)?;
    for buffer in [&target, &sink] {
        buffer.check_filled(.., 0xee)?;
    }
    Ok(())
}

pub(super) fn write_imm_no_recv(rig: &Rig) -> Outcome {
    const WRITES: usize = 5;
    const LEN: usize = 3000;
    let (a, b, source, target) = rig.transfer(WRITES * LEN)?;
    let part = |i: usize| i * LEN..(i + 1) * LEN;
    for i in 0..WRITES {
        let op = Op::write(source.slice(part(i)), target.at(i * LEN));
        a.post(&op.immediate(i as u32).context(i as u64))?;
    }
    a.expect_none_for(Duration::from_millis(200))?;
    for i in 0..WRITES {
        // Each receive frees just one of them.
        b.recv(Slices::none(), i as u64)?;
        b.expect(Done::recv_write(i, LEN, i as u32))?;
        check_bytes!(target.bytes(part(i))?, source.bytes(part(i))?, "write {i}");
        a.expect_ok(i)?;
        a.expect_none_for(Duration::from_millis(5))?;
    }
    b.expect_none_for(Duration::from_millis(5))
}

pub(super) fn write_imm_visible(rig: &Rig) -> Outcome {
    bytes_are_there(rig, Done::recv_write, |a, write, value| {
        a.post(&write.immediate(value).context(2))
    })
}

pub(super) fn write_then_send_visible(rig: &Rig) -> Outcome {
    let message = |context, _, _| Done::recv(context, 0);
    bytes_are_there(rig, message, |a, write, _| {
        a.post(&write.unsignaled())?;
        a.send(Slices::none(), 2)
    })
}

/// Writes, each announced to the peer in this way: when the announcement is `received`, all bytes are there.
fn bytes_are_there(
    rig: &Rig,
    received: fn(u32, usize, u32) -> Done,
    post: fn(&End, Op<'_>, u32) -> fabric::Result<()>,
) -> Outcome {
    const ROUNDS: usize = 100;
    let (a, b) = rig.pair()?;
    let (source, target) = (Staggered::new(rig, &a, MAX, ROUNDS)?, b.buffer(MAX)?);
    for round in 0..ROUNDS {
        let len = LENS[round % LENS.len()];
        b.recv(Slices::none(), 1)?;
        post(&a, Op::write(source.slice(round, len), target.at(0)), round as u32)?;
        b.expect(received(1, len, round as u32))?;
        check_bytes!(target.bytes(..len)?, source.bytes(round, len), "{len} bytes, round {round}");
        a.expect_ok(2)?;
    }
    Ok(())
}

pub(super) fn mixed_imm_send(rig: &Rig) -> Outcome {
    const MESSAGES: usize = 120;
    const ROOM: usize = 600;
    let (a, b) = rig.pair()?;
    let source = Slots::new(&a, MESSAGES, ROOM)?;
    let (target, sink) = (Slots::new(&b, MESSAGES, ROOM)?, Slots::new(&b, MESSAGES, ROOM)?);
    let mut rng = rig.rng();
    let writes: Vec<bool> = (0..MESSAGES).map(|_| rng.below(2) == 0).collect();
    let len = |i: usize| 1 + i * 37 % ROOM;
    let bytes = |i: usize| i * ROOM..i * ROOM + len(i);
    sink.post(&b, 0..MESSAGES)?;
    for (i, write) in writes.iter().enumerate() {
        source.put_pattern(bytes(i), rig.pattern(i))?;
        let from = source.slice(bytes(i));
        let op = if *write { Op::write(from, target.at(i * ROOM)) } else { Op::send(from) };
        a.post(&op.immediate(i as u32).context(i as u64))?;
    }
    for (i, write) in writes.into_iter().enumerate() {
        let value = i as u32;
        let (filled, untouched, received) = match write {
            true => (&target, &sink, Done::recv_write(i, len(i), value)),
            false => (&sink, &target, Done::recv(i, len(i)).immediate(value)),
        };
        b.expect(received)?;
        filled.check_pattern(bytes(i), rig.pattern(i))?;
        filled.check_filled(bytes(i).end..(i + 1) * ROOM, 0)?;
        untouched.check_filled(untouched.range(i), 0)?;
        a.expect_ok(i)?;
    }
    Ok(())
}

pub(super) fn inject_write_reuse(rig: &Rig) -> Outcome {
    const WRITES: usize = 100;
    let max = rig.info().limits.inject;
    let (a, b) = rig.pair_with(|attr| attr.inject = max)?;
    let target = b.buffer(WRITES * max)?;
    let len = |i: usize| max - i % max;
    // Behind a message that has no receive they all wait, while their bytes are overwritten.
    a.send(Slices::none(), 1000)?;
    let mut bytes = vec![0; max];
    for i in 0..WRITES {
        rig.pattern(i).fill(0, &mut bytes[..len(i)]);
        a.post(&Op::inject_write(&bytes[..len(i)], target.at(i * max)).context(i as u64))?;
        bytes.fill(0xdd);
    }
    drop(bytes);
    b.recv(Slices::none(), 1000)?;
    b.expect_ok(1000)?;
    a.expect_ok(1000)?;
    for i in 0..WRITES {
        a.expect(Done::write(i, len(i)))?;
    }
    a.settle(&b)?;
    for i in 0..WRITES {
        target.check_pattern(i * max..i * max + len(i), rig.pattern(i))?;
        target.check_filled(i * max + len(i)..(i + 1) * max, 0)?;
    }
    Ok(())
}
