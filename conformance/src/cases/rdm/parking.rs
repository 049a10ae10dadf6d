//! Connections beyond the bound: closed in agreement, and made again.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, Kind, Peer, PeerEvent, PostError, RdmAttr, Recv, Send, Status};

use super::memory::is_window_full;
use crate::prelude::*;
use crate::rdm::{RdmEnd, expect_refused};

/// One endpoint that may have few connections, and others that it talks with.
pub(super) struct Star<'a> {
    pub(super) hub: RdmEnd<'a>,
    /// Each with the hub's handle of it, and its handle of the hub.
    pub(super) others: Vec<(RdmEnd<'a>, Peer, Peer)>,
}

impl<'a> Star<'a> {
    pub(super) fn new(rig: &'a Rig, max_open: u32, others: usize) -> Result<Self, Failed> {
        let small = |attr: &mut RdmAttr| attr.connection_depth = 16;
        let hub = RdmEnd::new(rig, rig.domain_a(), |attr| {
            small(attr);
            attr.max_open = max_open;
        })?;
        let mut star = Star { hub, others: Vec::new() };
        for _ in 0..others {
            let other = RdmEnd::new(rig, rig.domain_b(), |attr| {
                small(attr);
                attr.slots = 16;
            })?;
            let (to, from) = (star.hub.insert(other.address())?, other.insert(star.hub.address())?);
            star.others.push((other, to, from));
        }
        Ok(star)
    }

    fn check_open(&self, max: u32) -> Outcome {
        let open = self.hub.connections()?;
        check!(open <= max, "at most {max} connections, not {open}");
        Ok(())
    }
}

pub(super) fn max_open_kept(rig: &Rig) -> Outcome {
    let star = Star::new(rig, 3, 12)?;
    let Star { hub, others } = &star;
    let inbox = hub.buffer(8)?;
    for round in 0..rig.count(4, 100) as u64 {
        for (number, (other, to, from)) in (0u64..).zip(others) {
            let at_other = other.buffer(8)?;
            // Now the hub begins, now the other one.
            other.post_recv(&Recv::new(Pattern::tagged(round), &at_other).context(1))?;
            hub.post_recv(&Recv::new(Pattern::tagged(round).from(*to), &inbox).context(number))?;
            let text = (round << 8 | number).to_le_bytes();
            if (round + number) % 2 == 0 {
                hub.post_send(*to, &Send::inject(&text).tag(round).context(99))?;
                other.received(1, 8)?;
                other.post_send(*from, &Send::inject(&text).tag(round).context(2))?;
                other.sent(2)?;
            } else {
                other.post_send(*from, &Send::inject(&text).tag(round).context(2))?;
                other.sent(2)?;
                hub.post_send(*to, &Send::inject(&text).tag(round).context(99))?;
                other.received(1, 8)?;
            }
            hub.expect_all(&[(Kind::Send, 99, Status::Ok), (Kind::Recv, number, Status::Ok)])?;
            check_eq!(at_other.get::<u64>(0)?, round << 8 | number, "what came");
            star.check_open(3)?;
        }
    }
    Ok(())
}

pub(super) fn oldest_is_parked(rig: &Rig) -> Outcome {
    let star = Star::new(rig, 2, 3)?;
    let Star { hub, others } = &star;
    // The first one is used again before there is one too many.
    for (context, at) in (0..).zip([0, 1, 0, 2]) {
        let (other, to, _) = &others[at];
        let inbox = other.buffer(8)?;
        other.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
        hub.post_send(*to, &Send::inject(b"hello").tag(1).context(context))?;
        other.received(context, 5)?;
        hub.sent(context)?;
        // Nothing is under way any more.
        thread::sleep(Duration::from_millis(20));
    }
    let (first, second) = (&others[0].0, &others[1].0);
    second.until("its connection to be parked", |end| end.connections().is_ok_and(|n| n == 0))?;
    check_eq!(first.connections()?, 1, "connections of the one that was used later");
    Ok(())
}

