//! Messages without a receive: how many there may be, and what goes on beside them.

use fabric_rdm::matching::Pattern;
use fabric_rdm::window::Blocked;
use fabric_rdm::{Full, Kind, Peer, PostError, Recv, Send, Status};

use crate::prelude::*;
use crate::rdm::{RdmEnd, RdmPair, expect_refused};

const WINDOW: u64 = 16;

pub(super) fn is_window_full(error: &PostError) -> bool {
    matches!(error, PostError::Again(Full::Peer(Blocked::Window)))
}

/// Posts as many messages with a tag as the window has places for; one more is refused, and says why.
fn fill(end: &RdmEnd<'_>, peer: Peer, tag: u64) -> Outcome {
    for number in 0..WINDOW {
        let text = number.to_le_bytes();
        end.when_room(|| end.post_send(peer, &Send::inject(&text).tag(tag).context(number)))?;
    }
    expect_refused(end.post_send(peer, &Send::inject(b"one more").tag(tag)), is_window_full)
}

pub(super) fn window_again(rig: &Rig) -> Outcome {
    let pair = RdmPair::with(rig, |attr| attr.window.places.window = WINDOW)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    fill(a, *to_b, 1)?;
    // Each of them is there.
    (0..WINDOW).try_for_each(|context| a.sent(context))?;
    let inbox = b.buffer(8)?;
    for number in 0..WINDOW {
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(number))?;
        b.received(number, 8)?;
        check_eq!(inbox.get::<u64>(0)?, number, "the number of the message");
    }
    fill(a, *to_b, 2)
}

pub(super) fn tag_b_behind_a(rig: &Rig) -> Outcome {
    let pair = RdmPair::with(rig, |attr| attr.window.places.window = WINDOW)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let long = a.patterned(100_000, 0)?;
    for round in 0..WINDOW - 1 {
        let send = if round % 2 == 0 { Send::inject(b"a") } else { Send::new(&long) };
        a.when_room(|| a.post_send(*to_b, &send.tag(0xa).unsignaled()))?;
    }
    let inbox = b.buffer(8)?;
    b.post_recv(&Recv::new(Pattern::tagged(0xb), &inbox).context(1))?;
    a.when_room(|| a.post_send(*to_b, &Send::inject(b"b").tag(0xb).context(2)))?;
    b.received(1, 1)?;
    a.sent(2)
}

pub(super) fn slow_receiver_isolated(rig: &Rig) -> Outcome {
    let pair = RdmPair::with(rig, |attr| attr.window.places.window = WINDOW)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    let c = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let (to_c, from_a) = (a.insert(c.address())?, c.insert(a.address())?);
    // b posts no receive, and a is full towards it.
    fill(a, *to_b, 1)?;
    (0..WINDOW).try_for_each(|context| a.sent(context))?;
    let (inbox, back) = (c.buffer(8)?, a.buffer(8)?);
    for round in 0..200u64 {
        c.post_recv(&Recv::new(Pattern::tagged(1).from(from_a), &inbox).context(round))?;
        let text = round.to_le_bytes();
        a.when_room(|| a.post_send(to_c, &Send::inject(&text).tag(1).unsignaled()))?;
        c.received(round, 8)?;
        // What b sends goes on as well.
        a.post_recv(&Recv::new(Pattern::tagged(2).from(*to_b), &back).context(round))?;
        b.when_room(|| b.post_send(*to_a, &Send::inject(&text).tag(2).unsignaled()))?;
        a.received(round, 8)?;
    }
    Ok(())
}

pub(super) fn bytes_wait_at_sender(rig: &Rig) -> Outcome {
    const LEN: usize = 4096;
    let pair = RdmPair::with(rig, |attr| {
        attr.window.bytes.total = 2 * LEN as u64;
        attr.window.bytes.window = 2 * LEN as u64;
        attr.window.bytes.reserved = LEN as u64;
    })?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    const MESSAGES: u64 = 32;
    let sources = (0..MESSAGES as usize).map(|at| a.patterned(LEN, at));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    for (context, source) in (0..).zip(&sources) {
        a.when_room(|| a.post_send(*to_b, &Send::new(source).tag(1).context(context)))?;
    }
    // All envelopes are there; of the payload as much as there is room for.
    b.until("a message", |b| b.probe(&Pattern::tagged(1)).is_ok_and(|found| found.is_some()))?;
    check!(b.probe(&Pattern::tagged(2))?.is_none(), "no message with another tag");
    let inbox = b.buffer(LEN)?;
    for context in 0..MESSAGES {
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
        b.received(context, LEN)?;
        inbox.check_pattern(.., rig.pattern(context as usize))?;
    }
    let all: Vec<_> = (0..MESSAGES).map(|context| (Kind::Send, context, Status::Ok)).collect();
    a.expect_all(&all)
}

