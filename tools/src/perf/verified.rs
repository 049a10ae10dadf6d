//! Streams, reads and atomics with `--verify`: window by window, each byte looked at. Slower, so no figures to compare.

use std::sync::atomic::Ordering;
use std::time::Instant;

use fabric::Op;

use super::Outcome;
use super::initiator::Shared;
use super::moves::Player;
use super::pattern::Pattern;
use super::plan::{Limit, Operation};
use super::side::End;
use super::tally::Tally;
use super::turns::bounds;

/// Bytes that no read has brought.
const UNREAD: u8 = 0xee;

/// Each window is prepared, posted in batches, awaited and checked. Windows are always whole ones.
pub(crate) fn windows(player: &mut Player<'_>, limit: Limit, shared: &Shared) -> Outcome<Tally> {
    let (count, time) = bounds(limit);
    let (plan, lane) = (player.plan, player.lane);
    let mut tally = Tally::start()?;
    let deadline = time.map(|time| tally.begin + time);
    let mut left = count;
    while left > 0 && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let n = plan.window();
        left = left.saturating_sub(n as u64);
        for (place, end) in lane.ends.iter().enumerate() {
            let first = player.verified[place];
            prepare(player, place, end, first, n)?;
            let begin = Instant::now();
            let swap = (player.rounds, player.rounds + 1);
            let ops: Vec<_> = (0..n)
                .map(|slot| {
                    let op = player.operation(end, slot, swap, &[]);
                    op.context((place as u64) << 32)
                })
                .collect();
            ops.chunks(plan.batch).try_for_each(|batch| player.post_all(place, batch))?;
            player.drain(place)?;
            tally.record_stretch(begin.elapsed(), n as u64);
            check(player, place, end, first, n)?;
            player.verified[place] += n as u64;
            tally.operations += n as u64;
            shared.done.fetch_add(n as u64, Ordering::Relaxed);
        }
        player.rounds += 1;
    }
    tally.end = Instant::now();
    Ok(tally)
}

fn pattern(end: &End, sequence: u64) -> Pattern {
    Pattern { base: end.base, sequence, by_server: false }
}

/// Puts new bytes where the operations will take them.
fn prepare(player: &mut Player<'_>, place: usize, end: &End, first: u64, n: usize) -> Outcome {
    let (plan, region) = (player.plan, &player.side.region);
    if plan.op.is_atomic() {
        return Ok(());
    }
    for slot in 0..n {
        let out = end.base + slot * plan.stride();
        pattern(end, first + slot as u64).put(region, out, plan.size)?;
        if plan.op == Operation::Read {
            let into = out + plan.inbound();
            region.write_at(into, &vec![UNREAD; plan.size])?;
            let to = player.remote.at(into as u64);
            player.post(place, &Op::write(region.slice(out..out + plan.size), to))?;
        }
    }
    player.drain(place)
}

/// Looks at what the operations have done. Sends are looked at by the other end.
fn check(player: &mut Player<'_>, place: usize, end: &End, first: u64, n: usize) -> Outcome {
    let (plan, region) = (player.plan, &player.side.region);
    let into = |slot: usize| end.base + plan.inbound() + slot * plan.stride();
    match plan.op {
        Operation::Send => return Ok(()),
        Operation::Write | Operation::WriteImm => {
            for at in (0..n).map(into) {
                let from = player.remote.at(at as u64);
                player.post(place, &Op::read(region.slice(at..at + plan.size), from))?;
            }
            player.drain(place)?;
        }
        Operation::Read => {}
        Operation::FetchAdd | Operation::CompareSwap => {
            // Each slot has its own word: in each window it becomes one more.
            for slot in 0..n {
                let old: u64 = region.get(into(slot))?;
                if old != player.rounds {
                    let text = format!("the old value is {old} instead of {}", player.rounds);
                    return Err(text.into());
                }
            }
            return Ok(());
        }
    }
    (0..n)
        .try_for_each(|slot| pattern(end, first + slot as u64).check(region, into(slot), plan.size))
}
