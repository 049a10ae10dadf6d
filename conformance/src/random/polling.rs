//! Running a program on a provider, beside the model.
//!
//! One thread makes every call, in the program's order; what is at once is the provider's own doing, and that is a
//! lot: operations are in flight on every connection, in both directions, while the thread posts and looks at others.
//! When the program has ended, the executor brings everything to an end, so that the last word is always a strict one:
//! missing receives are posted, each connection is brought to rest by a fenced empty message in each direction, every byte
//! of every memory is looked at, everything is dropped, and looked at once more.

mod drain;
mod regions;

use std::collections::HashMap;
use std::net::SocketAddr;

use fabric::{
    BatchError, CompletionQueue, Endpoint, EndpointAttr, EndpointBuilder, EndpointId, Error, Op,
    Recv, SharedReceiveAttr, SharedReceiveQueue, Slice, Slices,
};

use super::executor::{Executor, Running};
use super::model::CompletionOf;
use super::program::{DOMAINS, Local, OpSpec, Part, Program, SharedSpec, Step, What};
use super::testbed::Bench;
use crate::check::{Failed, Outcome};
use crate::element::operation;
use crate::pattern::Pattern;

/// A program that is running.
pub(super) struct Polling<'a> {
    run: Running<'a>,
    /// By domain.
    queues: Vec<CompletionQueue>,
    ends: Vec<Option<Endpoint>>,
    shared: Vec<Option<SharedReceiveQueue>>,
    names: HashMap<(usize, EndpointId), CompletionOf>,
}

impl<'a> Executor<'a> for Polling<'a> {
    fn running(&mut self) -> &mut Running<'a> {
        &mut self.run
    }

    fn act(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Connect(connection) => return self.connect(*connection),
            Step::Free(at) => return self.free(*at),
            Step::Probe { end, region } => return self.probe(*end, *region),
            Step::Post { end, ops } => return self.post(*end, ops),
            Step::Receive { end, recvs } => return self.receive(*end, recvs),
            Step::Share { queue, recvs } => return self.share(*queue, recvs),
            Step::Poll { end, max } => return self.poll(*end, *max).map(drop),
            Step::Disconnect(end) => {
                if let Some(Some(endpoint)) = self.ends.get(*end)
                    && self.run.model.is_connected(*end)
                {
                    endpoint.disconnect();
                    self.run.model.disconnected(*end);
                }
            }
            Step::Drop(end) => {
                if let Some(endpoint) = self.ends.get_mut(*end).and_then(Option::take) {
                    drop(endpoint);
                    self.run.model.dropped(*end);
                }
            }
            Step::DropShared(queue) => {
                if let Some(receives) = self.shared.get_mut(*queue).and_then(Option::take) {
                    drop(receives);
                    self.run.model.shared_dropped(*queue);
                }
            }
            // Executed already.
            _ => {}
        }
        Ok(())
    }

    fn grant(&mut self, at: usize) -> Outcome {
        let Running { memories, model, .. } = &mut self.run;
        let Some(part) = memories.grantable(model, at) else { return Ok(()) };
        let Some(Some(endpoint)) = self.ends.get(part.end) else { return Ok(()) };
        let result = part.region.grant(endpoint, part.range, part.access);
        memories.granted(model, at, result)
    }

    fn progress(&mut self, end: usize) -> Result<bool, Failed> {
        self.poll(end, usize::MAX)
    }

    fn dump(&self) -> String {
        let ends = self.ends.iter().enumerate();
        let ends = ends.filter_map(|(i, end)| Some(format!("e{i}: {}", end.as_ref()?.dump())));
        ends.collect::<Vec<_>>().join("\n")
    }

    fn drain(&mut self) -> Outcome {
        self.drain_all()
    }

    fn close(&mut self) -> Outcome {
        self.drop_all()
    }
}

impl<'a> Polling<'a> {
    pub(super) fn new(
        bench: &'a Bench,
        program: &'a Program,
        trace: &'a mut Vec<String>,
    ) -> Result<Self, Failed> {
        let run = Running::new(bench, program, trace)?;
        let mut rooms = [1; DOMAINS];
        for (at, end) in program.connections.iter().flatten().enumerate() {
            let recv_depth = if program.shared_by(at).is_some() { 0 } else { end.recv_depth };
            rooms[end.domain] += end.send_depth + recv_depth;
        }
        program.shared.iter().for_each(|queue| rooms[queue.domain] += queue.depth);
        let queues = bench.domains.iter().zip(rooms);
        let queues: Vec<_> =
            queues.map(|(domain, room)| domain.completion_queue(room)).collect::<Result<_, _>>()?;
        let (mut shared, mut ends, mut names) = (Vec::new(), Vec::new(), HashMap::new());
        for (at, SharedSpec { domain, depth, segments }) in program.shared.iter().enumerate() {
            let mut attr = SharedReceiveAttr::new(*depth);
            attr.segments = *segments;
            let receives =
                bench.domains[*domain].shared_receive_queue_with(&attr, &queues[*domain])?;
            names.insert((*domain, receives.id()), CompletionOf::Shared(at));
            shared.push(Some(receives));
        }
        for (at, spec) in program.connections.iter().flatten().enumerate() {
            let mut attr = EndpointAttr::default();
            (attr.send_depth, attr.recv_depth) = (spec.send_depth, spec.recv_depth);
            (attr.send_segments, attr.recv_segments) = (spec.segments, spec.segments);
            (attr.inject, attr.connect_timeout) = (spec.inject, bench.timeout());
            let receives = program.shared_by(at).and_then(|queue| shared[queue].as_ref());
            let builder = bench.domains[spec.domain].endpoint().attr(attr);
            let builder = receives.into_iter().fold(builder, EndpointBuilder::shared_receives);
            let endpoint = builder.build(&queues[spec.domain])?;
            names.insert((spec.domain, endpoint.id()), CompletionOf::End(at));
            ends.push(Some(endpoint));
        }
        Ok(Polling { run, queues, ends, shared, names })
    }

