//! All that is known of a program that runs: what was posted, what was seen, and when.
//!
//! Time counts what happens, from 0: there is no clock here. Endpoints, messages and receives are named by their numbers.

use std::collections::BTreeSet;

use fabric_rdm::Status;

use super::super::program::{MAX_ENDS, RdmSettings, RemoteOp, SendSpec, Want};

pub(in super::super) type Time = u32;

/// What the model knows.
pub(in super::super) struct RdmModel {
    pub(in super::super) settings: RdmSettings,
    pub(super) now: Time,
    /// What was posted to peers, in the order of the posts.
    pub(in super::super) ops: Vec<Initiated>,
    pub(in super::super) messages: Vec<RdmMessage>,
    pub(in super::super) accesses: Vec<RdmAccess>,
    pub(in super::super) receives: Vec<RdmReceive>,
    pub(in super::super) claims: Vec<RdmClaim>,
    /// By endpoint, what was done and seen there, as far as matching is concerned.
    pub(super) moments: Vec<Vec<(Time, Moment)>>,
    /// By endpoint and peer.
    pub(super) links: Vec<Vec<Knowing>>,
    /// By endpoint, messages that are there for certain once it has come to rest.
    pub(super) arriving: Vec<Vec<usize>>,
    pub(super) dropped: Vec<bool>,
    /// When; 0 before.
    pub(super) dropped_at: Vec<Time>,
    /// Pairs whose last message was refused for want of a place.
    pub(in super::super) refused: BTreeSet<(usize, usize)>,
}

/// A message or a one-sided operation, as far as they are the same.
#[derive(Clone, Debug)]
pub(in super::super) struct Initiated {
    pub(in super::super) at: usize,
    pub(in super::super) to: usize,
    pub(in super::super) what: Initiating,
    pub(super) posted: Time,
    /// Which life of the pair it belongs to, as its initiator counts them.
    pub(super) life: usize,
    pub(super) unsignaled: bool,
    /// `cancel` said that it is.
    pub(super) canceled: bool,
    pub(in super::super) ended: Option<Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Initiating {
    Message(usize),
    Access(usize),
}

#[derive(Clone, Debug)]
pub(in super::super) struct RdmMessage {
    pub(in super::super) op: usize,
    pub(in super::super) from: usize,
    pub(in super::super) to: usize,
    pub(in super::super) spec: SendSpec,
    /// The receive that took it, and when that was known; of one that was claimed, the receive that it was taken by later.
    pub(in super::super) met: Option<(usize, Time)>,
    pub(super) claim: Option<usize>,
}

#[derive(Clone, Debug)]
pub(in super::super) struct RdmAccess {
    pub(in super::super) what: RemoteOp,
    /// The same operation waits for reads and atomics before it.
    pub(super) fence: bool,
    /// When its end was known.
    pub(super) known: Option<Time>,
    /// The value that it fetched.
    pub(super) found: Option<u64>,
}

#[derive(Clone, Debug)]
pub(in super::super) struct RdmReceive {
    pub(in super::super) at: usize,
    pub(in super::super) want: Want,
    pub(in super::super) room: usize,
    pub(in super::super) min_free: Option<usize>,
    pub(super) posted: Time,
    pub(super) canceled: bool,
    /// No completion says which messages it took: they are seen in its memory.
    pub(in super::super) silent: bool,
    pub(in super::super) ended: bool,
    /// The claimed message that it is for.
    pub(in super::super) claim: Option<usize>,
    /// Messages that it took and that never came whole; or, of one for one message, that its peer was lost.
    pub(super) broken: usize,
    pub(in super::super) took: Vec<Taking>,
}

/// A message in a receive's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Taking {
    pub(in super::super) message: usize,
    pub(in super::super) offset: usize,
    pub(in super::super) len: usize,
}

