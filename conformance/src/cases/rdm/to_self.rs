//! One-sided operations of an endpoint to itself: what holds for any other peer.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, Kind, Peer, PeerEvent, PostError, Recv, Send, Status};

use super::memory::is_window_full;
use super::parking::Star;
use super::rma::is_posted_in_time;
use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmEnd, expect_refused};

const LEN: usize = 1 << 20;

/// An endpoint, and its handle of itself.
fn alone(rig: &Rig) -> Result<(RdmEnd<'_>, Peer), Failed> {
    let a = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
    let me = a.insert(a.address())?;
    Ok((a, me))
}

pub(super) fn self_rma(rig: &Rig) -> Outcome {
    let (a, me) = alone(rig)?;
    let (source, target, back) = (a.patterned(LEN, 0)?, a.buffer(LEN)?, a.buffer(LEN)?);
    let flag = a.buffer(8)?;
    for len in LENGTHS {
        // The message behind a write finds its bytes there.
        a.post_recv(&Recv::new(Pattern::untagged().from(me), &flag).context(1))?;
        a.post(me, &Op::write(source.slice(..len), target.at(0)).context(2))?;
        a.post_send(me, &Send::inject(b"written").context(3))?;
        a.post(me, &Op::read(back.slice(..len), target.at(0)).context(4))?;
        a.expect(Kind::Write, 2, Status::Ok)?;
        a.received(1, 7)?;
        target.check_pattern(..len, rig.pattern(0))?;
        a.sent(3)?;
        a.expect(Kind::Read, 4, Status::Ok)?;
        back.check_pattern(..len, rig.pattern(0))?;
        back.check_guards()?;
        target.check_guards()?;
        target.fill(0)?;
    }
    a.post(me, &Op::inject_write(b"injected", target.at(8)).unsignaled())?;
    a.post(me, &Op::read(back.slice(..8), target.at(8)).context(5))?;
    a.expect(Kind::Read, 5, Status::Ok)?;
    check_eq!(back.get::<u64>(0)?, u64::from_ne_bytes(*b"injected"), "what was injected");
    let (lens, connections) = (LENGTHS.len() as u64, a.connections()?);
    check_eq!(a.counter(Kind::Write).now()?, (lens + 1, 0), "writes counted");
    check_eq!(a.counter(Kind::Read).now()?, (lens + 1, 0), "reads counted");
    check_eq!(connections, 0, "connections to peers");
    a.nothing()
}

pub(super) fn self_atomics(rig: &Rig) -> Outcome {
    let (a, me) = alone(rig)?;
    let (word, old) = (a.buffer(16)?, a.buffer(8)?);
    use AtomicOp::{Add, And, Max, Min, Or, Swap, Xor};
    for (op, result) in [(Add, 22), (Min, 10), (Max, 12), (And, 8), (Or, 14), (Xor, 6), (Swap, 10)]
    {
        word.set(0, 12u64)?;
        a.post(me, &Op::fetch_atomic(op, 10u64, old.slice(..), word.at(0)).context(1))?;
        a.expect(Kind::Atomic, 1, Status::Ok)?;
        check_eq!((old.get::<u64>(0)?, word.get::<u64>(0)?), (12, result), "{op:?}");
        word.set(0, 12u64)?;
        a.post(me, &Op::atomic(op, 10u64, word.at(0)).context(2))?;
        a.expect(Kind::Atomic, 2, Status::Ok)?;
        check_eq!(word.get::<u64>(0)?, result, "{op:?} without a result");
    }
    a.post(me, &Op::fetch_compare_swap(10u64, 9u64, old.slice(..), word.at(0)).context(3))?;
    a.post(me, &Op::compare_swap(10u64, 8u64, word.at(0)).context(4))?;
    a.expect(Kind::Atomic, 3, Status::Ok)?;
    a.expect(Kind::Atomic, 4, Status::Ok)?;
    check_eq!((old.get::<u64>(0)?, word.get::<u64>(0)?), (10, 9), "of two, one finds 10");
    check_eq!(word.get::<u64>(8)?, 0, "the word beside it");
    // Behind the reads before it.
    let (sink, target) = (a.buffer(LEN)?, a.buffer(LEN)?);
    for round in 0..rig.count(20, 500) as u64 {
        a.post(me, &Op::read(sink.slice(..), target.at(0)).context(1))?;
        a.post(me, &Op::atomic(Add, 1u64, target.at(LEN - 8)).fence().context(2))?;
        a.expect(Kind::Read, 1, Status::Ok)?;
        a.expect(Kind::Atomic, 2, Status::Ok)?;
        let (found, left) = (sink.get::<u64>(LEN - 8)?, target.get::<u64>(LEN - 8)?);
        check_eq!((found, left), (round, round + 1), "what was read, and what is left");
    }
    Ok(())
}

