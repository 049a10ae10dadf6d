//! What becomes of a connection one of whose operations was refused, and of the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cases::crowd::{Crowd, joined};
use crate::cases::places::Slots;
use crate::prelude::*;

/// Depth of a receive queue that is not full before the connection is dead.
pub(super) const RACE_DEPTH: usize = 1024;

/// Posts a write by a key that opens nothing.
fn write_badly(a: &End, source: &Guarded, target: &Guarded, context: u64) -> fabric::Result<()> {
    a.write(source, target.by_wrong_key(0), context)
}

pub(super) fn prefix_ok(rig: &Rig) -> Outcome {
    const EACH: usize = 512;
    const BAD: usize = 5;
    const WRITES: usize = 11;
    let (a, b, source, target) = rig.transfer(WRITES * EACH)?;
    let slot = |i: usize| i * EACH..(i + 1) * EACH;

    // The descriptor lies about its key, so that only the target can refuse.
    let write = |i: usize| {
        let to = if i == BAD { target.by_wrong_key(i * EACH) } else { target.at(i * EACH) };
        Op::write(source.slice(slot(i)), to).context(i as u64)
    };
    let writes: Vec<_> = (0..WRITES).map(write).collect();
    // In one batch: one by one, the last of them could be refused by the call already.
    a.post_batch(&writes)?;

    a.expect_each(0..BAD)?;
    a.expect(Done::refused(BAD))?;
    a.expect_canceled(BAD + 1..WRITES)?;
    check_eq!(a.state(), EndpointState::Dead, "state of the initiator");
    b.expect_disconnected()?;
    check_eq!(b.state(), EndpointState::Dead, "state of the target");

    // No receive shows the target's CPU that the good ones are there.
    rig.eventually(|| target.check_pattern(..BAD * EACH, rig.pattern(0)))?;
    target.check_filled(BAD * EACH.., 0)
}

pub(super) fn target_learns(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (source, target) = (a.buffer(8)?, b.buffer(8)?);
    write_badly(&a, &source, &target, 1)?;
    a.expect(Done::refused(1))?;
    // It has nothing posted and polls no queue: only the event can show it.
    b.expect_disconnected()?;
    check_eq!(b.state(), EndpointState::Dead, "state of the target");
    check_err!(b.recv(&target, 2), Error::NotConnected, "a receive of the target");
    b.expect_no_event_for(Duration::from_millis(100))?;
    // The initiator has its own.
    a.expect_disconnected()?;
    a.expect_no_event_for(Duration::from_millis(1))?;
    target.check_filled(.., 0)
}

pub(super) fn target_recv_flush(rig: &Rig) -> Outcome {
    const RECEIVES: usize = 100;
    let (a, b) = rig.pair()?;
    let (source, target) = (a.buffer(8)?, b.buffer(8)?);
    let sink = Slots::new(&b, RECEIVES, 8)?;
    sink.post(&b, 0..RECEIVES)?;
    // The first has a message; it is no less received for what comes then.
    source.put_pattern(.., rig.pattern(0))?;
    a.send(&source, 1)?;
    write_badly(&a, &source, &target, 2)?;
    a.expect_ok(1)?;
    a.expect(Done::refused(2))?;
    b.expect_ok(0)?;
    for i in 1..RECEIVES {
        b.expect(Done::canceled(i).kind(OpKind::Recv))?;
    }
    b.expect_disconnected()?;
    b.expect_none_for(Duration::from_millis(20))?;
    sink.check_pattern(..8, rig.pattern(0))?;
    sink.check_filled(8.., 0)?;
    target.check_filled(.., 0)
}

