//! Several initiators at one word.

use std::sync::atomic::{AtomicBool, Ordering};

use super::elements::numbers;
use crate::cases::crowd::{at_once, joined};
use crate::prelude::*;

/// Operations that an initiator has under way.
const WINDOW: usize = 64;

/// Ends on the initiators' side, of two domains in turn, each connected to one of the peers, all of domain b.
pub(super) fn initiators(rig: &Rig, count: usize) -> Result<(Vec<End>, Vec<End>), Failed> {
    let other = rig.extra_domain()?;
    let (mut ends, mut peers) = (Vec::new(), Vec::new());
    for i in 0..count {
        let end = rig.end(if i % 2 == 0 { rig.domain_a() } else { &other })?;
        let peer = rig.end(rig.domain_b())?;
        rig.connect(&end, &peer)?;
        ends.push(end);
        peers.push(peer);
    }
    Ok((ends, peers))
}

/// What every initiator did, the target's CPU sees.
pub(super) fn settle_all(ends: &[End], peers: &[End]) -> Outcome {
    ends.iter().zip(peers).try_for_each(|(end, peer)| end.settle(peer))
}

pub(super) fn contended_faa(rig: &Rig) -> Outcome {
    let each = rig.count(10_000, 100_000);
    let (ends, peers) = initiators(rig, 8)?;
    let target = peers[0].buffer(8)?;
    let seen = at_once(&ends, |_, a| {
        let old = a.buffer(WINDOW * 8)?;
        let mut seen = Vec::with_capacity(each);
        for first in (0..each).step_by(WINDOW) {
            let now = WINDOW.min(each - first);
            let add = |i: usize| {
                Op::fetch_atomic(AtomicOp::Add, 1u64, old.slice(i * 8..i * 8 + 8), target.at(0))
                    .context(i as u64)
            };
            a.post_batch(&(0..now).map(add).collect::<Vec<_>>())?;
            a.expect_each(0..now)?;
            seen.extend(numbers(&old.bytes(..now * 8)?));
        }
        Ok(seen)
    })?;
    let mut seen = seen.concat();
    seen.sort_unstable();
    let total = ends.len() * each;
    check_eq!(seen.len(), total, "how many values came back");
    for (i, value) in seen.into_iter().enumerate() {
        check_eq!(value, i as u64, "returned value number {i} in order of size");
    }
    settle_all(&ends, &peers)?;
    check_eq!(numbers(&target.bytes(..)?), [total as u64], "the total");
    Ok(())
}

pub(super) fn cas_spinlock(rig: &Rig) -> Outcome {
    const LOCK: usize = 0;
    const COUNTER: usize = 64;
    let each = rig.count(50, 1000);
    let (ends, peers) = initiators(rig, 4)?;
    let target = peers[0].buffer(COUNTER + 8)?;
    at_once(&ends, |i, a| {
        let own = i as u64 + 1;
        let (found, count) = (a.buffer(8)?, a.buffer(8)?);
        for _ in 0..each {
            let deadline = rig.deadline(Duration::from_secs(10));
            loop {
                a.compare_swap(0, own, found.slice(..), target.at(LOCK), 1)?;
                a.expect_ok(1)?;
                let owner = found.get::<u64>(0)?;
                if owner == 0 {
                    break;
                }
                check!(Instant::now() < deadline, "the lock free in time; owner {owner} has it");
                thread::yield_now();
            }
            a.run(Op::read(&count, target.at(COUNTER)), Done::ok(2))?;
            let next = count.get::<u64>(0)? + 1;
            count.set(0, next)?;
            // Only so the other initiators see it, too.
            a.run(Op::write(&count, target.at(COUNTER)).delivery_complete(), Done::ok(3))?;
            // Not by a write: plain writes and atomics on one word do not mix.
            a.compare_swap(own, 0, found.slice(..), target.at(LOCK), 4)?;
            a.expect_ok(4)?;
            check_eq!(found.get::<u64>(0)?, own, "the owner at the unlock");
        }
        Ok(())
    })?;
    settle_all(&ends, &peers)?;
    let total = (ends.len() * each) as u64;
    check_eq!(target.get::<u64>(COUNTER)?, total, "the counter");
    check_eq!(target.get::<u64>(LOCK)?, 0, "the lock");
    target.check_filled(8..COUNTER, 0)
}

