//! Which receive takes which message.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Peer, PostError, Recv, Send, Status};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmEnd, RdmPair, expect_refused};

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

pub(super) fn many_masks(rig: &Rig) -> Outcome {
    // More than a matcher would keep a class for.
    const MASKS: u64 = 24;
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let inbox = b.buffer(8)?;
    let (pattern, tag) = (
        |number: u64| Pattern::tagged(number << 32).ignoring(1 << number),
        |number: u64| number << 32 | 1 << number,
    );
    let send = |number: u64| {
        let text = number.to_le_bytes();
        a.when_room(|| a.post_send(to_b, &Send::inject(&text).tag(tag(number)).unsignaled()))
    };
    let took = |number: u64| -> Outcome {
        b.received(number, 8)?;
        check_eq!(inbox.get::<u64>(0)?, number, "the number of the message");
        Ok(())
    };
    let recv =
        |number: u64| b.post_recv(&Recv::new(pattern(number), &inbox).context(number)).map(drop);
    (0..MASKS).try_for_each(recv)?;
    // A younger receive of the same tag, without a mask.
    for number in (0..MASKS).rev() {
        b.post_recv(&Recv::new(Pattern::tagged(tag(number)), &inbox).context(100 + number))?;
        send(number)?;
        took(number)?;
        send(number)?;
        b.received(100 + number, 8)?;
    }
    // And the messages first.
    (0..MASKS).try_for_each(|number| send(number).map(drop))?;
    for number in (0..MASKS).rev() {
        recv(number)?;
        took(number)?;
    }
    Ok(())
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
    // With receives of the other kind that wait.
    b.post_recv(&Recv::new(Pattern::tagged(0), inbox.slice(..8)).context(4))?;
    b.post_recv(&Recv::new(Pattern::tagged(0).ignoring(1), inbox.slice(..8)).context(5))?;
    a.post_send(to_b, &Send::inject(b"not").context(4))?;
    b.nothing()?;
    b.post_recv(&Recv::new(Pattern::untagged(), inbox.slice(..8)).context(6))?;
    b.received(6, 3)?;
    b.post_recv(&Recv::new(Pattern::untagged(), inbox.slice(..8)).context(7))?;
    a.post_send(to_b, &Send::inject(b"exact").tag(0).context(5))?;
    b.received(4, 5)?;
    a.post_send(to_b, &Send::inject(b"masked").tag(1).context(6))?;
    b.received(5, 6)?;
    b.nothing()?;
    (1..7).try_for_each(|context| a.sent(context))
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

/// A sender, the receiver's handle of it, and its handle of the receiver.
type Sender<'a> = (RdmEnd<'a>, Peer, Peer);

/// A receiver, and so many senders.
fn senders(rig: &Rig, count: usize) -> Result<(RdmEnd<'_>, Vec<Sender<'_>>), Failed> {
    let receiver = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let mut senders = Vec::new();
    for _ in 0..count {
        let sender = RdmEnd::new(rig, rig.domain_a(), |attr| attr.slots = 16)?;
        let (from, to) = (receiver.insert(sender.address())?, sender.insert(receiver.address())?);
        senders.push((sender, from, to));
    }
    Ok((receiver, senders))
}

pub(super) fn source_filter(rig: &Rig) -> Outcome {
    let (receiver, senders) = senders(rig, 3)?;
    let inbox = receiver.buffer(8)?;
    for (number, (sender, _, to)) in (0u8..).zip(&senders) {
        sender.post_send(*to, &Send::inject(&[number]).tag(1).context(1))?;
        sender.sent(1)?;
    }
    for (number, (_, from, _)) in senders.iter().enumerate().rev() {
        receiver.post_recv(&Recv::new(Pattern::tagged(1).from(*from), &inbox).context(2))?;
        check_eq!(receiver.received(2, 1)?.peer, Some(*from), "the source");
        inbox.check_filled(..1, number as u8)?;
    }
    receiver.post_recv(&Recv::new(Pattern::tagged(1).from(senders[0].1), &inbox).context(3))?;
    senders[1].0.post_send(senders[1].2, &Send::inject(b"no").tag(1).context(2))?;
    receiver.nothing()?;
    senders[0].0.post_send(senders[0].2, &Send::inject(b"yes").tag(1).context(2))?;
    receiver.received(3, 3).map(drop)
}

