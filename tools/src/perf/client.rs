//! The end that measures: sends the other end each plan, connects, lets the threads work, and makes the result.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::control::{Control, Done, Ready, Reply, Request};
use super::initiator;
use super::plan::{Mode, Plan};
use super::problem::{Outcome, Problem, describe};
use super::progress::Live;
use super::results::Measured;
use super::side::{PATIENCE, Side, remote};
use super::tally::Tally;
use super::threads::{Shared, first_failure, join};
use super::waiter::Waiter;
use super::worker::Worker;
use super::{process, raw};

/// When this end has failed, the other one may know why.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) struct Client {
    control: Control,
}

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Outcome<Self> {
        Ok(Client { control: Control::connect(to)? })
    }

    /// Does what the plan says, and gives what was measured.
    pub(crate) fn measure(&mut self, plan: &Plan) -> Outcome<Measured> {
        let outcome = if plan.raw { self.raw(plan) } else { self.fabric(plan) };
        outcome.map_err(|error| self.reason(error))
    }

    /// Why it failed: what the other end says comes first, as it is often the cause.
    fn reason(&mut self, error: Problem) -> Problem {
        loop {
            match self.control.hear::<Reply>(LAST_WORDS) {
                Ok(Reply::Failed(reason)) => return format!("the other end: {reason}").into(),
                Ok(_) => {}
                Err(_) => return error,
            }
        }
    }

    fn ready(&mut self, plan: &Plan, region: Vec<u8>) -> Outcome<Ready> {
        self.control.say(&Request::Run(plan.clone(), region))?;
        match self.hear()? {
            Reply::Ready(ready) => Ok(ready),
            _ => Err(confused()),
        }
    }

    fn connected(&mut self) -> Outcome<f64> {
        match self.hear()? {
            Reply::Connected { idle_bytes } => Ok(idle_bytes),
            _ => Err(confused()),
        }
    }

    fn done(&mut self) -> Outcome<Done> {
        match self.hear()? {
            Reply::Done(done) => Ok(done),
            _ => Err(confused()),
        }
    }

    fn hear(&mut self) -> Outcome<Reply> {
        match self.control.hear(PATIENCE)? {
            Reply::Failed(reason) => Err(format!("the other end: {reason}").into()),
            reply => Ok(reply),
        }
    }

    fn fabric(&mut self, plan: &Plan) -> Outcome<Measured> {
        let address = self.control.local_addr()?.ip().to_canonical();
        let mut side = Side::new(plan, address)?;
        let region = side.region.remote().to_bytes().to_vec();
        let ready = self.ready(plan, region)?;
        let (ours, theirs) = (side.domain.provider(), &ready.provider);
        if ours != theirs {
            return Err(format!(
                "this end would use {ours}, the other one {theirs}: set FABRIC_PROVIDER to the same on both"
            )
            .into());
        }
        side.connect(plan, ready.address, ready.secret)?;
        let their_bytes = self.connected()?;
        let mut measured = Measured::new(plan, side.domain.provider(), side.domain.device());
        measured.debug_build |= self.control.debug_build;
        if plan.idle > 0 {
            measured.idle_bytes = Some(side.idle_bytes.max(their_bytes));
        }
        if plan.mode == Mode::Idle {
            let (here, there) = (process::idle(plan), self.done()?);
            measured.wakeups = Some(here.wakeups + there.wakeups);
            measured.idle_cpu_s = Some(here.cpu_s + there.cpu_s);
        } else {
            let remote = remote(plan, &ready.region)?;
            let patience = Some(Duration::from_secs(plan.timeout_s));
            let tally = in_threads(plan, |thread, shared| {
                let lane = &side.lanes[thread];
                let waiter = Waiter::new(&lane.queue, plan.wait, patience, &shared.failed);
                let mut worker = Worker::new((plan, &side, lane), remote, waiter, false);
                initiator::run(&mut worker, shared)
            })?;
            measured.tally = Some(tally);
            self.done()?;
        }
        side.shutdown()?;
        Ok(measured)
    }

    fn raw(&mut self, plan: &Plan) -> Outcome<Measured> {
        let ready = self.ready(plan, Vec::new())?;
        let tally = in_threads(plan, |_, shared| raw::measure(plan, ready.address, shared))?;
        self.connected()?;
        self.done()?;
        let mut measured = Measured::new(plan, raw::PROVIDER, "");
        measured.debug_build |= self.control.debug_build;
        measured.tally = Some(tally);
        Ok(measured)
    }
}

fn confused() -> Problem {
    "the other end answered with something else".into()
}

/// Lets each thread do its work, shows how it goes, and joins what they have measured.
fn in_threads(
    plan: &Plan,
    work: impl Fn(usize, &Shared) -> Outcome<Tally> + Sync,
) -> Outcome<Tally> {
    let shared = Shared::default();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let (work, shared) = (&work, &shared);
        let one = |thread| {
            scope.spawn(move || {
                work(thread, shared).map_err(|error| {
                    shared.failed.store(true, Ordering::Relaxed);
                    describe(&error)
                })
            })
        };
        let threads: Vec<_> = (0..plan.threads).map(one).collect();
        if let Some(live) = Live::new(plan) {
            live.follow(&shared.done, || threads.iter().all(|thread| thread.is_finished()));
        }
        threads.into_iter().map(join).collect()
    });
    let mut tallies = first_failure(outcomes)?.into_iter();
    let mut all = tallies.next().ok_or("no thread ran")?;
    tallies.try_for_each(|tally| all.join(&tally))?;
    Ok(all)
}
