//! What a completion says, cancel, and counters.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send, Status};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmEnd, RdmPair};

pub(super) fn ok_survives_sender_exit(rig: &Rig) -> Outcome {
    let b = RdmEnd::new(rig, rig.domain_b(), |attr| attr.max_strangers = 100)?;
    let inbox = b.buffer(20_000)?;
    for len in LENGTHS.into_iter().filter(|len| *len < 32 << 10) {
        let a = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
        let to_b = a.insert(b.address())?;
        let source = a.patterned(len.max(1), 0)?;
        a.post_send(to_b, &Send::new(source.slice(..len)).tag(1).context(1))?;
        a.sent(1)?;
        drop(a);
        b.until("the loss", |b| {
            std::iter::from_fn(|| b.poll_event().ok().flatten())
                .any(|event| matches!(event, fabric_rdm::PeerEvent::Down(..)))
        })?;
        b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(..len)).context(2))?;
        b.received(2, len)?;
        inbox.check_pattern(..len, rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn matched_waits(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let (source, inbox) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    for (context, len) in (0..).zip(LENGTHS) {
        let send = Send::new(source.slice(..len)).tag(1).context(context);
        a.when_room(|| a.post_send(*to_b, &send.matched()))?;
        a.nothing()?;
        b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(..len)).context(context))?;
        b.received(context, len)?;
        a.sent(context)?;
        // With a receive that waits for it.
        b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(..len)).context(context))?;
        a.when_room(|| a.post_send(*to_b, &send.matched()))?;
        b.received(context, len)?;
        a.sent(context)?;
    }
    Ok(())
}

pub(super) fn inject_reuse(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let mut bytes = vec![0; a.max_inject()?];
    check!(bytes.len() >= 96, "at least 96 bytes, not {}", bytes.len());
    for round in 0..40u8 {
        bytes.fill(round);
        a.when_room(|| a.post_send(to_b, &Send::inject(&bytes).tag(1).unsignaled()))?;
        bytes.fill(0xff);
    }
    let inbox = b.buffer(bytes.len())?;
    for round in 0..40 {
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
        b.received(1, bytes.len())?;
        inbox.check_filled(.., round)?;
    }
    bytes.push(0);
    crate::rdm::expect_refused(a.post_send(to_b, &Send::inject(&bytes)), |error| {
        matches!(error, fabric_rdm::PostError::Fabric(Error::InvalidArgument(_)))
    })
}

pub(super) fn cancel_receive(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let inbox = b.buffer(64)?;
    let first = b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(..8)).context(1))?;
    let second = b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(8..16)).context(2))?;
    let many =
        b.post_recv(&Recv::new(Pattern::tagged(2), inbox.slice(16..)).of_many(8).context(3))?;
    check!(b.cancel(first)?, "a receive without a message is canceled");
    b.expect(Kind::Recv, 1, Status::Canceled)?;
    check!(!b.cancel(first)?, "it is canceled once");
    a.post_send(to_b, &Send::inject(b"x").tag(1).unsignaled())?;
    b.received(2, 1)?;
    check!(!b.cancel(second)?, "one that has its message is not");
    a.post_send(to_b, &Send::inject(b"yy").tag(2).unsignaled())?;
    b.received(3, 2)?;
    check!(b.cancel(many)?, "a receive of many is canceled");
    let released = b.expect(Kind::Released, 3, Status::Ok)?;
    check_eq!(released.len, 2, "bytes that messages took");
    b.nothing()?;
    inbox.check_filled(..8, 0)?;
    // One that has met its message, whose payload is not here, is not canceled either.
    let (source, inbox) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    a.post_send(to_b, &Send::new(&source).tag(3).unsignaled())?;
    b.until("its envelope", |b| b.probe(&Pattern::tagged(3)).is_ok_and(|found| found.is_some()))?;
    let long = b.post_recv(&Recv::new(Pattern::tagged(3), &inbox).context(4))?;
    check!(!b.cancel(long)?, "one that has met its message is not");
    b.received(4, 1 << 20)?;
    inbox.check_pattern(.., rig.pattern(0))
}

