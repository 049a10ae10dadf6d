//! A link between two hosts that is cut, or that loses packets.
//!
//! What is asked of the peer's host meanwhile goes by another way.

use std::collections::HashSet;

use crate::cases::crowd::joined;
use crate::prelude::*;

const INTERVAL: Duration = Duration::from_secs(1);

/// A pair that looks after each other.
fn pair(rig: &Rig) -> Result<(End, End), Failed> {
    rig.pair_with(|attr| attr.liveness = Some(INTERVAL))
}

/// Cuts the link while `take` runs, until both ends know, by themselves; gives what it took.
fn cut_and_take(
    rig: &Rig,
    a: &End,
    b: &End,
    take: impl FnOnce() -> Result<Vec<Completion>, Failed> + Send,
) -> Result<Vec<Completion>, Failed> {
    thread::scope(|scope| {
        let taking = scope.spawn(take);
        thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        let cut = rig.cut_link()?;
        watch_end(rig, a, start)?;
        watch_end(rig, b, start)?;
        cut.mend()?;
        let taken = joined(taking)?;
        for end in [a, b] {
            check_eq!(end.state(), EndpointState::Dead, "state when the link was cut");
        }
        check_err!(a.send(Slices::none(), 99), Error::NotConnected, "a send when it was cut");
        Ok(taken)
    })
}

fn limit(rig: &Rig) -> Duration {
    3 * INTERVAL + rig.scaled(Duration::from_secs(1))
}

/// The one event of the cut, in time.
#[track_caller]
fn watch_end(rig: &Rig, end: &End, start: Instant) -> Outcome {
    let limit = limit(rig);
    let reason = end.wait_disconnected(Some(limit.saturating_sub(start.elapsed())));
    let (passed, state) = (start.elapsed(), end.state());
    check!(reason.is_ok(), "the end within {limit:?}, not {state:?} after {passed:?}: {end:?}");
    check_eq!(reason?, DisconnectReason::PeerLost, "why the connection ended");
    end.expect_no_event_for(Duration::from_millis(50))
}

/// The link is as it was: a new pair works.
fn works_again(rig: &Rig) -> Outcome {
    let (c, d) = rig.pair()?;
    c.settle(&d)
}

pub(super) fn link_cut_idle(rig: &Rig) -> Outcome {
    let (a, b) = pair(rig)?;
    for end in [&a, &b] {
        end.recv_empty(0..4)?;
    }
    let receives = cut_and_take(rig, &a, &b, || a.take(4))?;
    for (context, seen) in receives.iter().enumerate() {
        check_eq!((seen.context, seen.status), (context as u64, Status::Canceled), "a receive");
        b.expect(Done::canceled(context))?;
    }
    works_again(rig)
}

/// `window` operations are posted: one more for each that is done, until something fails. Gives what did not succeed, each
/// once and in order.
fn keep_busy(
    a: &End,
    window: u64,
    post: impl Fn(u64) -> fabric::Result<()>,
) -> Result<Vec<Completion>, Failed> {
    let (mut posted, mut lost) = (window, Vec::new());
    for context in 0.. {
        if context == posted {
            break;
        }
        let seen = a.next()?;
        check_eq!(seen.context, context, "context, each once and in order");
        if !seen.is_ok() || !lost.is_empty() {
            lost.push(seen);
            continue;
        }
        match post(posted) {
            Ok(()) => posted += 1,
            // The end is known, the failed completion not yet taken.
            Err(Error::NotConnected) => {}
            Err(error) => Err(error)?,
        }
    }
    Ok(lost)
}

pub(super) fn link_cut_busy(rig: &Rig) -> Outcome {
    const WINDOW: u64 = 32;
    const LEN: usize = 64 << 10;
    let (a, b) = pair(rig)?;
    let (source, target) = (a.patterned(LEN, rig.pattern(0))?, b.buffer(LEN)?);
    for context in 0..WINDOW {
        a.write(&source, target.at(0), context)?;
    }
    let keep_busy = || keep_busy(&a, WINDOW, |context| a.write(&source, target.at(0), context));
    let lost = cut_and_take(rig, &a, &b, keep_busy)?;
    check!(!lost.is_empty(), "something to be lost with the link");
    check_eq!(lost[0].status, Status::PeerLost, "the oldest pending");
    for seen in &lost[1..] {
        check_eq!(seen.status, Status::Canceled, "what was behind it");
    }
    a.expect_none_for(Duration::from_millis(50))?;
    works_again(rig)
}

pub(super) fn link_cut_unmatched(rig: &Rig) -> Outcome {
    let (a, b) = pair(rig)?;
    let (source, target) = (a.filled(64, 0xee)?, b.buffer(64)?);
    a.send(&source, 1)?;
    a.write(&source, target.at(0), 2)?;
    // Stalled, and alive, for longer than the peer could be silent.
    a.expect_none_for(4 * INTERVAL)?;
    let rest = cut_and_take(rig, &a, &b, || a.take(2))?;
    let seen: Vec<_> = rest.iter().map(|seen| (seen.context, seen.status)).collect();
    check_eq!(seen, [(1, Status::PeerLost), (2, Status::Canceled)], "the send and the write");
    target.check_filled(.., 0)?;
    works_again(rig)
}

