//! The end that measures: the loops, in which nothing is allocated and the clock is read no oftener than needed.

use std::sync::atomic::Ordering;
use std::time::Instant;

use fabric::{BatchError, Error, Op};

use super::plan::{Limit, Mode, Plan};
use super::problem::Outcome;
use super::tally::Tally;
use super::threads::Shared;
use super::turns::{REPORT_EVERY, bounds, turns};
use super::worker::Worker;

/// Warms up, measures when all threads have warmed up, and ends the other end's part.
pub(crate) fn run(worker: &mut Worker<'_>, shared: &Shared) -> Outcome<Tally> {
    let plan = worker.plan;
    if plan.warmup > 0 {
        let idle = Shared::default();
        measure(worker, Limit::Iterations(plan.warmup), &idle)?;
    }
    shared.meet(plan.threads)?;
    let tally = measure(worker, plan.limit, shared)?;
    worker.stop()?;
    Ok(tally)
}

fn measure(worker: &mut Worker<'_>, limit: Limit, shared: &Shared) -> Outcome<Tally> {
    let plan = worker.plan;
    match plan.mode {
        Mode::Latency if plan.op.is_one_way() => ping_pong(worker, limit, shared),
        _ if plan.verify => super::verified::windows(worker, limit, shared),
        Mode::Latency => round_trips(worker, limit, shared),
        _ => Stream::new(worker).run(worker, limit, shared),
    }
}

/// There and back again, on one endpoint after the other.
fn ping_pong(worker: &mut Worker<'_>, limit: Limit, shared: &Shared) -> Outcome<Tally> {
    let tally = turns(limit, worker.lane.ends.len(), shared, |pace| {
        for place in 0..worker.lane.ends.len() {
            worker.play(place)?;
            // While the other end is at work, what is left of the turn before.
            worker.repost()?;
            if !worker.await_move(place)? {
                return Err("the other end stopped in the middle".into());
            }
            pace.ended();
        }
        Ok(())
    })?;
    worker.repost()?;
    Ok(tally)
}

/// Reads and atomics, one after the other.
fn round_trips(worker: &mut Worker<'_>, limit: Limit, shared: &Shared) -> Outcome<Tally> {
    let lane = worker.lane;
    turns(limit, worker.lane.ends.len(), shared, |pace| {
        worker.rounds += 1;
        for (place, end) in lane.ends.iter().enumerate() {
            worker.post(place, &worker.operation(end, 0, toggle(worker.rounds - 1), &[]))?;
            worker.drain(place)?;
            pace.ended();
        }
        Ok(())
    })
}

/// What a compare-and-swap expects and puts, so that the next one finds what it expects.
fn toggle(turn: u64) -> (u64, u64) {
    (turn & 1, (turn + 1) & 1)
}

/// As many operations under way as the depth allows, in batches.
struct Stream<'a> {
    feeds: Vec<Feed<'a>>,
    batch: usize,
}

/// One endpoint's part of a stream.
struct Feed<'a> {
    /// What goes out, over and over. The context of a signaled one has the place, and for how many it answers.
    ops: Vec<Op<'a>>,
    next: usize,
    room: usize,
    left: u64,
    /// Posted since the last one that was signaled.
    quiet: u64,
    /// Every so manyth is signaled.
    signal: u64,
}

impl<'a> Stream<'a> {
    fn new(worker: &Worker<'a>) -> Self {
        let plan: &Plan = worker.plan;
        let feed = |(place, end)| {
            let op = |at: usize| {
                let op = worker.operation(end, 0, toggle(at as u64), &worker.side.injected);
                let op = op.context((place as u64) << 32 | plan.signal as u64);
                if (at + 1).is_multiple_of(plan.signal) { op } else { op.unsignaled() }
            };
            let ops = (0..plan.window()).map(op).collect();
            let (room, signal) = (plan.window(), plan.signal as u64);
            Feed { ops, next: 0, room, left: 0, quiet: 0, signal }
        };
        let feeds = worker.lane.ends.iter().enumerate().map(feed).collect();
        Stream { feeds, batch: plan.batch }
    }

    fn run(mut self, worker: &mut Worker<'a>, limit: Limit, shared: &Shared) -> Outcome<Tally> {
        let (count, time) = bounds(limit);
        self.feeds.iter_mut().for_each(|feed| feed.left = count);
        let lane = worker.lane;
        let mut tally = Tally::start()?;
        let deadline = time.map(|time| tally.begin + time);
        let (mut posted, mut done) = (0_u64, 0_u64);
        let (mut last, mut at_last) = (tally.begin, 0);
        loop {
            let mut over = true;
            for (place, (feed, end)) in self.feeds.iter_mut().zip(&lane.ends).enumerate() {
                while feed.left > 0 && feed.room >= self.batch {
                    let n = feed.post(&end.endpoint, self.batch)?;
                    posted += n;
                    if n == 0 {
                        break;
                    }
                }
                if feed.left == 0 && feed.quiet > 0 {
                    posted += feed.flush(&end.endpoint, place)?;
                }
                over &= feed.left == 0 && feed.quiet == 0;
            }
            if over && done == posted {
                break;
            }
            for completion in worker.waiter.take()? {
                let answers = completion.context as u32;
                self.feeds[(completion.context >> 32) as usize].room += answers as usize;
                done += u64::from(answers);
            }
            if done - at_last >= REPORT_EVERY {
                let now = Instant::now();
                tally.record_average(now - last, done - at_last);
                shared.done.fetch_add(done - at_last, Ordering::Relaxed);
                (last, at_last) = (now, done);
                let given_up = shared.failed.load(Ordering::Relaxed);
                if given_up || deadline.is_some_and(|deadline| now >= deadline) {
                    self.feeds.iter_mut().for_each(|feed| feed.left = 0);
                }
            }
        }
        tally.end = Instant::now();
        if done > at_last {
            tally.record_average(tally.end - last, done - at_last);
        }
        tally.operations = done;
        Ok(tally)
    }
}

impl Feed<'_> {
    /// Posts up to a batch, and says how many.
    #[inline]
    fn post(&mut self, endpoint: &fabric::Endpoint, batch: usize) -> Outcome<u64> {
        // A batch that was cut short moves the next ones off their places.
        let count = (batch as u64).min(self.left).min((self.ops.len() - self.next) as u64) as usize;
        let ops = &self.ops[self.next..self.next + count];
        let posted = match ops {
            [one] => match endpoint.post(one) {
                Ok(()) => 1,
                Err(Error::Again) => 0,
                Err(error) => return Err(error.into()),
            },
            _ => match endpoint.post_batch(ops) {
                Ok(()) => count,
                Err(BatchError { posted, error: Error::Again }) => posted,
                Err(error) => return Err(error.into()),
            },
        };
        self.next += posted;
        self.room -= posted;
        self.left -= posted as u64;
        // Signaled are the operations at fixed places, so what is quiet behind the last one is the rest.
        self.quiet = if self.signal == 1 { 0 } else { self.next as u64 % self.signal };
        if self.next == self.ops.len() {
            self.next = 0;
        }
        Ok(posted as u64)
    }

    /// Posts one more, signaled, that answers for those which are quiet. 1 if there was room for it.
    #[cold]
    fn flush(&mut self, endpoint: &fabric::Endpoint, place: usize) -> Outcome<u64> {
        let last = self.ops[self.ops.len() - 1].context((place as u64) << 32 | (self.quiet + 1));
        match endpoint.post(&last) {
            Ok(()) => {
                self.room = self.room.saturating_sub(1);
                self.quiet = 0;
                Ok(1)
            }
            Err(Error::Again) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