    fn connect(&mut self, connection: usize) -> Outcome {
        let (near, far) = (2 * connection, 2 * connection + 1);
        let (Some(Some(a)), Some(Some(b))) = (self.ends.get(near), self.ends.get(far)) else {
            return Ok(());
        };
        if self.run.model.is_connected(near) {
            return Ok(());
        }
        let timeout = Some(self.run.bench.timeout());
        let domain = &self.run.bench.domains[self.run.domain_of(far)];
        let listener = domain.listen(SocketAddr::new(self.run.bench.ip, 0))?;
        a.connect(listener.local_addr(), &[])?;
        listener.accept(timeout)?.accept(b, &[])?;
        a.wait_connected(timeout)?;
        b.wait_connected(timeout)?;
        self.run.model.connected(connection);
        Ok(())
    }

    fn post(&mut self, end: usize, specs: &[OpSpec]) -> Outcome {
        let specs: Vec<_> =
            specs.iter().filter(|spec| self.run.model.can_post(end, spec)).collect();
        let Some(Some(endpoint)) = self.ends.get(end) else { return Ok(()) };
        let first = self.run.next_contexts(specs.len());
        let injected: Vec<Vec<u8>> = specs.iter().map(|spec| injected(spec)).collect();
        let parts: Vec<Vec<Slice<'_>>> =
            specs.iter().map(|spec| self.run.memories.slices(spec.parts())).collect();
        let ops: Vec<Op<'_>> = specs
            .iter()
            .enumerate()
            .map(|(i, spec)| {
                let op = self.operation(spec, &parts[i], &injected[i]);
                let op = if spec.unsignaled { op.unsignaled() } else { op };
                let op = if spec.fence { op.fence() } else { op };
                let op = if spec.delivery_complete { op.delivery_complete() } else { op };
                let op = spec.immediate.map_or(op, |immediate| op.immediate(immediate));
                // It makes no difference that the model knows of.
                let context = first + i as u64;
                let op = if context.is_multiple_of(3) { op.lazy() } else { op };
                op.context(context)
            })
            .collect();
        let result = match ops.as_slice() {
            [] => return Ok(()),
            [one] => endpoint.post(one).map_err(|error| (0, error)),
            all => endpoint.post_batch(all).map_err(|batch| (batch.posted, batch.error)),
        };
        self.run.posted(result, specs.len(), |model, i, result| {
            model.posted(end, specs[i], &injected[i], first + i as u64, result)
        })
    }

    fn operation<'b>(&self, spec: &OpSpec, parts: &'b [Slice<'b>], injected: &'b [u8]) -> Op<'b> {
        let at = |to| self.run.memories.place(to);
        let inject = matches!(spec.local, Local::Inject { .. });
        match &spec.what {
            What::Send if inject => Op::inject(injected),
            What::Send => Op::send(parts),
            What::Write(to) if inject => Op::inject_write(injected, at(to)),
            What::Write(to) => Op::write(parts, at(to)),
            What::Read(from) => Op::read(parts, at(from)),
            What::Atomic { to, call, fetch } => {
                let old = parts.first().copied().filter(|_| *fetch);
                operation(call, old, at(to))
            }
        }
    }

    fn receive(&mut self, end: usize, recvs: &[Vec<Part>]) -> Outcome {
        let lists: Vec<_> =
            recvs.iter().filter(|parts| self.run.model.can_receive(end, parts)).collect();
        let Some(Some(endpoint)) = self.ends.get(end) else { return Ok(()) };
        let first = self.run.next_contexts(lists.len());
        let result = self.post_recvs(&lists, first, |posts| endpoint.post_recvs(posts));
        self.run.posted(result, lists.len(), |model, i, result| {
            model.received(end, lists[i], first + i as u64, result)
        })
    }

    fn share(&mut self, queue: usize, recvs: &[Vec<Part>]) -> Outcome {
        let lists: Vec<_> =
            recvs.iter().filter(|parts| self.run.model.can_share(queue, parts)).collect();
        let Some(Some(receives)) = self.shared.get(queue) else { return Ok(()) };
        let first = self.run.next_contexts(lists.len());
        let result = self.post_recvs(&lists, first, |posts| receives.post_recvs(posts));
        self.run.posted(result, lists.len(), |model, i, result| {
            model.shared_received(queue, lists[i], first + i as u64, result)
        })
    }

    fn post_recvs(
        &self,
        lists: &[&Vec<Part>],
        first: u64,
        post: impl FnOnce(&[Recv<'_>]) -> Result<(), BatchError>,
    ) -> Result<(), (usize, Error)> {
        let parts: Vec<Vec<Slice<'_>>> =
            lists.iter().map(|parts| self.run.memories.slices(parts)).collect();
        let posts: Vec<Recv<'_>> = (first..)
            .zip(&parts)
            .map(|(context, parts)| Recv::new(Slices::from(parts.as_slice()), context))
            .collect();
        post(&posts).map_err(|batch| (batch.posted, batch.error))
    }
}

fn injected(spec: &OpSpec) -> Vec<u8> {
    match spec.local {
        Local::Inject { len, salt } => Pattern::new(salt).bytes(len),
        Local::Parts(_) => Vec::new(),
    }
}
