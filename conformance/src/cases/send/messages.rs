//! Whole messages: lengths, order, limits.

use crate::cases::layout;
use crate::cases::places::Slots;
use crate::prelude::*;

pub(super) fn sizes(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let limits = &rig.info().limits;
    let mut sizes = layout::sizes(limits.message.min((1 << 20) + 1));
    // Where an inline copy ends is no power of two on every device.
    sizes.extend([limits.inject - 1, limits.inject, limits.inject + 1]);
    for (i, len) in sizes.into_iter().enumerate() {
        // Buffers of just this length, so that the guards begin at the very next byte.
        let source = a.patterned(len, rig.pattern(i))?;
        let sink = b.buffer(len)?;
        a.deliver(Op::send(&source).context(i as u64), &b, &sink, Done::recv(i, len))?;
        sink.check_pattern(.., rig.pattern(i))?;
        a.expect(Done::send(i, len))?;
    }
    Ok(())
}

pub(super) fn send_zero(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let source = a.buffer(16)?;
    let sink = b.filled(64, 0xee)?;
    let empty = [source.slice(3..3), source.slice(16..16)];
    let ways =
        [Op::send(Slices::none()), Op::send(source.slice(5..5)), Op::send(&empty), Op::inject(&[])];
    for (i, op) in ways.into_iter().enumerate() {
        a.deliver(op.context(i as u64), &b, &sink, Done::recv(i, 0))?;
        a.expect_ok(i)?;
    }
    sink.check_filled(.., 0xee)?;

    // Between two others it is neither lost nor joined to one of them.
    source.put_pattern(.., rig.pattern(0))?;
    for i in 0..3 {
        b.recv(sink.slice(i * 20..(i + 1) * 20), i as u64)?;
    }
    a.send(source.slice(..7), 0)?;
    a.send(Slices::none(), 1)?;
    a.send(source.slice(..9), 2)?;
    for (i, len) in [7, 0, 9].into_iter().enumerate() {
        b.expect(Done::recv(i, len))?;
        sink.check_pattern(i * 20..i * 20 + len, rig.pattern(0))?;
        sink.check_filled(i * 20 + len..(i + 1) * 20, 0xee)?;
        a.expect_ok(i)?;
    }
    Ok(())
}

pub(super) fn recv_no_segments(rig: &Rig) -> Outcome {
    let (a, b, source, sink) = rig.transfer(100)?;
    b.recv(Slices::none(), 0)?;
    b.recv(Slices::none(), 1)?;
    b.recv(&sink, 2)?;
    a.send(Slices::none(), 0)?;
    a.post(&Op::send(Slices::none()).immediate(77).context(1))?;
    a.send(&source, 2)?;
    for (i, (len, immediate)) in [(0, None), (0, Some(77)), (100, None)].into_iter().enumerate() {
        b.expect(Done::recv(i, len).immediate(immediate))?;
        a.expect_ok(i)?;
    }
    sink.check_pattern(.., rig.pattern(0))
}

pub(super) fn recv_larger(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let source = a.patterned(10, rig.pattern(0))?;
    let sink = b.filled(4096, 0xee)?;
    a.deliver(Op::send(&source).context(2), &b, &sink, Done::recv(1, 10))?;
    sink.check_pattern(..10, rig.pattern(0))?;
    sink.check_filled(10.., 0xee)?;
    a.expect_ok(2)?;
    Ok(())
}

pub(super) fn recv_exact_fit(rig: &Rig) -> Outcome {
    // All of them at a time: a message that takes too much or too little spoils the next one.
    const LENS: [usize; 7] = [1, 8, 63, 4096, 5000, 1 << 16, 100_001];
    let (a, b) = rig.pair()?;
    let (mut sources, mut sinks) = (Vec::new(), Vec::new());
    for (i, len) in LENS.into_iter().enumerate() {
        sources.push(a.buffer(len)?);
        sinks.push(b.buffer(len)?);
        sources[i].put_pattern(.., rig.pattern(i))?;
        b.recv(&sinks[i], i as u64)?;
    }
    for (i, source) in sources.iter().enumerate() {
        a.send(source, i as u64)?;
    }
    for (i, sink) in sinks.iter().enumerate() {
        b.expect(Done::recv(i, sink.len()))?;
        sink.check_pattern(.., rig.pattern(i))?;
        a.expect_ok(i)?;
    }
    Ok(())
}

pub(super) fn fifo(rig: &Rig) -> Outcome {
    const SENDS: usize = 1000;
    const AT_ONCE: usize = 100;
    const MAX: usize = 200;
    let (a, b) = rig.pair()?;
    // Message i has a length and bytes of its own, and a slot for it on either side.
    let (source, sink) = (Slots::new(&a, AT_ONCE, MAX)?, Slots::new(&b, AT_ONCE, MAX)?);
    let len = |i: usize| 1 + i * 7 % MAX;
    let bytes = |i: usize| source.range(i).start..source.range(i).start + len(i);
    for first in (0..SENDS).step_by(AT_ONCE) {
        let round = first..first + AT_ONCE;
        sink.post(&b, round.clone())?;
        for i in round.clone() {
            source.put_pattern(bytes(i), rig.pattern(i))?;
        }
        for i in round.clone() {
            a.send(source.slice(bytes(i)), i as u64)?;
        }
        for i in round {
            b.expect(Done::recv(i, len(i)))?;
            sink.check_pattern(bytes(i), rig.pattern(i))?;
            a.expect_ok(i)?;
        }
    }
    Ok(())
}