pub(super) fn self_notified(rig: &Rig) -> Outcome {
    let (a, me) = alone(rig)?;
    let (source, target, inbox) = (a.patterned(LEN, 0)?, a.buffer(LEN)?, a.buffer(8)?);
    for (data, len) in (7..).zip(LENGTHS) {
        // Receives that are there take the messages, and those alone.
        for context in 1..3 {
            a.post_recv(&Recv::new(Pattern::untagged(), &inbox).context(context))?;
        }
        a.post_send(me, &Send::inject(b"before").unsignaled())?;
        let write = Op::write(source.slice(..len), target.at(0)).immediate(data).unsignaled();
        a.post(me, &write)?;
        a.post_send(me, &Send::inject(b"behind").unsignaled())?;
        a.received(1, 6)?;
        a.written(me, len, data)?;
        target.check_pattern(..len, rig.pattern(0))?;
        a.received(2, 6)?;
        target.fill(0)?;
    }
    check_eq!(a.counter(Kind::RecvWrite).now()?, (LENGTHS.len() as u64, 0), "writes counted");
    a.nothing_at_once()
}

pub(super) fn self_window(rig: &Rig) -> Outcome {
    const WINDOW: u32 = 16;
    let a = RdmEnd::new(rig, rig.domain_a(), |attr| attr.window.places.window = WINDOW.into())?;
    let me = a.insert(a.address())?;
    let (target, inbox) = (a.buffer(8)?, a.buffer(8)?);
    let write = |data: u32| {
        a.post(me, &Op::inject_write(b"8 bytes!", target.at(0)).immediate(data).unsignaled())
    };
    for _ in 0..3 {
        for data in 0..WINDOW {
            write(data)?;
        }
        expect_refused(write(99), is_window_full)?;
        // What takes no place goes on.
        a.post(me, &Op::inject_write(b"no place", target.at(0)).context(1))?;
        a.post_send(me, &Send::inject(b"message").context(2))?;
        a.post_recv(&Recv::new(Pattern::untagged(), &inbox).context(3))?;
        for data in 0..WINDOW {
            a.written(me, 8, data)?;
        }
        a.expect(Kind::Write, 1, Status::Ok)?;
        a.expect_all(&[(Kind::Send, 2, Status::Ok), (Kind::Recv, 3, Status::Ok)])?;
    }
    a.nothing_at_once()
}

pub(super) fn self_in_order(rig: &Rig) -> Outcome {
    const ROUNDS: u64 = 100;
    let a = RdmEnd::new(rig, rig.domain_a(), |attr| attr.connection_depth = 8)?;
    let me = a.insert(a.address())?;
    let (target, inbox) = (a.buffer(8)?, a.buffer(8 * ROUNDS as usize)?);
    // All are posted before there is a connection, and more than it holds.
    for round in 0..ROUNDS {
        let word = round.to_le_bytes();
        a.post(me, &Op::inject_write(&word, target.at(0)).unsignaled())?;
        let into = inbox.slice(8 * round as usize..8 * round as usize + 8);
        a.post(me, &Op::read(into, target.at(0)).unsignaled())?;
        a.post_send(me, &Send::inject(&word).tag(round).unsignaled())?;
        a.post(me, &Op::atomic(AtomicOp::Add, 1u64, target.at(0)).fence().context(round))?;
    }
    for round in 0..ROUNDS {
        a.expect(Kind::Atomic, round, Status::Ok)?;
        let read = inbox.get::<u64>(8 * round as usize)?;
        check_eq!(u64::from_le(read), round, "what was read behind a write");
    }
    check_eq!(target.get::<u64>(0)?, u64::from_le(ROUNDS - 1) + 1, "the last one");
    for round in 0..ROUNDS {
        a.post_recv(&Recv::new(Pattern::tagged(round), inbox.slice(..8)).context(round))?;
        a.received(round, 8)?;
        check_eq!(u64::from_le(inbox.get::<u64>(0)?), round, "the message");
    }
    Ok(())
}