#[derive(Clone, Debug)]
pub(in super::super) struct RdmClaim {
    pub(in super::super) at: usize,
    pub(in super::super) from: usize,
    /// As far as it is known.
    pub(super) message: Option<usize>,
    /// When it was received or dropped.
    pub(in super::super) used: Option<Time>,
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Sight {
    pub(in super::super) from: usize,
    pub(in super::super) tag: Option<u64>,
    pub(in super::super) len: usize,
}

/// What an endpoint knows of a peer.
#[derive(Clone, Debug)]
pub(super) struct Knowing {
    pub(super) present: bool,
    /// That it is down was seen.
    pub(super) down: bool,
    /// How often it was, and how many events said so.
    pub(super) falls: usize,
    pub(super) events: usize,
    /// By life of the pair: how it ended, if it did.
    pub(super) lives: Vec<LifeEnd>,
    /// When it was removed.
    pub(super) removed: Vec<Time>,
    /// It connected without having been inserted, and an event said so.
    pub(super) admitted: bool,
    /// Since when the connection to it may end, as the target refuses an operation, or does not know this endpoint.
    pub(super) may_break: Option<Time>,
}

impl Knowing {
    fn new(present: bool) -> Self {
        Knowing {
            present,
            down: false,
            falls: 0,
            events: 0,
            lives: vec![LifeEnd::default()],
            removed: Vec::new(),
            admitted: false,
            may_break: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LifeEnd {
    /// The peer was lost, and so seen.
    pub(super) is_over: bool,
    /// An operation ended `PeerLost`.
    pub(super) has_lost: bool,
    /// The peer was removed.
    pub(super) is_removed: bool,
}

/// Something that an endpoint's application did or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Posted(usize),
    /// `cancel` of a receive, and what it answered.
    Canceled(usize, bool),
    /// A message of the endpoint to itself was canceled, which is here until then.
    Withdrawn(usize),
    /// A probe, what it found, and the claim if it was claimed.
    Probed(Want, Option<Sight>, Option<usize>),
    /// A receive was seen to have taken a message.
    Took {
        receive: usize,
        message: usize,
    },
    /// A receive was seen to have ended without one.
    Over(usize),
    /// A message's sender knows that it has met a receive.
    Matched(usize),
    /// A message's sender knew that it is here, before everything came to rest.
    Arrived(usize),
    /// A peer was seen to be down.
    Fallen(usize),
    Removed(usize),
    Inserted(usize),
    /// An event said that it connected, which it had done by then.
    Admitted(usize),
    Revived(usize),
}

impl RdmModel {
    pub(in super::super) fn new(settings: &RdmSettings) -> Self {
        let ends = settings.ends;
        let knowing = |at, of| Knowing::new(!settings.strange.contains(&(at, of)));
        let links: Vec<Vec<_>> =
            (0..ends).map(|at| (0..ends).map(|of| knowing(at, of)).collect()).collect();
        let mut model = RdmModel {
            settings: settings.clone(),
            now: 0,
            ops: Vec::new(),
            messages: Vec::new(),
            accesses: Vec::new(),
            receives: Vec::new(),
            claims: Vec::new(),
            moments: vec![Vec::new(); ends],
            links,
            arriving: vec![Vec::new(); ends],
            dropped: vec![false; ends],
            dropped_at: vec![0; ends],
            refused: BTreeSet::new(),
        };
        for &(at, of) in settings.strange.iter().filter(|(at, of)| at.max(of) < &ends) {
            // Where there is no room for all that may ask, one may be refused.
            if (settings.max_strangers as usize) < MAX_ENDS {
                model.links[of][at].may_break = Some(0);
            }
        }
        model
    }

    /// One more endpoint, which all others know that are there.
    pub(in super::super) fn joins(&mut self) {
        self.links.iter_mut().for_each(|row| row.push(Knowing::new(true)));
        let ends = self.links.len() + 1;
        self.links.push(vec![Knowing::new(true); ends]);
        self.moments.push(Vec::new());
        self.arriving.push(Vec::new());
        self.dropped.push(false);
        self.dropped_at.push(0);
    }

    /// One more thing happens.
    pub(in super::super) fn tick(&mut self) -> Time {
        self.now += 1;
        self.now
    }

    /// Adds what an endpoint's application did or saw.
    pub(super) fn add(&mut self, at: usize, moment: Moment) {
        let now = self.tick();
        if !self.dropped[at] {
            self.moments[at].push((now, moment));
        }
    }

    /// The endpoint has come to rest: messages that their senders knew to be here have taken part in matching. An `Ok` alone does
    /// not say that the next poll has them: another thread may be about to hand them over.
    pub(in super::super) fn rests(&mut self, at: usize) {
        for message in std::mem::take(&mut self.arriving[at]) {
            self.add(at, Moment::Arrived(message));
        }
    }

    pub(in super::super) fn is_dropped(&self, at: usize) -> bool {
        self.dropped[at]
    }

    pub(in super::super) fn is_present(&self, at: usize, peer: usize) -> bool {
        self.links[at][peer].present
    }

    /// Whether something between the two may be lost: one has removed the other, or refuses it, or was dropped.
    pub(in super::super) fn is_lossy(&self, one: usize, other: usize) -> bool {
        self.cut_at(one, other).is_some()
    }

    /// When that began.
    pub(super) fn cut_at(&self, one: usize, other: usize) -> Option<Time> {
        let dropped = [one, other].into_iter().filter(|end| self.dropped[*end]);
        let dropped = dropped.map(|end| self.dropped_at[end]);
        let removed = [(one, other), (other, one)].into_iter();
        let removed = removed.filter_map(|(at, of)| self.links[at][of].removed.first().copied());
        let broken = [(one, other), (other, one)].into_iter();
        let broken = broken.filter_map(|(at, of)| self.links[at][of].may_break);
        dropped.chain(removed).chain(broken).min()
    }

    /// Whether it is open if the message has arrived or ever will.
    pub(super) fn is_doubtful(&self, message: &RdmMessage) -> bool {
        let op = &self.ops[message.op];
        match op.ended {
            Some(status) => status != Status::Ok,
            None => {
                let life = self.links[op.at][op.to].lives[op.life];
                life.is_over && !self.is_kept_here(op) || life.is_removed || self.dropped[op.at]
            }
        }
    }

    /// Whether its receiver removed its sender after it was posted, and so may have dropped it.
    pub(super) fn may_be_dropped(&self, message: &RdmMessage) -> bool {
        let posted = self.ops[message.op].posted;
        self.links[message.to][message.from].removed.iter().any(|time| *time > posted)
    }
}

impl RdmReceive {
    /// Bytes of it that messages took, as far as it was seen.
    pub(in super::super) fn used(&self) -> usize {
        self.took.iter().map(|taking| taking.len).sum()
    }

    /// Where the next message is that was not seen.
    pub(in super::super) fn next_offset(&self) -> usize {
        self.took.iter().fold(0, |end, one| if one.offset == end { end + one.len } else { end })
    }

    /// Whether each message that it took was seen.
    pub(in super::super) fn is_whole(&self) -> bool {
        self.broken == 0
    }

    /// Whether it takes no more with so many bytes used.
    pub(super) fn is_full(&self, used: usize, count: usize) -> bool {
        match self.min_free {
            None => count > 0,
            Some(min_free) => self.room - used < min_free,
        }
    }
}
