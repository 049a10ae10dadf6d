//! A program of datagram endpoints that runs beside the model.

mod ends;
mod posts;
mod rest;
mod silent;
mod taking;

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use fabric::Domain;
use fabric_rdm::{Address, Claimed, Endpoint, OpId, Peer};

use super::model::{RdmModel, Sight};
use super::program::{PLACES, RdmProgram, RdmStep};
use crate::check::{Failed, Outcome};
use crate::guarded::Guarded;
use crate::random::testbed::{Bench, Disagreement};

/// What a context stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Op(usize),
    Receive(usize),
}

impl Which {
    fn to_bits(self) -> u64 {
        match self {
            Which::Op(number) => (number as u64) << 1,
            Which::Receive(number) => (number as u64) << 1 | 1,
        }
    }

    fn from_bits(bits: u64) -> Self {
        let number = (bits >> 1) as usize;
        if bits & 1 == 0 { Which::Op(number) } else { Which::Receive(number) }
    }
}

/// An endpoint of the program.
struct Member {
    /// Until it is dropped.
    endpoint: Option<Arc<Endpoint>>,
    address: Address,
    /// What the others write to.
    memory: Guarded,
    /// By endpoint, its handle here, or the last one.
    peers: Vec<Option<Peer>>,
    /// Which endpoint each handle is of, or was.
    handles: HashMap<Peer, usize>,
    /// What was posted here.
    posted: Vec<(OpId, Which)>,
    /// Receives that ended well, and others, as its counter has to have them.
    received: (u64, u64),
    /// By endpoint, messages that were sent to see whether it is there.
    pokes: Vec<Vec<usize>>,
}

/// A message that was claimed.
struct Kept {
    at: usize,
    claimed: Claimed<'static>,
    claim: usize,
    sight: Sight,
}

/// A program under way.
pub(super) struct RdmExecutor<'a> {
    bench: &'a Bench,
    program: &'a RdmProgram,
    model: RdmModel,
    members: Vec<Member>,
    kept: VecDeque<Kept>,
    /// Memory of operations and receives.
    buffers: HashMap<(bool, usize), Guarded>,
    /// Messages that have no immediate are known by their bytes.
    has_room_for_numbers: bool,
    /// Receives may be without completions.
    has_silent_receives: bool,
    /// Turns since it began to come to rest.
    turns: usize,
    trace: &'a mut Vec<String>,
}

/// Runs a program to its end.
pub(super) fn execute(bench: &Bench, program: &RdmProgram) -> Result<(), Disagreement> {
    let mut trace = Vec::new();
    let outcome = RdmExecutor::new(bench, program, &mut trace).and_then(|mut executor| {
        executor.execute().map_err(|failed| {
            let dump = executor.dump();
            failed.with_dump(dump)
        })
    });
    outcome.map_err(|failed| Disagreement { failed, trace })
}

/// Where the counter of an initiator is in the target's memory; behind it are its places.
fn counter_at(initiator: usize) -> usize {
    initiator * 16_384
}

/// Where a place of an initiator is in the target's memory.
fn place_at(initiator: usize, place: usize) -> usize {
    counter_at(initiator) + 8 + PLACES[..place].iter().sum::<usize>()
}

impl<'a> RdmExecutor<'a> {
    fn new(
        bench: &'a Bench,
        program: &'a RdmProgram,
        trace: &'a mut Vec<String>,
    ) -> Result<Self, Failed> {
        let mut executor = RdmExecutor {
            bench,
            program,
            model: RdmModel::new(&program.settings),
            members: Vec::new(),
            kept: VecDeque::new(),
            buffers: HashMap::new(),
            has_room_for_numbers: program.has_room_for_numbers(),
            has_silent_receives: program.has_silent_receives(),
            turns: 0,
            trace,
        };
        let ends = program.settings.ends;
        (0..ends).try_for_each(|_| executor.add_member(None))?;
        for at in 0..ends {
            for of in (0..ends).filter(|of| !program.settings.strange.contains(&(at, *of))) {
                executor.members[at].peers[of] = Some(executor.insert_peer(at, of)?);
            }
        }
        Ok(executor)
    }

    fn execute(&mut self) -> Outcome {
        let program = self.program;
        for (number, step) in program.steps.iter().enumerate() {
            self.trace.push(format!("{number:3}  {step}"));
            self.step(*step)?;
        }
        self.trace.push("the end: everything is received".to_owned());
        self.finish()
    }

    /// A line of the trace, below that of the step.
    fn note(&mut self, line: impl Display) {
        self.trace.push(format!("     {line}"));
    }

    /// The endpoint, unless it was dropped.
    fn endpoint(&self, at: usize) -> Option<Arc<Endpoint>> {
        self.members.get(at)?.endpoint.clone()
    }

    fn domain(&self, at: usize) -> &'a Domain {
        &self.bench.domains[at % self.bench.domains.len()]
    }

    fn step(&mut self, step: RdmStep) -> Outcome {
        let ends = self.members.len();
        match step {
            RdmStep::Settle => self.settle(),
            _ if step.ends().any(|end| end >= ends) => Ok(()),
            RdmStep::Send { at, to, spec } => self.send(at, to, spec),
            RdmStep::Receive { at, want, room, min_free, unsignaled } => {
                self.receive(at, want, (room, min_free), unsignaled).map(drop)
            }
            RdmStep::Probe { at, want, claiming } => self.probe(at, want, claiming),
            RdmStep::Claimed { at, room } => {
                let found = self.kept.iter().position(|kept| kept.at == at);
                found.map_or(Ok(()), |found| self.use_kept(found, room))
            }
            RdmStep::OneSided { at, to, what, fence, unsignaled } => {
                self.one_sided(at, to, what, (fence, unsignaled))
            }
            RdmStep::Cancel { at, back } => {
                let found = self.members[at].posted.iter().rev().nth(back).copied();
                found.map_or(Ok(()), |(op, which)| self.cancel(at, op, which))
            }
            RdmStep::Poll(at) => self.poll(at).map(drop),
            RdmStep::Wait(at) => self.wait(at),
            RdmStep::Remove { at, peer } => self.remove(at, peer),
            RdmStep::Insert { at, peer } => self.insert(at, peer),
            RdmStep::Revive { at, peer } => self.revive(at, peer),
            RdmStep::Drop(at) => {
                self.drop_endpoint(at);
                Ok(())
            }
            RdmStep::Restart(at) => self.restart(at),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.bench.timeout()
    }

    /// The state of all endpoints.
    fn dump(&self) -> String {
        let mut text = String::new();
        for (at, member) in self.members.iter().enumerate() {
            match &member.endpoint {
                Some(endpoint) => {
                    let identity = endpoint.address().identity();
                    text += &format!("e{at}, {identity}: {}", endpoint.dump());
                }
                None => text += &format!("e{at} was dropped\n"),
            }
        }
        text
    }
}