pub(super) fn self_refused(rig: &Rig) -> Outcome {
    let pair = crate::rdm::RdmPair::new(rig)?;
    pair.greet()?;
    let crate::rdm::RdmPair { a, b, to_b, .. } = &pair;
    let me = a.insert(a.address())?;
    let (local, remote, inbox) = (a.patterned(64, 0)?, a.buffer(64)?, b.buffer(64)?);
    let invalid = |error: &PostError| matches!(error, PostError::Fabric(Error::InvalidArgument(_)));
    expect_refused(a.post(me, &Op::write(local.slice(..), remote.at(1 << 20))), invalid)?;
    expect_refused(a.post(me, &Op::read(local.slice(..), remote.at(0)).immediate(1)), |_| true)?;
    let closed = {
        let closed = a.buffer(64)?;
        closed.at(0)
    };
    for (turn, at) in (1..).zip([remote.by_wrong_key(0), closed]) {
        a.post_send(me, &Send::inject(b"has arrived").tag(turn).context(1))?;
        a.post_recv(&Recv::new(Pattern::untagged().from(me), &local).context(2))?;
        a.post(me, &Op::write(local.slice(..), at).immediate(1).context(3))?;
        let behind = a.post_send(me, &Send::inject(b"behind it").context(4));
        let is_posted = is_posted_in_time(behind)?;
        a.refused(Kind::Write, 3)?;
        if is_posted {
            a.expect(Kind::Send, 4, Status::Canceled)?;
        }
        a.expect(Kind::Recv, 2, Status::PeerLost)?;
        check_eq!(a.down(me)?, Some(DeathCause::Lost), "why it is down");
        check_eq!(a.poll_event()?, Some(PeerEvent::Down(me, DeathCause::Lost)), "the event");
        let is_down = |error: &PostError| matches!(error, PostError::PeerDown(DeathCause::Lost));
        expect_refused(a.post_send(me, &Send::inject(b"down")), is_down)?;
        expect_refused(a.post(me, &Op::write(local.slice(..), remote.at(0))), is_down)?;
        // What had arrived stays, others are untouched, and a revived endpoint goes on.
        a.post_recv(&Recv::new(Pattern::tagged(turn), &local).context(5))?;
        a.expect_all(&[(Kind::Recv, 5, Status::Ok), (Kind::Send, 1, Status::Ok)])?;
        b.post_recv(&Recv::new(Pattern::untagged(), &inbox).context(6))?;
        a.post_send(*to_b, &Send::inject(b"untouched").context(7))?;
        b.received(6, 9)?;
        a.sent(7)?;
        remote.check_filled(.., 0)?;
        a.revive(me)?;
        check_eq!(a.down(me)?, None, "a revived endpoint");
        a.post(me, &Op::read(local.slice(..), remote.at(0)).context(8))?;
        a.expect(Kind::Read, 8, Status::Ok)?;
    }
    a.nothing()
}

pub(super) fn self_canceled(rig: &Rig) -> Outcome {
    let a = RdmEnd::new(rig, rig.domain_a(), |attr| {
        // Each round has all places.
        (attr.connection_depth, attr.window.places.window) = (8, 32);
    })?;
    let mut me = a.insert(a.address())?;
    let (source, target) = (a.patterned(LEN / 4, 0)?, a.buffer(LEN / 4)?);
    for round in 0..rig.count(10, 200) as u64 {
        let mut posted = Vec::new();
        for context in 0..32 {
            let write = Op::write(source.slice(..), target.at(0)).immediate(context as u32);
            posted.push(a.post(me, &write.context(context))?);
        }
        let last = *posted.last().unwrap_or(&posted[0]);
        let is_canceled = a.cancel(last)?;
        check!(!a.cancel(last)? || !is_canceled, "it is canceled once");
        if round % 3 == 2 {
            // The handle of a removed peer is none any more, and the next one is as good.
            a.remove(me)?;
            me = a.insert(a.address())?;
        }
        let mut seen = [0; 32];
        let mut written = 0;
        while seen.iter().sum::<u32>() < 32 {
            let done = a.next()?;
            if done.kind == Kind::RecvWrite {
                written += 1;
                continue;
            }
            check_eq!(done.kind, Kind::Write, "{done:?}");
            let may_be = [Status::Ok, Status::Canceled].contains(&done.status);
            check!(may_be, "a write that was done or canceled, not {done:?}");
            check!(done.context != 31 || !is_canceled || !done.is_ok(), "canceled: {done:?}");
            written -= i32::from(done.is_ok());
            seen[done.context as usize] += 1;
        }
        check_eq!(
            (seen, written),
            ([1; 32], 0),
            "completions of each, and of those that were done"
        );
    }
    a.nothing()
}

pub(super) fn self_beside_others(rig: &Rig) -> Outcome {
    let star = Star::new(rig, 1, 2)?;
    let Star { hub, others } = &star;
    let me = hub.insert(hub.address())?;
    let (target, old) = (hub.buffer(8)?, hub.buffer(8)?);
    for round in 0..rig.count(10, 200) as u64 {
        for (other, to, _) in others {
            let inbox = other.buffer(8)?;
            other.post_recv(&Recv::new(Pattern::untagged(), &inbox).context(1))?;
            hub.post_send(*to, &Send::inject(b"a turn").context(2))?;
            let add = Op::fetch_atomic(AtomicOp::Add, 1u64, old.slice(..), target.at(0));
            hub.post(me, &add.context(3))?;
            hub.expect_all(&[(Kind::Send, 2, Status::Ok), (Kind::Atomic, 3, Status::Ok)])?;
            other.received(1, 6)?;
            check!(hub.connections()? <= 1, "no more than one connection to peers");
        }
        check_eq!(old.get::<u64>(0)?, 2 * round + 1, "the last one's old value");
    }
    Ok(())
}
