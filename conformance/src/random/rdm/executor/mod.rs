//! A program of datagram endpoints that runs beside the model.

mod posts;
mod rest;
mod taking;

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::{Access, Domain};
use fabric_rdm::{Claimed, Endpoint, OpId, Peer, RdmAttr};

use super::model::{RdmModel, Sight};
use super::program::{PLACES, RdmProgram, RdmSettings, RdmStep};
use crate::check::{Failed, Outcome};
use crate::guarded::Guarded;
use crate::random::testbed::{Bench, Disagreement};

/// How long connecting to an endpoint takes that was dropped.
const TO_DROPPED: Duration = Duration::from_secs(1);

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
    /// What the others write to.
    memory: Guarded,
    /// By endpoint, its handle here, or the last one.
    peers: Vec<Peer>,
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

fn attr(bench: &Bench, settings: &RdmSettings) -> RdmAttr {
    let mut attr = RdmAttr::default();
    attr.listen = Some((bench.ip, 0).into());
    let connect = if settings.drops { TO_DROPPED } else { attr.timeouts.connect };
    attr.timeouts.connect = bench.scaled(connect);
    attr.timeouts.attempt = bench.scaled(attr.timeouts.attempt);
    attr.max_open = settings.max_open;
    attr.send_depth = settings.send_depth;
    attr.recv_depth = settings.recv_depth;
    attr.slots = settings.slots;
    attr.slot_len = settings.slot_len;
    attr.rendezvous = settings.rendezvous;
    attr.connection_depth = settings.connection_depth;
    attr.window.places.window = settings.window;
    attr.window.bytes.window = settings.bytes;
    attr.window.bytes.reserved = attr.window.bytes.reserved.min(settings.bytes);
    attr
}

impl<'a> RdmExecutor<'a> {
    fn new(
        bench: &'a Bench,
        program: &'a RdmProgram,
        trace: &'a mut Vec<String>,
    ) -> Result<Self, Failed> {
        let ends = program.settings.ends;
        let mut members = Vec::new();
        for at in 0..ends {
            let domain = &bench.domains[at % bench.domains.len()];
            let endpoint = Arc::new(Endpoint::new(domain, &attr(bench, &program.settings))?);
            let memory = Guarded::new(domain, counter_at(ends), Access::ALL)?;
            members.push(Member {
                endpoint: Some(endpoint),
                memory,
                peers: Vec::new(),
                handles: HashMap::new(),
                posted: Vec::new(),
                received: (0, 0),
                pokes: vec![Vec::new(); ends],
            });
        }
        let mut executor = RdmExecutor {
            bench,
            program,
            model: RdmModel::new(&program.settings),
            members,
            kept: VecDeque::new(),
            buffers: HashMap::new(),
            has_room_for_numbers: program.has_room_for_numbers(),
            turns: 0,
            trace,
        };
        for at in 0..ends {
            for of in 0..ends {
                let peer = executor.insert_peer(at, of)?;
                executor.members[at].peers.push(peer);
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
            RdmStep::Receive { at, want, room, min_free } => {
                self.receive(at, want, room, min_free).map(drop)
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
        }
    }

    fn insert_peer(&mut self, at: usize, of: usize) -> Result<Peer, Failed> {
        let both = (self.endpoint(at), self.endpoint(of));
        let (Some(endpoint), Some(other)) = both else {
            return Err(Failed::new("two endpoints", "one was dropped"));
        };
        let peer = endpoint.insert(other.address())?;
        match self.members[at].handles.insert(peer, of) {
            Some(other) => {
                let expected = format!("e{at}: a handle of its own for e{of}");
                Err(Failed::new(expected, format!("{peer}, which was of e{other}")))
            }
            None => Ok(peer),
        }
    }

    fn remove(&mut self, at: usize, peer: usize) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        if self.model.is_present(at, peer) && at != peer {
            self.look_down(at, peer)?;
            self.model.removed(at, peer);
            endpoint.remove(self.members[at].peers[peer])?;
        }
        Ok(())
    }

    fn insert(&mut self, at: usize, peer: usize) -> Outcome {
        let (Some(endpoint), Some(other)) = (self.endpoint(at), self.endpoint(peer)) else {
            return Ok(());
        };
        if self.model.is_present(at, peer) {
            let again = endpoint.insert(other.address())?;
            if again != self.members[at].peers[peer] {
                let expected = format!("e{at}: the handle that e{peer} has");
                return Err(Failed::new(expected, format!("{again}")));
            }
            return Ok(());
        }
        self.members[at].peers[peer] = self.insert_peer(at, peer)?;
        self.model.inserted(at, peer);
        Ok(())
    }

    fn revive(&mut self, at: usize, peer: usize) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        if self.look_down(at, peer)? {
            endpoint.revive(self.members[at].peers[peer])?;
            self.model.revived(at, peer);
            self.note(format!("e{at}: e{peer} is revived"));
        }
        Ok(())
    }

    /// Whether a peer is down.
    fn look_down(&mut self, at: usize, of: usize) -> Result<bool, Failed> {
        let Some(endpoint) = self.endpoint(at) else { return Ok(false) };
        if !self.model.is_present(at, of) {
            return Ok(false);
        }
        match endpoint.down(self.members[at].peers[of])? {
            Some(cause) => {
                self.model.fell(at, of).map_err(|failed| failed.of(cause))?;
                Ok(true)
            }
            None => self.model.stands(at, of).map(|()| false),
        }
    }

    fn drop_endpoint(&mut self, at: usize) {
        self.kept.retain(|kept| kept.at != at);
        if self.members[at].endpoint.take().is_some() {
            self.model.drops(at);
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
