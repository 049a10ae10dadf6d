//! The two queues of an end, and those that ends share: what was posted, and how far each operation can have come.
//!
//! An operation of a send queue *starts*, which means that it may take effect from now on, when everything before it
//! in the queue has started, and nothing before it is refused; one that needs a receive starts when that is posted.
//! Only a write with immediate is let in earlier: while it waits for its receive, any of its bytes may be there.

use super::bytes::{ByteRange, EffectId};
use super::order::OpId;
use crate::random::program::{EndSpec, OpSpec, Program, SharedSpec};

/// What the target makes of an operation that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It executes it.
    Good,
    /// It refuses it: `RemoteAccess`.
    Refused,
    /// The message is longer than its receive: `TooLong`.
    TooLong,
    /// The region closes, or may close, meanwhile: both can be.
    Uncertain,
}

/// An operation of a send queue.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: OpId,
    pub(super) posted: u64,
    pub(super) spec: OpSpec,
    /// Its number among the operations of the queue that take a receive.
    pub(super) message: Option<usize>,
    pub(super) started: bool,
    /// It may have started: it, or one before it, takes a shared receive if no other message does.
    pub(super) may_have_started: bool,
    pub(super) fate: Fate,
    /// It has not surely started, and its bytes may be there already, or it may be refused already: it waits for its receive,
    /// or may have started.
    pub(super) early: Option<Fate>,
    /// What it does to memory: to the target's, or to its own (reads and results of atomics).
    pub(super) effect: Option<EffectId>,
    /// The word that an atomic is of.
    pub(super) word: Option<EffectId>,
    /// Where its result lands on this side.
    pub(super) landing: Vec<ByteRange>,
    /// The target has executed it.
    pub(super) done: bool,
    /// Its completion was taken, or it is known to have none.
    pub(super) taken: bool,
}

impl Sent {
    /// Whether it may still use a region on this side.
    pub(super) fn uses(&self, region: usize) -> bool {
        !self.taken && self.spec.parts().iter().any(|p| p.region == region && p.len > 0)
    }
}

/// A receive.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) runs: Vec<ByteRange>,
    pub(super) regions: Vec<usize>,
    pub(super) taken: bool,
}

impl Received {
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }
}

/// An end of a connection.
#[derive(Debug)]
pub(super) struct EndModel {
    pub(super) spec: EndSpec,
    /// The shared queue that its receives are of.
    pub(super) shared: Option<usize>,
    /// Messages whose shared receive has ended, and the last of those receives.
    pub(super) arrived: usize,
    pub(super) last_shared: Option<usize>,
    /// It was dropped, and all its completions were taken.
    pub(super) heard: bool,
    pub(super) connected: bool,
    /// This side has noticed that the connection is over: no post is taken, and nothing of the peer's executes here.
    pub(super) dead: bool,
    /// The application ended it from this side.
    pub(super) closed: bool,
    pub(super) dropped: bool,
    /// Its `Disconnected` was taken.
    pub(super) reported: bool,
    pub(super) sends: Vec<Sent>,
    pub(super) recvs: Vec<Received>,
    /// Operations of the send queue that have started.
    pub(super) started: usize,
    /// The one that the target refuses. Nothing behind it ever starts.
    pub(super) culprit: Option<usize>,
    /// Operations of the send queue that take a receive.
    pub(super) messages: Vec<usize>,
    /// An operation of the send queue, a receive, has ended badly: so do all behind it.
    pub(super) send_failed: bool,
    pub(super) recv_failed: bool,
    /// The library has had reason to find out whether its unsignaled operations have ended, and may again.
    pub(super) asked: bool,
}

impl EndModel {
    pub(super) fn new(spec: EndSpec, shared: Option<usize>) -> Self {
        EndModel {
            spec,
            shared,
            arrived: 0,
            last_shared: None,
            heard: false,
            connected: false,
            dead: false,
            closed: false,
            dropped: false,
            reported: false,
            sends: Vec::new(),
            recvs: Vec::new(),
            started: 0,
            culprit: None,
            messages: Vec::new(),
            send_failed: false,
            recv_failed: false,
            asked: false,
        }
    }

