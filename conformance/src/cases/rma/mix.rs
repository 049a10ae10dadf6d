//! Everything at a time.

use std::cell::Cell;

use crate::cases::crowd::joined;
use crate::cases::places::Slots;
use crate::prelude::*;

const ROUNDS: usize = 20_000;
const AREA: usize = 1 << 20;
const MAX: usize = 200_000;

pub(super) fn both_ways_mix(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (at_a, at_b) = (a.buffer(AREA)?, b.buffer(AREA)?);
    thread::scope(|scope| {
        let other = scope.spawn(|| mix(rig, &b, &at_a, 2));
        let one = mix(rig, &a, &at_b, 1);
        one.and(joined(other))
    })?;
    Ok(())
}

/// One side, which is number 1 or 2. Nothing else writes to `target`.
fn mix(rig: &Rig, end: &End, target: &Guarded, side: usize) -> Outcome {
    const RECEIVES: usize = 32;
    const LETTER: usize = 1000;
    let mut rng = Rng::new(rig.rng().next_u64() ^ side as u64);
    // Write and message i of either side are its pattern from byte 8 i on.
    let [own, peers] = [side, 3 - side].map(|side| rig.pattern(side).bytes(MAX + 8 * ROUNDS));
    let source = end.holding(&own)?;
    let sink = end.buffer(MAX)?;
    let inbox = Slots::new(end, RECEIVES, LETTER)?;
    inbox.post(end, 0..RECEIVES)?;
    let received = Cell::new(0);
    // Takes completions up to the next of this kind; messages come when they come.
    let take = |kind: OpKind| -> Outcome {
        loop {
            let done = end.next()?;
            check_eq!(done.status, Status::Ok, "status of {:?} {}", done.kind, done.context);
            if done.kind == OpKind::Recv {
                let i = received.replace(received.get() + 1);
                check_eq!(done.context, i as u64, "context of message {i}");
                let seen = inbox.seen(i, done.len)?;
                check_bytes!(seen, peers[8 * i..8 * i + done.len], "message {i}");
                end.recv(inbox.slot(i), (i + RECEIVES) as u64)?;
            }
            if done.kind == kind {
                return Ok(());
            }
        }
    };
    let mut model = vec![0; AREA];
    for round in 0..ROUNDS {
        let max = *rng.pick(&[8, 100, 1000, 5000, MAX]);
        let len = 1 + rng.below(max);
        let at = rng.below(AREA - len + 1);
        let now = 8 * round..8 * round + len;
        model[at..at + len].copy_from_slice(&own[now.clone()]);
        end.post(&Op::write(source.slice(now.clone()), target.at(at)).unsignaled())?;
        end.read(sink.slice(..len), target.at(at), 1)?;
        end.send(source.slice(8 * round..8 * round + rng.below(LETTER)), 2)?;
        take(OpKind::Read)?;
        check_bytes!(sink.bytes(..len)?, own[now], "{len} bytes read back in round {round}");
        take(OpKind::Send)?;
    }
    for at in (0..AREA).step_by(MAX) {
        let part = at..(at + MAX).min(AREA);
        end.read(sink.slice(..part.len()), target.at(at), 3)?;
        take(OpKind::Read)?;
        check_bytes!(sink.bytes(..part.len())?, model[part], "the peer's memory at the end");
    }
    while received.get() < ROUNDS {
        take(OpKind::Recv)?;
    }
    Ok(())
}
