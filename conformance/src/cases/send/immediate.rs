//! What is sent beside or without a region: immediate data, and injected bytes.

use crate::cases::places::Slots;
use crate::prelude::*;

pub(super) fn imm(rig: &Rig) -> Outcome {
    let (a, b, source, sink) = rig.transfer(5000)?;
    let short = rig.pattern(0).bytes(9);
    for value in [0, 1, 0x0102_0304, 1 << 31, u32::MAX] {
        let ways = [
            (0, Op::send(Slices::none())),
            (5, Op::send(source.slice(..5))),
            (5000, Op::send(&source)),
            (9, Op::inject(&short)),
        ];
        for (i, (len, op)) in ways.into_iter().enumerate() {
            sink.fill(0xee)?;
            let received = Done::recv(i, len).immediate(value);
            a.deliver(op.immediate(value).context(i as u64), &b, &sink, received)?;
            sink.check_pattern(..len, rig.pattern(0))?;
            sink.check_filled(len.., 0xee)?;
            a.expect(Done::send(i, len))?;
        }
    }
    Ok(())
}

pub(super) fn no_imm_flag(rig: &Rig) -> Outcome {
    const MESSAGES: usize = 64;
    const MAX: usize = 300;
    let (a, b) = rig.pair()?;
    let source = a.patterned(MAX, rig.pattern(0))?;
    let sink = Slots::new(&b, MESSAGES, MAX)?;
    let (len, tagged) = (|i: usize| [0, 3, MAX][i % 3], |i: usize| i.is_multiple_of(2));
    sink.post(&b, 0..MESSAGES)?;
    for i in 0..MESSAGES {
        let op = Op::send(source.slice(..len(i))).context(i as u64);
        a.post(&if tagged(i) { op.immediate(i as u32) } else { op })?;
    }
    for i in 0..MESSAGES {
        b.expect(Done::recv(i, len(i)).immediate(tagged(i).then_some(i as u32)))?;
        sink.check_pattern(i * MAX..i * MAX + len(i), rig.pattern(0))?;
        a.expect_ok(i)?;
    }
    Ok(())
}

pub(super) fn inject_reuse(rig: &Rig) -> Outcome {
    const INJECTS: usize = 100;
    let max = rig.info().limits.inject;
    let (a, b) = rig.pair_with(|attr| attr.inject = max)?;
    let sink = Slots::new(&b, INJECTS, max)?;
    // Without receives most of them wait inside while their bytes are overwritten; with receives there they leave at
    // once, and their bytes must not be read later than that.
    for (salt, early) in [(0, false), (INJECTS, true)] {
        let len = |i: usize| if early { max } else { max - i % max };
        let mut bytes = vec![0; max];
        if early {
            sink.post(&b, 0..INJECTS)?;
        }
        for i in 0..INJECTS {
            rig.pattern(salt + i).fill(0, &mut bytes[..len(i)]);
            a.inject(&bytes[..len(i)], i as u64)?;
            bytes.fill(0xdd);
        }
        drop(bytes);
        if !early {
            sink.post(&b, 0..INJECTS)?;
        }
        for i in 0..INJECTS {
            b.expect(Done::recv(i, len(i)))?;
            check_bytes!(sink.seen(i, len(i))?, rig.pattern(salt + i).bytes(len(i)), "inject {i}");
            a.expect_ok(i)?;
        }
    }
    Ok(())
}

pub(super) fn inject_over(rig: &Rig) -> Outcome {
    for max in [0, fabric::MIN_INJECT, rig.info().limits.inject] {
        let (a, b) = rig.pair_with(|attr| attr.inject = max)?;
        let (sink, target) = (b.buffer(max + 1)?, b.buffer(max + 1)?);
        let bytes = rig.pattern(max).bytes(max + 1);
        let posted = a.inject(&bytes, 1);
        check_err!(posted, Error::InvalidArgument(_), "an inject of {} bytes", max + 1);
        let posted = a.post(&Op::inject_write(&bytes, target.at(0)).context(2));
        check_err!(posted, Error::InvalidArgument(_), "an injected write of {} bytes", max + 1);

        // The most itself works, and nothing of the others happens later.
        b.recv(&sink, 3)?;
        a.post(&Op::inject_write(&bytes[..max], target.at(0)).context(4))?;
        a.inject(&bytes[..max], 5)?;
        b.expect(Done::recv(3, max))?;
        a.expect_each([4, 5])?;
        for buffer in [&sink, &target] {
            buffer.check_pattern(..max, rig.pattern(max))?;
            buffer.check_filled(max.., 0)?;
        }
    }
    Ok(())
}