pub(super) fn memory_is_free(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    for (context, len) in (0..).zip(LENGTHS) {
        let (source, inbox) = (a.patterned(len.max(1), 0)?, b.buffer(len.max(1))?);
        if context % 2 == 0 {
            b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(..len)).context(context))?;
        }
        a.when_room(|| {
            a.post_send(*to_b, &Send::new(source.slice(..len)).tag(1).matched().context(context))
        })?;
        if context % 2 != 0 {
            b.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(..len)).context(context))?;
        }
        b.received(context, len)?;
        a.sent(context)?;
        source.close()?;
        inbox.close()?;
    }
    let inbox = b.buffer(8)?;
    let id = b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
    check_err!(inbox.close(), Error::Busy, "memory of a receive that is posted");
    check!(b.cancel(id)?, "a receive without a message is canceled");
    b.expect(Kind::Recv, 1, Status::Canceled)?;
    Ok(inbox.close()?)
}

pub(super) fn cancel_races_match(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let inbox = b.buffer(8)?;
    let (mut canceled, rounds) = (0, rig.count(300, 20_000) as u64);
    for round in 0..rounds {
        let id = b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(round))?;
        a.when_room(|| a.post_send(to_b, &Send::inject(&round.to_le_bytes()).tag(1).unsignaled()))?;
        (0..round % 50).for_each(|_| std::hint::spin_loop());
        let said = b.cancel(id)?;
        let done = b.next()?;
        check_eq!(done.context, round, "the receive that ended");
        check_eq!(done.status == Status::Canceled, said, "what cancel said, of {done:?}");
        if said {
            canceled += 1;
            b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(round))?;
            b.received(round, 8)?;
        }
        check_eq!(inbox.get::<u64>(0)?, round, "the message");
    }
    check!(canceled <= rounds, "counted");
    b.nothing_at_once()
}

pub(super) fn cancel_sent(rig: &Rig) -> Outcome {
    // To a peer that does not know this endpoint, nothing is on its way.
    let a = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
    let b = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let to_b = a.insert(b.address())?;
    let source = a.patterned(100_000, 0)?;
    let first = a.post_send(to_b, &Send::inject(b"first").tag(1).context(1))?;
    let second = a.post_send(to_b, &Send::new(&source).tag(1).context(2))?;
    let third = a.post_send(to_b, &Send::inject(b"third").tag(1).context(3))?;
    check!(a.cancel(second)?, "one that waits is canceled");
    a.expect(Kind::Send, 2, Status::Canceled)?;
    check!(a.cancel(first)?, "the first of those that wait is, too");
    a.expect(Kind::Send, 1, Status::Canceled)?;
    b.insert(a.address())?;
    a.sent(3)?;
    check!(!a.cancel(third)? && !a.cancel(first)?, "what has ended is not canceled");
    let inbox = b.buffer(8)?;
    b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(4))?;
    b.received(4, 5)?;
    // One that waits at its sender for a receive is on its way.
    let long = a.post_send(to_b, &Send::new(&source).tag(2).context(5))?;
    b.until("its envelope", |b| b.probe(&Pattern::tagged(2)).is_ok_and(|found| found.is_some()))?;
    check!(!a.cancel(long)?, "one that is on its way is not canceled");
    let inbox = b.buffer(100_000)?;
    b.post_recv(&Recv::new(Pattern::tagged(2), &inbox).context(6))?;
    b.received(6, 100_000)?;
    a.sent(5)
}

