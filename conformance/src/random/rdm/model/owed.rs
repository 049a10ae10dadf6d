//! What has to come, however long it takes; and what is wrong when everything has.

use fabric_rdm::{Kind, Status};

use super::record::{Initiated, Initiating, RdmMessage, RdmModel, RdmReceive};
use crate::check::{Failed, Outcome};

/// Bytes that a peer has for certain for messages without a receive.
const RESERVED_BYTES: usize = 4096;

impl RdmModel {
    /// Something that has to come without further posts. At the end, when all peers were revived and written to, that is all.
    pub(in super::super) fn owed(&self, is_end: bool) -> Option<String> {
        let ops = (0..self.ops.len()).find(|op| self.owes_op(*op, is_end));
        let op = ops.map(|op| format!("the end of operation {op}: {}", self.describe_op(op)));
        let receive = || {
            let numbers = 0..self.receives.len();
            let number = numbers.into_iter().find(|number| self.owes_receive(*number, is_end))?;
            Some(format!("the end of receive {number}: {:?}", self.receives[number]))
        };
        let message = || {
            let numbers = 0..self.messages.len();
            let number = numbers.into_iter().find(|number| is_end && self.owes_message(*number))?;
            Some(format!("message {number}: {:?}", self.messages[number]))
        };
        let room = || {
            let is_gone = |pair: &&(usize, usize)| self.dropped[pair.0] || self.dropped[pair.1];
            let (at, to) = self.refused.iter().find(|pair| is_end && !is_gone(pair))?;
            Some(format!("room at e{to} for a message of e{at}"))
        };
        op.or_else(receive).or_else(message).or_else(room)
    }

    fn describe_op(&self, op: usize) -> String {
        match self.ops[op].what {
            Initiating::Message(message) => {
                format!("{:?}, {:?}", self.ops[op], self.messages[message])
            }
            Initiating::Access(access) => {
                format!("{:?}, {:?}", self.ops[op], self.accesses[access])
            }
        }
    }

    fn owes_op(&self, number: usize, is_end: bool) -> bool {
        let op = &self.ops[number];
        if op.ended.is_some() || self.dropped[op.at] {
            return false;
        }
        let life = self.links[op.at][op.to].lives[op.life];
        if op.canceled {
            return true;
        }
        // Without a completion it may have ended well before.
        if op.unsignaled {
            return false;
        }
        if life.is_over && !self.is_kept_here(op) || life.is_removed || is_end {
            return true;
        }
        match op.what {
            _ if self.is_lossy(op.at, op.to) => false,
            Initiating::Access(_) => true,
            Initiating::Message(message) => {
                self.is_used(&self.messages[message]) || self.goes_unmatched(message)
            }
        }
    }

    /// Whether a receive has it, or its claim was dropped.
    fn is_used(&self, message: &RdmMessage) -> bool {
        let is_dropped = |claim: usize| self.claims[claim].used.is_some();
        message.met.is_some() || message.claim.is_some_and(is_dropped)
    }

    /// Whether a short message ends without a receive: the room that its sender has for certain takes all up to it.
    fn goes_unmatched(&self, number: usize) -> bool {
        let message = &self.messages[number];
        if message.spec.matched || message.from == message.to {
            return false;
        }
        let before = self.messages[..=number].iter().filter(|other| {
            (other.from, other.to) == (message.from, message.to) && !self.ops[other.op].canceled
        });
        let bytes: usize = before.map(|other| other.spec.len).sum();
        let settings = &self.settings;
        let max = RESERVED_BYTES.min(settings.bytes as usize);
        bytes <= max && message.spec.len < settings.rendezvous as usize
    }

    fn owes_receive(&self, number: usize, is_end: bool) -> bool {
        let receive = &self.receives[number];
        if receive.ended || self.dropped[receive.at] {
            return false;
        }
        if receive.silent && receive.min_free.is_none() && !receive.canceled {
            return false;
        }
        let is_full = receive.min_free.is_some() && receive.is_full(receive.used(), 1);
        if receive.canceled || is_full {
            return true;
        }
        if let Some(claim) = receive.claim {
            return is_end || !self.is_lossy(receive.at, self.claims[claim].from);
        }
        let is_lost = |message: &RdmMessage| self.may_keep(receive, message);
        if !is_end && self.messages.iter().any(is_lost) {
            return false;
        }
        self.messages.iter().any(|message| self.has_to_meet(receive, message, is_end))
    }