pub(super) fn any_source_order(rig: &Rig) -> Outcome {
    let (receiver, senders) = senders(rig, 3)?;
    const EACH: u64 = 30;
    for number in 0..EACH {
        for (sender, _, to) in &senders {
            let text = number.to_le_bytes();
            let send = Send::inject(&text).tag(number % 3).context(number);
            sender.when_room(|| sender.post_send(*to, &send))?;
        }
    }
    let inbox = receiver.buffer(8)?;
    let mut next = vec![0; senders.len()];
    for context in 0..EACH * senders.len() as u64 {
        let any = Pattern::tagged(0).ignoring(u64::MAX);
        receiver.post_recv(&Recv::new(any, &inbox).context(context))?;
        let done = receiver.received(context, 8)?;
        let Some(at) = senders.iter().position(|(_, from, _)| done.peer == Some(*from)) else {
            fail!("one of the senders", "{done:?}");
        };
        check_eq!(inbox.get::<u64>(0)?, next[at], "the next number of sender {at}");
        next[at] += 1;
    }
    Ok(())
}

pub(super) fn exact_vs_wildcard_age(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    let inbox = b.buffer(8)?;
    let patterns = [
        Pattern::tagged(5).from(*to_a),
        Pattern::tagged(5),
        Pattern::tagged(4).ignoring(1),
        Pattern::tagged(0).ignoring(u64::MAX).from(*to_a),
    ];
    // The oldest receive that takes the message has it, however exact it is.
    for first in 0..patterns.len() {
        let order = (0..patterns.len()).map(|at| (first + at) % patterns.len());
        for at in order.clone() {
            b.post_recv(&Recv::new(patterns[at], &inbox).context(at as u64))?;
        }
        for at in order {
            a.when_room(|| a.post_send(*to_b, &Send::inject(b"x").tag(5).context(9)))?;
            b.received(at as u64, 1)?;
            a.sent(9)?;
        }
    }
    Ok(())
}

pub(super) fn probe_claims_once(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    let (source, inbox) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    let mut earlier = None;
    for (context, len) in (0..).zip(LENGTHS) {
        let send = Send::new(source.slice(..len)).tag(7).immediate(3).context(context);
        a.when_room(|| a.post_send(*to_b, &send))?;
        b.until("a message", |b| b.probe(&Pattern::tagged(7)).is_ok_and(|found| found.is_some()))?;
        let Some(probed) = b.probe(&Pattern::tagged(7))? else { fail!("a message", "none") };
        if let Some(earlier) = earlier.replace(probed) {
            check!(b.claim(&earlier)?.is_none(), "one that was claimed is not the next one");
        }
        let envelope = probed.envelope;
        check_eq!(
            (envelope.source, envelope.tag, envelope.len),
            (*to_a, Some(7), len as u64),
            "envelope"
        );
        check!(b.probe(&Pattern::tagged(7))? == Some(probed), "the same message again");
        let Some(mut claimed) = b.claim(&probed)? else { fail!("the message", "none") };
        check!(b.claim(&probed)?.is_none() && b.probe(&Pattern::tagged(7))?.is_none(), "once");
        // No receive meets it.
        let other = b.post_recv(&Recv::new(Pattern::tagged(7), inbox.slice(..)).context(99))?;
        b.nothing_at_once()?;
        claimed.receive(inbox.slice(..len), context)?;
        let done = b.received(context, len)?;
        check_eq!(
            (done.peer, done.tag, done.immediate),
            (Some(*to_a), Some(7), Some(3)),
            "{done:?}"
        );
        inbox.check_pattern(..len, rig.pattern(0))?;
        expect_refused(claimed.receive(inbox.slice(..), 1), |error| {
            matches!(error, PostError::Fabric(Error::InvalidState(_)))
        })?;
        check!(b.cancel(other)?, "the other receive is there");
        b.expect(Kind::Recv, 99, Status::Canceled)?;
        a.sent(context)?;
    }
    Ok(())
}

pub(super) fn claimed_drop(rig: &Rig) -> Outcome {
    let pair = RdmPair::with(rig, |attr| attr.window.places.window = 8)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let source = a.patterned(1 << 20, 0)?;
    // More of them than there are places: each that is dropped gives its own back.
    for round in 0..3 {
        for (context, len) in (0..).zip(LENGTHS) {
            let send = Send::new(source.slice(..len)).tag(7).context(context);
            let send = if round == 1 { send.matched() } else { send };
            a.when_room(|| a.post_send(*to_b, &send))?;
            b.until("a message", |b| {
                b.probe(&Pattern::tagged(7)).is_ok_and(|found| found.is_some())
            })?;
            let Some(probed) = b.probe(&Pattern::tagged(7))? else { fail!("a message", "none") };
            drop(b.claim(&probed)?);
            check!(b.probe(&Pattern::tagged(7))?.is_none(), "it is gone");
            a.sent(context)?;
        }
    }
    pair.greet()
}