pub(super) fn post_after_error(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (at_a, at_b) = (a.patterned(64, rig.pattern(0))?, b.patterned(64, rig.pattern(1))?);
    write_badly(&a, &at_a, &at_b, 1)?;
    a.expect(Done::refused(1))?;
    b.expect_disconnected()?;
    for (end, own, other, side) in
        [(&a, &at_a, &at_b, "the initiator"), (&b, &at_b, &at_a, "the target")]
    {
        check_err!(end.send(own, 2), Error::NotConnected, "a send of {side}");
        check_err!(end.inject(b"late", 3), Error::NotConnected, "an inject of {side}");
        check_err!(end.write(own, other.at(0), 4), Error::NotConnected, "a write of {side}");
        check_err!(end.read(own, other.at(0), 5), Error::NotConnected, "a read of {side}");
        check_err!(end.recv(own, 6), Error::NotConnected, "a receive of {side}");
        let batch = [Op::send(own).context(7), Op::send(own).unsignaled()];
        let refused = end.post_batch(&batch).map_err(|refused| refused.error);
        check_err!(refused, Error::NotConnected, "a batch of {side}");
    }
    // None of it happens later.
    a.expect_none_for(Duration::from_millis(50))?;
    b.expect_none_for(Duration::from_millis(1))?;
    at_a.check_pattern(.., rig.pattern(0))?;
    at_b.check_pattern(.., rig.pattern(1))
}

pub(super) fn recv_post_race(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 40;
    let mut rng = rig.rng();
    for round in 0..ROUNDS {
        let (a, b) = rig.pair_with(|attr| attr.recv_depth = RACE_DEPTH)?;
        let (source, target) = (a.buffer(8)?, b.buffer(8)?);
        let sink = b.buffer(8)?;
        let posted = AtomicUsize::new(0);
        let begin = rng.below(RACE_DEPTH / 8);
        thread::scope(|scope| -> Outcome {
            let poster = scope.spawn(|| -> Outcome {
                let deadline = rig.deadline(Duration::from_secs(10));
                loop {
                    check!(Instant::now() < deadline, "the connection dead in time");
                    match b.recv(&sink, posted.load(Ordering::Relaxed) as u64) {
                        Ok(()) => _ = posted.fetch_add(1, Ordering::Relaxed),
                        Err(Error::NotConnected) => return Ok(()),
                        // The queue is full before the end: no race in this round.
                        Err(Error::Again) => thread::yield_now(),
                        Err(error) => fail!("a receive that is taken or NotConnected", "{error:?}"),
                    }
                }
            });
            // Somewhere among the receives.
            while posted.load(Ordering::Relaxed) < begin && !poster.is_finished() {
                std::hint::spin_loop();
            }
            write_badly(&a, &source, &target, 1)?;
            a.expect(Done::refused(1))?;
            joined(poster)
        })?;
        let posted = posted.load(Ordering::Relaxed);
        b.expect_canceled(0..posted)?;
        check_eq!(b.cq().poll_one()?, None, "a completion too many after {posted}, round {round}");
        b.expect_disconnected()?;
        sink.check_filled(.., 0)?;
    }
    Ok(())
}

pub(super) fn other_endpoint_unaffected(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 40;
    const EACH: usize = 256;
    // One queue a side for the good and the bad endpoint, and one region that both reach.
    let Crowd { ends, peers } = Crowd::new(rig, 2, |_| ())?;
    let [(good, good_peer), (bad, bad_peer)] = [0, 1].map(|i| (&ends[i], &peers[i]));
    let source = good.buffer(EACH)?;
    let target = good_peer.buffer(ROUNDS * EACH)?;
    let sink = good_peer.buffer(EACH)?;

    for round in 0..ROUNDS {
        let (slot, context) = (round * EACH..(round + 1) * EACH, round as u64);
        source.put_pattern(.., rig.pattern(round))?;
        good_peer.recv(&sink, context)?;
        good.write(&source, target.at(slot.start), context)?;
        if round == ROUNDS / 2 {
            write_badly(bad, &source, &target, u64::MAX)?;
        }
        good.send(&source, context)?;
        let received = good_peer.expect_ok(context)?;
        check_eq!(received.endpoint, good_peer.id(), "the endpoint of receive {round}");
        sink.check_pattern(.., rig.pattern(round))?;
        target.check_pattern(slot, rig.pattern(round))?;
        let mut done = good.take(if round == ROUNDS / 2 { 3 } else { 2 })?;
        if let Some(at) = done.iter().position(|done| done.endpoint == bad.id()) {
            let refused = done.remove(at);
            check_eq!(refused.context, u64::MAX, "the context of the refused write");
            check!(bad.is_refusal(refused.status), "RemoteAccess, not {:?}", refused.status);
        }
        check_eq!(done.len(), 2, "completions of the good endpoint in round {round}");
        for done in done {
            check_eq!(done.endpoint, good.id(), "the endpoint of a completion of round {round}");
            check_eq!((done.context, done.status), (context, Status::Ok), "that completion");
        }
    }
    check_eq!(bad.state(), EndpointState::Dead, "state of the bad endpoint");
    bad_peer.expect_disconnected()?;
    check_eq!(good.state(), EndpointState::Connected, "state of the good endpoint");
    check_eq!(good_peer.state(), EndpointState::Connected, "state of its peer");
    Ok(())
}

