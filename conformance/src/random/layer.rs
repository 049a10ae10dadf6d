//! Running a program through the asynchronous layer, beside the same model.
//!
//! The layer does some things by itself, so a program is [adapted](adapted) to it: receives are posted ahead, of one length, and
//! what arrives waits in an inbox; an operation has buffers of its own, with the bytes that were in the program's memory
//! when it was made; each reports how it ended. To the model that is a program with receives into a memory of their own, and
//! with injected bytes. One thread polls all futures by hand, those of one end in the order of their operations, so their
//! ends come as completions would.

mod adapted;
mod drain;

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fabric::provider::AtomicCall;
use fabric::{AtomicOp, AtomicScalar, OpKind, RemoteSlice};
use fabric_async::{
    Atomic, Buffer, Connection, Error, Node, Operation, Payload, WaitStrategy, block_on,
};
use futures_util::future::try_join;

use self::adapted::{DEPTH, MESSAGE, RECEIVES, SEGMENTS, SLOTS, adapted};
use super::executor::{Executor, Running, brief};
use super::program::{Local, OpSpec, Part, Program, Step, What};
use super::testbed::Bench;
use crate::check::{Failed, Outcome};
use crate::element::{by_type, element};
use crate::pattern::Pattern;

/// Runs a program to its end; of the nodes there is one on each domain of the bench.
pub(super) fn execute(
    bench: &Bench,
    nodes: &[Node],
    program: &Program,
    trace: &mut Vec<String>,
) -> Outcome {
    let program = adapted(program);
    let run = Running::new(bench, &program, trace)?;
    let sides = (0..run.ends()).map(|_| LayerEnd::default()).collect();
    Layered { run, nodes, sides, held: Vec::new() }.execute()
}

/// A node on each domain, each with another way of waiting.
pub(super) fn nodes(bench: &Bench) -> Result<Vec<Node>, Error> {
    let ways = [WaitStrategy::Adaptive, WaitStrategy::Busy, WaitStrategy::Blocking];
    let node = |(domain, wait)| {
        Node::builder()
            .wait(wait)
            .leases(false)
            .connect_timeout(bench.timeout())
            .send_depth(DEPTH)
            .segments(SEGMENTS)
            .receives(RECEIVES)
            .notifications(RECEIVES)
            .max_message(MESSAGE)
            .build_on(domain)
    };
    bench.domains.iter().zip(ways).map(node).collect()
}

/// The future of an operation: the bytes that it brings, if any.
type Flight = Pin<Box<dyn Future<Output = Ended>>>;
type Ended = Result<Vec<u8>, Error>;

/// An operation under way.
struct Flying {
    context: u64,
    spec: OpSpec,
    flight: Flight,
    /// Set when it ended as it was posted.
    ended: Option<Ended>,
}

/// One end of a connection.
#[derive(Default)]
struct LayerEnd {
    conn: Option<Connection>,
    flying: VecDeque<Flying>,
    /// The receives that the layer has, as the model knows them: their contexts, and where each message lands.
    receives: VecDeque<(u64, Part)>,
    /// Nothing more arrives.
    over: bool,
    /// The end of the connection was reported.
    end_reported: bool,
}

/// A message or notification: kind, length, immediate data.
type Landed = (OpKind, usize, Option<u32>);

/// A program that is running.
struct Layered<'a> {
    run: Running<'a>,
    nodes: &'a [Node],
    sides: Vec<LayerEnd>,
    /// Futures that are not polled any more.
    held: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

fn poll<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()))
}

