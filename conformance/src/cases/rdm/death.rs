//! The loss of a peer, and its return.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, Kind, PeerEvent, PostError, Recv, Send, Status};

use crate::prelude::*;
use crate::rdm::{RdmEnd, RdmPair, expect_refused};

fn is_down(error: &PostError) -> bool {
    matches!(error, PostError::PeerDown(_))
}

pub(super) fn outstanding_end(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = pair;
    let c = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let (to_c, from_a) = (a.insert(c.address())?, c.insert(a.address())?);
    let long = a.patterned(100_000, 0)?;
    for context in 0..4 {
        a.post_send(to_b, &Send::new(&long).tag(1).context(context))?;
    }
    a.post_send(to_c, &Send::new(&long).tag(1).context(10))?;
    b.until("an envelope", |b| b.probe(&Pattern::tagged(1)).is_ok_and(|found| found.is_some()))?;
    drop(b);
    let mut expected = vec![(Kind::Send, 0, Status::PeerLost)];
    expected.extend((1..4).map(|context| (Kind::Send, context, Status::Canceled)));
    a.expect_all(&expected)?;
    check_eq!(a.down(to_b)?, Some(DeathCause::Lost), "why it is down");
    check_eq!(a.poll_event()?, Some(PeerEvent::Down(to_b, DeathCause::Lost)), "the event");
    check_eq!(a.poll_event()?, None, "events after that");
    a.nothing()?;
    // The other peer is as it was.
    let inbox = c.buffer(100_000)?;
    c.post_recv(&Recv::new(Pattern::tagged(1).from(from_a), &inbox).context(1))?;
    c.received(1, 100_000)?;
    a.sent(10)
}

pub(super) fn buffered_stays(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, to_a } = pair;
    let source = a.patterned(20_000, 0)?;
    let lengths = [5, 4096, 20_000];
    for (context, len) in (0..).zip(lengths) {
        a.when_room(|| a.post_send(to_b, &Send::new(source.slice(..len)).tag(1).context(context)))?;
    }
    let long = a.patterned(100_000, 1)?;
    a.post_send(to_b, &Send::new(&long).tag(1).context(9))?;
    (0..3).try_for_each(|context| a.sent(context))?;
    drop(a);
    b.until("the loss", |b| b.down(to_a).is_ok_and(|cause| cause.is_some()))?;
    let inbox = b.buffer(100_000)?;
    for (context, len) in (0..).zip(lengths) {
        b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), &inbox).context(context))?;
        b.received(context, len)?;
        inbox.check_pattern(..len, rig.pattern(0))?;
    }
    // The long one was never here.
    check!(b.probe(&Pattern::tagged(1))?.is_none(), "no message that cannot come");
    Ok(())
}

pub(super) fn directed_receive_ends(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = pair;
    let inbox = a.buffer(64)?;
    a.post_recv(&Recv::new(Pattern::tagged(1).from(to_b), inbox.slice(..8)).context(1))?;
    a.post_recv(&Recv::new(Pattern::tagged(1), inbox.slice(8..16)).context(2))?;
    let many = Recv::new(Pattern::tagged(2).from(to_b), inbox.slice(16..)).of_many(8);
    a.post_recv(&many.context(3))?;
    drop(b);
    a.expect_all(&[(Kind::Recv, 1, Status::PeerLost), (Kind::Released, 3, Status::Ok)])?;
    let c = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    a.insert(c.address())?;
    let to_a = c.insert(a.address())?;
    c.post_send(to_a, &Send::inject(b"of c").tag(1).unsignaled())?;
    a.received(2, 4).map(drop)
}

/// Ends the connection between two endpoints that go on: one of them takes the other for another one.
fn cut(pair: &RdmPair<'_>) -> Result<fabric_rdm::Peer, Failed> {
    let RdmPair { a, b, to_a, to_b } = pair;
    b.remove(*to_a)?;
    a.until("the loss", |a| a.down(*to_b).is_ok_and(|cause| cause.is_some()))?;
    Ok(b.insert(a.address())?)
}

pub(super) fn sticky_until_revive(rig: &Rig) -> Outcome {
    let mut pair = RdmPair::new(rig)?;
    pair.greet()?;
    for round in 0..rig.count(5, 200) as u64 {
        let to_a = cut(&pair)?;
        let RdmPair { a, b, to_b, .. } = &pair;
        let inbox = a.buffer(8)?;
        for min_free in [None, Some(8)] {
            let recv = Recv::new(Pattern::tagged(1).from(*to_b), &inbox);
            let recv = min_free.map_or(recv, |min_free| recv.of_many(min_free));
            expect_refused(a.post_recv(&recv), is_down)?;
        }
        for _ in 0..3 {
            expect_refused(a.post_send(*to_b, &Send::inject(b"x")), is_down)?;
            expect_refused(
                a.post(*to_b, &Op::write(a.buffer(8)?.slice(..), b.buffer(8)?.at(0))),
                is_down,
            )?;
        }
        a.nothing_at_once()?;
        a.revive(*to_b)?;
        check_eq!(a.down(*to_b)?, None, "a peer that was revived");
        let inbox = b.buffer(8)?;
        b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), &inbox).context(round))?;
        a.post_send(*to_b, &Send::inject(b"again").tag(1).context(round))?;
        b.received(round, 5)?;
        a.sent(round)?;
        pair.to_a = to_a;
        pair.greet()?;
    }
    Ok(())
}

