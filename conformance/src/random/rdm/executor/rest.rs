//! Coming to rest: in the middle of a program, and at its end, when all that was sent is received.

use std::time::Duration;

use fabric_rdm::Kind;

use super::{RdmExecutor, Which};
use crate::check::{Failed, Outcome};
use crate::random::rdm::program::{Payload, SendSpec, Want};

/// Messages to a peer that may be lost, at most, so that they leave others their turns.
const POKES: usize = 8;
/// So many turns without an end are many.
const PATIENCE: usize = 100;
/// Room for every message.
const ROOM: usize = 100_000;
/// How long it waits for what should not come.
const AFTER: Duration = Duration::from_millis(1);
/// How long it sleeps where nothing comes.
const NAP: Duration = Duration::from_micros(200);

/// Receives that take all that is there.
const ALL: [Want; 2] =
    [Want { tag: None, ignore: 0, from: None }, Want { tag: Some(0), ignore: !0, from: None }];

impl RdmExecutor<'_> {
    /// Waits until everything has come that has to.
    pub(super) fn settle(&mut self) -> Outcome {
        let missing = |executor: &Self| {
            let counters = || executor.missing_in_counters(false);
            executor.model.owed(false).or_else(counters)
        };
        self.come_to_rest(missing, |_| Ok(()))
    }

    /// Receives all that is there, ends all that is outstanding, and checks all that can be known then.
    pub(super) fn finish(&mut self) -> Outcome {
        let mut open: Vec<_> = vec![[None; 2]; self.members.len()];
        self.come_to_rest(
            |executor| {
                let kept = || executor.kept.front().map(|_| "a claimed message".to_owned());
                let counters = || executor.missing_in_counters(true);
                executor.model.owed(true).or_else(kept).or_else(counters)
            },
            |executor| {
                for (at, open) in open.iter_mut().enumerate() {
                    executor.take_all(at, open)?;
                }
                Ok(())
            },
        )?;
        for at in 0..self.members.len() {
            self.cancel_receives(at)?;
        }
        let is_open = |executor: &Self| {
            let left = executor.model.receives.iter();
            let mut left = left.filter(|one| !one.ended && !executor.model.is_dropped(one.at));
            left.next().map(|one| format!("the end of {one:?}"))
        };
        self.come_to_rest(is_open, |_| Ok(()))?;
        self.model.check_windows()?;
        self.model.check_events()?;
        for at in 0..self.members.len() {
            self.model.check_matching(at)?;
            self.members[at].memory.check_guards()?;
        }
        self.buffers.values().try_for_each(crate::guarded::Guarded::check_guards)
    }

    /// Takes what comes until nothing is missing, and what comes behind that.
    fn come_to_rest(
        &mut self,
        missing: impl Fn(&Self) -> Option<String>,
        mut turn: impl FnMut(&mut Self) -> Outcome,
    ) -> Outcome {
        let deadline = self.deadline();
        self.turns = 0;
        loop {
            turn(self)?;
            let taken = self.poll_all()?;
            let Some(what) = missing(self) else { break };
            if std::time::Instant::now() > deadline {
                return Err(self.bench.nothing_came(&what));
            }
            self.turns += 1;
            if taken == 0 {
                nap(self.turns);
            }
        }
        std::thread::sleep(AFTER);
        self.poll_all()?;
        (0..self.members.len()).for_each(|at| self.model.rests(at));
        Ok(())
    }

    fn poll_all(&mut self) -> Result<usize, Failed> {
        (0..self.members.len()).map(|at| self.poll(at)).sum()
    }

    /// A counter that is not yet where it has to be.
    fn missing_in_counters(&self, is_end: bool) -> Option<String> {
        for (at, member) in self.members.iter().enumerate() {
            let Some(endpoint) = &member.endpoint else { continue };
            for kind in [Kind::Send, Kind::Write, Kind::Read, Kind::Atomic, Kind::Recv] {
                let expected = match kind {
                    Kind::Recv => Some(member.received),
                    _ if is_end => Some(self.model.posts(at, kind)),
                    _ => self.model.counts(at, kind),
                };
                let counter = endpoint.counter(kind);
                let seen = (counter.successes(), counter.errors());
                if let Some(expected) = expected
                    && expected != seen
                {
                    return Some(format!(
                        "e{at}: {expected:?} of {kind:?} to be counted, not {seen:?}"
                    ));
                }
            }
        }
        None
    }

    /// One turn of the end at an endpoint.
    fn take_all(&mut self, at: usize, open: &mut [Option<usize>; 2]) -> Outcome {
        if self.endpoint(at).is_none() {
            return Ok(());
        }
        for of in 0..self.members.len() {
            self.insert(at, of)?;
            if !self.model.is_dropped(of) {
                self.revive(at, of)?;
            }
            self.poke(at, of)?;
        }
        while let Some(found) = self.kept.iter().position(|kept| kept.at == at) {
            let count = self.kept.len();
            self.use_kept(found, Some(ROOM))?;
            if self.kept.len() == count {
                break;
            }
        }
        let mut messages = self.model.messages.iter();
        if !messages.any(|one| one.to == at && one.met.is_none()) {
            return Ok(());
        }
        for (want, open) in ALL.into_iter().zip(open) {
            let receives = &self.model.receives;
            // One may have met a message whose payload waits for a connection, which others have.
            let is_stuck = self.turns % PATIENCE == PATIENCE - 1;
            if is_stuck || open.is_none_or(|open| receives[open].ended) {
                let number = receives.len();
                match self.receive(at, want, ROOM, None)? {
                    true => *open = Some(number),
                    false => self.cancel_receives(at)?,
                }
            }
        }
        Ok(())
    }

    /// Writes to a peer that may be lost: where one was removed while no connection to it was there, only the next post finds
    /// that. And to one that had no place for a message.
    fn poke(&mut self, at: usize, to: usize) -> Outcome {
        let is_open = |op: &usize| self.model.ops[*op].ended.is_none();
        let pokes = &self.members[at].pokes[to];
        let is_poked = pokes.len() >= POKES || pokes.iter().any(is_open);
        let mut ops = self.model.ops.iter();
        let waits = ops.any(|op| (op.at, op.to) == (at, to) && op.ended.is_none());
        let is_due = self.model.is_lossy(at, to) && waits && !is_poked;
        let is_refused = self.model.refused.contains(&(at, to))
            && !self.model.is_dropped(to)
            && self.turns.is_multiple_of(PATIENCE);
        if at == to || !is_due && !is_refused {
            return Ok(());
        }
        let op = self.model.ops.len();
        let (payload, immediate) = (Payload::Inject, true);
        let (matched, unsignaled) = (false, false);
        self.send(at, to, SendSpec { tag: None, len: 0, payload, matched, unsignaled, immediate })?;
        if self.model.ops.len() > op {
            self.members[at].pokes[to].push(op);
        }
        Ok(())
    }

    fn cancel_receives(&mut self, at: usize) -> Outcome {
        let posted = self.members[at].posted.clone();
        for (op, which) in posted {
            if let Which::Receive(number) = which
                && !self.model.receives[number].ended
            {
                self.cancel(at, op, which)?;
            }
        }
        Ok(())
    }
}

/// Leaves the processor to others, after so many turns for longer.
fn nap(turns: usize) {
    if turns < 50 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(NAP);
    }
}