pub(super) fn counter_exact(rig: &Rig) -> Outcome {
    const COUNT: u64 = 500;
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let (source, inbox) = (a.patterned(64, 0)?, b.buffer(64)?);
    let time = Some(rig.connect_timeout());
    for _ in 0..COUNT {
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).unsignaled())?;
    }
    for _ in 0..COUNT {
        a.when_room(|| a.post_send(to_b, &Send::new(&source).tag(1).unsignaled()))?;
    }
    // Neither side polls.
    a.counter(Kind::Send).wait_for(COUNT, 0, time)?;
    b.counter(Kind::Recv).wait_for(COUNT, 0, time)?;
    for (kind, op) in [
        (Kind::Write, Op::write(source.slice(..8), inbox.at(0)).unsignaled()),
        (Kind::Read, Op::read(source.slice(..8), inbox.at(0)).unsignaled()),
        (Kind::Atomic, Op::atomic(AtomicOp::Add, 1u64, inbox.at(8)).unsignaled()),
    ] {
        for _ in 0..10 {
            a.when_room(|| a.post(to_b, &op))?;
        }
        a.counter(kind).wait_for(10, 0, time)?;
        check_eq!(a.counter(kind).now()?, (10, 0), "{kind:?}");
    }
    check_eq!(a.counter(Kind::Send).now()?, (COUNT, 0), "sends");
    check_eq!(b.counter(Kind::Recv).now()?, (COUNT, 0), "receives");
    // One that waits already is woken, and does not find it when its time is over.
    let waited = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let begun = Instant::now();
            b.counter(Kind::Recv).wait_for(COUNT + 1, 0, time).map(|()| begun.elapsed())
        });
        thread::sleep(Duration::from_millis(20));
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).unsignaled())?;
        a.when_room(|| a.post_send(to_b, &Send::new(&source).tag(1).unsignaled()))?;
        Ok::<_, Failed>(waiter.join())
    })?;
    let waited = waited.map_err(|_| Failed::new("a wait", "a panic"))??;
    check!(
        Some(waited) < time.map(|time| time / 2),
        "a waiter that is woken, not after {waited:?}"
    );
    a.nothing_at_once()?;
    b.nothing_at_once()
}

pub(super) fn counter_error(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let inbox = a.buffer(8)?;
    a.post_recv(&Recv::new(Pattern::tagged(1).from(to_b), &inbox).unsignaled().context(1))?;
    a.post_send(to_b, &Send::inject(b"x").tag(1).unsignaled())?;
    a.counter(Kind::Send).wait_for(1, 0, Some(rig.connect_timeout()))?;
    drop(b);
    let waited = a.counter(Kind::Recv).wait_for(1, 0, Some(rig.connect_timeout()));
    check_err!(waited, Error::InvalidState(_), "a wait for a receive that fails");
    check_eq!(a.counter(Kind::Recv).now()?, (0, 1), "successes and errors");
    // What fails is not unsignaled.
    a.expect(Kind::Recv, 1, Status::PeerLost).map(drop)
}

pub(super) fn silent_receives(rig: &Rig) -> Outcome {
    const WINDOW: u64 = 4;
    let RdmPair { a, b, to_b, .. } = RdmPair::with(rig, |attr| {
        attr.window.places.window = WINDOW;
        attr.recv_depth = 4;
    })?;
    let time = Some(rig.connect_timeout());
    let inbox = b.buffer(8)?;
    // Each takes its message from those that wait, and leaves its place in the depth and in the window.
    for round in 0..4 * WINDOW {
        let text = round.to_le_bytes();
        a.when_room(|| a.post_send(to_b, &Send::inject(&text).tag(1).unsignaled()))?;
        a.counter(Kind::Send).wait_for(round + 1, 0, time)?;
        b.when_room(|| b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).unsignaled()))?;
        b.counter(Kind::Recv).wait_for(round + 1, 0, time)?;
        check_eq!(inbox.get::<u64>(0)?, round, "the message of this number");
    }
    // So does each message of a receive of many, which says only that it is over.
    let (many, each) = (b.buffer(4 * WINDOW as usize * 8)?, 8);
    let recv = Recv::new(Pattern::tagged(1), &many).of_many(each).unsignaled().context(1);
    b.when_room(|| b.post_recv(&recv))?;
    for round in 0..4 * WINDOW {
        let text = round.to_le_bytes();
        a.when_room(|| a.post_send(to_b, &Send::inject(&text).tag(1).unsignaled()))?;
        b.counter(Kind::Recv).wait_for(4 * WINDOW + round + 1, 0, time)?;
        check_eq!(many.get::<u64>(8 * round as usize)?, round, "the message of this number");
    }
    b.expect(Kind::Released, 1, Status::Ok)?;
    a.nothing_at_once()?;
    b.nothing_at_once()
}
