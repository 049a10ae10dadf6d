//! A peer whose process is killed.

use crate::cases::crowd::joined;
use crate::cases::send::acceptance::{SENDS, completed_are_received};
use crate::prelude::*;

/// How soon the living end knows, on a path that loses nothing.
const NOTICED: Duration = Duration::from_secs(5);

/// Waits for the one event of the peer's end, from `start` on.
#[track_caller]
fn expect_end(rig: &Rig, end: &End, start: Instant) -> Outcome {
    end.expect_disconnected()?;
    let (taken, limit) = (start.elapsed(), rig.scaled(NOTICED));
    check!(taken < limit, "Disconnected within {limit:?}, not after {taken:?}");
    check_eq!(end.state(), EndpointState::Dead, "state after the peer's death");
    Ok(())
}

pub(super) fn kill9_idle(rig: &Rig) -> Outcome {
    const RECEIVES: u64 = 8;
    let mut process = rig.process()?;
    let far = process.domain()?;
    let (a, b) = rig.pair_on(rig.domain_a(), &far)?;
    a.settle(&b)?;
    let sink = a.filled(64, 0xee)?;
    for context in 0..RECEIVES {
        a.recv(&sink, context)?;
    }
    // Idle at both ends.
    thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    process.kill()?;
    expect_end(rig, &a, start)?;
    a.expect_canceled(0..RECEIVES)?;
    a.expect_no_event_for(Duration::from_millis(200))?;
    a.expect_none_for(Duration::from_millis(1))?;
    sink.check_filled(.., 0xee)?;
    check_err!(a.send(Slices::none(), 9), Error::NotConnected, "a send to the dead");
    // Others of the domain live on.
    let (c, d) = rig.pair()?;
    c.settle(&d)
}

pub(super) fn kill9_busy(rig: &Rig) -> Outcome {
    const WINDOW: u64 = 64;
    const BEFORE: u64 = 500;
    const LEN: usize = 30_000;
    let mut process = rig.process()?;
    let far = process.domain()?;
    let (a, b) = rig.pair_on(rig.domain_a(), &far)?;
    let (bystander, its_peer) = rig.pair()?;
    let (source, into, target) = (a.buffer(LEN)?, a.buffer(LEN)?, b.buffer(LEN)?);
    source.put_pattern(.., rig.pattern(0))?;
    let op = |i: u64| match i % 3 {
        0 => Op::read(&into, target.at(0)),
        _ => Op::write(&source, target.at(0)),
    };
    for context in 0..WINDOW {
        a.post(&op(context).context(context))?;
    }
    for context in 0..BEFORE {
        a.expect_ok(context)?;
        a.post(&op(context).context(context + WINDOW))?;
    }
    // All of the window is under way, and is kept so until something fails: a fast device finishes all that was posted
    // before the process is gone.
    let start = Instant::now();
    let (mut whole, mut context, mut posted) = (true, BEFORE, BEFORE + WINDOW);
    thread::scope(|scope| -> Outcome {
        let death = scope.spawn(|| process.kill());
        while context < posted {
            let seen = a.next()?;
            check_eq!(seen.context, context, "context, each once and in order");
            // A kernel may take the regions of a process before its queue pairs: then the first is refused.
            let refused = whole && seen.status == Status::RemoteAccess;
            let lost = refused || matches!(seen.status, Status::PeerLost | Status::Canceled);
            check!(seen.is_ok() && whole || lost, "Ok, then lost or canceled, not {seen:?}");
            whole &= seen.is_ok();
            context += 1;
            if whole && a.post(&op(posted).context(posted)).is_ok() {
                posted += 1;
            }
            let limit = rig.scaled(NOTICED);
            check!(start.elapsed() < limit, "an end of the operations within {limit:?}");
        }
        joined(death)
    })?;
    expect_end(rig, &a, start)?;
    check_err!(a.write(&source, target.at(0), 0), Error::NotConnected, "a write to the dead");
    a.expect_no_event_for(Duration::from_millis(200))?;
    a.expect_none_for(Duration::from_millis(1))?;
    bystander.settle(&its_peer)
}

pub(super) fn peer_restart(rig: &Rig) -> Outcome {
    let meet = |domain: &fabric::Domain, addr| -> Result<_, Failed> {
        let listener = domain.listen(addr)?;
        let (a, b) = (rig.end(rig.domain_a())?, rig.end(domain)?);
        a.connect(listener.local_addr(), &[])?;
        listener.accept(Some(rig.connect_timeout()))?.accept(&b, &[])?;
        a.expect_connected()?;
        b.expect_connected()?;
        a.settle(&b)?;
        Ok((a, b, listener.local_addr()))
    };
    let mut process = rig.process()?;
    let far = process.domain()?;
    let (old, _its_peer, at) = meet(&far, rig.addr(&far))?;
    process.kill()?;
    let start = Instant::now();
    expect_end(rig, &old, start)?;

    let process = rig.process()?;
    let far = process.domain()?;
    let (new, peer, again) = meet(&far, at)?;
    check_eq!(again, at, "the address of the peer that came back");
    check_err!(old.send(Slices::none(), 1), Error::NotConnected, "a send on the old endpoint");
    old.expect_none_for(Duration::from_millis(50))?;
    new.settle(&peer)
}

pub(super) fn ok_survives_kill9(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 4;
    for round in 0..ROUNDS {
        let mut process = rig.process()?;
        let (sender, receiver) = rig.pair_on(&process.domain()?, rig.domain_a())?;
        completed_are_received(rig, sender, &receiver, 1 + round * SENDS / ROUNDS, |sender| {
            process.kill()?;
            Ok(Some(sender))
        })?;
        receiver.expect_disconnected()?;
    }
    Ok(())
}
