//! Connections that come and go.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cases::crowd::joined;
use crate::cases::places::Slots;
use crate::prelude::*;
use crate::usage::Usage;

/// What the process may grow by.
const MAX_GROWTH: usize = 16 << 20;

pub(super) fn churn(rig: &Rig) -> Outcome {
    const WARM_UP: usize = 10;
    let times = rig.count(100, 1000);
    let (a, b) = rig.pair()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let outcome = load(&a, &b, &done);
            // If it failed, the others need not go on.
            done.store(true, Ordering::Relaxed);
            outcome
        });
        let come_and_go = || -> Outcome {
            let mut before = None;
            for i in 0..WARM_UP + times {
                if i == WARM_UP {
                    before = Some(Usage::at_rest()?);
                }
                if done.load(Ordering::Relaxed) {
                    return Ok(());
                }
                once(rig, i)?;
            }
            let before = before.map_or_else(Usage::at_rest, Ok)?;
            rig.expect_no_more(&before, |held| held.resident_bytes, MAX_GROWTH)
        };
        let outcome = come_and_go();
        done.store(true, Ordering::Relaxed);
        // The load is what the case is about.
        joined(load).and(outcome)
    })?;
    for end in [&a, &b] {
        check_eq!(end.state(), EndpointState::Connected, "state of what stays");
        end.expect_no_event_for(Duration::from_millis(1))?;
    }
    a.settle(&b)
}

/// Connects, sends something both ways, and ends in one of the ways there are, work in flight or not.
fn once(rig: &Rig, i: usize) -> Outcome {
    let (a, b) = rig.pair()?;
    let (local, remote) = (a.patterned(100, rig.pattern(i))?, b.buffer(100)?);
    b.recv(&remote, 1)?;
    a.send(&local, 1)?;
    b.expect_ok(1)?;
    a.expect_ok(1)?;
    remote.check_pattern(.., rig.pattern(i))?;
    if i.is_multiple_of(5) {
        return Ok(a.shutdown(rig.scaled(Duration::from_secs(10)))?);
    }
    if i.is_multiple_of(2) {
        // There is no receive for it.
        a.send(&local, 2)?;
    }
    match i % 5 {
        1 => a.disconnect(),
        2 => drop(a),
        3 => drop(b),
        _ => {}
    }
    Ok(())
}

/// Messages and writes, each checked, until `done`.
fn load(a: &End, b: &End, done: &AtomicBool) -> Outcome {
    const AT_ONCE: usize = 16;
    let (target, sink) = (b.buffer(8)?, Slots::new(b, AT_ONCE, 8)?);
    let mut round = 0u64;
    while !done.load(Ordering::Relaxed) {
        sink.post(b, 0..AT_ONCE)?;
        for i in 0..AT_ONCE {
            let number = (round << 8 | i as u64).to_ne_bytes();
            a.post(&Op::inject_write(&number, target.at(0)).unsignaled())?;
            a.inject(&number, i as u64)?;
        }
        for i in 0..AT_ONCE as u64 {
            b.expect_ok(i)?;
            a.expect_ok(i)?;
        }
        let expected: Vec<u8> =
            (0..AT_ONCE as u64).flat_map(|i| (round << 8 | i).to_ne_bytes()).collect();
        check_bytes!(sink.bytes(..)?, expected, "the messages of round {round}");
        check_bytes!(target.bytes(..)?, expected[8 * (AT_ONCE - 1)..], "the last write");
        round += 1;
    }
    check!(round > 0, "a message beside the others");
    Ok(())
}
