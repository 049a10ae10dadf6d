//! Writes with immediate data: their targets hear of them.

use fabric::RemoteSlice;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Peer, PostError, Recv, Send, Status};

use super::memory::is_window_full;
use super::parking::Star;
use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmEnd, RdmPair, expect_refused};

const WINDOW: u64 = 16;

pub(super) fn write_notifies(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let (source, target) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    let inbox = b.buffer(8)?;
    for (number, len) in (0..).zip(LENGTHS) {
        let data = u32::MAX - number as u32;
        // Receives that are there take the messages, and those alone.
        for half in 0..2 {
            b.post_recv(&Recv::new(Pattern::untagged(), &inbox).context(2 * number + half))?;
        }
        let write = Op::write(source.slice(..len), target.at(0)).immediate(data);
        a.when_room(|| a.post_send(to_b, &Send::inject(b"before").context(1)))?;
        a.when_room(|| a.post(to_b, &write.context(2)))?;
        a.when_room(|| a.post_send(to_b, &Send::inject(b"behind it").context(3)))?;
        b.received(2 * number, 6)?;
        b.written(to_a, len, data)?;
        target.check_pattern(..len, rig.pattern(0))?;
        b.expect(Kind::Recv, 2 * number + 1, Status::Truncated)?;
        for (kind, context) in [(Kind::Send, 1), (Kind::Write, 2), (Kind::Send, 3)] {
            a.expect(kind, context, Status::Ok)?;
        }
        target.fill(0)?;
    }
    // Injected, and without a completion here.
    let write = Op::inject_write(b"injected", target.at(8)).immediate(0).unsignaled();
    a.when_room(|| a.post(to_b, &write))?;
    b.written(to_a, 8, 0)?;
    target.check_filled(..8, 0)?;
    a.nothing()?;
    check_eq!(b.counter(Kind::RecvWrite).now()?.0, LENGTHS.len() as u64 + 1, "writes counted");
    check_eq!(b.counter(Kind::Recv).now()?.1, LENGTHS.len() as u64, "receives of the longer ones");
    b.nothing_at_once()
}

fn write(end: &RdmEnd<'_>, peer: Peer, to: RemoteSlice, number: u64) -> Result<(), PostError> {
    let bytes = number.to_le_bytes();
    let op = Op::inject_write(&bytes, to).immediate(number as u32).context(number);
    end.post(peer, &op).map(drop)
}

pub(super) fn write_window(rig: &Rig) -> Outcome {
    let pair = RdmPair::with(rig, |attr| attr.window.places.window = WINDOW)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    let target = b.buffer(8)?;
    for turn in 0..3 {
        let first = turn * WINDOW;
        // Messages without a receive and writes have the same places.
        a.when_room(|| a.post_send(*to_b, &Send::inject(b"waits").context(first)))?;
        for number in first + 1..first + WINDOW {
            a.when_room(|| write(a, *to_b, target.at(0), number))?;
        }
        expect_refused(write(a, *to_b, target.at(0), 99), is_window_full)?;
        expect_refused(a.post_send(*to_b, &Send::inject(b"too many")), is_window_full)?;
        // What waits for no place goes on, and the writes have ended here: they are done.
        a.post(*to_b, &Op::inject_write(b"no place", target.at(0)).context(99))?;
        a.sent(first)?;
        for number in first + 1..first + WINDOW {
            a.expect(Kind::Write, number, Status::Ok)?;
        }
        a.expect(Kind::Write, 99, Status::Ok)?;
        for number in first + 1..first + WINDOW {
            b.written(*to_a, 8, number as u32)?;
        }
        let inbox = b.buffer(8)?;
        b.post_recv(&Recv::new(Pattern::untagged(), &inbox).context(turn))?;
        b.received(turn, 5)?;
    }
    Ok(())
}

pub(super) fn write_parked(rig: &Rig) -> Outcome {
    let star = Star::new(rig, 1, 3)?;
    let Star { hub, others } = &star;
    let targets: Vec<_> =
        others.iter().map(|(other, ..)| other.buffer(8)).collect::<Result<_, _>>()?;
    for round in 0..rig.count(20, 500) as u64 {
        // A message and a write for each in turn: each turn parks the connection of the one before.
        for ((_, to, _), target) in others.iter().zip(&targets) {
            let number = round.to_le_bytes();
            let op = Op::inject_write(&number, target.at(0)).immediate(round as u32).unsignaled();
            hub.when_room(|| hub.post_send(*to, &Send::inject(&number).tag(1).unsignaled()))?;
            hub.when_room(|| hub.post(*to, &op))?;
        }
        for ((other, _, from), target) in others.iter().zip(&targets) {
            other.written(*from, 8, round as u32)?;
            check_eq!(target.get::<u64>(0)?, round, "what was written");
            // The message before it is there.
            let inbox = other.buffer(8)?;
            other.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(round))?;
            other.received(round, 8)?;
            check_eq!(inbox.get::<u64>(0)?, round, "the message before it");
        }
    }
    hub.nothing()
}

pub(super) fn write_refused(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    let (local, remote) = (a.patterned(64, 0)?, b.buffer(64)?);
    let wrong = Op::write(local.slice(..), remote.by_wrong_key(0)).immediate(1);
    a.post(*to_b, &wrong.context(1))?;
    a.refused(Kind::Write, 1)?;
    a.until("the loss", |a| a.down(*to_b).is_ok_and(|cause| cause.is_some()))?;
    b.until("the loss", |b| b.down(*to_a).is_ok_and(|cause| cause.is_some()))?;
    b.nothing()?;
    remote.check_filled(.., 0)?;
    // The next life of the pair has its own places and numbers.
    a.revive(*to_b)?;
    b.revive(*to_a)?;
    a.when_room(|| write(a, *to_b, remote.at(0), 7))?;
    b.written(*to_a, 8, 7)?;
    a.expect(Kind::Write, 7, Status::Ok)?;
    // One that has no connection yet ends with its peer's removal.
    let c = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let to_c = a.insert(c.address())?;
    a.post(to_c, &Op::inject_write(b"8 bytes!", remote.at(0)).immediate(1).context(8))?;
    a.remove(to_c)?;
    a.expect(Kind::Write, 8, Status::Canceled)?;
    c.nothing()
}
