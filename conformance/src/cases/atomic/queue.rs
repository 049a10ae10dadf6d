//! Atomics among other operations: many of them, unattended, refused, of several targets.

use super::elements::numbers;
use crate::prelude::*;

/// Atomics posted at a time; more than any device has under way.
pub(super) const DEPTH: usize = 512;

pub(super) fn depth(rig: &Rig) -> Outcome {
    const OPS: usize = 4 * DEPTH;
    let (a, b) = rig.pair_with(|attr| attr.send_depth = DEPTH)?;
    let target = b.buffer(16)?;
    let old = a.buffer(OPS * 8)?;
    // Every third is of a width that a device may emulate, on a word of its own.
    let is_narrow = |i: &usize| i.is_multiple_of(3);
    let mut taken = 0;
    for i in 0..OPS {
        let op = if is_narrow(&i) {
            Op::fetch_atomic(AtomicOp::Add, 1u32, old.slice(i * 8..i * 8 + 4), target.at(8))
        } else {
            Op::fetch_atomic(AtomicOp::Add, 1u64, old.slice(i * 8..i * 8 + 8), target.at(0))
        };
        let op = op.context(i as u64);
        // At the depth it takes one completion to make room for one more.
        if i - taken == DEPTH {
            check_err!(a.post(&op), Error::Again, "post {i}, with {taken} taken out");
            a.expect_ok(taken)?;
            taken += 1;
        }
        a.post(&op)?;
    }
    a.expect_each(taken..OPS)?;

    // Atomics have no order among themselves, but each came once.
    let mut narrow = Vec::new();
    for i in (0..OPS).filter(is_narrow) {
        narrow.push(old.get::<u32>(i * 8)?);
    }
    let mut wide = Vec::new();
    for i in (0..OPS).filter(|i| !is_narrow(i)) {
        wide.push(old.get::<u64>(i * 8)?);
    }
    narrow.sort_unstable();
    wide.sort_unstable();
    check_eq!(narrow, (0..narrow.len() as u32).collect::<Vec<_>>(), "each old u32 once");
    check_eq!(wide, (0..wide.len() as u64).collect::<Vec<_>>(), "each old u64 once");
    a.settle(&b)?;
    check_eq!(target.get::<u64>(0)?, wide.len() as u64, "the u64");
    check_eq!(target.get::<u32>(8)?, narrow.len() as u32, "the u32");
    target.check_filled(12.., 0)
}

pub(super) fn emulated_silent(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let target = b.buffer(8)?;
    let old = a.buffer(4)?;
    target.set(0, 41u32)?;
    // The provider has just seen that the application polls.
    check_eq!(a.cq().poll_one()?, None, "a completion before anything was posted");
    a.fetch_add(1u32, old.slice(..), target.at(0), 1)?;
    thread::sleep(rig.scaled(Duration::from_millis(200)));
    let polled = a.cq().poll_one()?.map(|done| (done.context, done.status));
    check_eq!(polled, Some((1, Status::Ok)), "the one poll after the sleep");
    check_eq!(old.get::<u32>(0)?, 41, "the old value");
    a.settle(&b)?;
    check_eq!(target.get::<u32>(0)?, 42, "the new value");
    target.check_filled(4.., 0)
}

pub(super) fn emulated_blocks_write(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let target = b.buffer(128)?;
    let source = a.patterned(64, rig.pattern(0))?;
    let old = a.buffer(4)?;
    let lie = target.by_wrong_key(0);
    // In one batch, so that the write is posted before the refusal is known.
    a.post_batch(&[
        Op::fetch_atomic(AtomicOp::Add, 1u32, old.slice(..), lie).context(1),
        Op::write(&source, target.at(64)).context(2),
    ])?;
    a.expect(Done::refused(1))?;
    a.expect(Done::canceled(2))?;
    b.expect_disconnected()?;
    a.expect_none_for(Duration::from_millis(50))?;
    target.check_filled(.., 0)?;
    old.check_filled(.., 0)
}

pub(super) fn emulated_single_posts(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (target, beside) = (b.buffer(8)?, b.buffer(8)?);
    let source = a.patterned(8, rig.pattern(0))?;
    for _ in 0..50 {
        // A device that makes up the add has to look first, and to try again.
        target.fill(0xff)?;
        // Not in one batch: the second post meets a first one that is under way.
        a.post(&Op::atomic(AtomicOp::Add, 1u32, target.at(0)).context(1))?;
        a.post(&Op::write(&source, target.at(0)).fence().context(2))?;
        // Without a fence: its bytes may be there before, its completion not.
        a.post(&Op::write(&source, beside.at(0)).context(3))?;
        a.expect_each([1, 2, 3])?;
        a.settle(&b)?;
        target.check_pattern(.., rig.pattern(0))?;
        beside.check_pattern(.., rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn two_targets(rig: &Rig) -> Outcome {
    const EACH: usize = 50;
    let other = rig.extra_domain()?;
    // One queue for both, so that only the endpoint distinguishes them.
    let cq = rig.domain_a().completion_queue(4 * 128)?;
    let ends = [rig.end_on(rig.domain_a(), &cq, |_| ())?, rig.end_on(rig.domain_a(), &cq, |_| ())?];
    let peers = [rig.end(rig.domain_b())?, rig.end(&other)?];
    let steps = [1u64, 1000];
    let targets = [peers[0].buffer(8)?, peers[1].buffer(8)?];
    let olds = [ends[0].buffer(EACH * 8)?, ends[1].buffer(EACH * 8)?];
    for (end, peer) in ends.iter().zip(&peers) {
        rig.connect(end, peer)?;
    }
    for i in 0..EACH {
        for side in 0..2 {
            let old = olds[side].slice(i * 8..i * 8 + 8);
            ends[side].fetch_add(steps[side], old, targets[side].at(0), i as u64)?;
        }
    }
    let done = ends[0].take(2 * EACH)?;
    for side in 0..2 {
        let own = done.iter().filter(|done| done.endpoint == ends[side].id());
        let own: Vec<_> = own.map(|done| (done.context, done.status)).collect();
        let expected: Vec<_> = (0..EACH as u64).map(|i| (i, Status::Ok)).collect();
        check_eq!(own, expected, "the completions of side {side}");
        let mut seen = numbers(&olds[side].bytes(..)?);
        seen.sort_unstable();
        let expected: Vec<_> = (0..EACH as u64).map(|i| i * steps[side]).collect();
        check_eq!(seen, expected, "the old values of side {side}");
        ends[side].settle(&peers[side])?;
        let total = numbers(&targets[side].bytes(..)?);
        check_eq!(total, [EACH as u64 * steps[side]], "the total of side {side}");
    }
    Ok(())
}
