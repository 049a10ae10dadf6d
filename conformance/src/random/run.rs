//! Running a program on a provider, beside the model.
//!
//! One thread makes every call, in the program's order; what is at once is the provider's own doing, and that is a
//! lot: operations are in flight on every connection, in both directions, while the thread posts and looks at others.
//! When the program has ended the runner brings everything to an end, so that the last word is always a strict one:
//! missing receives are posted, each connection is brought to rest by a fenced empty message in each direction, every byte
//! of every memory is looked at, everything is dropped, and looked at once more.

mod regions;
mod rest;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabric::{
    Capabilities, CompletionQueue, Domain, Endpoint, EndpointAttr, EndpointId, Error, Op, Recv,
    Slice, Slices,
};
use fabric_async::Node;

use super::layer;
use super::memories::Memories;
use super::model::Model;
use super::program::{Local, OpSpec, Part, Program, Step, What};
use crate::check::{Failed, Outcome};
use crate::element::operation;
use crate::pattern::Pattern;
use crate::target::Target;

/// Domains that programs use.
pub(super) const DOMAINS: usize = 3;
/// How long anything that should happen may take, before scaling.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the contract and a run differ.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// What was expected, and seen.
    pub failed: Failed,
    /// What the program did until then.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Disagreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        write!(f, "{}", self.failed)
    }
}

/// Open domains of one device, for one program after the other.
#[derive(Debug)]
pub struct Bench {
    pub(super) domains: Vec<Domain>,
    pub(super) ip: IpAddr,
    pub(super) unique_keys: bool,
    factor: f64,
    /// On each domain one, where programs run through the asynchronous layer.
    nodes: Option<Vec<Node>>,
}

impl Bench {
    /// Opens the device. Deadlines are stretched by `factor`.
    ///
    /// # Errors
    /// If the provider refuses.
    pub fn new(target: &Target, factor: f64) -> fabric::Result<Self> {
        let domains = (0..DOMAINS).map(|_| target.open()).collect::<fabric::Result<_>>()?;
        let unique_keys = target.info().capabilities.contains(Capabilities::UNIQUE_KEYS);
        Ok(Bench { domains, ip: target.ip(), unique_keys, factor, nodes: None })
    }

    /// How long anything that should happen may take here.
    pub(super) fn patience(&self) -> Duration {
        self.scaled(PATIENCE)
    }

    fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.factor)
    }

    /// Has programs run through the asynchronous layer.
    ///
    /// # Errors
    /// If the provider refuses what a node needs.
    pub fn layered(mut self) -> Result<Self, fabric_async::Error> {
        self.nodes = Some(layer::nodes(&self)?);
        Ok(self)
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// Where the provider did what the contract does not allow. What the program made may then still be there, so
    /// the bench is not to be used again.
    pub fn run(&self, program: &Program) -> Result<(), Disagreement> {
        let mut trace = Vec::new();
        self.attempt(program, &mut trace).map_err(|failed| Disagreement { failed, trace })
    }

    fn attempt(&self, program: &Program, trace: &mut Vec<String>) -> Outcome {
        if let Some(nodes) = &self.nodes {
            return layer::attempt(self, nodes, program, trace);
        }
        let mut run = Running::new(self, program, trace)?;
        for (at, step) in program.steps.iter().enumerate() {
            run.trace.push(format!("{at:3}  {step}"));
            run.step(step)?;
        }
        run.trace.push("the end: everything comes to rest".to_owned());
        run.rest()?;
        run.trace.push("everything is dropped".to_owned());
        run.leave()
    }
}

/// A program that is running.
struct Running<'a> {
    bench: &'a Bench,
    program: &'a Program,
    model: Model,
    memories: Memories<'a>,
    /// By domain.
    queues: Vec<CompletionQueue>,
    ends: Vec<Option<Endpoint>>,
    names: HashMap<(usize, EndpointId), usize>,
    contexts: u64,
    trace: &'a mut Vec<String>,
}