pub(super) fn multi_receive_last(rig: &Rig) -> Outcome {
    const ROOM: usize = 100_000;
    // Fewer places than messages: each that was taken gives its own back.
    let pair = RdmPair::with(rig, |attr| attr.window.places.window = 8)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let (source, inbox) = (a.patterned(ROOM, 0)?, b.buffer(ROOM)?);
    let many = Recv::new(Pattern::tagged(1), inbox.slice(..)).of_many(40_000);
    let lengths = [10, 8161, 0, 40_000, 20_000, 7];
    for before in [true, false, true, false] {
        inbox.fill(0)?;
        if before {
            b.post_recv(&many.context(1))?;
        }
        for (context, len) in (0..).zip(lengths) {
            let send = Send::new(source.slice(..len)).tag(1).context(context);
            a.when_room(|| a.post_send(*to_b, &send))?;
        }
        if !before {
            thread::sleep(Duration::from_millis(2));
            b.post_recv(&many.context(1))?;
        }
        // Five of them leave less than 40,000 bytes; the last is for another receive.
        let (mut seen, mut released) = (Vec::new(), None);
        while released.is_none() {
            let done = b.next()?;
            check!(done.is_ok() && done.context == 1, "{done:?}");
            match done.kind {
                Kind::Released => released = Some(done.len),
                _ => seen.push((done.offset as usize, done.len as usize)),
            }
        }
        seen.sort_unstable();
        let expected = [(0, 10), (10, 8161), (8171, 0), (8171, 40_000), (48_171, 20_000)];
        check_eq!(seen, expected, "offsets and lengths");
        check_eq!(released, Some(68_171), "bytes that messages took");
        for (offset, len) in expected {
            let bytes = inbox.bytes(offset..offset + len)?;
            check_bytes!(bytes, source.bytes(..len)?, "the message at {offset}");
        }
        b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(..8)).context(2))?;
        b.received(2, 7)?;
        let all: Vec<_> = (0..6).map(|context| (Kind::Send, context, Status::Ok)).collect();
        a.expect_all(&all)?;
    }
    Ok(())
}

/// They are received on this host, so that between two hosts only the posts of their sends are calls to the other one.
const MANY: u64 = 10_000;

pub(super) fn ten_thousand_posted(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_a, to_b } = RdmPair::new(rig)?;
    let inbox = a.buffer(8 * MANY as usize)?;
    for tag in 0..MANY {
        let into = inbox.slice(8 * tag as usize..8 * tag as usize + 8);
        let pattern = match tag % 3 {
            0 => Pattern::tagged(tag << 8).from(to_b),
            1 => Pattern::tagged(tag << 8),
            _ => Pattern::tagged(tag << 8).ignoring(0xff),
        };
        a.post_recv(&Recv::new(pattern, into).unsignaled())?;
    }
    // The last ones first.
    for tag in (0..MANY).rev() {
        let send = tag << 8 | if tag % 3 == 2 { 0x5a } else { 0 };
        let text = tag.to_le_bytes();
        b.when_room(|| b.post_send(to_a, &Send::inject(&text).tag(send).unsignaled()))?;
    }
    a.counter(Kind::Recv).wait_for(MANY, 0, Some(rig.scaled(Duration::from_secs(30))))?;
    for tag in 0..MANY {
        check_eq!(inbox.get::<u64>(8 * tag as usize)?, tag, "the message of this tag");
    }
    Ok(())
}

pub(super) fn ten_thousand_unexpected(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_a, .. } = RdmPair::with(rig, |attr| attr.window.places.window = MANY)?;
    for tag in 0..MANY {
        let text = tag.to_le_bytes();
        b.when_room(|| b.post_send(to_a, &Send::inject(&text).tag(tag).unsignaled()))?;
    }
    let inbox = a.buffer(8)?;
    for tag in (0..MANY).rev() {
        a.post_recv(&Recv::new(Pattern::tagged(tag), &inbox).context(tag))?;
        a.received(tag, 8)?;
        check_eq!(inbox.get::<u64>(0)?, tag, "the message of this tag");
    }
    Ok(())
}
