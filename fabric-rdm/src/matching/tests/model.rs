//! What matching means, in as little code as possible: two lists that are gone through in order.

use crate::matching::{Envelope, Pattern, ReleaseReason};
use crate::peers::Peer;

/// What a step of a program can do. Receives and messages have numbers, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Matched { receive: u32, message: u32, offset: u64, len: u64 },
    Refused,
    Waits,
    Ended(u32),
    Released { receive: u32, used: u64, full: bool, canceled: bool },
    WithLast,
    NotThere,
    Found(u32),
    Claimed(u32),
    Dropped(u32),
}

#[derive(Debug)]
struct ModelReceive {
    number: u32,
    pattern: Pattern,
    capacity: u64,
    /// The minimum that has to be free of one for many messages.
    min_free: Option<u64>,
    max_messages: u32,
    took: u32,
    used: u64,
    under_way: u32,
    ended: Option<ReleaseReason>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    receives: Vec<ModelReceive>,
    messages: Vec<(u32, Envelope)>,
    max: usize,
}

impl Model {
    /// For at most so many receives, and messages.
    pub(super) fn new(max: usize) -> Self {
        Model { max, ..Default::default() }
    }

    pub(super) fn lens(&self) -> (usize, usize) {
        (self.receives.len(), self.messages.len())
    }

    pub(super) fn post(
        &mut self,
        number: u32,
        pattern: Pattern,
        capacity: u64,
        (min_free, max_messages): (Option<u64>, u32),
    ) -> Vec<Outcome> {
        if self.receives.len() == self.max || min_free.is_some_and(|min| capacity < min.max(1)) {
            return vec![Outcome::Refused];
        }
        let (took, used, under_way, ended) = (0, 0, 0, None);
        let min_free = min_free.map(|min| min.max(1));
        self.receives.push(ModelReceive {
            number,
            pattern,
            capacity,
            min_free,
            max_messages,
            took,
            used,
            under_way,
            ended,
        });
        let mut outcomes = Vec::new();
        while self.is_open(number)
            && let Some(at) = self.messages.iter().position(|(_, it)| pattern.matches(it))
        {
            let (message, envelope) = self.messages.remove(at);
            outcomes.push(self.meet(self.receives.len() - 1, message, envelope));
        }
        outcomes
    }

    fn is_open(&self, number: u32) -> bool {
        self.receives.iter().any(|receive| receive.number == number && receive.ended.is_none())
    }

    pub(super) fn arrive(&mut self, number: u32, envelope: Envelope) -> Outcome {
        let takes = |it: &ModelReceive| it.ended.is_none() && it.pattern.matches(&envelope);
        if let Some(at) = self.receives.iter().position(takes) {
            return self.meet(at, number, envelope);
        }
        if self.messages.len() == self.max {
            return Outcome::Refused;
        }
        self.messages.push((number, envelope));
        Outcome::Waits
    }

    fn meet(&mut self, at: usize, message: u32, envelope: Envelope) -> Outcome {
        let it = &mut self.receives[at];
        let (receive, offset) = (it.number, it.used);
        let len = envelope.len.min(it.capacity - it.used);
        it.used += len;
        it.took += 1;
        it.under_way += 1;
        let is_last = it.took >= it.max_messages;
        match it.min_free {
            Some(min) if it.capacity - it.used < min || is_last => {
                it.ended = Some(ReleaseReason::Full)
            }
            Some(_) => {}
            None => drop(self.receives.remove(at)),
        }
        Outcome::Matched { receive, message, offset, len }
    }

    pub(super) fn delivered(&mut self, number: u32) -> Option<Outcome> {
        let at = self.receives.iter().position(|it| it.number == number)?;
        self.receives[at].under_way -= 1;
        self.release(at)
    }

    fn release(&mut self, at: usize) -> Option<Outcome> {
        let it = &self.receives[at];
        let reason = it.ended.filter(|_| it.under_way == 0)?;
        let (full, canceled) = (reason == ReleaseReason::Full, reason == ReleaseReason::Canceled);
        let ModelReceive { number: receive, used, .. } = self.receives.remove(at);
        Some(Outcome::Released { receive, used, full, canceled })
    }

    pub(super) fn cancel(&mut self, number: u32) -> Outcome {
        match self.receives.iter().position(|it| it.number == number && it.ended.is_none()) {
            Some(at) => self.end(at, ReleaseReason::Canceled),
            None => Outcome::NotThere,
        }
    }

    fn end(&mut self, at: usize, reason: ReleaseReason) -> Outcome {
        if self.receives[at].min_free.is_none() {
            return Outcome::Ended(self.receives.remove(at).number);
        }
        self.receives[at].ended.get_or_insert(reason);
        self.release(at).unwrap_or(Outcome::WithLast)
    }

    pub(super) fn probe(&self, pattern: Pattern) -> Outcome {
        let found = self.messages.iter().find(|(_, it)| pattern.matches(it));
        found.map_or(Outcome::NotThere, |(number, _)| Outcome::Found(*number))
    }

    pub(super) fn claim(&mut self, number: u32) -> Outcome {
        match self.messages.iter().position(|(it, _)| *it == number) {
            Some(at) => Outcome::Claimed(self.messages.remove(at).0),
            None => Outcome::NotThere,
        }
    }

    /// Outcomes in the order of their kinds and numbers.
    pub(super) fn end_peer(&mut self, peer: Peer, is_removed: bool) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for at in (0..self.receives.len()).rev() {
            let it = &self.receives[at];
            if it.pattern.source() == Some(peer) && it.ended.is_none() {
                outcomes.push(self.end(at, ReleaseReason::PeerGone));
            }
        }
        if is_removed {
            let gone = |it: &mut (u32, Envelope)| it.1.source == peer;
            outcomes.extend(self.messages.extract_if(.., gone).map(|it| Outcome::Dropped(it.0)));
        }
        outcomes.retain(|outcome| *outcome != Outcome::WithLast);
        outcomes.sort();
        outcomes
    }
}