pub(super) fn park_keeps_order(rig: &Rig) -> Outcome {
    let star = Star::new(rig, 1, 3)?;
    let Star { hub, others } = &star;
    let rounds = rig.count(20, 1000) as u64;
    // Two messages for each in turn: each turn parks the connection of the one before.
    for round in 0..rounds {
        for (_, to, _) in others {
            for half in 0..2 {
                let number = (2 * round + half).to_le_bytes();
                hub.when_room(|| hub.post_send(*to, &Send::inject(&number).tag(1).unsignaled()))?;
            }
        }
        for (other, _, from) in others {
            let inbox = other.buffer(16)?;
            for half in 0..2u64 {
                let into = inbox.slice(8 * half as usize..8 * half as usize + 8);
                other.post_recv(&Recv::new(Pattern::tagged(1).from(*from), into).context(half))?;
            }
            for half in 0..2 {
                other.received(half, 8)?;
                let number = inbox.get::<u64>(8 * half as usize)?;
                check_eq!(number, 2 * round + half, "the number of the message");
            }
        }
        star.check_open(1)?;
    }
    hub.counter(Kind::Send).wait_for(6 * rounds, 0, Some(rig.connect_timeout()))?;
    hub.nothing_at_once()
}

pub(super) fn park_keeps_window(rig: &Rig) -> Outcome {
    let star = Star::new(rig, 1, 2)?;
    let Star { hub, others } = &star;
    let ((first, to_first, _), (second, to_second, _)) = (&others[0], &others[1]);
    let window = RdmAttr::default().window.places.window;
    let post = |context: u64| {
        let text = context.to_le_bytes();
        hub.post_send(*to_first, &Send::inject(&text).tag(1).context(context))
    };
    for context in 0..window {
        hub.when_room(|| post(context))?;
        hub.sent(context)?;
    }
    // They wait there, and their connection is parked for another one.
    let inbox = second.buffer(8)?;
    second.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
    hub.post_send(*to_second, &Send::inject(b"x").tag(1).context(window))?;
    hub.sent(window)?;
    second.received(1, 1)?;
    first.until("its connection to be parked", |end| end.connections().is_ok_and(|n| n == 0))?;
    for _ in 0..3 {
        expect_refused(post(0), is_window_full)?;
    }
    // Places become free there without a connection; a post that is refused has one made, by which that is known.
    let inbox = first.buffer(8)?;
    for context in 0..window + 1 {
        if context == window {
            hub.when_room(|| post(window))?;
            hub.sent(window)?;
        }
        first.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
        first.received(context, 8)?;
        check_eq!(inbox.get::<u64>(0)?, context, "the number of the message");
    }
    star.check_open(1)
}

pub(super) fn forgotten_while_parked(rig: &Rig) -> Outcome {
    for posts_first in [false, true] {
        let star = Star::new(rig, 1, 2)?;
        let Star { hub, others } = &star;
        let (first, to_first, to_hub) = &others[0];
        for (context, (other, to, _)) in (0..).zip(others) {
            let inbox = other.buffer(8)?;
            other.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
            hub.post_send(*to, &Send::inject(b"hello").tag(1).context(context))?;
            other.received(context, 5)?;
            hub.sent(context)?;
        }
        first
            .until("its connection to be parked", |end| end.connections().is_ok_and(|n| n == 0))?;
        first.remove(*to_hub)?;
        let to_hub = first.insert(hub.address())?;
        let inbox = hub.buffer(8)?;
        hub.post_recv(&Recv::new(Pattern::tagged(2), &inbox).context(2))?;
        if posts_first {
            hub.post_send(*to_first, &Send::inject(b"for the one before").context(3))?;
            hub.expect(Kind::Send, 3, Status::PeerLost)?;
        }
        first.post_send(to_hub, &Send::inject(b"anew").tag(2).context(4))?;
        hub.until("the peer to be down", |hub| {
            hub.down(*to_first).is_ok_and(|cause| cause.is_some())
        })?;
        check_eq!(hub.down(*to_first)?, Some(DeathCause::Lost), "why it is down");
        let event = Some(PeerEvent::Down(*to_first, DeathCause::Lost));
        check_eq!(hub.poll_event()?, event, "the event");
        // The post waits for that.
        hub.revive(*to_first)?;
        hub.received(2, 4)?;
        first.sent(4)?;
        check_eq!(first.down(to_hub)?, None, "the other side");
    }
    Ok(())
}