pub(super) fn error_then_reconnect(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (source, target) = (a.patterned(64, rig.pattern(0))?, b.patterned(64, rig.pattern(1))?);
    let descriptor = target.at(0);
    write_badly(&a, &source, &target, 1)?;
    a.expect(Done::refused(1))?;
    b.expect_disconnected()?;
    target.check_pattern(.., rig.pattern(1))?;

    // The old endpoints are still there, dead.
    let (c, d) = rig.pair()?;
    let back = c.buffer(64)?;
    c.run(Op::read(&back, descriptor), Done::ok(2))?;
    back.check_pattern(.., rig.pattern(1))?;
    c.run(Op::write(&source, descriptor), Done::ok(3))?;
    c.settle(&d)?;
    target.check_pattern(.., rig.pattern(0))?;
    check_err!(
        a.write(&source, descriptor, 4),
        Error::NotConnected,
        "a write by the dead endpoint"
    );
    Ok(())
}

pub(super) fn target_sends_in_flight(rig: &Rig) -> Outcome {
    const SENDS: u64 = 20;
    let (a, b) = rig.pair()?;
    let (source, target) = (a.buffer(8)?, b.buffer(8)?);
    // The initiator has one receive, so all sends but one wait, and what is behind them.
    let (sink, untouched) = (a.buffer(8)?, a.buffer(8)?);
    a.recv(&sink, 99)?;
    let mut ops: Vec<_> = (0..SENDS).map(|i| Op::send(&target).context(i)).collect();
    ops.push(Op::inject_write(b"too late", untouched.at(0)).context(SENDS));
    ops.push(Op::read(&target, untouched.at(0)).context(SENDS + 1));
    b.post_batch(&ops)?;
    a.expect_ok(99)?;
    b.expect_ok(0)?;
    write_badly(&a, &source, &target, 1)?;
    a.expect(Done::refused(1))?;
    b.expect_canceled(1..SENDS + 2)?;
    check_eq!(b.cq().poll_one()?, None, "a completion too many");
    b.expect_disconnected()?;
    a.expect_disconnected()?;
    // What waited behind a send without a receive is never executed.
    untouched.check_filled(.., 0)
}

pub(super) fn provider_code(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (source, target) = (a.buffer(8)?, b.buffer(8)?);
    b.recv(&target, 1)?;
    a.send(&source, 1)?;
    a.write(&source, target.at(0), 2)?;
    a.read(&source, target.at(0), 3)?;
    check_eq!(b.expect_ok(1)?.provider_code, 0, "the code of a receive that is Ok");
    for i in 1..=3 {
        check_eq!(a.expect_ok(i)?.provider_code, 0, "the code of operation {i}, which is Ok");
    }
    write_badly(&a, &source, &target, 4)?;
    check!(a.expect(Done::refused(4))?.provider_code != 0, "a code of what was refused");

    let (a, b) = rig.pair()?;
    b.recv(target.slice(..4), 1)?;
    a.send(&source, 1)?;
    for end in [&a, &b] {
        let code = end.expect(Done::failed(1, Status::TooLong))?.provider_code;
        check!(code != 0, "a code of a message that was too long");
    }
    Ok(())
}
