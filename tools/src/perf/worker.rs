//! What both ends of a connection do alike: make the operations, post them, take completions, and play ping-pong.
//!
//! Ping-pong: the end whose turn it is posts one operation, then waits for that of the other end, which is seen by a
//! receive or, of a plain write, by the last byte of the memory, which counts. What need not be done before the
//! post is done behind it, while the other end is at work.

use std::time::{Duration, Instant};

use fabric::{AtomicOp, BatchError, Error, Op, OpKind, RemoteRegion, Slices};

use super::pattern::Pattern;
use super::plan::{Operation, Plan};
use super::problem::Outcome;
use super::side::{End, Lane, Side};
use super::waiter::Waiter;

/// The immediate data of the empty message that says that it is over.
const STOP: u32 = u32::MAX;
/// The bytes of a write become visible in any order; but soon.
const SETTLE: Duration = Duration::from_secs(5);

/// One thread's part of one end.
pub(crate) struct Worker<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) side: &'a Side,
    pub(crate) lane: &'a Lane,
    pub(crate) remote: RemoteRegion,
    pub(crate) waiter: Waiter<'a>,
    pub(crate) is_server: bool,
    /// Of each endpoint.
    rallies: Vec<Rally>,
    /// Messages that were received and not looked at yet.
    received: u64,
    /// The receive to post again, when there is time.
    owed: Option<u64>,
    stops: usize,
    /// With `--verify`: the operations so far of each endpoint, and the windows.
    pub(crate) verified: Vec<u64>,
    pub(crate) rounds: u64,
    /// What `--inject` sends.
    injected: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Rally {
    sent: u64,
    heard: u64,
    /// Posts whose completion was not taken.
    outstanding: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        (plan, side, lane): (&'a Plan, &'a Side, &'a Lane),
        remote: RemoteRegion,
        waiter: Waiter<'a>,
        is_server: bool,
    ) -> Self {
        Worker {
            plan,
            side,
            lane,
            remote,
            waiter,
            is_server,
            rallies: vec![Rally::default(); lane.ends.len()],
            received: 0,
            owed: None,
            stops: 0,
            verified: vec![0; lane.ends.len()],
            rounds: 0,
            injected: vec![0; if plan.inject { plan.size } else { 0 }],
        }
    }

    /// The operation to measure, between these slots. A compare-and-swap expects the first of `swap` and puts the second.
    #[inline]
    pub(crate) fn operation<'b>(
        &self,
        end: &End,
        slot: usize,
        swap: (u64, u64),
        injected: &'b [u8],
    ) -> Op<'b>
    where
        'a: 'b,
    {
        let Plan { op, size, .. } = *self.plan;
        let out = end.base + slot * self.plan.stride();
        let inbound = out + self.plan.inbound();
        let region = &self.side.region;
        let (from, into) = (region.slice(out..out + size), region.slice(inbound..inbound + size));
        let at = self.remote.at(inbound as u64);
        match op {
            Operation::Send if self.plan.inject => Op::inject(injected),
            Operation::Send => Op::send(from),
            Operation::Write if self.plan.inject => Op::inject_write(injected, at),
            Operation::Write => Op::write(from, at),
            Operation::WriteImm => Op::write(from, at).immediate(slot as u32),
            Operation::Read => Op::read(into, at),
            Operation::FetchAdd => Op::fetch_atomic(AtomicOp::Add, 1_u64, into, at),
            Operation::CompareSwap => Op::fetch_compare_swap(swap.0, swap.1, into, at),
        }
    }

    /// Takes completions, and counts them.
    #[inline]
    pub(crate) fn take(&mut self) -> Outcome {
        for completion in self.waiter.take()? {
            let place = (completion.context >> 32) as usize;
            if !completion.kind.is_receive() {
                self.rallies[place].outstanding -= 1;
            } else if completion.kind == OpKind::Recv && completion.immediate == Some(STOP) {
                self.stops += 1;
            } else {
                self.received += 1;
                self.owed = Some(completion.context);
            }
        }
        Ok(())
    }

    /// Waits until nothing of this endpoint is under way.
    pub(crate) fn drain(&mut self, place: usize) -> Outcome {
        while self.rallies[place].outstanding > 0 {
            self.take()?;
        }
        Ok(())
    }

    /// Posts one operation, which `take` will count.
    pub(crate) fn post(&mut self, place: usize, op: &Op<'_>) -> Outcome {
        let op = op.context((place as u64) << 32);
        while let Err(error) = self.lane.ends[place].endpoint.post(&op) {
            if !matches!(error, Error::Again) {
                return Err(error.into());
            }
            self.take()?;
        }
        self.rallies[place].outstanding += 1;
        Ok(())
    }

    /// Posts operations that have the right context already, together.
    pub(crate) fn post_all(&mut self, place: usize, mut ops: &[Op<'_>]) -> Outcome {
        while !ops.is_empty() {
            let posted = match self.lane.ends[place].endpoint.post_batch(ops) {
                Ok(()) => ops.len(),
                Err(BatchError { posted, error: Error::Again }) => posted,
                Err(error) => return Err(error.into()),
            };
            self.rallies[place].outstanding += posted as u64;
            ops = &ops[posted..];
            if !ops.is_empty() {
                self.take()?;
            }
        }
        Ok(())
    }

    /// Its move: posts the next ping or pong.
    #[inline]
    pub(crate) fn play(&mut self, place: usize) -> Outcome {
        let (lane, plan) = (self.lane, self.plan);
        let end = &lane.ends[place];
        let sequence = self.rallies[place].sent + 1;
        self.rallies[place].sent = sequence;
        if plan.verify || plan.op == Operation::Write {
            self.mark(place, sequence)?;
        }
        let injected = std::mem::take(&mut self.injected);
        let op = self.operation(end, 0, (0, 0), &injected).context((place as u64) << 32);
        let op = if plan.signal == 0 { op.unsignaled() } else { op };
        while let Err(error) = end.endpoint.post(&op) {
            if !matches!(error, Error::Again) {
                return Err(error.into());
            }
            self.take()?;
        }
        self.injected = injected;
        self.rallies[place].outstanding += u64::from(plan.signal != 0);
        Ok(())
    }

    /// Makes the bytes of this move, when those of the one before are no longer needed.
    fn mark(&mut self, place: usize, sequence: u64) -> Outcome {
        let (plan, end) = (self.plan, &self.lane.ends[place]);
        if let Some(last) = self.injected.last_mut() {
            *last = sequence as u8;
            return Ok(());
        }
        self.drain(place)?;
        if plan.verify {
            let by_server = self.is_server;
            let pattern = Pattern { base: end.base, sequence, by_server };
            pattern.put(&self.side.region, end.base, plan.size)?;
        }
        if plan.op == Operation::Write {
            self.side.region.put(end.base + plan.size - 1, &(sequence as u8))?;
        }
        Ok(())
    }

    /// Waits for the move of the other end. False if it has stopped.
    #[inline]
    pub(crate) fn await_move(&mut self, place: usize) -> Outcome<bool> {
        let sequence = self.rallies[place].heard + 1;
        if self.plan.op == Operation::Write {
            let last = self.inbound(place) + self.plan.size - 1;
            while self.side.region.get::<u8>(last)? != sequence as u8 {
                if self.stops > 0 {
                    return Ok(false);
                }
                self.take()?;
            }
        } else {
            while self.received == 0 {
                if self.stops > 0 {
                    return Ok(false);
                }
                self.take()?;
            }
            self.received -= 1;
        }
        self.rallies[place].heard = sequence;
        if self.plan.verify {
            self.check_move(place, sequence)?;
        }
        Ok(true)
    }

    fn check_move(&self, place: usize, sequence: u64) -> Outcome {
        let (plan, base) = (self.plan, self.lane.ends[place].base);
        let pattern = Pattern { base, sequence, by_server: !self.is_server };
        // A message is where its receive has put it, a write where every write goes.
        let slot = match self.owed {
            Some(context) if plan.op == Operation::Send => context as u32 as usize,
            _ => 0,
        };
        let at = self.inbound(place) + slot * plan.stride();
        if plan.op != Operation::Write {
            return pattern.check(&self.side.region, at, plan.size);
        }
        let start = Instant::now();
        while pattern.differs(&self.side.region, at, plan.size - 1)?.is_some() {
            if start.elapsed() > SETTLE {
                return pattern.check(&self.side.region, at, plan.size - 1);
            }
        }
        Ok(())
    }

    fn inbound(&self, place: usize) -> usize {
        self.lane.ends[place].base + self.plan.inbound()
    }

    /// Posts the receive again whose message was answered.
    #[inline]
    pub(crate) fn repost(&mut self) -> Outcome {
        if let Some(context) = self.owed.take() {
            let (place, slot) = ((context >> 32) as usize, context as u32 as usize);
            let end = &self.lane.ends[place];
            end.endpoint.post_recvs(&[self.side.receive(self.plan, end, place, slot)])?;
        }
        Ok(())
    }

    /// Sends the other end, on every endpoint, the last message, and waits until it has arrived.
    pub(crate) fn stop(&mut self) -> Outcome {
        for place in 0..self.lane.ends.len() {
            self.post(place, &Op::send(Slices::none()).immediate(STOP))?;
        }
        (0..self.lane.ends.len()).try_for_each(|place| self.drain(place))
    }

    /// Returns each ping until the other end stops.
    pub(crate) fn echo(&mut self) -> Outcome {
        'playing: loop {
            for place in 0..self.lane.ends.len() {
                if !self.await_move(place)? {
                    break 'playing;
                }
                self.play(place)?;
                self.repost()?;
            }
        }
        while self.stops < self.lane.ends.len() {
            self.take()?;
        }
        Ok(())
    }

    /// Takes whatever comes until the other end stops.
    pub(crate) fn sink(&mut self) -> Outcome {
        let (plan, side, lane) = (self.plan, self.side, self.lane);
        let mut heard = vec![0_u64; lane.ends.len()];
        // Receives that only differ in their endpoint are posted again in one go.
        let again = |(place, end)| [side.receive(plan, end, place, 0); super::waiter::TAKE];
        let again: Vec<_> = lane.ends.iter().enumerate().map(again).collect();
        let mut stops = 0;
        while stops < lane.ends.len() {
            let taken = self.waiter.take()?;
            for run in taken.chunk_by(|a, b| a.context >> 32 == b.context >> 32) {
                let place = (run[0].context >> 32) as usize;
                let data = run.iter().filter(|one| one.immediate != Some(STOP)).count();
                stops += run.len() - data;
                if !plan.verify {
                    lane.ends[place].endpoint.post_recvs(&again[place][..data])?;
                    continue;
                }
                for one in &run[..data] {
                    let (end, slot) = (&lane.ends[place], one.context as u32 as usize);
                    check_message(plan, side, end, one, heard[place], slot)?;
                    heard[place] += 1;
                    end.endpoint.post_recvs(&[side.receive(plan, end, place, slot)])?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a message that came is the one that was to come.
fn check_message(
    plan: &Plan,
    side: &Side,
    end: &End,
    completion: &fabric::Completion,
    sequence: u64,
    slot: usize,
) -> Outcome {
    if completion.len != plan.size {
        return Err(format!("{} bytes came instead of {}", completion.len, plan.size).into());
    }
    if plan.op == Operation::WriteImm {
        // Its bytes are read back by the other end: they may be overwritten by now.
        let right = (sequence % plan.window() as u64) as u32;
        return match completion.immediate {
            Some(found) if found == right => Ok(()),
            found => Err(format!("immediate data {found:?} came instead of {right}").into()),
        };
    }
    let at = end.base + plan.inbound() + slot * plan.stride();
    let pattern = Pattern { base: end.base, sequence, by_server: false };
    pattern.check(&side.region, at, plan.size)
}
