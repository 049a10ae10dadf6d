//! The contract as an executable model.
//!
//! The model runs beside a program and sees everything that the program does and sees: each call and what it
//! returned, each completion, each event, each byte that the CPU read. It answers whether the contract allows that.
//! Where the contract leaves freedom the model keeps all that is possible, as sets, and goes on from there. It never
//! looks at the provider, and has no clock: *when* something must have come is for the runner, which asks
//! [`owed`](Model::owed).
//!
//! Read as a specification, by file:
//!
//! | file | the rules in it |
//! |---|---|
//! | `order` | which operations of one queue take effect in order, and what fences do |
//! | `bytes`, `look` | which values a byte of memory can have: what has happened, what may have, who sees it when |
//! | `word` | atomics: one after the other, with their results |
//! | `shared` | receives for several ends: which messages may take one, and must |
//! | `queue` | when an operation can begin: behind unmatched sends nothing does |
//! | `grant` | parts of regions that are open to one connection |
//! | `target` | what the target does with it: range, key and rights; too long a message; regions that close |
//! | `call` | what a call returns: local mistakes, depth, `Busy`, `NotConnected` |
//! | `completion` | how an operation ends: status, length, immediate, order, exactly once |
//! | `unheard` | when operations without a completion let their regions go |
//! | `ending` | how a connection ends: what each side sees of it, and when nothing of it is to come |
//!
//! Three readings of the contract are worth knowing, since its text leaves them to the reader:
//! - What was accepted but is not yet visible to everybody may be found or not, by the CPU and by other endpoints.
//! - What ended `Canceled` may still take effect, until the target's side has noticed the end of the connection, or
//!   the region is closed; never after that.
//! - While atomics and plain writes meet on one word, any value of it is allowed, until the CPU has looked at it
//!   with nothing under way.

mod bytes;
mod call;
mod completion;
mod ending;
mod grant;
mod look;
mod order;
mod queue;
mod shared;
mod target;
mod unheard;
mod word;

use std::collections::BTreeMap;

use fabric::{Error, OpKind};

pub(super) use bytes::ByteRange;
use bytes::Bytes;
use queue::{EndModel, Fate, Received, Sent, SharedModel};

use super::program::{EndSpec, Local, OpSpec, Part, Program, RegionSpec, What};
use crate::check::{Failed, Outcome};

/// Where a region stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Not registered yet.
    Absent,
    Open,
    /// Closed; its handle is there.
    Closed,
    /// Its handle was dropped, and operations may still use it.
    Leaving,
    /// Closed; its handle was dropped.
    Gone,
}

#[derive(Debug)]
struct Region {
    spec: RegionSpec,
    domain: usize,
    life: Life,
    /// Since it closed, its domain has registered memory: the same key may open that.
    key_may_return: bool,
}

/// Which queue an operation was posted to, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Posted {
    Send { end: usize, index: usize },
    Recv { end: usize, index: usize },
    Shared { queue: usize, index: usize },
}

/// Whose completion it is, by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionOf {
    End(usize),
    Shared(usize),
}

impl std::fmt::Display for CompletionOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompletionOf::End(end) => write!(f, "e{end}"),
            CompletionOf::Shared(queue) => write!(f, "s{queue}"),
        }
    }
}

/// How the CPU reads memory when the model wants to know a byte at once.
pub(super) type Eyes<'a> = &'a dyn Fn(ByteRange) -> Vec<u8>;

/// The model of one run of one program.
#[derive(Debug)]
pub(super) struct Model {
    now: u64,
    regions: Vec<Region>,
    ends: Vec<EndModel>,
    shared: Vec<SharedModel>,
    bytes: Bytes,
    contexts: BTreeMap<u64, Posted>,
    unique_keys: bool,
}

impl Model {
    /// The beginning: memories hold `initial`, each is one region more, with local rights only, behind those of the
    /// program; nothing is registered or connected.
    pub(super) fn new(program: &Program, initial: Vec<Vec<u8>>, unique_keys: bool) -> Self {
        let domain = |memory: usize| program.memories[memory].domain;
        let region = |spec: RegionSpec, life| Region {
            spec,
            domain: domain(spec.memory),
            life,
            key_may_return: false,
        };
        let own = program.regions.iter().map(|spec| region(*spec, Life::Absent));
        let whole = initial.iter().enumerate().map(|(memory, bytes)| {
            let (start, len, access) = (0, bytes.len(), fabric::Access::LOCAL_WRITE);
            region(RegionSpec { memory, start, len, access, grant: None }, Life::Open)
        });
        let regions = own.chain(whole).collect();
        let specs = program.connections.iter().flatten().enumerate();
        let end = |(at, spec): (usize, &EndSpec)| EndModel::new(*spec, program.shared_by(at));
        let ends: Vec<_> = specs.map(end).collect();
        let shared = SharedModel::all(program);
        let bytes = Bytes::new(initial, ends.len());
        Model { now: 1, regions, ends, shared, bytes, contexts: BTreeMap::new(), unique_keys }
    }

    /// A moment has passed; gives the new one.
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Where in their memories the parts of regions are.
    pub(super) fn runs(&self, parts: &[Part]) -> Vec<ByteRange> {
        let run = |part: &Part| {
            let spec = &self.regions[part.region].spec;
            ByteRange { memory: spec.memory, start: spec.start + part.at, len: part.len }
        };
        parts.iter().filter(|part| part.len > 0).map(run).collect()
    }

