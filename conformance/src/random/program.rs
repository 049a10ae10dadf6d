//! A program as data: what it is made of, how it is stored and how it is printed.
//!
//! Every reference is an index, and a step whose references lead nowhere (to a region that is not registered yet, or
//! to an endpoint that is gone) does nothing. So any part of a program is a program, which is what shrinking needs.

#![allow(missing_docs)] // of fields whose names say what they are, in variants whose docs say the rest

use std::fmt;

use fabric::provider::AtomicCall;
use fabric::{Access, AtomicOp, OpKind, RemoteRegion};
use serde::{Deserialize, Serialize};

use crate::forge::{forged_access, forged_key, forged_range};

/// Domains that programs use.
pub(super) const DOMAINS: usize = 3;

/// A program: what there is, and what happens to it, step by step on one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Memories, each of one domain. Bytes that nothing is allowed to change are guard bytes.
    pub memories: Vec<MemorySpec>,
    /// Regions, and grants behind those that they are of; none is there before its [`Step::Register`].
    pub regions: Vec<RegionSpec>,
    /// Receive queues that ends share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedSpec>,
    /// Connections; each has two ends, numbered `2 * connection` and one more.
    pub connections: Vec<[EndSpec; 2]>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySpec {
    /// The domain whose regions lie in it.
    pub domain: usize,
    /// Bytes.
    pub len: usize,
}

/// A region, before it is registered; or a grant, which is a part of a region with a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSpec {
    /// The memory that it is part of.
    pub memory: usize,
    /// Its first byte there.
    pub start: usize,
    /// Bytes.
    pub len: usize,
    /// Its rights.
    #[serde(with = "rights")]
    pub access: Access,
    /// What it is a grant of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantSpec>,
}

/// What a grant is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantSpec {
    /// The region, of the same memory.
    pub region: usize,
    /// The end to whose peer it is open.
    pub end: usize,
}

/// A receive queue that ends share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSpec {
    /// Its domain.
    pub domain: usize,
    /// Receives that it holds.
    pub depth: usize,
    /// Most segments of a receive.
    pub segments: usize,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSpec {
    /// Its domain.
    pub domain: usize,
    /// Depth of the send queue.
    pub send_depth: usize,
    /// Depth of the receive queue.
    pub recv_depth: usize,
    /// Most segments, of sends and receives.
    pub segments: usize,
    /// Most bytes of an inject.
    pub inject: usize,
    /// The queue that it takes receives from, instead of one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<usize>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Connects the two ends of a connection.
    Connect(usize),
    /// Registers a region, or opens a grant.
    Register(usize),
    /// Closes a region, or revokes a grant.
    Close(usize),
    /// Closes a region that operations without a completion may still use, until it is closed.
    Free(usize),
    /// Drops the handle of a region or grant.
    Forget(usize),
    /// Has an end access a region of the peer's whose handle was dropped, until that is refused.
    Probe { end: usize, region: usize },
    /// The CPU writes a pattern into a memory.
    Store { memory: usize, at: usize, len: usize, salt: u64 },
    /// The CPU looks at every byte of a memory.
    Look(usize),
    /// Posts operations to an end's send queue: one, or several in a batch.
    Post { end: usize, ops: Vec<OpSpec> },
    /// Posts receives, each a list of local slices.
    Receive { end: usize, recvs: Vec<Vec<Part>> },
    /// Posts receives to a shared queue.
    Share { queue: usize, recvs: Vec<Vec<Part>> },
    /// Takes up to so many completions, if they are there.
    Poll {
        end: usize,
        #[serde(rename = "most")]
        max: usize,
    },
    /// Waits, polling the queue of this end alone, until every completion that is due there has come.
    Wait(usize),
    /// Ends a connection from one side.
    Disconnect(usize),
    /// Drops an endpoint.
    Drop(usize),
    /// Drops the handle of a shared queue.
    DropShared(usize),
}

/// Part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The region.
    pub region: usize,
    /// From where on.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

/// An operation of the send queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpSpec {
    /// What it does.
    pub what: What,
    /// The bytes on this side.
    pub local: Local,
    /// Immediate data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immediate: Option<u32>,
    /// No completion if it succeeds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unsignaled: bool,
    /// It waits for earlier reads and atomics.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fence: bool,
    /// Its completion says that everybody sees the bytes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub delivery_complete: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Sends a message.
    Send,
    /// Writes to the peer's memory.
    Write(Remote),
    /// Reads the peer's memory.
    Read(Remote),
    /// Executes an atomic operation on the peer's memory.
    Atomic { to: Remote, call: AtomicCall, fetch: bool },
}

/// The bytes of an operation on the initiator's side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Local {
    /// In regions.
    Parts(Vec<Part>),
    /// A pattern, injected.
    Inject { len: usize, salt: u64 },
}

/// A place in a region of the peer's, as the initiator's descriptor has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The region.
    pub region: usize,
    /// The offset in the descriptor's range.
    pub at: usize,
    /// How the descriptor lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lie: Option<Lie>,
}

