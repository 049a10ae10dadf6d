//! Running a program on a provider, beside the model.
//!
//! One thread makes every call, in the program's order; what is at once is the provider's own doing, and that is a
//! lot: operations are in flight on every connection, in both directions, while the thread posts and looks at others.
//! When the program has ended the runner brings everything to an end, so that the last word is always a strict one:
//! missing receives are posted, each connection is brought to rest by a fenced empty message in each direction, every byte
//! of every memory is looked at, everything is dropped, and looked at once more.

mod rest;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabric::{
    Capabilities, CompletionQueue, Domain, Endpoint, EndpointAttr, EndpointId, Error, Memory, Op,
    Recv, Region, RemoteRegion, Slice, Slices,
};

use super::model::{Model, Run};
use super::program::{Local, MemorySpec, OpSpec, Part, Program, Step, What};
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
    domains: Vec<Domain>,
    ip: IpAddr,
    unique_keys: bool,
    factor: f64,
}

impl Bench {
    /// Opens the device. Deadlines are stretched by `factor`.
    ///
    /// # Errors
    /// If the provider refuses.
    pub fn new(target: &Target, factor: f64) -> fabric::Result<Self> {
        let domains = (0..DOMAINS).map(|_| target.open()).collect::<fabric::Result<_>>()?;
        let unique_keys = target.info().capabilities.contains(Capabilities::UNIQUE_KEYS);
        Ok(Bench { domains, ip: target.ip(), unique_keys, factor })
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
    /// The program's, and one for the whole of each memory, without remote rights.
    regions: Vec<Option<Region>>,
    remotes: Vec<Option<RemoteRegion>>,
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
        let initial =
            |(at, memory): (usize, &MemorySpec)| Pattern::new(at as u64).bytes(memory.len);
        let initial: Vec<_> = program.memories.iter().enumerate().map(initial).collect();
        let mut regions: Vec<_> = program.regions.iter().map(|_| None).collect();
        for (spec, bytes) in program.memories.iter().zip(&initial) {
            let memory = Memory::zeroed(spec.len)?;
            let access = fabric::Access::LOCAL_WRITE;
            let region = bench.domains[spec.domain].register(&memory, access)?;
            region.write_at(0, bytes)?;
            regions.push(Some(region));
        }
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
            (attr.inject, attr.connect_timeout) = (spec.inject, PATIENCE.mul_f64(bench.factor));
            let endpoint = bench.domains[spec.domain].endpoint().attr(attr);
            let endpoint = endpoint.build(&queues[spec.domain])?;
            names.insert((spec.domain, endpoint.id()), at);
            ends.push(Some(endpoint));
        }
        let remotes = regions.iter().map(|_| None).collect();
        let model = Model::new(program, initial, bench.unique_keys);
        Ok(Running {
            bench,
            program,
            model,
            regions,
            remotes,
            queues,
            ends,
            names,
            contexts: 0,
            trace,
        })
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Connect(connection) => self.connect(*connection),
            Step::Register(region) => self.register(*region),
            Step::Close(at) => match self.regions.get(*at).and_then(Option::as_ref) {
                Some(region) if *at < self.program.regions.len() => {
                    let result = region.close();
                    self.model.close(*at, result.as_ref().copied())
                }
                _ => Ok(()),
            },
            Step::Forget(at) if *at < self.program.regions.len() => {
                if self.regions[*at].take().is_some() {
                    self.model.forget(*at);
                }
                Ok(())
            }
            Step::Forget(_) => Ok(()),
            Step::Store { memory, at, len, salt } => self.store(*memory, *at, *len, *salt),
            Step::Look(memory) if *memory < self.program.memories.len() => self.look(*memory),
            Step::Look(_) => Ok(()),
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
        let patience = Some(PATIENCE.mul_f64(self.bench.factor));
        let domain = &self.bench.domains[self.program.connections[connection][1].domain];
        let listener = domain.listen(SocketAddr::new(self.bench.ip, 0))?;
        a.connect(listener.local_addr(), &[])?;
        listener.accept(patience)?.accept(b, &[])?;
        a.wait_connected(patience)?;
        b.wait_connected(patience)?;
        self.model.connected(connection);
        Ok(())
    }

    fn register(&mut self, at: usize) -> Outcome {
        let Some(spec) = self.program.regions.get(at) else { return Ok(()) };
        if self.remotes[at].is_some() {
            return Ok(());
        }
        let memory = &self.program.memories[spec.memory];
        let whole = &self.regions[self.program.regions.len() + spec.memory];
        let Some(own) = whole.as_ref().and_then(Region::memory) else { return Ok(()) };
        let domain = &self.bench.domains[memory.domain];
        let range = spec.start..spec.start + spec.len;
        let region = domain.register_part(own, range, spec.access);
        self.model.registered(at, region.as_ref().map(drop))?;
        if let Ok(region) = region {
            self.remotes[at] = Some(region.remote());
            self.regions[at] = Some(region);
        }
        Ok(())
    }

    fn store(&mut self, memory: usize, at: usize, len: usize, salt: u64) -> Outcome {
        let Some(spec) = self.program.memories.get(memory) else { return Ok(()) };
        if at + len > spec.len || len == 0 {
            return Ok(());
        }
        let bytes = Pattern::new(salt).bytes(len);
        if let Some(own) = &self.regions[self.program.regions.len() + memory] {
            own.write_at(at, &bytes)?;
        }
        self.model.stored(memory, at, bytes);
        Ok(())
    }

    fn look(&mut self, memory: usize) -> Outcome {
        let len = self.program.memories[memory].len;
        let run = Run { memory, start: 0, len };
        let seen = self.read(run);
        self.model.looked(run, &seen)
    }

    fn read(&self, run: Run) -> Vec<u8> {
        read(&self.regions[self.program.regions.len()..], run)
    }

    fn post(&mut self, end: usize, specs: &[OpSpec]) -> Outcome {
        let specs: Vec<_> = specs.iter().filter(|spec| self.model.can_post(end, spec)).collect();
        let Some(Some(endpoint)) = self.ends.get(end) else { return Ok(()) };
        let injected: Vec<Vec<u8>> = specs.iter().map(|spec| injected(spec)).collect();
        let parts: Vec<Vec<Slice<'_>>> =
            specs.iter().map(|spec| slices(&self.regions, spec.parts())).collect();
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
        let at = |to: &super::program::Remote| {
            // `can_post` has seen that the region was registered.
            let honest = self.remotes[to.region].unwrap_or(RemoteRegion::from_parts(
                0,
                0,
                0,
                fabric::Access::empty(),
            ));
            to.descriptor(&honest).at(to.at as u64)
        };
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
            lists.iter().map(|parts| slices(&self.regions, parts)).collect();
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

fn memories_of(program: &Program, domain: usize) -> impl Iterator<Item = (usize, &MemorySpec)> {
    program.memories.iter().enumerate().filter(move |memory| memory.1.domain == domain)
}

fn read(whole: &[Option<Region>], run: Run) -> Vec<u8> {
    // The region of a whole memory is there as long as the program runs, and every run lies in it.
    let region = whole[run.memory].as_ref();
    region.and_then(|own| own.to_vec(run.start..run.start + run.len).ok()).unwrap_or_default()
}

fn slices<'a>(regions: &'a [Option<Region>], parts: &[Part]) -> Vec<Slice<'a>> {
    let slice =
        |part: &Part| Some(regions[part.region].as_ref()?.slice(part.at..part.at + part.len));
    parts.iter().filter_map(slice).collect()
}

fn injected(spec: &OpSpec) -> Vec<u8> {
    match spec.local {
        Local::Inject { len, salt } => Pattern::new(salt).bytes(len),
        Local::Parts(_) => Vec::new(),
    }
}

fn brief(error: &Error) -> String {
    format!("{error:?}").chars().take(120).collect()
}