pub(super) fn park_races_post(rig: &Rig) -> Outcome {
    const OTHERS: usize = 4;
    let star = Star::new(rig, 1, OTHERS)?;
    let rounds = rig.count(30, 2000) as u64;
    let Star { hub, others } = &star;
    thread::scope(|scope| -> Outcome {
        let mut threads = Vec::new();
        for (other, _, from) in others {
            threads.push(scope.spawn(move || -> Outcome {
                let inbox = other.buffer(8)?;
                for round in 0..rounds {
                    let text = round.to_le_bytes();
                    other.when_room(|| {
                        other.post_send(*from, &Send::inject(&text).tag(2).unsignaled())
                    })?;
                    other.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(round))?;
                    other.received(round, 8)?;
                    check_eq!(inbox.get::<u64>(0)?, round, "the number from the hub");
                }
                Ok(())
            }));
        }
        let inbox = hub.buffer(8)?;
        for round in 0..rounds {
            for (_, to, _) in others {
                let text = round.to_le_bytes();
                hub.when_room(|| hub.post_send(*to, &Send::inject(&text).tag(1).unsignaled()))?;
            }
            for (_, to, _) in others {
                hub.post_recv(&Recv::new(Pattern::tagged(2).from(*to), &inbox).context(round))?;
                hub.received(round, 8)?;
                check_eq!(inbox.get::<u64>(0)?, round, "the number from {to}");
            }
        }
        for thread in threads {
            thread.join().unwrap_or_else(|_| Err(Failed::new("a thread that ends", "a panic")))?;
        }
        Ok(())
    })
}

pub(super) fn park_unmatched_rendezvous(rig: &Rig) -> Outcome {
    const LEN: usize = 300_000;
    let star = Star::new(rig, 1, 2)?;
    let Star { hub, others } = &star;
    let [(first, to_first, _), (second, to_second, _)] = &others[..] else {
        fail!("two others", "{}", others.len());
    };
    let source = hub.patterned(LEN, 0)?;
    let inbox = first.buffer(LEN)?;
    for round in 0..rig.count(5, 200) as u64 {
        inbox.fill(0)?;
        hub.post_send(*to_first, &Send::new(&source).tag(1).context(round))?;
        first.until("its envelope", |end| {
            end.probe(&Pattern::tagged(1)).is_ok_and(|found| found.is_some())
        })?;
        // The other connection parks the first one, which the message waits behind.
        let small = second.buffer(8)?;
        second.post_recv(&Recv::new(Pattern::tagged(1), &small).context(2))?;
        hub.post_send(*to_second, &Send::inject(b"between").tag(1).context(99))?;
        second.received(2, 7)?;
        hub.sent(99)?;
        hub.nothing_at_once()?;
        first.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(3))?;
        first.received(3, LEN)?;
        inbox.check_pattern(.., rig.pattern(0))?;
        hub.sent(round)?;
    }
    Ok(())
}

pub(super) fn park_under_rma(rig: &Rig) -> Outcome {
    const LEN: usize = 64 << 10;
    let star = Star::new(rig, 1, 3)?;
    let Star { hub, others } = &star;
    let source = hub.patterned(LEN, 0)?;
    let targets = others.iter().map(|(other, ..)| other.buffer(LEN + 8));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let back = hub.buffer(LEN)?;
    let rounds = rig.count(10, 500) as u64;
    for round in 0..rounds {
        for ((_, to, _), target) in others.iter().zip(&targets) {
            hub.post(*to, &Op::write(source.slice(..), target.at(0)).context(1))?;
            hub.post(*to, &Op::atomic(AtomicOp::Add, 1u64, target.at(LEN)).context(2))?;
            hub.post(*to, &Op::read(back.slice(..), target.at(0)).fence().context(3))?;
        }
        let mut expected = Vec::new();
        for _ in others {
            let one = [(Kind::Write, 1), (Kind::Atomic, 2), (Kind::Read, 3)];
            expected.extend(one.map(|(kind, context)| (kind, context, Status::Ok)));
        }
        hub.expect_all(&expected)?;
        back.check_pattern(.., rig.pattern(0))?;
        for target in &targets {
            check_eq!(target.get::<u64>(LEN)?, round + 1, "additions, each once");
            target.check_pattern(..LEN, rig.pattern(0))?;
        }
        star.check_open(1)?;
    }
    Ok(())
}