impl<'a> Executor<'a> for Layered<'a> {
    fn running(&mut self) -> &mut Running<'a> {
        &mut self.run
    }

    fn act(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Connect(connection) => self.connect(*connection),
            // Its operations have regions of their own, so nothing holds those of the program.
            Step::Free(at) => self.run.memories.close(&mut self.run.model, *at),
            Step::Post { end, ops } => ops.iter().try_for_each(|op| self.post(*end, op)),
            Step::Poll { end, max } => {
                for _ in 0..*max {
                    if !self.take(*end)? {
                        break;
                    }
                }
                Ok(())
            }
            Step::Disconnect(end) | Step::Drop(end) => self.close_end(*end),
            // Receives are the layer's own; what was dropped is gone at once; the rest is executed already.
            _ => Ok(()),
        }
    }

    fn grant(&mut self, at: usize) -> Outcome {
        let Some(part) = self.run.memories.grantable(&self.run.model, at) else { return Ok(()) };
        let end = part.end;
        let Some(conn) = self.sides.get(end).and_then(|side| side.conn.as_ref()) else {
            return Ok(());
        };
        let result = match block_on(conn.grant(part.region, part.range, part.access)) {
            Ok(grant) => Ok(grant),
            Err(Error::Fabric(refusal)) => Err(refusal),
            Err(Error::Disconnected(_)) => {
                self.take_all(end)?;
                Err(fabric::Error::NotConnected)
            }
            Err(error) => return Err(Failed::new("a reason that fits", error.to_string())),
        };
        let Running { memories, model, .. } = &mut self.run;
        memories.granted(model, at, result)
    }

    /// At all ends: a side that waits for room at its peer waits for that application.
    fn progress(&mut self, _end: usize) -> Result<bool, Failed> {
        (0..self.sides.len()).try_fold(false, |any, end| Ok(self.take(end)? || any))
    }

    fn dump(&self) -> String {
        let dumps: Vec<_> = self.run.bench.domains.iter().map(|domain| domain.dump()).collect();
        dumps.join("\n")
    }

    fn drain(&mut self) -> Outcome {
        self.drain_all()
    }

    fn close(&mut self) -> Outcome {
        self.close_all()
    }
}

