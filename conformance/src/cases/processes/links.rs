//! A link between two hosts that is cut, or that loses packets.
//!
//! While it is cut, nothing may be asked of the peer: the calls go by the same link.

use std::collections::HashSet;

use crate::prelude::*;

const INTERVAL: Duration = Duration::from_secs(1);

/// A pair that looks after each other.
fn pair(rig: &Rig) -> Result<(End, End), Failed> {
    rig.pair_with(|attr| attr.liveness = Some(INTERVAL))
}

/// Cuts the link until this end, and for certain the other one, knows; says what was pending here.
fn cut_and_take(rig: &Rig, a: &End, b: &End, pending: usize) -> Result<Vec<Completion>, Failed> {
    let cut = rig.cut_link()?;
    let start = Instant::now();
    let (taken, reason) = (a.take(pending)?, a.expect_disconnected()?);
    let (passed, limit) = (start.elapsed(), 3 * INTERVAL + rig.scaled(Duration::from_secs(1)));
    check_eq!(reason, DisconnectReason::PeerLost, "why the connection ended");
    check!(passed < limit, "the end within {limit:?}, not after {passed:?}");
    a.expect_no_event_for(Duration::from_millis(50))?;
    thread::sleep(limit.saturating_sub(start.elapsed()));
    cut.mend()?;
    check_eq!(b.expect_disconnected()?, DisconnectReason::PeerLost, "why it ended at the peer");
    for end in [a, b] {
        check_eq!(end.state(), EndpointState::Dead, "state when the link was cut");
    }
    check_err!(a.send(Slices::none(), 99), Error::NotConnected, "a send when the link was cut");
    Ok(taken)
}

/// The link is as it was: a new pair works.
fn works_again(rig: &Rig) -> Outcome {
    let (c, d) = rig.pair()?;
    c.settle(&d)
}

pub(super) fn link_cut_idle(rig: &Rig) -> Outcome {
    let (a, b) = pair(rig)?;
    for end in [&a, &b] {
        for context in 0..4 {
            end.recv(Slices::none(), context)?;
        }
    }
    thread::sleep(Duration::from_millis(200));
    let receives = cut_and_take(rig, &a, &b, 4)?;
    for (context, seen) in receives.iter().enumerate() {
        check_eq!((seen.context, seen.status), (context as u64, Status::Canceled), "a receive");
        b.expect(context as u64, Status::Canceled)?;
    }
    works_again(rig)
}

pub(super) fn link_cut_busy(rig: &Rig) -> Outcome {
    const WINDOW: u64 = 64;
    const BEFORE: u64 = 200;
    // A window of it does not fit on the way.
    const LEN: usize = 1 << 20;
    let (a, b) = pair(rig)?;
    let (source, target) = (a.buffer(LEN)?, b.buffer(LEN)?);
    source.put_pattern(.., rig.pattern(0))?;
    for context in 0..WINDOW {
        a.write(&source, target.at(0), context)?;
    }
    for context in 0..BEFORE {
        a.expect_ok(context)?;
        a.write(&source, target.at(0), context + WINDOW)?;
    }
    let rest = cut_and_take(rig, &a, &b, WINDOW as usize)?;
    let ok = rest.iter().take_while(|seen| seen.is_ok()).count();
    check!(ok < rest.len(), "something of {WINDOW} operations to be lost with the link");
    for (i, seen) in rest.iter().enumerate() {
        check_eq!(seen.context, BEFORE + i as u64, "context, each once and in order");
        match i {
            _ if i < ok => {}
            _ if i == ok => check_eq!(seen.status, Status::PeerLost, "the oldest pending"),
            _ => check_eq!(seen.status, Status::Canceled, "what was behind it"),
        }
    }
    target.check_guards()?;
    works_again(rig)
}

pub(super) fn link_cut_unmatched(rig: &Rig) -> Outcome {
    let (a, b) = pair(rig)?;
    let (source, target) = (a.buffer(64)?, b.buffer(64)?);
    source.fill(0xee)?;
    a.send(&source, 1)?;
    a.write(&source, target.at(0), 2)?;
    // Stalled, and alive, for longer than the peer could be silent.
    a.expect_none_for(4 * INTERVAL)?;
    let rest = cut_and_take(rig, &a, &b, 2)?;
    let seen: Vec<_> = rest.iter().map(|seen| (seen.context, seen.status)).collect();
    check_eq!(seen, [(1, Status::PeerLost), (2, Status::Canceled)], "the send and the write");
    target.check_filled(.., 0)?;
    target.check_guards()?;
    works_again(rig)
}

pub(super) fn exactly_once_under_loss(rig: &Rig) -> Outcome {
    const WINDOW: usize = 16;
    const ENDS: usize = 4;
    let each = rig.count(500, 20_000);
    let target = Guarded::new(rig.domain_b(), 16, Access::ALL)?;
    // With the default interval: who looks after one second takes what was lost a few times for a cut.
    let pairs = (0..ENDS).map(|_| rig.pair()).collect::<Result<Vec<_>, _>>()?;
    let lossy = rig.impair_link()?;
    // One word that devices add to by themselves, and one that some emulate by many steps.
    let (mut wide, mut narrow) = (HashSet::new(), HashSet::new());
    let old = pairs.iter().map(|(a, _)| a.buffer(8 * WINDOW)).collect::<Result<Vec<_>, _>>()?;
    for first in (0..each).step_by(WINDOW) {
        let round = first..each.min(first + WINDOW);
        for ((a, _), old) in pairs.iter().zip(&old) {
            for i in round.clone() {
                let at = 8 * (i - first);
                match i % 2 {
                    0 => a.fetch_add(1u64, old.slice(at..at + 8), target.at(0), i as u64)?,
                    _ => a.fetch_add(1u32, old.slice(at..at + 4), target.at(8), i as u64)?,
                }
            }
        }
        for ((a, _), old) in pairs.iter().zip(&old) {
            for i in round.clone() {
                a.expect_ok(i as u64)?;
                let new = match i % 2 {
                    0 => wide.insert(old.get::<u64>(8 * (i - first))?),
                    _ => narrow.insert(old.get::<u32>(8 * (i - first))?),
                };
                check!(new, "each old value once, not that of operation {i} again");
            }
        }
    }
    lossy.mend()?;
    for (a, b) in &pairs {
        a.settle(b)?;
    }
    check_eq!(target.get::<u64>(0)?, (ENDS * each.div_ceil(2)) as u64, "the sum of u64");
    check_eq!(target.get::<u32>(8)?, (ENDS * (each / 2)) as u32, "the sum of u32");
    target.check_filled(12.., 0)?;
    target.check_guards()
}