    /// How many places of the send queue are taken: surely, and at most. What is not sure: unsignaled operations
    /// that have started, for the library may know already that they are done; and to find that out it may have an
    /// operation of its own behind each.
    pub(super) fn send_load(&self) -> (usize, usize) {
        let left = || self.sends.iter().filter(|op| !op.taken);
        let sure = |op: &&Sent| !op.spec.unsignaled || !op.may_have_started;
        let own = left().filter(|op| self.asked && op.spec.unsignaled).count();
        (left().filter(sure).count(), left().count() + own)
    }

    /// How many places of the receive queue are taken.
    pub(super) fn recv_load(&self) -> usize {
        self.recvs.iter().filter(|recv| !recv.taken).count()
    }

    /// Whether something ends in bounded time that shows how the unsignaled operations that use a region ended: the next
    /// signaled one, else an operation of the library's own behind all. So many operations end in bounded time.
    pub(super) fn tells_of(&self, region: usize, due: usize) -> bool {
        let Some(last) = self.sends.iter().rposition(|op| op.uses(region)) else { return true };
        let next = self.sends[last..].iter().position(|op| !op.spec.unsignaled);
        let teller = next.map_or(self.sends.len(), |ahead| last + ahead + 1);
        due >= teller
    }

    /// How many operations use a region: surely, and at most.
    pub(super) fn uses(&self, region: usize) -> (usize, usize) {
        if self.dropped {
            return (0, 0);
        }
        let sends = || self.sends.iter().filter(|op| op.uses(region));
        let sure = sends().filter(|op| !op.spec.unsignaled || !op.may_have_started).count();
        let used = |recv: &&Received| !recv.taken && recv.regions.contains(&region);
        let recvs = self.recvs.iter().filter(used).count();
        (sure + recvs, sends().count() + recvs)
    }
}

/// A receive of a shared queue.
#[derive(Debug)]
pub(super) struct SharedReceive {
    pub(super) runs: Vec<ByteRange>,
    pub(super) regions: Vec<usize>,
    pub(super) ended: bool,
    /// What messages that may take it may have left in its memory.
    pub(super) cover: Option<EffectId>,
    /// A later receive was taken first, so this one had been: by one of the messages that there were then, so many for
    /// each end.
    pub(super) takers: Option<Vec<usize>>,
}

impl SharedReceive {
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }
}

/// A shared queue.
#[derive(Debug)]
pub(super) struct SharedModel {
    pub(super) spec: SharedSpec,
    pub(super) ends: Vec<usize>,
    pub(super) recvs: Vec<SharedReceive>,
    pub(super) dropped: bool,
}

impl SharedModel {
    /// Those of a program.
    pub(super) fn all(program: &Program) -> Vec<Self> {
        let ends = 2 * program.connections.len();
        let queue = |(queue, spec): (usize, &SharedSpec)| SharedModel {
            spec: *spec,
            ends: (0..ends).filter(|end| program.shared_by(*end) == Some(queue)).collect(),
            recvs: Vec::new(),
            dropped: false,
        };
        program.shared.iter().enumerate().map(queue).collect()
    }

    /// Receives that have not ended, in the order of their posts.
    pub(super) fn left(&self) -> impl Iterator<Item = &SharedReceive> {
        self.recvs.iter().filter(|recv| !recv.ended)
    }
}

/// What decides which slices a queue takes.
pub(super) struct QueueSpec {
    pub(super) domain: usize,
    pub(super) segments: usize,
}

impl From<EndSpec> for QueueSpec {
    fn from(EndSpec { domain, segments, .. }: EndSpec) -> Self {
        QueueSpec { domain, segments }
    }
}