/// Receives what is sent, until the connection ends.
fn keep_receiving(b: &End, window: u64) -> Outcome {
    loop {
        let seen = b.next()?;
        if !seen.is_ok() {
            check_eq!(seen.status, Status::Canceled, "a receive when the link was cut");
            b.take(window as usize - 1)?;
            return Ok(());
        }
        match b.recv(Slices::none(), seen.context) {
            Ok(()) => {}
            // One receive less is there to be canceled.
            Err(Error::NotConnected) => {
                b.take(window as usize - 1)?;
                return Ok(());
            }
            Err(error) => Err(error)?,
        }
    }
}

pub(super) fn link_cut_each_kind(rig: &Rig) -> Outcome {
    const WINDOW: u64 = 16;
    const LEN: usize = 4096;
    /// What consumes a receive, and how long the initiator pauses between two operations.
    const KINDS: [(&str, bool, u64); 7] = [
        ("write", false, 0),
        ("read", false, 0),
        ("atomic", false, 0),
        ("send", true, 0),
        ("write with immediate", true, 0),
        // Each is answered before the next one.
        ("read now and then", false, 20),
        ("send now and then", true, 20),
    ];
    let ends = KINDS.iter().map(|_| pair(rig)).collect::<Result<Vec<_>, _>>()?;
    let source = rig.buffer(rig.domain_a(), LEN, Access::ALL)?;
    let target = rig.buffer(rig.domain_b(), LEN, Access::ALL)?;
    let busy = |(a, b): &(End, End), (kind, receives, pause): (&str, bool, u64)| {
        let op = |context: u64| match kind.split(' ').next() {
            Some("read") => Op::read(&source, target.at(0)).context(context),
            Some("atomic") => Op::atomic(AtomicOp::Add, 1u64, target.at(0)).context(context),
            Some("send") => Op::send(Slices::none()).context(context),
            _ if receives => Op::write(&source, target.at(0)).immediate(7).context(context),
            _ => Op::write(&source, target.at(0)).context(context),
        };
        let window = if pause == 0 { WINDOW } else { 1 };
        thread::scope(|scope| -> Outcome {
            if receives {
                b.recv_empty(0..2 * WINDOW)?;
            }
            let receiving =
                scope.spawn(|| if receives { keep_receiving(b, 2 * WINDOW) } else { Ok(()) });
            for context in 0..window {
                a.post(&op(context))?;
            }
            let lost = keep_busy(a, window, |context| {
                thread::sleep(Duration::from_millis(pause));
                a.post(&op(context))
            })?;
            check!(!lost.is_empty(), "something of {kind} to be lost with the link");
            check_eq!(lost[0].status, Status::PeerLost, "the oldest {kind}");
            joined(receiving)
        })
    };
    thread::scope(|scope| {
        let busy = &busy;
        let running: Vec<_> = ends
            .iter()
            .zip(KINDS)
            .map(|(pair, kind)| scope.spawn(move || busy(pair, kind)))
            .collect();
        thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        let cut = rig.cut_link()?;
        let limit = limit(rig);
        thread::sleep(limit.saturating_sub(start.elapsed()));
        for ((a, b), (kind, ..)) in ends.iter().zip(KINDS) {
            for (end, which) in [(a, "the initiator"), (b, "the target")] {
                let reason = end.wait_disconnected(Some(Duration::ZERO));
                let said = format!("{which} of {kind} to know after {limit:?}, not {reason:?}");
                check!(matches!(reason, Ok(DisconnectReason::PeerLost)), "{said}");
            }
        }
        cut.mend()?;
        running.into_iter().try_for_each(|running| joined(running))
    })?;
    works_again(rig)
}

pub(super) fn link_cut_idle_then_used(rig: &Rig) -> Outcome {
    let (a, b) = pair(rig)?;
    let target = b.buffer(64)?;
    let source = a.buffer(64)?;
    let write_late = || {
        // When the kernel has asked, and waits for the answer.
        thread::sleep(Duration::from_millis(200) + INTERVAL * 3 / 2);
        a.write(&source, target.at(0), 1)?;
        a.take(1)
    };
    let lost = cut_and_take(rig, &a, &b, write_late)?;
    check_eq!((lost[0].context, lost[0].status), (1, Status::PeerLost), "the write");
    target.check_filled(.., 0)?;
    works_again(rig)
}

pub(super) fn exactly_once_under_loss(rig: &Rig) -> Outcome {
    const WINDOW: usize = 16;
    const ENDS: usize = 4;
    let each = rig.count(500, 20_000);
    let target = rig.buffer(rig.domain_b(), 16, Access::ALL)?;
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
                a.expect_ok(i)?;
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
    target.check_filled(12.., 0)
}
