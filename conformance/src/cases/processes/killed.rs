//! A peer whose process is killed.

use crate::prelude::*;

/// How soon the living end knows, on a path that loses nothing.
const NOTICED: Duration = Duration::from_secs(5);

/// Waits for the one event that tells of the peer's end, from `start` on.
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
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(&far)?);
    rig.connect(&a, &b)?;
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
    for context in 0..RECEIVES {
        a.expect(Done::canceled(context))?;
    }
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
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(&far)?);
    rig.connect(&a, &b)?;
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
        death.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
        listener.accept(Some(rig.patience_to_connect()))?.accept(&b, &[])?;
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
    const SENDS: usize = 12;
    const WRITES: u64 = 4;
    const LEN: usize = 150_000;
    const ROUNDS: usize = 4;
    // Message i is the pattern from byte 8 i on.
    let bytes = rig.pattern(0).bytes(LEN + 8 * SENDS);
    let sent = |i: usize| 8 * i..8 * i + LEN;
    for round in 0..ROUNDS {
        let completed = round * SENDS / ROUNDS;
        let mut process = rig.process()?;
        let far = process.domain()?;
        let (sender, receiver) = (rig.end(&far)?, rig.end(rig.domain_a())?);
        rig.connect(&sender, &receiver)?;
        let source = sender.holding(&bytes)?;
        let (sink, answer) = (receiver.buffer(SENDS * LEN)?, receiver.buffer(LEN)?);
        for i in 0..SENDS {
            receiver.recv(sink.slice(i * LEN..(i + 1) * LEN), i as u64)?;
        }
        // The receiver writes meanwhile: a stream that is closed with bytes unread is reset, and loses those on their
        // way to the peer.
        let target = sender.buffer(LEN)?;
        for i in 0..WRITES {
            receiver.write(&answer, target.at(0), i)?;
        }
        for i in 0..SENDS {
            sender.send(source.slice(sent(i)), i as u64)?;
        }
        sender.expect_each(0..=completed)?;
        process.kill()?;

        let mut received = receiver.take(SENDS + WRITES as usize)?;
        received.retain(|seen| seen.kind == OpKind::Recv);
        check_eq!(received.len(), SENDS, "completed receives");
        let mut whole = true;
        for (i, seen) in received.iter().enumerate() {
            check_eq!(seen.context, i as u64, "context of receive {i}");
            whole &= seen.is_ok();
            check!(whole || i > completed, "receive {i} Ok, as its send was, not {seen:?}");
            check!(whole || seen.status == Status::Canceled, "Ok, then Canceled, not {seen:?}");
            if whole {
                let at = i * LEN..i * LEN + seen.len;
                check_bytes!(sink.bytes(at)?, bytes[sent(i)], "message {i}");
            }
        }
        receiver.expect_disconnected()?;
        sink.check_guards()?;
    }
    Ok(())
}