pub(super) fn revived_on_both_sides(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    let target = b.buffer(8)?;
    for round in 0..4 {
        pair.greet()?;
        // Both lose each other.
        a.post(*to_b, &Op::atomic(AtomicOp::Add, 1u64, target.by_wrong_key(0)).context(1))?;
        a.refused(Kind::Atomic, 1)?;
        a.until("the loss", |a| a.down(*to_b).is_ok_and(|cause| cause.is_some()))?;
        b.until("the loss", |b| b.down(*to_a).is_ok_and(|cause| cause.is_some()))?;
        // A post waits until the other side takes this one for alive again.
        let (first, of_first, last, of_last) =
            if round % 2 == 0 { (a, to_b, b, to_a) } else { (b, to_a, a, to_b) };
        first.revive(*of_first)?;
        first.post_send(*of_first, &Send::inject(b"again").tag(1).context(2))?;
        first.nothing()?;
        last.nothing()?;
        check!(last.down(*of_last)?.is_some(), "down until it is revived here");
        last.revive(*of_last)?;
        let inbox = last.buffer(8)?;
        last.post_recv(&Recv::new(Pattern::tagged(1).from(*of_last), &inbox).context(3))?;
        last.received(3, 5)?;
        first.sent(2)?;
    }
    Ok(())
}

pub(super) fn no_replay_of_atomics(rig: &Rig) -> Outcome {
    let mut pair = RdmPair::new(rig)?;
    let target = pair.b.buffer(8)?;
    let (mut certain, mut posted) = (0, 0);
    for round in 0..rig.count(10, 300) as u64 {
        pair.greet()?;
        let RdmPair { a, b, to_b, to_a } = &pair;
        let mut under_way = 0;
        for _ in 0..20 {
            if a.post(*to_b, &Op::atomic(AtomicOp::Add, 1u64, target.at(0)).context(round)).is_ok()
            {
                under_way += 1;
            }
        }
        posted += under_way;
        thread::sleep(Duration::from_micros(20 * (round % 10)));
        b.remove(*to_a)?;
        for _ in 0..under_way {
            let done = a.next()?;
            check_eq!((done.kind, done.context), (Kind::Atomic, round), "{done:?}");
            certain += u64::from(done.is_ok());
        }
        a.until("the loss", |a| a.down(*to_b).is_ok_and(|cause| cause.is_some()))?;
        let to_a = b.insert(a.address())?;
        a.revive(*to_b)?;
        pair.to_a = to_a;
    }
    pair.greet()?;
    let value = target.get::<u64>(0)?;
    check!(
        (certain..=posted).contains(&value),
        "each addition at most once, those that are Ok exactly: {certain} to {posted}, not {value}"
    );
    Ok(())
}

pub(super) fn restart_same_address(rig: &Rig) -> Outcome {
    let a = RdmEnd::new(rig, rig.domain_a(), |attr| attr.max_strangers = 8)?;
    let first = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let Some(addr) = first.address().rails().next() else { fail!("a rail", "none") };
    let to_first = a.insert(first.address())?;
    first.insert(a.address())?;
    let inbox = first.buffer(8)?;
    first.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
    a.post_send(to_first, &Send::inject(b"first").tag(1).context(1))?;
    first.received(1, 5)?;
    a.sent(1)?;
    drop(first);
    a.until("the loss", |a| a.down(to_first).is_ok_and(|cause| cause.is_some()))?;
    let second = RdmEnd::new(rig, rig.domain_b(), |attr| {
        attr.listen = Some(addr);
        attr.max_strangers = 8;
    })?;
    // The old handle, revived, meets another incarnation.
    a.revive(to_first)?;
    a.post_send(to_first, &Send::inject(b"for the first").tag(1).context(2))?;
    a.expect(Kind::Send, 2, Status::PeerGone)?;
    let to_second = a.insert(second.address())?;
    check!(to_second != to_first, "another peer");
    let inbox = second.buffer(8)?;
    second.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
    a.post_send(to_second, &Send::inject(b"second").tag(1).context(3))?;
    second.received(1, 6)?;
    a.sent(3)
}