pub(super) fn contended_float(rig: &Rig) -> Outcome {
    const EACH: usize = 1000;
    const PAIRS: usize = WINDOW / 2;
    let (ends, peers) = initiators(rig, 4)?;
    let target = peers[0].buffer(16)?;
    // Whole numbers whose sum a f32 holds exactly, whatever the order.
    let addend = |i: usize| (i % 9) as f32 - 3.0;
    at_once(&ends, |_, a| {
        for first in (0..EACH).step_by(PAIRS) {
            let round = first..EACH.min(first + PAIRS);
            let add = |i: usize| {
                let context = i as u64 * 2;
                [
                    Op::atomic(AtomicOp::Add, f64::from(addend(i)), target.at(0)).context(context),
                    Op::atomic(AtomicOp::Add, addend(i), target.at(8)).context(context + 1),
                ]
            };
            a.post_batch(&round.clone().flat_map(add).collect::<Vec<_>>())?;
            a.expect_each(round.start * 2..round.end * 2)?;
        }
        Ok(())
    })?;
    settle_all(&ends, &peers)?;
    let sum = (0..EACH).map(addend).sum::<f32>() * ends.len() as f32;
    check_eq!(target.get::<f64>(0)?, f64::from(sum), "the sum as f64");
    check_eq!(target.get::<f32>(8)?, sum, "the sum as f32");
    target.check_filled(12.., 0)
}

pub(super) fn contended_narrow(rig: &Rig) -> Outcome {
    const EACH: usize = 1000;
    let (ends, peers) = initiators(rig, 4)?;
    let target = peers[0].buffer(16)?;
    let start = 0xfff0_fff0_f0f0_u64.to_ne_bytes();
    target.put(0, &start)?;
    target.put(8, &[0xff; 8])?;
    // Each initiator has its own part of the word, and each part wraps.
    at_once(&ends, |i, a| {
        let add = match i {
            0 => Op::atomic(AtomicOp::Add, 1u8, target.at(0)),
            1 => Op::atomic(AtomicOp::Add, 3u8, target.at(1)),
            2 => Op::atomic(AtomicOp::Add, 77u16, target.at(2)),
            _ => Op::atomic(AtomicOp::Add, 0x1234_5678u32, target.at(4)),
        };
        for first in (0..EACH).step_by(WINDOW) {
            let round = first..EACH.min(first + WINDOW);
            let adds: Vec<_> = round.clone().map(|i| add.context(i as u64)).collect();
            a.post_batch(&adds)?;
            a.expect_each(round)?;
        }
        Ok(())
    })?;
    settle_all(&ends, &peers)?;
    let part = |at: usize, step: usize| start[at].wrapping_add((step * EACH) as u8);
    check_eq!(target.get::<u8>(0)?, part(0, 1), "the u8 at byte 0");
    check_eq!(target.get::<u8>(1)?, part(1, 3), "the u8 at byte 1");
    let half = u16::from_ne_bytes([start[2], start[3]]).wrapping_add((77 * EACH) as u16);
    check_eq!(target.get::<u16>(2)?, half, "the u16 at byte 2");
    let rest = u32::from_ne_bytes([start[4], start[5], start[6], start[7]]);
    let rest = rest.wrapping_add(0x1234_5678u32.wrapping_mul(EACH as u32));
    check_eq!(target.get::<u32>(4)?, rest, "the u32 at byte 4");
    target.check_filled(8.., 0xff)
}

pub(super) fn cpu_coherent(rig: &Rig) -> Outcome {
    const EACH: usize = 5000;
    let (a, b) = rig.pair()?;
    let target = b.buffer(24)?;
    let wide = target.region().atomic::<u64>(GUARD)?;
    let narrow = target.region().atomic::<u32>(GUARD + 8)?;
    let float = target.region().atomic::<f64>(GUARD + 16)?;
    let over = AtomicBool::new(false);
    let own = thread::scope(|scope| {
        // Without a pause, and as long as the peer adds: only so do the two meet within one addition.
        let cpu = scope.spawn(|| {
            let mut own = 0;
            while !over.load(Ordering::Relaxed) {
                wide.fetch_add(1);
                narrow.fetch_add(1);
                float.fetch_add(1.0);
                own += 1;
            }
            own
        });
        let add = |i: usize| {
            let op = match i % 3 {
                0 => Op::atomic(AtomicOp::Add, 1u64, target.at(0)),
                1 => Op::atomic(AtomicOp::Add, 1u32, target.at(8)),
                _ => Op::atomic(AtomicOp::Add, 1.0f64, target.at(16)),
            };
            op.context(i as u64)
        };
        let outcome = (0..3 * EACH).step_by(WINDOW).try_for_each(|first| -> Outcome {
            let mut round = first..(3 * EACH).min(first + WINDOW);
            a.post_batch(&round.clone().map(add).collect::<Vec<_>>())?;
            round.try_for_each(|i| a.expect_ok(i).map(drop))
        });
        over.store(true, Ordering::Relaxed);
        let own: u64 = joined(cpu);
        outcome.map(|()| own)
    })?;
    a.settle(&b)?;
    let total = own + EACH as u64;
    check_eq!(wide.load(), total, "the u64");
    check_eq!(narrow.load(), total as u32, "the u32");
    check_eq!(float.load(), total as f64, "the f64");
    target.check_filled(12..16, 0)
}
