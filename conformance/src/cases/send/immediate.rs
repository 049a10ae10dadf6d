//! What is sent beside or without a region: immediate data, and injected bytes.

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
            b.recv(&sink, i as u64)?;
            a.post(&op.immediate(value).context(i as u64))?;
            b.expect(Done::recv(i, len).immediate(value))?;
            sink.check_pattern(..len, rig.pattern(0))?;
            sink.check_filled(len.., 0xee)?;
            a.expect(Done::send(i, len))?;
        }
    }
    Ok(())
}

pub(super) fn no_imm_flag(rig: &Rig) -> Outcome {
    const MESSAGES: usize = 64;
    const MOST: usize = 300;
    let (a, b) = rig.pair()?;
    let source = a.patterned(MOST, rig.pattern(0))?;
    let sink = b.buffer(MESSAGES * MOST)?;
    let (len, tagged) = (|i: usize| [0, 3, MOST][i % 3], |i: usize| i.is_multiple_of(2));
    for i in 0..MESSAGES {
        b.recv(sink.slice(i * MOST..(i + 1) * MOST), i as u64)?;
    }
    for i in 0..MESSAGES {
        let op = Op::send(source.slice(..len(i))).context(i as u64);
        a.post(&if tagged(i) { op.immediate(i as u32) } else { op })?;
    }
    for i in 0..MESSAGES {
        let received = b.expect_ok(i)?;
        let expected = tagged(i).then_some(i as u32);
        check_eq!(received.immediate, expected, "immediate data of receive {i}");
        check_eq!(received.len, len(i), "length of receive {i}");
        sink.check_pattern(i * MOST..i * MOST + len(i), rig.pattern(0))?;
        a.expect_ok(i)?;
    }
    Ok(())
}

pub(super) fn inject_reuse(rig: &Rig) -> Outcome {
    const INJECTS: usize = 100;
    let most = rig.info().limits.inject;
    let (a, b) = rig.pair_with(|attr| attr.inject = most)?;
    let sink = b.buffer(INJECTS * most)?;
    let len = |i: usize| most - i % most;
    // No receive is there, so most of them wait inside while their bytes are overwritten.
    let mut bytes = vec![0; most];
    for i in 0..INJECTS {
        rig.pattern(i).fill(0, &mut bytes[..len(i)]);
        a.inject(&bytes[..len(i)], i as u64)?;
        bytes.fill(0xdd);
    }
    drop(bytes);
    for i in 0..INJECTS {
        b.recv(sink.slice(i * most..(i + 1) * most), i as u64)?;
    }
    for i in 0..INJECTS {
        b.expect(Done::recv(i, len(i)))?;
        sink.check_pattern(i * most..i * most + len(i), rig.pattern(i))?;
        a.expect_ok(i)?;
    }

    // With receives there they leave at once, and their bytes must not be read later than that.
    let mut bytes = vec![0; most];
    for i in 0..INJECTS {
        b.recv(sink.slice(i * most..(i + 1) * most), i as u64)?;
    }
    for i in 0..INJECTS {
        rig.pattern(INJECTS + i).fill(0, &mut bytes);
        a.inject(&bytes, i as u64)?;
        bytes.fill(0xdd);
    }
    for i in 0..INJECTS {
        b.expect_ok(i)?;
        sink.check_pattern(i * most..(i + 1) * most, rig.pattern(INJECTS + i))?;
        a.expect_ok(i)?;
    }
    Ok(())
}

pub(super) fn inject_over(rig: &Rig) -> Outcome {
    for most in [0, fabric::MIN_INJECT, rig.info().limits.inject] {
        let (a, b) = rig.pair_with(|attr| attr.inject = most)?;
        let sink = b.buffer(most + 1)?;
        let target = b.buffer(most + 1)?;
        let bytes = rig.pattern(most).bytes(most + 1);
        let posted = a.inject(&bytes, 1);
        check_err!(posted, Error::InvalidArgument(_), "an inject of {} bytes", most + 1);
        let posted = a.post(&Op::inject_write(&bytes, target.at(0)).context(2));
        check_err!(posted, Error::InvalidArgument(_), "an injected write of {} bytes", most + 1);

        // The most itself works, and nothing of the others happens later.
        b.recv(&sink, 3)?;
        a.post(&Op::inject_write(&bytes[..most], target.at(0)).context(4))?;
        a.inject(&bytes[..most], 5)?;
        b.expect(Done::recv(3, most))?;
        a.expect_each([4, 5])?;
        for buffer in [&sink, &target] {
            buffer.check_pattern(..most, rig.pattern(most))?;
            buffer.check_filled(most.., 0)?;
        }
    }
    Ok(())
}