    /// Both ends of a connection know that it is established.
    pub(super) fn connected(&mut self, connection: usize) {
        self.tick();
        self.ends[2 * connection].connected = true;
        self.ends[2 * connection + 1].connected = true;
    }

    /// The CPU has stored bytes.
    pub(super) fn stored(&mut self, memory: usize, at: usize, bytes: Vec<u8>) {
        let now = self.tick();
        self.bytes.store(ByteRange { memory, start: at, len: bytes.len() }, bytes, now);
    }

    /// The CPU sees these bytes.
    pub(super) fn looked(&mut self, run: ByteRange, seen: &[u8]) -> Outcome {
        let now = self.tick();
        self.bytes.look(run, seen, now)
    }

    /// An operation was posted; `injected` are its bytes if it is an inject. Says whether it was taken.
    pub(super) fn posted(
        &mut self,
        end: usize,
        spec: &OpSpec,
        injected: &[u8],
        context: u64,
        result: Result<(), &Error>,
    ) -> Result<bool, Failed> {
        let now = self.tick();
        if !self.send_refusals(end, spec).check(&format!("e{end}: {spec}"), result)? {
            self.refused(end, result);
            return Ok(false);
        }
        let first = matches!(spec.what, What::Send | What::Write(_));
        let id = self.bytes.order.push(end, first, spec.fence);
        // The bytes of sends and writes are taken at any moment from now on.
        let effect = match (&spec.local, first) {
            (Local::Inject { .. }, true) => Some(self.bytes.known(id, injected.to_vec())),
            (Local::Parts(parts), true) => {
                let from = self.runs(parts);
                Some(self.bytes.taken(id, from, now))
            }
            _ => None,
        };
        let queue = &mut self.ends[end];
        let message = spec.takes_receive().then_some(queue.messages.len());
        queue.messages.extend(message.map(|_| id.index));
        let spec = spec.clone();
        let (started, early, word, landing) = (false, None, None, Vec::new());
        let may_have_started = false;
        let (fate, done, taken) = (Fate::Good, false, false);
        queue.sends.push(Sent {
            id,
            posted: now,
            spec,
            message,
            started,
            may_have_started,
            fate,
            early,
            effect,
            word,
            landing,
            done,
            taken,
        });
        self.contexts.insert(context, Posted::Send { end, index: id.index });
        self.advance(end);
        self.cover_shared();
        Ok(true)
    }

    /// A receive was posted. Says whether it was taken.
    pub(super) fn received(
        &mut self,
        end: usize,
        parts: &[Part],
        context: u64,
        result: Result<(), &Error>,
    ) -> Result<bool, Failed> {
        self.tick();
        if !self.recv_refusals(end, parts).check(&format!("a receive of e{end}"), result)? {
            self.refused(end, result);
            return Ok(false);
        }
        let runs = self.runs(parts);
        let regions = parts.iter().filter(|part| part.len > 0).map(|part| part.region).collect();
        let queue = &mut self.ends[end];
        let index = queue.recvs.len();
        queue.recvs.push(Received { runs, regions, taken: false });
        self.contexts.insert(context, Posted::Recv { end, index });
        self.advance(end ^ 1);
        Ok(true)
    }

    /// A post that was refused because the connection is over says that this side knows.
    fn refused(&mut self, end: usize, result: Result<(), &Error>) {
        if self.ends[end].connected && matches!(result, Err(Error::NotConnected)) {
            self.notice(end);
        }
    }

    /// Whether the program has an end that is connected, or was.
    pub(super) fn is_connected(&self, end: usize) -> bool {
        self.ends[end].connected
    }

    /// Whether an end has noticed that its connection is over.
    pub(super) fn is_dead(&self, end: usize) -> bool {
        self.ends[end].dead
    }

    /// What comes to this end next, if its peer has sent it: `Recv` or `RecvWrite`.
    pub(super) fn arrival(&self, end: usize) -> Option<OpKind> {
        let peer = &self.ends[end ^ 1];
        let index = self.ends[end].recvs.iter().position(|recv| !recv.taken)?;
        let writes = peer.sends[*peer.messages.get(index)?].spec.what != What::Send;
        Some(if writes { OpKind::RecvWrite } else { OpKind::Recv })
    }

    /// Whether messages of this end wait for receives of the peer's that were not posted.
    pub(super) fn wants_receives(&self, end: usize) -> bool {
        self.ends[end ^ 1].shared.is_none()
            && self.ends[end].messages.len() > self.ends[end ^ 1].recvs.len()
    }

    /// Whether a receive is there for the next message of this end.
    pub(super) fn has_receive(&self, end: usize) -> bool {
        self.surely_takes(end, self.ends[end].messages.len())
    }

    /// How many completions must come at this end, whatever else happens.
    pub(super) fn owed(&self, at: usize) -> usize {
        let end = &self.ends[at];
        let all = end.dropped || self.must_end(at);
        let sends = end.sends.iter().filter(|op| !op.taken && !op.spec.unsignaled);
        let due = self.due(at);
        let sends = sends.filter(|op| all || op.id.index < due).count();
        let peer = &self.ends[at ^ 1];
        let matched =
            |index: usize| peer.messages.get(index).is_some_and(|&op| peer.sends[op].started);
        let recvs = end.recvs.iter().enumerate().filter(|(_, recv)| !recv.taken);
        let recvs = recvs.filter(|(index, _)| all || matched(*index)).count();
        sends + recvs + self.owed_shared(at)
    }
}
