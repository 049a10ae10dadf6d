//! A connection that does not get on though its peer lives.

use crate::cases::places::Slots;
use crate::prelude::*;

/// As short as may be.
const STALL: Duration = Duration::from_secs(1);

/// Two ends that end when something of theirs does not get on for the time that is given as well.
fn pair(rig: &Rig) -> Result<(End, End, Duration), Failed> {
    let stall = rig.scaled(STALL);
    let (a, b) = rig.pair_with(|attr| attr.stall = Some(stall))?;
    Ok((a, b, stall))
}

/// Expects that it ends in time: what was posted since `posted` did not get on.
fn expect_stalled(end: &End, posted: Instant, stall: Duration) -> Outcome {
    check_eq!(end.expect_disconnected()?, DisconnectReason::Stalled, "why the connection ended");
    let took = posted.elapsed();
    check!(took >= stall, "its end after {stall:?}, not after {took:?}");
    Ok(())
}

pub(super) fn stalled(rig: &Rig) -> Outcome {
    let (a, b, stall) = pair(rig)?;
    let (source, into, old) = (a.patterned(64, rig.pattern(0))?, a.buffer(64)?, a.buffer(8)?);
    let target = b.buffer(64)?;
    a.run(Op::write(&source, target.at(0)), Done::ok(0))?;
    let posted = Instant::now();
    // There is no receive. The rest waits behind the send.
    a.send(&source, 1)?;
    a.write(&source, target.at(0), 2)?;
    a.read(&into, target.at(0), 3)?;
    a.fetch_add(1u32, old.slice(..4), target.at(0), 4)?;
    // No completion is asked for meanwhile.
    expect_stalled(&a, posted, stall)?;
    a.expect_canceled([1, 2, 3, 4])?;
    b.expect_closed_by_peer()
}

pub(super) fn stalled_unsignaled(rig: &Rig) -> Outcome {
    let (a, b, stall) = pair(rig)?;
    let (source, target) = (a.patterned(64, rig.pattern(0))?, b.buffer(64)?);
    let posted = Instant::now();
    a.post(&Op::write(&source, target.at(0)).unsignaled())?;
    a.post(&Op::send(&source).context(1).unsignaled())?;
    expect_stalled(&a, posted, stall)?;
    a.expect_canceled([1])?;
    b.expect_closed_by_peer()
}

pub(super) fn stalled_not_if_slow(rig: &Rig) -> Outcome {
    /// Sends that wait at any time.
    const AHEAD: usize = 3;
    /// Those that find their receive, four in the limit.
    const ROUNDS: usize = 20;
    let (a, b, stall) = pair(rig)?;
    let source = a.patterned(8, rig.pattern(0))?;
    let sink = Slots::new(&b, AHEAD + ROUNDS, 8)?;
    (0..AHEAD as u64).try_for_each(|i| a.send(&source, i))?;
    for i in 0..ROUNDS {
        thread::sleep(stall / 4);
        a.send(&source, (AHEAD + i) as u64)?;
        sink.post(&b, i..i + 1)?;
        b.expect_ok(i)?;
        a.expect_ok(i)?;
    }
    sink.post(&b, ROUNDS..ROUNDS + AHEAD)?;
    b.expect_each(ROUNDS..ROUNDS + AHEAD)?;
    a.expect_each(ROUNDS..ROUNDS + AHEAD)
}

pub(super) fn stalled_not_if_idle(rig: &Rig) -> Outcome {
    let (a, b, stall) = pair(rig)?;
    let (source, target) = (a.patterned(64, rig.pattern(0))?, b.buffer(64)?);
    let home = a.buffer(64)?;
    let (sinks, old) = ([a.buffer(64)?, b.buffer(64)?], a.buffer(8)?);
    for (end, sink) in [&a, &b].into_iter().zip(&sinks) {
        end.recv(sink, 9)?;
    }
    let add = Op::fetch_atomic(AtomicOp::Add, 1u32, old.slice(..4), target.at(0));
    a.run(add, Done::ok(0))?;
    a.run(Op::write(&source, target.at(0)), Done::ok(1))?;
    // The last of them say nothing when they are done.
    a.post(&Op::write(&source, target.at(0)).unsignaled())?;
    a.post(&Op::atomic(AtomicOp::Add, 1u32, target.at(0)).unsignaled())?;
    // Or are not polled for. And the last one is a device's own.
    b.write(&target, home.at(0), 3)?;
    b.post(&Op::write(&target, home.at(0)).unsignaled())?;
    thread::sleep(4 * stall);
    for end in [&a, &b] {
        check_eq!(end.state(), EndpointState::Connected, "state of {end:?} after 4 limits");
        end.expect_no_event_for(Duration::from_millis(1))?;
    }
    b.expect_ok(3)?;
    for (from, to) in [(&a, &b), (&b, &a)] {
        from.send(Slices::none(), 2)?;
        to.expect_ok(9)?;
        from.expect_ok(2)?;
    }
    Ok(())
}