pub(super) fn bytes_come_back(rig: &Rig) -> Outcome {
    const LEN: usize = 4096;
    let pair = RdmPair::with(rig, |attr| {
        attr.window.bytes.window = 16 * LEN as u64;
        attr.window.bytes.total = 100 * attr.window.bytes.window;
    })?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let (source, inbox) = (a.patterned(LEN, 0)?, b.buffer(LEN)?);
    // Far more than the budget, and never more than a small part of it at a time.
    for context in 0..100 {
        a.when_room(|| a.post_send(*to_b, &Send::new(&source).tag(1).context(context)))?;
        // It is there, with its bytes, before there is a receive.
        a.sent(context)?;
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
        b.received(context, LEN)?;
    }
    Ok(())
}

pub(super) fn places_of_all(rig: &Rig) -> Outcome {
    const TOTAL: u64 = WINDOW + WINDOW / 2;
    let b = RdmEnd::new(rig, rig.domain_b(), |attr| {
        attr.window.places.total = TOTAL;
        attr.window.places.window = WINDOW;
        attr.window.places.reserved = 1;
    })?;
    let inbox = b.buffer(8)?;
    let mut senders = Vec::new();
    for _ in 0..3 {
        let a = RdmEnd::new(rig, rig.domain_a(), |attr| attr.slots = 16)?;
        let (to_b, _) = (a.insert(b.address())?, b.insert(a.address())?);
        a.post_send(to_b, &Send::inject(b"hello").tag(1).unsignaled())?;
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(0))?;
        b.received(0, 5)?;
        senders.push((a, to_b));
    }
    let send = |at: usize| {
        let (a, to_b): &(RdmEnd<'_>, Peer) = &senders[at];
        a.post_send(*to_b, &Send::inject(b"x").tag(2).unsignaled())
    };
    let take = |count: u64| -> Outcome {
        for context in 0..count {
            b.post_recv(&Recv::new(Pattern::tagged(2), &inbox).context(context))?;
            b.received(context, 1)?;
        }
        Ok(())
    };
    // Each of them can have all that one may, also what another one had before and does not use.
    for at in [0, 1, 2, 0] {
        for _ in 0..WINDOW {
            senders[at].0.when_room(|| send(at))?;
        }
        expect_refused(send(at), is_window_full)?;
        take(WINDOW)?;
    }
    // All of them together have no more than there is.
    let (mut posted, until) = (0, Instant::now() + Duration::from_millis(100));
    while Instant::now() < until {
        for at in 0..senders.len() {
            match send(at) {
                Ok(_) => posted += 1,
                Err(PostError::Again(Full::Peer(_))) => thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    check!(posted <= TOTAL, "at most {TOTAL} messages without a receive, not {posted}");
    take(posted)
}

pub(super) fn control_when_full(rig: &Rig) -> Outcome {
    let pair = RdmPair::with(rig, |attr| {
        attr.window.places.window = WINDOW;
        attr.connection_depth = 8;
    })?;
    pair.greet()?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    // Full both ways; then one-sided operations, answers and acknowledgements go on.
    fill(a, *to_b, 1)?;
    fill(b, *to_a, 1)?;
    (0..WINDOW).try_for_each(|context| a.sent(context))?;
    (0..WINDOW).try_for_each(|context| b.sent(context))?;
    let (source, target) = (a.patterned(64, 0)?, b.buffer(64)?);
    for context in 0..50 {
        a.when_room(|| a.post(*to_b, &Op::write(source.slice(..), target.at(0)).context(context)))?;
    }
    for context in 0..50 {
        a.expect(Kind::Write, context, Status::Ok)?;
    }
    target.check_pattern(.., rig.pattern(0))?;
    let inbox = b.buffer(8)?;
    for context in 0..WINDOW {
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
        b.received(context, 8)?;
    }
    fill(a, *to_b, 1)
}