pub(super) fn max_message(rig: &Rig) -> Outcome {
    /// Bytes compared at a time.
    const STEP: usize = 1 << 20;
    let limits = &rig.info().limits;
    let (max, parts) = (limits.message as usize, limits.send_segments);
    let (a, b) = rig.pair_with(|attr| attr.send_segments = parts)?;
    // Part i of the message is the pattern from byte 8 i on. So all parts differ, and the sender needs not as much
    // memory as the message has bytes.
    let part = max.div_ceil(parts);
    let bytes = rig.pattern(0).bytes(part + 8 * parts);
    let source = a.holding(&bytes)?;
    let starts: Vec<_> = (0..max).step_by(part).collect();
    let len = |start: usize| part.min(max - start);
    let slice = |(i, start): (usize, &usize)| source.slice(8 * i..8 * i + len(*start));
    let slices: Vec<_> = starts.iter().enumerate().map(slice).collect();
    let sink = b.buffer(max)?;

    b.recv(&sink, 1)?;
    a.send(&slices[..], 2)?;
    // A GiB, perhaps, over a link that loses packets.
    Done::recv(1, max).check(&b.next_within(Duration::from_secs(60))?)?;
    a.expect(Done::send(2, max))?;
    for (i, start) in starts.into_iter().enumerate() {
        for at in (0..len(start)).step_by(STEP) {
            let now = STEP.min(len(start) - at);
            let seen = sink.bytes(start + at..start + at + now)?;
            let expected = &bytes[8 * i + at..8 * i + at + now];
            check_bytes!(seen, expected, "part {i} of {parts}, from byte {at} on");
        }
    }
    Ok(())
}

pub(super) fn over_max(rig: &Rig) -> Outcome {
    let limits = &rig.info().limits;
    let (len, parts) = (limits.message as usize + 1, limits.send_segments);
    let (a, b) = rig.pair_with(|attr| attr.send_segments = parts)?;
    // The same memory again and again, until it is one byte too many.
    let part = len.div_ceil(parts);
    let source = a.buffer(part)?;
    let slices: Vec<_> =
        (0..len).step_by(part).map(|start| source.slice(..part.min(len - start))).collect();
    // The descriptor claims that there is room for it.
    let target = b.filled(64, 0xee)?;
    let far = forged_range(&target.region().remote(), 0, len as u64).at(0);
    for (what, posted) in [
        ("a send", a.send(&slices[..], 1)),
        ("a write", a.write(&slices[..], far, 2)),
        ("a read", a.read(&slices[..], far, 3)),
    ] {
        check_err!(posted, Error::InvalidArgument(_), "{what} of {len} bytes");
    }

    // The endpoint is unharmed, and nothing of it happens later.
    a.settle(&b)?;
    source.check_filled(.., 0)?;
    target.check_filled(.., 0xee)
}

pub(super) fn same_buffer(rig: &Rig) -> Outcome {
    const COPIES: usize = 32;
    let (a, b) = rig.pair()?;
    for (round, len) in [64, 5000, 100_000].into_iter().enumerate() {
        let source = a.patterned(len, rig.pattern(round))?;
        let sink = Slots::new(&b, COPIES, len)?;
        sink.post(&b, 0..COPIES)?;
        for i in 0..COPIES {
            a.send(&source, i as u64)?;
        }
        for i in 0..COPIES {
            b.expect(Done::recv(i, len))?;
            sink.check_pattern(sink.range(i), rig.pattern(round))?;
            a.expect_ok(i)?;
        }
        source.check_pattern(.., rig.pattern(round))?;
    }
    Ok(())
}

pub(super) fn reply_before_send_completion(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 200;
    const LEN: usize = 500;
    let (a, b) = rig.pair()?;
    let (request, served) = (a.buffer(LEN)?, b.buffer(LEN)?);
    let (answer, reply) = (b.buffer(LEN)?, a.buffer(LEN)?);
    for round in 0..ROUNDS {
        request.put_pattern(.., rig.pattern(2 * round))?;
        answer.put_pattern(.., rig.pattern(2 * round + 1))?;
        let (sent, received) = (2 * round as u64, 2 * round as u64 + 1);
        a.recv(&reply, received)?;
        a.deliver(Op::send(&request).context(sent), &b, &served, Done::recv(1, LEN))?;
        served.check_pattern(.., rig.pattern(2 * round))?;
        b.send(&answer, 2)?;
        // Nothing says which of the two queues reports first.
        let mut both = a.take(2)?;
        both.sort_by_key(|completion| completion.context);
        Done::send(sent, LEN).check(&both[0])?;
        Done::recv(received, LEN).check(&both[1])?;
        reply.check_pattern(.., rig.pattern(2 * round + 1))?;
        b.expect_ok(2)?;
    }
    Ok(())
}
