//! Which receive takes which message.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send, Status};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmPair};

pub(super) fn mask(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let inbox = b.buffer(8)?;
    let pattern = Pattern::tagged(0x1200).ignoring(0xff);
    for (context, tag) in (0..).zip([0x1300, 0x12ff, 0x1200, 0x0200, 0x1234, u64::MAX]) {
        a.post_send(to_b, &Send::inject(&[context as u8]).tag(tag).context(context))?;
    }
    for expected in [1, 2, 4] {
        b.post_recv(&Recv::new(pattern, &inbox).context(9))?;
        b.received(9, 1)?;
        inbox.check_filled(..1, expected)?;
    }
    b.post_recv(&Recv::new(pattern, &inbox).context(9))?;
    b.nothing()?;
    for expected in [0, 3, 5] {
        b.post_recv(&Recv::new(Pattern::tagged(0).ignoring(u64::MAX), &inbox).context(10))?;
        b.received(10, 1)?;
        inbox.check_filled(..1, expected)?;
    }
    (0..6).try_for_each(|context| a.sent(context))
}

pub(super) fn tagged_untagged_apart(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let inbox = b.buffer(16)?;
    a.post_send(to_b, &Send::inject(b"tagged").tag(0).context(1))?;
    a.post_send(to_b, &Send::inject(b"not").context(2))?;
    b.post_recv(&Recv::new(Pattern::untagged(), inbox.slice(..8)).context(1))?;
    let done = b.received(1, 3)?;
    check_eq!(done.tag, None, "the tag of an untagged message");
    b.post_recv(&Recv::new(Pattern::untagged(), inbox.slice(..8)).context(2))?;
    b.nothing()?;
    b.post_recv(&Recv::new(Pattern::tagged(0).ignoring(u64::MAX), inbox.slice(8..)).context(3))?;
    check_eq!(b.received(3, 6)?.tag, Some(0), "the tag of a message with tag 0");
    a.post_send(to_b, &Send::inject(b"later").context(3))?;
    b.received(2, 5)?;
    (1..4).try_for_each(|context| a.sent(context))
}

pub(super) fn zero_bytes(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let (source, inbox) = (a.buffer(8)?, b.buffer(8)?);
    for round in 0..4u64 {
        let send = match round % 2 {
            0 => Send::inject(&[]),
            _ => Send::new(source.slice(..0)),
        };
        let into = if round < 2 { inbox.slice(..) } else { inbox.slice(..0) };
        a.post_send(to_b, &send.tag(round).immediate(round as u32).context(round))?;
        b.post_recv(&Recv::new(Pattern::tagged(round), into).context(round))?;
        let done = b.received(round, 0)?;
        let seen = (done.peer, done.tag, done.immediate);
        check_eq!(seen, (Some(to_a), Some(round), Some(round as u32)), "{done:?}");
        a.sent(round)?;
    }
    inbox.check_filled(.., 0)
}

pub(super) fn truncated_lives(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let (source, inbox) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    for (round, len) in (0..).zip(LENGTHS.into_iter().filter(|len| *len > 0)) {
        for room in [0, len / 2, len - 1] {
            let recv = Recv::new(Pattern::tagged(1), inbox.slice(..room)).context(round);
            let send = Send::new(source.slice(..len)).tag(1).context(round);
            if round % 2 == 0 {
                b.post_recv(&recv)?;
                a.post_send(*to_b, &send)?;
            } else {
                a.post_send(*to_b, &send)?;
                thread::sleep(Duration::from_millis(1));
                b.post_recv(&recv)?;
            }
            let done = b.expect(Kind::Recv, round, Status::Truncated)?;
            check_eq!((done.len, done.message_len), (room as u64, len as u64), "lengths");
            inbox.check_pattern(..room, rig.pattern(0))?;
            inbox.check_filled(room..len, 0)?;
            inbox.fill(0)?;
            a.sent(round)?;
        }
    }
    pair.greet()
}