    /// Whether a receive may have met a message that never comes whole, and not know that yet.
    fn may_keep(&self, receive: &RdmReceive, message: &RdmMessage) -> bool {
        let RdmMessage { from, to, spec, met, .. } = *message;
        let fits = to == receive.at && receive.want.takes(from, spec.tag);
        fits && met.is_none() && !self.ops[message.op].canceled && self.is_lossy(from, to)
    }

    /// Whether a message that has not met a receive has to meet one, since this one takes it.
    fn has_to_meet(&self, receive: &RdmReceive, message: &RdmMessage, is_end: bool) -> bool {
        let RdmMessage { from, to, spec, .. } = *message;
        to == receive.at
            && receive.want.takes(from, spec.tag)
            && self.is_to_come(message)
            && (is_end || !self.is_lossy(from, to))
    }

    /// Whether a receive has to take it, and none was seen to.
    fn is_to_come(&self, message: &RdmMessage) -> bool {
        let is_claimed = message.claim.is_some()
            || self.claims.iter().any(|claim| {
                // It may be this one.
                (claim.at, claim.from, claim.message) == (message.to, message.from, None)
            });
        message.met.is_none()
            && !is_claimed
            && !self.ops[message.op].canceled
            && !self.is_doubtful(message)
            && !self.may_be_dropped(message)
    }

    fn owes_message(&self, number: usize) -> bool {
        let message = &self.messages[number];
        !self.dropped[message.to] && self.is_to_come(message)
    }

    /// How many operations of a kind have ended, as a counter of the endpoint has it: well, and otherwise. `None`: of some it is
    /// not known.
    pub(in super::super) fn counts(&self, at: usize, kind: Kind) -> Option<(u64, u64)> {
        let (mut well, mut badly) = (0, 0);
        let of_kind = |op: &&Initiated| op.at == at && self.shape_of(op).0 == kind;
        for op in self.ops.iter().filter(of_kind) {
            match op.ended {
                Some(Status::Ok) => well += 1,
                Some(_) => badly += 1,
                None if op.unsignaled => return None,
                None => {}
            }
        }
        Some((well, badly))
    }

    /// The same of all that was posted, at the end.
    pub(in super::super) fn posts(&self, at: usize, kind: Kind) -> (u64, u64) {
        let of_kind = |op: &&Initiated| op.at == at && self.shape_of(op).0 == kind;
        let all = self.ops.iter().filter(of_kind);
        let is_bad = |op: &Initiated| op.ended.is_some_and(|status| status != Status::Ok);
        let (badly, well): (Vec<_>, Vec<_>) = all.partition(|op| is_bad(op));
        (well.len() as u64, badly.len() as u64)
    }

    /// Never were more messages of a peer without a receive than its window has.
    pub(in super::super) fn check_windows(&self) -> Outcome {
        for (number, message) in self.messages.iter().enumerate() {
            let (at, to) = (message.from, message.to);
            if at == to || self.is_lossy(at, to) {
                continue;
            }
            let time = self.ops[message.op].posted;
            let waits = |other: &&RdmMessage| {
                (other.from, other.to) == (at, to)
                    && !self.ops[other.op].canceled
                    && !self.may_have_met(other, time)
            };
            let count = self.messages[..number].iter().filter(waits).count() as u64;
            if count >= self.settings.window {
                let expected = format!("message {number} to be refused: {count} before it waited");
                return Err(Failed::new(expected, "it was posted"));
            }
        }
        Ok(())
    }

    /// Whether it may have met its receive, or been claimed, by that time.
    fn may_have_met(&self, message: &RdmMessage, time: u32) -> bool {
        let by_claim = message
            .claim
            .is_some_and(|claim| self.claims[claim].used.is_some_and(|used| used < time));
        let by_receive = message.met.is_some_and(|(receive, _)| {
            let receive = &self.receives[receive];
            receive.claim.is_none() && receive.posted < time
        });
        by_claim || by_receive
    }
}
