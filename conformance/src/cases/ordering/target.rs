//! Order of effects at the target.

use fabric::AtomicScalar;

use crate::cases::places::{Slots, Staggered};
use crate::prelude::*;

/// Operations in flight; a queue holds more by default.
const AT_ONCE: usize = 100;

pub(super) fn waw(rig: &Rig) -> Outcome {
    const WRITES: usize = 10_000;
    let (a, b) = rig.pair()?;
    let (source, sink) = (Slots::new(&a, WRITES, 8)?, a.buffer(8)?);
    let target = b.filled(24, 0xee)?;
    for i in 0..WRITES {
        source.set(8 * i, i as u64)?;
        a.write(source.slot(i), target.at(8), i as u64)?;
        if i >= AT_ONCE {
            a.expect_ok(i - AT_ONCE)?;
        }
    }
    a.read(&sink, target.at(8), WRITES as u64)?;
    a.expect_each(WRITES - AT_ONCE..=WRITES)?;
    let last = (WRITES as u64 - 1).to_ne_bytes();
    check_bytes!(sink.bytes(..)?, last, "the word as read behind the writes");
    a.settle(&b)?;
    check_bytes!(target.bytes(8..16)?, last, "the word as the peer sees it");
    target.check_filled(..8, 0xee)?;
    target.check_filled(16.., 0xee)
}

pub(super) fn raw(rig: &Rig) -> Outcome {
    // Each pair has a place of its own: without a fence a read may see the write *behind* it.
    const PAIRS: usize = 500;
    const PLACES: usize = AT_ONCE / 2;
    const MAX: usize = 20_000;
    let (a, b) = rig.pair()?;
    let source = Staggered::new(rig, &a, MAX, PAIRS)?;
    let (target, sink) = (b.buffer(PLACES * MAX)?, Slots::new(&a, PLACES, MAX)?);
    let len = |i: usize| [8, 1, 700, 3000, MAX][i % 5];
    for i in 0..PAIRS + PLACES {
        if let Some(done) = i.checked_sub(PLACES) {
            a.expect_each([2 * done, 2 * done + 1])?;
            let (seen, written) = (sink.seen(done, len(done))?, source.bytes(done, len(done)));
            check_bytes!(seen, written, "read {done}, of {} bytes", len(done));
        }
        if i < PAIRS {
            let start = sink.range(i).start;
            a.write(source.slice(i, len(i)), target.at(start), 2 * i as u64)?;
            a.read(sink.slice(start..start + len(i)), target.at(start), 2 * i as u64 + 1)?;
        }
    }
    Ok(())
}

pub(super) fn saw(rig: &Rig) -> Outcome {
    const PAIRS: usize = 48;
    const PLACES: usize = 8;
    const LEN: usize = 1 << 20;
    let (a, b) = rig.pair()?;
    let source = Staggered::new(rig, &a, LEN, PAIRS)?;
    let (target, sink) = (Slots::new(&b, PLACES, LEN)?, Slots::new(&b, PLACES, 1)?);
    for first in (0..PAIRS).step_by(PLACES) {
        let pairs = first..first + PLACES;
        sink.post(&b, pairs.clone())?;
        for i in pairs.clone() {
            let write = Op::write(source.slice(i, LEN), target.at(target.range(i).start));
            // Together, so that nothing but the rule keeps the short one back.
            a.post_batch(&[write.unsignaled(), Op::inject(&[i as u8]).context(i as u64)])?;
        }
        for i in pairs {
            b.expect(Done::recv(i, 1))?;
            check_bytes!(target.seen(i, LEN)?, source.bytes(i, LEN), "write {i} at its message");
            check_bytes!(sink.seen(i, 1)?, [i as u8], "message {i}");
            a.expect_ok(i)?;
        }
    }
    Ok(())
}