impl<'a> Running<'a> {
    fn new(
        bench: &'a Bench,
        program: &'a Program,
        trace: &'a mut Vec<String>,
    ) -> Result<Self, Failed> {
        let (memories, initial) = Memories::new(program, &bench.domains)?;
        let mut rooms = [1; DOMAINS];
        for end in program.connections.iter().flatten() {
            rooms[end.domain] += end.send_depth + end.recv_depth;
        }
        let queues = bench.domains.iter().zip(rooms);
        let queues: Vec<_> =
            queues.map(|(domain, room)| domain.completion_queue(room)).collect::<Result<_, _>>()?;
        let (mut ends, mut names) = (Vec::new(), HashMap::new());
        for (at, spec) in program.connections.iter().flatten().enumerate() {
            let mut attr = EndpointAttr::default();
            (attr.send_depth, attr.recv_depth) = (spec.send_depth, spec.recv_depth);
            (attr.send_segments, attr.recv_segments) = (spec.segments, spec.segments);
            (attr.inject, attr.connect_timeout) = (spec.inject, bench.patience());
            let endpoint = bench.domains[spec.domain].endpoint().attr(attr);
            let endpoint = endpoint.build(&queues[spec.domain])?;
            names.insert((spec.domain, endpoint.id()), at);
            ends.push(Some(endpoint));
        }
        let model = Model::new(program, initial, bench.unique_keys);
        Ok(Running { bench, program, model, memories, queues, ends, names, contexts: 0, trace })
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Connect(connection) => self.connect(*connection),
            Step::Register(at) => self.memories.register(&mut self.model, *at),
            Step::Close(at) => self.memories.close(&mut self.model, *at),
            Step::Free(at) => self.free(*at),
            Step::Forget(at) => {
                self.memories.forget(&mut self.model, *at);
                Ok(())
            }
            Step::Probe { end, region } => self.probe(*end, *region),
            Step::Store { memory, at, len, salt } => {
                self.memories.store(&mut self.model, *memory, *at, *len, *salt)
            }
            Step::Look(memory) => self.memories.look(&mut self.model, *memory),
            Step::Post { end, ops } => self.post(*end, ops),
            Step::Receive { end, recvs } => self.receive(*end, recvs),
            Step::Poll { end, most } => self.poll(*end, *most).map(drop),
            Step::Wait(end) => self.wait(*end),
            Step::Disconnect(end) => {
                if let Some(Some(endpoint)) = self.ends.get(*end)
                    && self.model.is_connected(*end)
                {
                    endpoint.disconnect();
                    self.model.disconnected(*end);
                }
                Ok(())
            }
            Step::Drop(end) => {
                if let Some(endpoint) = self.ends.get_mut(*end).and_then(Option::take) {
                    drop(endpoint);
                    self.model.dropped(*end);
                }
                Ok(())
            }
        }
    }

    fn connect(&mut self, connection: usize) -> Outcome {
        let (near, far) = (2 * connection, 2 * connection + 1);
        let (Some(Some(a)), Some(Some(b))) = (self.ends.get(near), self.ends.get(far)) else {
            return Ok(());
        };
        if self.model.is_connected(near) {
            return Ok(());
        }
        let patience = Some(self.bench.patience());
        let domain = &self.bench.domains[self.program.connections[connection][1].domain];
        let listener = domain.listen(SocketAddr::new(self.bench.ip, 0))?;
        a.connect(listener.local_addr(), &[])?;
        listener.accept(patience)?.accept(b, &[])?;
        a.wait_connected(patience)?;
        b.wait_connected(patience)?;
        self.model.connected(connection);
        Ok(())
    }

    fn post(&mut self, end: usize, specs: &[OpSpec]) -> Outcome {
        let specs: Vec<_> = specs.iter().filter(|spec| self.model.can_post(end, spec)).collect();
        let Some(Some(endpoint)) = self.ends.get(end) else { return Ok(()) };
        let injected: Vec<Vec<u8>> = specs.iter().map(|spec| injected(spec)).collect();
        let parts: Vec<Vec<Slice<'_>>> =
            specs.iter().map(|spec| self.memories.slices(spec.parts())).collect();
        let first = self.contexts;
        let ops: Vec<Op<'_>> = specs
            .iter()
            .enumerate()
            .map(|(i, spec)| {
                let op = self.operation(spec, &parts[i], &injected[i]);
                let op = if spec.unsignaled { op.unsignaled() } else { op };
                let op = if spec.fence { op.fence() } else { op };
                let op = if spec.delivery_complete { op.delivery_complete() } else { op };
                let op = spec.immediate.map_or(op, |immediate| op.immediate(immediate));
                op.context(first + i as u64)
            })
            .collect();
        let (posted, refusal) = match ops.as_slice() {
            [] => return Ok(()),
            [one] => match endpoint.post(one) {
                Ok(()) => (1, None),
                Err(error) => (0, Some(error)),
            },
            all => match endpoint.post_batch(all) {
                Ok(()) => (all.len(), None),
                Err(batch) => (batch.posted, Some(batch.error)),
            },
        };
        self.contexts += specs.len() as u64;
        if let Some(error) = &refusal {
            self.trace.push(format!("     {posted} posted, then {}", brief(error)));
        }
        for (i, spec) in specs.iter().enumerate().take(posted) {
            self.model.posted(end, spec, &injected[i], first + i as u64, Ok(()))?;
        }
        if let (Some(error), Some(spec)) = (&refusal, specs.get(posted)) {
            self.model.posted(end, spec, &injected[posted], first + posted as u64, Err(error))?;
        }
        Ok(())
    }

    fn operation<'b>(&self, spec: &OpSpec, parts: &'b [Slice<'b>], injected: &'b [u8]) -> Op<'b> {
        let at = |to| self.memories.place(to);
        let inject = matches!(spec.local, Local::Inject { .. });
        match &spec.what {
            What::Send if inject => Op::inject(injected),
            What::Send => Op::send(parts),
            What::Write(to) if inject => Op::inject_write(injected, at(to)),
            What::Write(to) => Op::write(parts, at(to)),
            What::Read(from) => Op::read(parts, at(from)),
            What::Atomic { to, call, fetch } => {
                let old = parts.first().copied().filter(|_| *fetch);
                operation(&call.call(), old, at(to))
            }
        }
    }

    fn receive(&mut self, end: usize, recvs: &[Vec<Part>]) -> Outcome {
        let lists: Vec<_> =
            recvs.iter().filter(|parts| self.model.can_receive(end, parts)).collect();
        let Some(Some(endpoint)) = self.ends.get(end) else { return Ok(()) };
        let parts: Vec<Vec<Slice<'_>>> =
            lists.iter().map(|parts| self.memories.slices(parts)).collect();
        let first = self.contexts;
        let posts: Vec<Recv<'_>> = parts
            .iter()
            .enumerate()
            .map(|(i, parts)| Recv::new(Slices::from(parts.as_slice()), first + i as u64))
            .collect();
        let (posted, refusal) = match endpoint.post_recvs(&posts) {
            Ok(()) => (posts.len(), None),
            Err(batch) => (batch.posted, Some(batch.error)),
        };
        self.contexts += lists.len() as u64;
        if let Some(error) = &refusal {
            self.trace.push(format!("     {posted} posted, then {}", brief(error)));
        }
        for (i, parts) in lists.iter().enumerate().take(posted) {
            self.model.received(end, parts, first + i as u64, Ok(()))?;
        }
        if let (Some(error), Some(parts)) = (&refusal, lists.get(posted)) {
            self.model.received(end, parts, first + posted as u64, Err(error))?;
        }
        Ok(())
    }
}

fn injected(spec: &OpSpec) -> Vec<u8> {
    match spec.local {
        Local::Inject { len, salt } => Pattern::new(salt).bytes(len),
        Local::Parts(_) => Vec::new(),
    }
}

pub(super) fn brief(error: &Error) -> String {
    format!("{error:?}").chars().take(120).collect()
}
