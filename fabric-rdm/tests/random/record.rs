//! What is known of a program while it runs: every operation, and what became of it.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{OpId, Peer, Status};

use crate::memory::Buffer;

/// Calls are counted: that is the time of everything here.
pub(crate) type Time = u64;

/// How a message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// By this receive, at this place of its buffer.
    Receive(usize, u64),
    /// By a claim at that time, with this pattern.
    Claim(Time, Pattern),
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) peer: Peer,
    pub(crate) tag: Option<u64>,
    pub(crate) len: usize,
    pub(crate) immediate: Option<u32>,
    pub(crate) matched: bool,
    pub(crate) posted: Time,
    /// `cancel` said that it is.
    pub(crate) canceled: Option<Time>,
    pub(crate) ended: Option<(Time, Status)>,
    /// How, and whose handle the receiver says, and when that was known.
    pub(crate) met: Option<(Met, Peer, Time)>,
}

pub(crate) struct Receive {
    pub(crate) at: usize,
    pub(crate) pattern: Pattern,
    /// From this endpoint alone.
    pub(crate) from: Option<usize>,
    pub(crate) room: usize,
    pub(crate) min_free: Option<u64>,
    pub(crate) posted: Time,
    pub(crate) canceled: Option<Time>,
    pub(crate) ended: Option<(Time, Status)>,
    /// By which a claimed message is received, of this endpoint.
    pub(crate) claim: Option<(usize, Time, Pattern)>,
    /// A message that it took never came whole.
    pub(crate) broken: bool,
    /// Of many: messages that it took, with offset and length.
    pub(crate) taken: Vec<(u64, u64, usize)>,
    pub(crate) buffer: Buffer,
}

/// What a one-sided operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write(usize),
    Read(usize),
    Add,
}

pub(crate) struct OneSided {
    pub(crate) at: usize,
    pub(crate) to: usize,
    pub(crate) peer: Peer,
    pub(crate) access: Access,
    pub(crate) canceled: Option<Time>,
    pub(crate) ended: Option<(Time, Status)>,
    pub(crate) buffer: Buffer,
}

/// What a context stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Message(usize),
    Receive(usize),
    OneSided(usize),
}

impl Which {
    pub(crate) fn to_bits(self) -> u64 {
        let (kind, at) = match self {
            Which::Message(at) => (1, at),
            Which::Receive(at) => (2, at),
            Which::OneSided(at) => (3, at),
        };
        kind << 32 | at as u64
    }

    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let at = (bits as u32) as usize;
        match bits >> 32 {
            1 => Some(Which::Message(at)),
            2 => Some(Which::Receive(at)),
            3 => Some(Which::OneSided(at)),
            _ => None,
        }
    }
}

/// All of it.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) messages: Vec<Message>,
    pub(crate) receives: Vec<Receive>,
    pub(crate) accesses: Vec<OneSided>,
    /// What each endpoint posted, for cancels.
    pub(crate) ops: Vec<(usize, OpId, Which)>,
    /// An endpoint removed another one.
    pub(crate) cuts: Vec<(usize, usize, Time)>,
    /// Probes that found nothing: of an endpoint, for a pattern, at a time.
    pub(crate) in_vain: Vec<(usize, Pattern, Time)>,
    /// Messages that were sent to see whether a peer is there.
    pub(crate) pokes: Vec<usize>,
}

impl Record {
    /// Whether anything between two endpoints may have been lost.
    pub(crate) fn is_lossy(&self, one: usize, other: usize) -> bool {
        self.cuts
            .iter()
            .any(|&(at, peer, _)| [at, peer] == [one, other] || [at, peer] == [other, one])
    }

    /// Whether the message has to be there, or with its receive.
    pub(crate) fn has_to_arrive(&self, message: &Message) -> bool {
        let Message { from, to, posted, ended, .. } = *message;
        let is_dropped =
            self.cuts.iter().any(|&(at, peer, time)| (at, peer) == (to, from) && time > posted);
        matches!(ended, Some((_, Status::Ok))) && !is_dropped
    }
}

impl Record {
    /// All that was sent has ended, and has arrived if it has to.
    pub(crate) fn is_delivered(&self) -> bool {
        let arrived = |one: &Message| one.met.is_some() || !self.has_to_arrive(one);
        self.messages.iter().all(|one| one.ended.is_some() && arrived(one))
            && self.accesses.iter().all(|one| one.ended.is_some())
    }

    /// Whether it has not ended.
    pub(crate) fn is_open(&self, which: Which) -> bool {
        match which {
            Which::Message(at) => self.messages[at].ended.is_none(),
            Which::Receive(at) => self.receives[at].ended.is_none(),
            Which::OneSided(at) => self.accesses[at].ended.is_none(),
        }
    }
}
