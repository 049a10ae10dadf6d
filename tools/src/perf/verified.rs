//! Streams, reads and atomics with `--verify`: window by window, each byte looked at. Slower, so no figures to compare.

use std::sync::atomic::Ordering;
use std::time::Instant;

use fabric::Op;

use super::pattern::Pattern;
use super::plan::{Limit, Operation};
use super::problem::Outcome;
use super::side::End;
use super::tally::Tally;
use super::threads::Shared;
use super::turns::bounds;
use super::worker::Worker;

/// Bytes that no read has brought.
const UNREAD: u8 = 0xee;

/// Each window is prepared, posted in batches, awaited and checked. Windows are always whole ones.
pub(crate) fn windows(worker: &mut Worker<'_>, limit: Limit, shared: &Shared) -> Outcome<Tally> {
    let (count, time) = bounds(limit);
    let (plan, lane) = (worker.plan, worker.lane);
    let mut tally = Tally::start()?;
    let deadline = time.map(|time| tally.begin + time);
    let mut left = count;
    while left > 0 && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let n = plan.window();
        left = left.saturating_sub(n as u64);
        for (place, end) in lane.ends.iter().enumerate() {
            let first = worker.verified[place];
            prepare(worker, place, end, first, n)?;
            let begin = Instant::now();
            let swap = (worker.rounds, worker.rounds + 1);
            let ops: Vec<_> = (0..n)
                .map(|slot| {
                    let op = worker.operation(end, slot, swap, &[]);
                    op.context((place as u64) << 32)
                })
                .collect();
            ops.chunks(plan.batch).try_for_each(|batch| worker.post_all(place, batch))?;
            worker.drain(place)?;
            tally.record_average(begin.elapsed(), n as u64);
            check(worker, place, end, first, n)?;
            worker.verified[place] += n as u64;
            tally.operations += n as u64;
            shared.done.fetch_add(n as u64, Ordering::Relaxed);
        }
        worker.rounds += 1;
    }
    tally.end = Instant::now();
    Ok(tally)
}

fn pattern(end: &End, sequence: u64) -> Pattern {
    Pattern { base: end.base, sequence, by_server: false }
}

/// Puts new bytes where the operations will take them.
fn prepare(worker: &mut Worker<'_>, place: usize, end: &End, first: u64, n: usize) -> Outcome {
    let (plan, region) = (worker.plan, &worker.side.region);
    if plan.op.is_atomic() {
        return Ok(());
    }
    for slot in 0..n {
        let out = end.base + slot * plan.stride();
        pattern(end, first + slot as u64).put(region, out, plan.size)?;
        if plan.op == Operation::Read {
            let into = out + plan.inbound();
            region.write_at(into, &vec![UNREAD; plan.size])?;
            let to = worker.remote.at(into as u64);
            worker.post(place, &Op::write(region.slice(out..out + plan.size), to))?;
        }
    }
    worker.drain(place)
}

/// Looks at what the operations have done. Sends are looked at by the other end.
fn check(worker: &mut Worker<'_>, place: usize, end: &End, first: u64, n: usize) -> Outcome {
    let (plan, region) = (worker.plan, &worker.side.region);
    let into = |slot: usize| end.base + plan.inbound() + slot * plan.stride();
    match plan.op {
        Operation::Send => return Ok(()),
        Operation::Write | Operation::WriteImm => {
            for at in (0..n).map(into) {
                let from = worker.remote.at(at as u64);
                worker.post(place, &Op::read(region.slice(at..at + plan.size), from))?;
            }
            worker.drain(place)?;
        }
        Operation::Read => {}
        Operation::FetchAdd | Operation::CompareSwap => {
            // Each slot has its own word: in each window it becomes one more.
            for slot in 0..n {
                let old: u64 = region.get(into(slot))?;
                if old != worker.rounds {
                    let text = format!("the old value is {old} instead of {}", worker.rounds);
                    return Err(text.into());
                }
            }
            return Ok(());
        }
    }
    (0..n)
        .try_for_each(|slot| pattern(end, first + slot as u64).check(region, into(slot), plan.size))
}