impl Layered<'_> {
    fn connect(&mut self, connection: usize) -> Outcome {
        let Some([near, far]) = self.run.program.connections.get(connection) else { return Ok(()) };
        if self.run.model.is_connected(2 * connection) {
            return Ok(());
        }
        let (from, to) = (&self.nodes[near.domain], &self.nodes[far.domain]);
        let both = async {
            let listener = to.listen(SocketAddr::new(self.run.bench.ip, 0)).await?;
            try_join(from.connect(listener.local_addr()), listener.accept()).await
        };
        let (a, b) = block_on(both)?;
        self.run.model.connected(connection);
        for (end, conn) in [(2 * connection, a), (2 * connection + 1, b)] {
            // In every other program something waits in front of all that is received, and is not polled again.
            if self.run.program.steps.len().is_multiple_of(2) {
                self.hold(&conn);
            }
            self.sides[end].conn = Some(conn);
            let inbox = self.run.program.memories.len() - self.sides.len() + end;
            let region = self.run.memories.whole(inbox);
            for slot in 0..SLOTS {
                self.expect(end, Part { region, at: slot * MESSAGE, len: MESSAGE })?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, conn: &Connection) {
        let (receive, notified) = (conn.recv(), conn.notified());
        let both: [Pin<Box<dyn Future<Output = ()>>>; 2] =
            [Box::pin(async { drop(receive.await) }), Box::pin(async { drop(notified.await) })];
        for mut one in both {
            if poll(&mut one).is_pending() {
                self.held.push(one);
            }
        }
    }

    /// The layer has one receive more, or may have.
    fn expect(&mut self, end: usize, place: Part) -> Outcome {
        let context = self.run.next_contexts(1);
        self.run.model.received(end, &[place], context, Ok(()))?;
        self.sides[end].receives.push_back((context, place));
        Ok(())
    }

    fn close_end(&mut self, end: usize) -> Outcome {
        if let Some(Some(conn)) = self.sides.get(end).map(|side| &side.conn) {
            conn.close();
            self.take_all(end)?;
            self.run.model.disconnected(end);
        }
        Ok(())
    }

    fn post(&mut self, end: usize, spec: &OpSpec) -> Outcome {
        if !self.run.model.can_post(end, spec) || self.sides[end].flying.len() >= DEPTH {
            return Ok(());
        }
        let Some(conn) = &self.sides[end].conn else { return Ok(()) };
        let (mut spec, bytes) = (spec.clone(), self.bytes(spec));
        if matches!(spec.what, What::Send | What::Write(_)) {
            spec.local = Local::Inject { len: bytes.len(), salt: 0 };
        }
        let mut flight = self.flight(conn, &spec, &bytes)?;
        let context = self.run.next_contexts(1);
        let ended = match poll(&mut flight) {
            Poll::Ready(Err(Error::Fabric(refusal))) => {
                self.run.note(format!("refused: {}", brief(&refusal)));
                return self.run.model.posted(end, &spec, &bytes, context, Err(&refusal)).map(drop);
            }
            // Else it may have been posted, and have come to its end at once.
            Poll::Ready(Err(Error::Disconnected(_))) if self.run.model.refuses(end, &spec) => {
                self.take_all(end)?;
                let refusal = fabric::Error::NotConnected;
                return self.run.model.posted(end, &spec, &bytes, context, Err(&refusal)).map(drop);
            }
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        };
        self.run.model.posted(end, &spec, &bytes, context, Ok(()))?;
        self.sides[end].flying.push_back(Flying { context, spec, flight, ended });
        Ok(())
    }

    /// The bytes that a send or write has in its buffer.
    fn bytes(&self, spec: &OpSpec) -> Vec<u8> {
        match (&spec.what, &spec.local) {
            (What::Send | What::Write(_), Local::Parts(parts)) => self
                .run
                .model
                .runs(parts)
                .into_iter()
                .flat_map(|run| self.run.memories.read(run))
                .collect(),
            (_, Local::Inject { len, salt }) => Pattern::new(*salt).bytes(*len),
            _ => Vec::new(),
        }
    }

    fn flight(&self, conn: &Connection, spec: &OpSpec, bytes: &[u8]) -> Result<Flight, Failed> {
        let at = |to| self.run.memories.place(to);
        let filled = || -> Result<Buffer, Error> {
            if bytes.is_empty() {
                Ok(Buffer::empty())
            } else {
                conn.node().pool().alloc_from(bytes)
            }
        };
        Ok(match (&spec.what, spec.immediate) {
            (What::Send, None) => moves(conn.send(filled()?), spec),
            (What::Send, Some(immediate)) => moves(conn.send_with(filled()?, immediate), spec),
            (What::Write(to), None) => moves(conn.write(filled()?, at(to)), spec),
            (What::Write(to), Some(immediate)) => {
                moves(conn.write_notify(filled()?, at(to), immediate), spec)
            }
            (What::Read(from), _) => {
                let parts = spec.parts().iter().map(|part| conn.alloc(part.len));
                let read = conn.read(parts.collect::<Result<Vec<_>, _>>()?, at(from));
                let operation = flagged(read, spec);
                Box::pin(async move {
                    let parts = operation.await.map_err(|failed| failed.error)?;
                    Ok(parts.iter().flat_map(|part| part.to_vec()).collect())
                })
            }
            (What::Atomic { to, call, .. }, _) => atomic(conn, call, at(to), spec.fence),
        })
    }
}

fn flagged<P: Payload>(operation: Operation<P>, spec: &OpSpec) -> Operation<P> {
    let operation = if spec.fence { operation.fence() } else { operation };
    if spec.delivery_complete { operation.delivered() } else { operation }
}

fn moves(operation: Operation<Buffer>, spec: &OpSpec) -> Flight {
    let operation = flagged(operation, spec);
    Box::pin(async move { operation.await.map(|_| Vec::new()).map_err(|failed| failed.error) })
}

fn atomic(conn: &Connection, call: &AtomicCall, at: RemoteSlice, fence: bool) -> Flight {
    fn typed<T: AtomicScalar + Unpin>(
        conn: &Connection,
        call: &AtomicCall,
        at: RemoteSlice,
        fence: bool,
    ) -> Flight {
        let (operand, compare) = (T::from_bits64(call.operand), T::from_bits64(call.compare));
        let operation: Atomic<T> = match call.op {
            AtomicOp::CompareSwap => conn.fetch_compare_swap(at, compare, operand),
            op => conn.fetch(op, at, operand),
        };
        let operation = if fence { operation.fence() } else { operation };
        Box::pin(async move { Ok(element(T::TYPE, operation.await?.to_bits64())) })
    }
    let of_type = by_type!(call.ty, typed);
    of_type(conn, call, at, fence)
}