/// How a descriptor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lie {
    /// Its key opens nothing.
    Key,
    /// Its range begins so many bytes too early.
    Before(usize),
    /// Its range ends so many bytes too late.
    After(usize),
    /// It claims every right.
    Rights,
}

impl Program {
    pub(super) fn is_grant(&self, region: usize) -> bool {
        self.regions.get(region).is_some_and(|spec| spec.grant.is_some())
    }

    /// The shared queue that an end takes its receives from.
    pub(super) fn shared_by(&self, end: usize) -> Option<usize> {
        let EndSpec { domain, shared, .. } = self.connections.get(end / 2)?[end % 2];
        shared.filter(|queue| self.shared.get(*queue).is_some_and(|spec| spec.domain == domain))
    }

    /// The program without shared queues: each end has receives of its own, and those of the queues are gone.
    pub(super) fn without_shared(&self) -> Program {
        let mut new = self.clone();
        new.shared.clear();
        new.connections.iter_mut().flatten().for_each(|end| end.shared = None);
        new.steps.retain(|step| !matches!(step, Step::Share { .. } | Step::DropShared(_)));
        new
    }

    /// The memories of a domain, with their numbers.
    pub(super) fn memories_of(&self, domain: usize) -> impl Iterator<Item = (usize, &MemorySpec)> {
        self.memories.iter().enumerate().filter(move |memory| memory.1.domain == domain)
    }
}

impl Remote {
    /// The descriptor that the initiator uses.
    pub(super) fn descriptor(&self, honest: &RemoteRegion) -> RemoteRegion {
        match self.lie {
            None => *honest,
            // Keys of registered regions are small numbers or random; neither has this neighbour.
            Some(Lie::Key) => forged_key(honest, !honest.key()),
            Some(Lie::Before(bytes)) => forged_range(honest, bytes as u64, 0),
            Some(Lie::After(bytes)) => forged_range(honest, 0, bytes as u64),
            Some(Lie::Rights) => forged_access(honest, Access::REMOTE),
        }
    }

    /// Where it really is, counted from the region's first byte.
    pub(super) fn offset(&self) -> i64 {
        let before = if let Some(Lie::Before(bytes)) = self.lie { bytes as i64 } else { 0 };
        self.at as i64 - before
    }
}

impl OpSpec {
    /// One without flags.
    pub(super) fn plain(what: What, local: Local) -> Self {
        let (immediate, unsignaled, fence, delivery_complete) = (None, false, false, false);
        OpSpec { what, local, immediate, unsignaled, fence, delivery_complete }
    }

    /// Bytes that it moves.
    pub(super) fn len(&self) -> usize {
        match (&self.what, &self.local) {
            (What::Atomic { fetch: false, .. }, _) => 0,
            (_, Local::Parts(parts)) => parts.iter().map(|part| part.len).sum(),
            (_, Local::Inject { len, .. }) => *len,
        }
    }

    /// What its completion says that it is.
    pub(super) fn kind(&self) -> OpKind {
        match self.what {
            What::Send => OpKind::Send,
            What::Write(_) => OpKind::Write,
            What::Read(_) => OpKind::Read,
            What::Atomic { .. } => OpKind::Atomic,
        }
    }

    /// Where it goes on the other side.
    pub(super) fn remote(&self) -> Option<&Remote> {
        match &self.what {
            What::Send => None,
            What::Write(to) | What::Read(to) | What::Atomic { to, .. } => Some(to),
        }
    }

    /// The regions' parts on this side.
    pub(super) fn parts(&self) -> &[Part] {
        match &self.local {
            Local::Parts(parts) => parts,
            Local::Inject { .. } => &[],
        }
    }

    /// Whether it takes one of the peer's receives.
    pub(super) fn takes_receive(&self) -> bool {
        match self.what {
            What::Send => true,
            What::Write(_) => self.immediate.is_some(),
            _ => false,
        }
    }
}

