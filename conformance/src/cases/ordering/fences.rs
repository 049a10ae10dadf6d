//! Fences: what must wait for reads and atomics, and what need not.

use crate::cases::places::Staggered;
use crate::prelude::*;

/// Long enough that a fence that is ignored shows.
const LEN: usize = 400_000;
const ROUNDS: usize = 20;

pub(super) fn read_fence_send(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let remote = Staggered::new(rig, &b, LEN, ROUNDS)?;
    let (local, sink) = (a.buffer(LEN)?, b.buffer(LEN)?);
    for round in 0..ROUNDS {
        let len = if round.is_multiple_of(2) { LEN } else { 100 };
        local.fill(0xdd)?;
        b.recv(&sink, 1)?;
        a.post_batch(&[
            Op::read(local.slice(..len), remote.at(round)).unsignaled(),
            Op::send(local.slice(..len)).fence().context(2),
        ])?;
        b.expect(Done::recv(1, len))?;
        let fresh = remote.bytes(round, len);
        check_bytes!(sink.bytes(..len)?, fresh, "what was read, as received in round {round}");
        a.expect_ok(2)?;
    }
    Ok(())
}

pub(super) fn read_nofence_send(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let new = rig.pattern(0).bytes(LEN);
    let remote = b.holding(&new)?;
    let (local, sink) = (a.buffer(LEN)?, b.buffer(LEN)?);
    for round in 0..ROUNDS {
        let len = if round.is_multiple_of(2) { LEN } else { 100 };
        local.fill(0xdd)?;
        b.recv(&sink, 1)?;
        a.post_batch(&[
            Op::read(local.slice(..len), remote.at(0)).context(2),
            Op::send(local.slice(..len)).context(3),
        ])?;
        b.expect(Done::recv(1, len))?;
        a.expect_each([2, 3])?;
        let seen = sink.bytes(..len)?;
        let neither = (0..len).find(|&at| seen[at] != 0xdd && seen[at] != new[at]);
        check_eq!(neither, None, "byte in round {round} that is neither old nor new");
        check_bytes!(local.bytes(..len)?, new[..len], "what was read in round {round}");
    }
    check_eq!(a.state(), EndpointState::Connected, "state of the endpoint");
    Ok(())
}

pub(super) fn atomic_fence_write(rig: &Rig) -> Outcome {
    const WORDS: usize = 10;
    let (a, b) = rig.pair()?;
    let old = a.buffer(8 * WORDS)?;
    let source = a.filled(8, 0xff)?;
    // Words to add to, which are then overwritten; and where the old values are written to.
    let (words, copies) = (b.buffer(8 * WORDS)?, b.buffer(8 * WORDS)?);
    for round in 0..ROUNDS {
        let values: Vec<u8> =
            (0..WORDS).flat_map(|i| (1000 * round as u64 + i as u64 + 1).to_ne_bytes()).collect();
        words.put(0, &values)?;
        old.fill(0xdd)?;
        let mut ops = Vec::new();
        for i in 0..WORDS {
            let (result, at) = (old.slice(8 * i..8 * i + 8), words.at(8 * i));
            ops.push(Op::fetch_atomic(AtomicOp::Add, 5u64, result, at).context(0));
            ops.push(Op::write(result, copies.at(8 * i)).fence().context(1));
            // Between the fence and this one there is neither read nor atomic, so it needs no fence of its own.
            ops.push(Op::write(&source, at).context(2));
        }
        a.post_batch(&ops)?;
        for i in 0..ops.len() {
            a.expect_ok(i as u64 % 3)?;
        }
        a.settle(&b)?;
        check_bytes!(old.bytes(..)?, values, "old values in round {round}");
        check_bytes!(copies.bytes(..)?, values, "copies of the old values in round {round}");
        words.check_filled(.., 0xff)?;
    }
    Ok(())
}

pub(super) fn read_fence_write_same_addr(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let source = Staggered::new(rig, &a, LEN, ROUNDS)?;
    let target = b.holding(source.bytes(0, LEN))?;
    let sink = a.buffer(LEN)?;
    for round in 0..ROUNDS {
        sink.fill(0xdd)?;
        a.post_batch(&[
            Op::read(&sink, target.at(0)).context(1),
            Op::write(source.slice(round + 1, LEN), target.at(0)).fence().context(2),
        ])?;
        a.expect_each([1, 2])?;
        let before = source.bytes(round, LEN);
        check_bytes!(sink.bytes(..)?, before, "what was read before write {round}");
    }
    a.run(Op::read(&sink, target.at(0)), Done::ok(3))?;
    check_bytes!(sink.bytes(..)?, source.bytes(ROUNDS, LEN), "what the last write left");
    Ok(())
}

pub(super) fn fence_first(rig: &Rig) -> Outcome {
    const TIMES: usize = 101;
    let (a, b, source, target) = rig.transfer(8)?;
    let sink = a.buffer(8)?;
    // The very first operation of a connection may be fenced.
    let first = Op::send(Slices::none()).fence().context(2);
    a.deliver(first, &b, Slices::none(), Done::recv(1, 0))?;
    a.expect_ok(2)?;

    let time = |op: Op<'_>| -> Result<Duration, Failed> {
        let start = Instant::now();
        a.run(op, Done::ok(3))?;
        Ok(start.elapsed())
    };
    for op in [Op::write(&source, target.at(0)), Op::read(&sink, target.at(0))] {
        let (mut plain, mut fenced) = (Vec::new(), Vec::new());
        // In turn, so that whatever else the machine does hits both.
        for _ in 0..TIMES {
            plain.push(time(op)?);
            fenced.push(time(op.fence())?);
        }
        let [plain, fenced] = [plain, fenced].map(|mut times| {
            times.sort_unstable();
            times[TIMES / 2]
        });
        // Less than the tick of a thread that looks now and then whether the fence is open.
        let limit = 2 * plain + rig.scaled(Duration::from_micros(300));
        check!(
            fenced <= limit,
            "a fenced operation in {limit:?}, not {fenced:?} (plain: {plain:?})"
        );
    }
    sink.check_pattern(.., rig.pattern(0))
}