pub(super) fn park_races_rma(rig: &Rig) -> Outcome {
    const LEN: usize = 64 << 10;
    let star = Star::new(rig, 1, 3)?;
    let Star { hub, others } = &star;
    let source = hub.patterned(LEN, 0)?;
    let targets = others.iter().map(|(other, ..)| other.buffer(LEN));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let mut rng = rig.rng();
    let write = |at: usize, context| {
        let op = Op::write(source.slice(..), targets[at].at(0)).context(context);
        hub.post(others[at].1, &op)
    };
    for round in 0..rig.count(60, 3000) {
        let (first, second) = (round % 3, (round + 1 + rng.below(2)) % 3);
        write(first, 1)?;
        hub.expect(Kind::Write, 1, Status::Ok)?;
        // The second one needs the place of the first, which is parked; and then there is something for that one.
        write(second, 2)?;
        for _ in 0..rng.below(4) {
            hub.progress()?;
        }
        write(first, 3)?;
        hub.expect_all(&[(Kind::Write, 2, Status::Ok), (Kind::Write, 3, Status::Ok)])?;
    }
    hub.nothing_at_once()?;
    targets.iter().try_for_each(|target| target.check_pattern(.., rig.pattern(0)))
}

pub(super) fn park_under_stream(rig: &Rig) -> Outcome {
    const LEN: usize = 1 << 20;
    const OUTSTANDING: u64 = 8;
    let star = Star::new(rig, 1, 2)?;
    let Star { hub, others } = &star;
    let [(first, to_first, _), (second, to_second, _)] = &others[..] else {
        fail!("two others", "{}", others.len());
    };
    let (source, target, inbox) = (hub.patterned(LEN, 0)?, first.buffer(LEN)?, second.buffer(8)?);
    let write = Op::write(source.slice(..), target.at(0)).unsignaled();
    second.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
    for _ in 0..OUTSTANDING {
        hub.post(*to_first, &write)?;
    }
    hub.post_send(*to_second, &Send::inject(b"my turn").tag(1).context(2))?;
    let mut posted = OUTSTANDING;
    let until = Instant::now() + rig.connect_timeout();
    // The first one's connection is never without a write, and the second one waits for its place.
    while second.counter(Kind::Recv).now()?.0 == 0 {
        if hub.counter(Kind::Write).now()?.0 + OUTSTANDING > posted {
            hub.post(*to_first, &write)?;
            posted += 1;
        } else {
            hub.progress()?;
        }
        check!(Instant::now() < until, "a turn for the second one, not {}", hub.dump());
    }
    second.received(1, 7)?;
    hub.sent(2)?;
    hub.counter(Kind::Write).wait_for(posted, 0, Some(rig.connect_timeout()))?;
    target.check_pattern(.., rig.pattern(0))?;
    star.check_open(1)
}

pub(super) fn all_busy_fair(rig: &Rig) -> Outcome {
    const LEN: usize = 50_000;
    let star = Star::new(rig, 2, 5)?;
    let Star { hub, others } = &star;
    let source = hub.patterned(LEN, 0)?;
    let each = rig.count(10, 200) as u64;
    let inboxes = others.iter().map(|(other, ..)| other.buffer(LEN));
    let inboxes = inboxes.collect::<Result<Vec<_>, _>>()?;
    for ((other, ..), inbox) in others.iter().zip(&inboxes) {
        for context in 0..each {
            other.post_recv(&Recv::new(Pattern::tagged(1), inbox).context(context))?;
        }
    }
    for _ in 0..each {
        for (_, to, _) in others {
            hub.when_room(|| hub.post_send(*to, &Send::new(&source).tag(1).unsignaled()))?;
        }
    }
    let all: Vec<_> = (0..each).map(|context| (Kind::Recv, context, Status::Ok)).collect();
    for ((other, ..), inbox) in others.iter().zip(&inboxes) {
        other.expect_all(&all)?;
        inbox.check_pattern(.., rig.pattern(0))?;
    }
    hub.counter(Kind::Send).wait_for(5 * each, 0, Some(rig.connect_timeout()))?;
    star.check_open(2)
}

