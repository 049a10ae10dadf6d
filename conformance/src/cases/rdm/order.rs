//! What follows what, between two endpoints.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send, Status};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmEnd, RdmPair};

pub(super) fn mixed_sizes(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let mut rng = rig.rng();
    for round in 0..rig.count(8, 200) {
        let mut lengths = LENGTHS.to_vec();
        rng.shuffle(&mut lengths);
        let sources = (0..).zip(&lengths).map(|(at, len)| a.patterned((*len).max(1), round + at));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let inboxes = lengths.iter().map(|len| b.buffer((*len).max(1)));
        let inboxes = inboxes.collect::<Result<Vec<_>, _>>()?;
        let recv = |at: usize| {
            let into = inboxes[at].slice(..lengths[at]);
            b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), into).context(at as u64))
        };
        // Some receives are there before, some are not.
        let before = rng.below(lengths.len());
        (0..before).try_for_each(|at| recv(at).map(drop))?;
        for (at, len) in lengths.iter().enumerate() {
            let send = Send::new(sources[at].slice(..*len)).tag(1).context(at as u64);
            a.when_room(|| a.post_send(to_b, &send))?;
        }
        (before..lengths.len()).try_for_each(|at| recv(at).map(drop))?;
        // They end in any order; each has its own message.
        let mut seen = vec![false; lengths.len()];
        for _ in &lengths {
            let done = b.next()?;
            let at = done.context as usize;
            check!(done.is_ok() && !std::mem::replace(&mut seen[at], true), "{done:?}");
            check_eq!(done.len, lengths[at] as u64, "the length of message {at}");
            inboxes[at].check_pattern(..lengths[at], rig.pattern(round + at))?;
            inboxes[at].check_guards()?;
        }
        for _ in &lengths {
            let done = a.next()?;
            check!(done.is_ok() && std::mem::take(&mut seen[done.context as usize]), "{done:?}");
        }
    }
    Ok(())
}

pub(super) fn eager_behind_rendezvous(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let (long, inbox) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    for round in 0..10 {
        let before = b.arrived()?;
        a.post_send(to_b, &Send::new(&long).tag(1).context(1))?;
        a.post_send(to_b, &Send::inject(b"short").tag(1).context(2))?;
        if round % 2 == 0 {
            b.until("both messages", |b| {
                b.progress().is_ok() && b.arrived().is_ok_and(|now| now == before + 2)
            })?;
        }
        b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), inbox.slice(..)).context(1))?;
        b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), inbox.slice(..8)).context(2))?;
        let (first, second) = (b.next()?, b.next()?);
        let of = |context| if first.context == context { first } else { second };
        check!(of(2).len == 5 && of(1).len >= 1 << 20, "{first:?}, {second:?}");
        let (first, second) = (a.next()?, a.next()?);
        check!(first.is_ok() && second.is_ok(), "{first:?}, {second:?}");
    }
    Ok(())
}

pub(super) fn behind_what_waits(rig: &Rig) -> Outcome {
    const WINDOW: u64 = 4;
    let a = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
    let b = RdmEnd::new(rig, rig.domain_b(), |attr| attr.window.places.window = WINDOW)?;
    let to_b = a.insert(b.address())?;
    // Before there is a connection more messages are taken than the peer has places for: how many that are is not known yet.
    for context in 0..2 * WINDOW {
        a.post_send(to_b, &Send::inject(&context.to_le_bytes()).tag(1).context(context))?;
    }
    // Until now it refuses strangers.
    b.insert(a.address())?;
    (0..WINDOW).try_for_each(|context| a.sent(context))?;
    let (source, target) = (a.buffer(8)?, b.buffer(8)?);
    source.set(0, 1u64)?;
    a.post(to_b, &Op::write(source.slice(..), target.at(0)).context(99))?;
    a.nothing()?;
    check_eq!(target.get::<u64>(0)?, 0, "what is behind messages that wait");
    let inbox = b.buffer(8)?;
    for context in 0..2 * WINDOW {
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
        b.received(context, 8)?;
        check_eq!(inbox.get::<u64>(0)?, context, "the number of the message");
    }
    (WINDOW..2 * WINDOW).try_for_each(|context| a.sent(context))?;
    a.expect(Kind::Write, 99, Status::Ok)?;
    check_eq!(target.get::<u64>(0)?, 1, "what was written");
    Ok(())
}