pub(super) fn sas_mixed_size(rig: &Rig) -> Outcome {
    const MESSAGES: usize = 40;
    const SLOTS: usize = 20;
    let max = rig.info().limits.message.min(1 << 20) as usize;
    let (a, b) = rig.pair()?;
    let source = Staggered::new(rig, &a, max, MESSAGES)?;
    // Every receive could take any message.
    let sink = Slots::new(&b, SLOTS, max)?;
    let len = |i: usize| if i.is_multiple_of(2) { max } else { 1 };
    for first in (0..MESSAGES).step_by(SLOTS) {
        sink.fill(0xee)?;
        sink.post(&b, first..first + SLOTS)?;
        for i in first..first + SLOTS {
            a.send(source.slice(i, len(i)), i as u64)?;
        }
        for i in first..first + SLOTS {
            b.expect(Done::recv(i, len(i)))?;
            check_bytes!(sink.seen(i, len(i))?, source.bytes(i, len(i)), "receive {i}");
            a.expect_ok(i)?;
        }
        // Behind the first short one.
        sink.check_filled(sink.range(1).start + 1..sink.range(1).end, 0xee)?;
    }
    Ok(())
}

pub(super) fn atomic_after_write(rig: &Rig) -> Outcome {
    // A type that every device adds to by itself, and one that some emulate.
    find_written(rig, |i| 0x0102_0304_0506_0708 + i, |value| value.to_ne_bytes().to_vec())?;
    find_written(rig, |i| 0x0102 + i as u16, |value| value.to_ne_bytes().to_vec())
}

/// Adds to elements that were just written, many in flight.
fn find_written<T: AtomicScalar>(
    rig: &Rig,
    value: fn(u64) -> T,
    bytes: fn(T) -> Vec<u8>,
) -> Outcome {
    const PAIRS: usize = 50;
    let size = size_of::<T>();
    let (a, b) = rig.pair()?;
    let source = a.buffer(8 * PAIRS)?;
    let old = a.buffer(8 * PAIRS)?;
    let target = b.buffer(8 * PAIRS)?;
    for i in 0..PAIRS {
        let element = 8 * i..8 * i + size;
        source.put(8 * i, &bytes(value(i as u64)))?;
        a.write(source.slice(element.clone()), target.at(8 * i), 2 * i as u64)?;
        a.fetch_add(value(0), old.slice(element), target.at(8 * i), 2 * i as u64 + 1)?;
    }
    a.expect_each(0..2 * PAIRS)?;
    a.settle(&b)?;
    check_bytes!(old.bytes(..)?, source.bytes(..)?, "what the atomics found");
    // The same sums as the CPU makes them.
    let sums = a.domain().alloc(8, Access::ALL)?;
    for i in 0..PAIRS {
        sums.write_at(0, &bytes(value(i as u64)))?;
        sums.atomic::<T>(0)?.fetch_add(value(0));
        let seen = target.bytes(8 * i..8 * i + size)?;
        check_bytes!(seen, sums.to_vec(..size)?, "element {i} after write and atomic");
        target.check_filled(8 * i + size..8 * (i + 1), 0)?;
    }
    Ok(())
}

pub(super) fn imm_order(rig: &Rig) -> Outcome {
    const COUNT: usize = 1000;
    const MAX: usize = 30_000;
    let (a, b, source, target) = rig.transfer(MAX)?;
    let sink = b.buffer(MAX)?;
    let len = |i: usize| [0, 8, 300, 5000, MAX][i % 5];
    for first in (0..COUNT).step_by(AT_ONCE) {
        let now = first..first + AT_ONCE;
        for i in now.clone() {
            b.recv(&sink, i as u64)?;
        }
        for i in now.clone() {
            let from = source.slice(..len(i));
            let send = i.is_multiple_of(3);
            let op = if send { Op::send(from) } else { Op::write(from, target.at(0)) };
            a.post(&op.immediate(i as u32).context(i as u64))?;
        }
        for i in now {
            let received = if i.is_multiple_of(3) {
                Done::recv(i, len(i)).immediate(i as u32)
            } else {
                Done::recv_write(i, len(i), i as u32)
            };
            b.expect(received)?;
            a.expect_ok(i)?;
        }
    }
    for buffer in [&target, &sink] {
        buffer.check_pattern(.., rig.pattern(0))?;
    }
    Ok(())
}