pub(super) fn asked_without_end(rig: &Rig) -> Outcome {
    let star = Star::new(rig, 1, 4)?;
    let Star { hub, others } = &star;
    let (askers, (quiet, to_quiet, _)) = (&others[..3], &others[3]);
    let (inbox, answers) = (hub.buffer(8)?, quiet.buffer(10)?);
    quiet.post_recv(&Recv::new(Pattern::untagged(), &answers).context(1))?;
    let mut asked = [0; 3];
    let mut is_posted = false;
    // One has the only place, and others always wait for it.
    let until = Instant::now() + 2 * rig.connect_timeout();
    while quiet.counter(Kind::Recv).now()?.0 == 0 {
        for ((asker, _, to_hub), asked) in askers.iter().zip(&mut asked) {
            if asker.counter(Kind::Send).now()?.0 < *asked {
                continue;
            }
            match asker.post_send(*to_hub, &Send::inject(b"and now?").unsignaled()) {
                Err(PostError::Again(_)) => {}
                posted => {
                    *asked += posted.map(|_| 1)?;
                    hub.post_recv(&Recv::new(Pattern::untagged(), &inbox).unsignaled())?;
                }
            }
        }
        if !is_posted && asked.iter().all(|asked| *asked > 2) {
            hub.post_send(*to_quiet, &Send::inject(b"in between").unsignaled())?;
            is_posted = true;
        }
        hub.progress()?;
        check!(Instant::now() < until, "the message comes while others ask, not {}", hub.dump());
    }
    quiet.received(1, 10)?;
    star.check_open(1)
}

pub(super) fn all_to_all(rig: &Rig) -> Outcome {
    let count = rig.count(12, 48);
    let max_open = rig.count(4, 16) as u32;
    let settings = |attr: &mut RdmAttr| {
        attr.max_open = max_open;
        (attr.connection_depth, attr.slots) = (16, 32);
    };
    let domain = |at: usize| if at.is_multiple_of(2) { rig.domain_a() } else { rig.domain_b() };
    let ends = (0..count).map(|at| RdmEnd::new(rig, domain(at), settings));
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    let inboxes = ends.iter().map(|end| end.buffer(8 * count)).collect::<Result<Vec<_>, _>>()?;
    let mut peers = Vec::new();
    for (end, inbox) in ends.iter().zip(&inboxes) {
        let mut known = Vec::new();
        for (from, other) in ends.iter().enumerate() {
            let peer = end.insert(other.address())?;
            let into = inbox.slice(8 * from..8 * from + 8);
            end.post_recv(&Recv::new(Pattern::tagged(1).from(peer), into).unsignaled())?;
            known.push(peer);
        }
        peers.push(known);
    }
    for step in 0..count {
        for (from, end) in ends.iter().enumerate() {
            let to = (from + step) % count;
            let text = ((from << 16 | to) as u64).to_le_bytes();
            let send = Send::inject(&text).tag(1).unsignaled();
            end.when_room(|| end.post_send(peers[from][to], &send))?;
        }
    }
    let time = Some(rig.scaled(Duration::from_secs(60)));
    for (to, (end, inbox)) in ends.iter().zip(&inboxes).enumerate() {
        end.counter(Kind::Recv).wait_for(count as u64, 0, time)?;
        end.counter(Kind::Send).wait_for(count as u64, 0, time)?;
        for from in 0..count {
            check_eq!(inbox.get::<u64>(8 * from)?, (from << 16 | to) as u64, "of {from} to {to}");
        }
        let open = end.connections()?;
        check!(open <= max_open, "at most {max_open} connections, not {open}");
    }
    Ok(())
}