/// Rights as letters: local write, remote read, remote write, remote atomic.
mod rights {
    use fabric::Access;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) const LETTERS: [(char, Access); 4] = [
        ('l', Access::LOCAL_WRITE),
        ('r', Access::REMOTE_READ),
        ('w', Access::REMOTE_WRITE),
        ('a', Access::REMOTE_ATOMIC),
    ];

    pub(super) fn letters(access: Access) -> String {
        LETTERS.iter().filter(|letter| access.contains(letter.1)).map(|letter| letter.0).collect()
    }

    pub(super) fn serialize<S: Serializer>(access: &Access, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&letters(*access))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Access, D::Error> {
        let text = String::deserialize(from)?;
        text.chars().try_fold(Access::empty(), |all, char| {
            let known = LETTERS.iter().find(|letter| letter.0 == char);
            known
                .map(|letter| all | letter.1)
                .ok_or_else(|| D::Error::custom(format!("no right {char:?}")))
        })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, MemorySpec { domain, len }) in self.memories.iter().enumerate() {
            writeln!(f, "memory m{i}: {len} bytes of domain {domain}")?;
        }
        for (i, RegionSpec { memory, start, len, access, grant }) in self.regions.iter().enumerate()
        {
            let (rights, end) = (rights::letters(*access), start + len);
            write!(f, "region r{i}: m{memory}[{start}..{end}] rights {rights:?}")?;
            match grant {
                Some(GrantSpec { region, end }) => writeln!(f, ", a grant of r{region} to e{end}")?,
                None => writeln!(f)?,
            }
        }
        for (i, SharedSpec { domain, depth, segments }) in self.shared.iter().enumerate() {
            writeln!(f, "shared queue s{i}: domain {domain}, depth {depth}, {segments} segments")?;
        }
        for (i, end) in self.connections.iter().flatten().enumerate() {
            let EndSpec { domain, send_depth, recv_depth, segments, inject, .. } = end;
            write!(
                f,
                "end e{i} of connection {}: domain {domain}, depths {send_depth} and {recv_depth}, \
                 {segments} segments, inject {inject}",
                i / 2
            )?;
            match self.shared_by(i) {
                Some(queue) => writeln!(f, ", receives of s{queue}")?,
                None => writeln!(f)?,
            }
        }
        for (i, step) in self.steps.iter().enumerate() {
            writeln!(f, "{i:3}  {step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Connect(connection) => write!(f, "connect {connection}"),
            Step::Register(region) => write!(f, "register r{region}"),
            Step::Close(region) => write!(f, "close r{region}"),
            Step::Free(region) => write!(f, "close r{region}, until it is"),
            Step::Forget(region) => write!(f, "drop r{region}"),
            Step::Probe { end, region } => write!(f, "e{end}: access r{region}, until refused"),
            Step::Store { memory, at, len, salt } => {
                write!(f, "store m{memory}[{at}..{}], pattern {salt:x}", at + len)
            }
            Step::Look(memory) => write!(f, "look at m{memory}"),
            Step::Post { end, ops } => {
                let ops: Vec<_> = ops.iter().map(ToString::to_string).collect();
                write!(f, "e{end}: {}", ops.join("; "))
            }
            Step::Receive { end, recvs } => write!(f, "e{end}: {}", receives(recvs)),
            Step::Share { queue, recvs } => write!(f, "s{queue}: {}", receives(recvs)),
            Step::Poll { end, max } => write!(f, "e{end}: poll {max}"),
            Step::Wait(end) => write!(f, "e{end}: wait"),
            Step::Disconnect(end) => write!(f, "e{end}: disconnect"),
            Step::Drop(end) => write!(f, "e{end}: drop"),
            Step::DropShared(queue) => write!(f, "s{queue}: drop"),
        }
    }
}

fn receives(recvs: &[Vec<Part>]) -> String {
    let recvs: Vec<_> = recvs.iter().map(|parts| format!("receive {}", list(parts))).collect();
    recvs.join("; ")
}

fn list(parts: &[Part]) -> String {
    let part = |part: &Part| format!("r{}[{}..{}]", part.region, part.at, part.at + part.len);
    match parts {
        [] => "nothing".to_owned(),
        parts => parts.iter().map(part).collect::<Vec<_>>().join("+"),
    }
}

impl fmt::Display for OpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = match &self.local {
            Local::Parts(parts) => list(parts),
            Local::Inject { len, salt } => format!("{len} injected bytes, pattern {salt:x}"),
        };
        match &self.what {
            What::Send => write!(f, "send {local}")?,
            What::Write(to) => write!(f, "write {local} to {to}")?,
            What::Read(from) => write!(f, "read {from} into {local}")?,
            What::Atomic { to, call: AtomicCall { op, ty, operand, compare }, fetch } => {
                write!(f, "{op} {ty} {operand:#x}")?;
                if *op == AtomicOp::CompareSwap {
                    write!(f, " for {compare:#x}")?;
                }
                write!(f, " at {to}")?;
                if *fetch {
                    write!(f, " fetching into {local}")?;
                }
            }
        }
        if let Some(immediate) = self.immediate {
            write!(f, " immediate {immediate:#x}")?;
        }
        let flags = [
            (self.fence, " fence"),
            (self.delivery_complete, " delivery-complete"),
            (self.unsignaled, " unsignaled"),
        ];
        flags.iter().filter(|flag| flag.0).try_for_each(|flag| f.write_str(flag.1))
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}+{}", self.region, self.at)?;
        match self.lie {
            None => Ok(()),
            Some(Lie::Key) => f.write_str(" (forged key)"),
            Some(Lie::Before(bytes)) => write!(f, " (descriptor begins {bytes} too early)"),
            Some(Lie::After(bytes)) => write!(f, " (descriptor ends {bytes} too late)"),
            Some(Lie::Rights) => f.write_str(" (forged rights)"),
        }
    }
}
