//! What posts return, and when: depth, windows, peers that are down or removed.

use super::super::program::{RemoteOp, SendSpec, Want};
use super::record::{
    Initiated, Initiating, Moment, RdmAccess, RdmClaim, RdmMessage, RdmModel, RdmReceive, Sight,
};
use crate::check::{Failed, Outcome};

/// Places that each peer has for certain.
const RESERVED: usize = 2;

/// What a post returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Posting {
    Taken,
    /// `Again`, for the endpoint's depth.
    Depth,
    /// `Again`: the peer's window is used up.
    Window,
    /// `Again`: others have the places.
    Places,
    PeerDown,
    /// The peer was removed.
    NoPeer,
}

impl RdmModel {
    /// A message was posted, or refused. `is_down`: whether its peer was down before.
    pub(in super::super) fn posted_send(
        &mut self,
        (at, to): (usize, usize),
        spec: SendSpec,
        is_down: bool,
        posting: Posting,
    ) -> Outcome {
        match posting {
            Posting::Window if at != to => {
                self.expect_crowd(at, to, self.settings.window as usize, "as many as the window")?;
            }
            Posting::Places if at != to => {
                self.expect_crowd(at, to, RESERVED, "as many as are reserved")?;
            }
            _ => self.expect_posting(at, to, is_down, posting)?,
        }
        if posting == Posting::Taken {
            self.refused.remove(&(at, to));
            let (op, message) = (self.ops.len(), self.messages.len());
            self.add_op(at, to, Initiating::Message(message), spec.unsignaled);
            let (met, claim) = (None, None);
            self.messages.push(RdmMessage { op, from: at, to, spec, met, claim });
        }
        Ok(())
    }

    /// The same of a one-sided operation.
    pub(in super::super) fn posted_access(
        &mut self,
        (at, to): (usize, usize),
        (what, fence, unsignaled): (RemoteOp, bool, bool),
        is_down: bool,
        posting: Posting,
    ) -> Outcome {
        self.expect_posting(at, to, is_down, posting)?;
        if posting == Posting::Taken {
            if what == RemoteOp::Forbidden {
                self.links[at][to].may_break.get_or_insert(self.now);
            }
            let access = self.accesses.len();
            self.add_op(at, to, Initiating::Access(access), unsignaled);
            self.accesses.push(RdmAccess { what, fence, known: None, found: None });
        }
        Ok(())
    }

    fn add_op(&mut self, at: usize, to: usize, what: Initiating, unsignaled: bool) {
        let (posted, life) = (self.tick(), self.links[at][to].lives.len() - 1);
        let (canceled, ended) = (false, None);
        self.ops.push(Initiated { at, to, what, posted, life, unsignaled, canceled, ended });
    }

    fn expect_posting(&mut self, at: usize, to: usize, is_down: bool, posting: Posting) -> Outcome {
        let of = |op: &&Initiated| op.at == at && op.ended.is_none();
        let outstanding = self.ops.iter().filter(of);
        let (silent, loud): (Vec<_>, Vec<_>) = outstanding.partition(|op| op.unsignaled);
        let depth = self.settings.send_depth as usize;
        let expected = match posting {
            Posting::Depth if silent.len() + loud.len() >= depth => return Ok(()),
            _ if loud.len() >= depth => format!("`Again`: {} are outstanding", loud.len()),
            Posting::Depth => format!("a post: {depth} are no more than {}", loud.len()),
            Posting::NoPeer if !self.links[at][to].present => return Ok(()),
            _ if !self.links[at][to].present => "no such peer".to_owned(),
            Posting::PeerDown => return self.fell(at, to),
            _ if is_down => "`PeerDown`".to_owned(),
            Posting::Taken => return Ok(()),
            _ => "a post".to_owned(),
        };
        Err(Failed::new(format!("e{at}, to e{to}: {expected}"), format!("{posting:?}")))
    }

    /// A message may be refused only if so many were posted in this life of the pair. That those have met receives its sender may
    /// learn much later; but it does: at the end there is room.
    fn expect_crowd(&mut self, at: usize, to: usize, min: usize, which: &str) -> Outcome {
        let life = self.links[at][to].lives.len() - 1;
        let is_there = |message: &&RdmMessage| {
            let op = &self.ops[message.op];
            (op.at, op.to, op.life, op.canceled) == (at, to, life, false)
        };
        let count = self.messages.iter().filter(is_there).count();
        if count < min && !self.is_lossy(at, to) {
            let expected = format!("room at e{to} for a message of e{at} until {which} wait");
            return Err(Failed::new(expected, format!("it is refused, with {count}")));
        }
        self.refused.insert((at, to));
        Ok(())
    }

    /// A receive was posted, or refused.
    pub(in super::super) fn posted_receive(
        &mut self,
        at: usize,
        (want, room, min_free): (Want, usize, Option<usize>),
        silent: bool,
        claim: Option<usize>,
        posting: Posting,
    ) -> Outcome {
        let of = |receive: &&RdmReceive| receive.at == at && !receive.ended;
        let outstanding = self.receives.iter().filter(of).count();
        // One that has ended silently counts no more, and may not be seen yet.
        let quiet = self.receives.iter().filter(of).filter(|one| one.silent).count();
        let depth = self.settings.recv_depth as usize;
        let has_peer = want.from.is_none_or(|from| self.links[at][from].present);
        if let (Posting::PeerDown, Some(from), None) = (posting, want.from, claim)
            && has_peer
        {
            return self.fell(at, from);
        }
        let expected = match () {
            () if outstanding - quiet >= depth => Posting::Depth,
            () if outstanding >= depth && posting == Posting::Depth => Posting::Depth,
            () if claim.is_none() && !has_peer => Posting::NoPeer,
            () => Posting::Taken,
        };
        if posting != expected {
            let expected =
                format!("{expected:?} of a receive of {want} at e{at}, {outstanding} are there");
            return Err(Failed::new(expected, format!("{posting:?}")));
        }
        if posting == Posting::Taken {
            let number = self.receives.len();
            if claim.is_none() {
                self.add(at, Moment::Posted(number));
            }
            let (posted, took) = (self.now, Vec::new());
            let (canceled, ended, broken) = (false, false, 0);
            self.receives.push(RdmReceive {
                at,
                want,
                room,
                min_free,
                posted,
                canceled,
                silent,
                ended,
                claim,
                broken,
                took,
            });
            if let Some(claim) = claim {
                self.claims[claim].used = Some(self.now);
            }
        }
        Ok(())
    }

    /// A probe found something, or nothing. Gives the claim, if it was claimed.
    pub(in super::super) fn probed(
        &mut self,
        at: usize,
        want: Want,
        sight: Option<Sight>,
        is_claimed: bool,
    ) -> Option<usize> {
        let claim = sight.filter(|_| is_claimed).map(|Sight { from, .. }| {
            self.claims.push(RdmClaim { at, from, message: None, used: None });
            self.claims.len() - 1
        });
        self.add(at, Moment::Probed(want, sight, claim));
        claim
    }

    /// Which message it is that was claimed; `None` if it can be several.
    pub(in super::super) fn guess(&self, at: usize, sight: &Sight) -> Option<usize> {
        let can_be = |message: &RdmMessage| {
            (message.from, message.to) == (sight.from, at)
                && (message.spec.tag, message.spec.len) == (sight.tag, sight.len)
                && message.met.is_none()
                && message.claim.is_none()
                && !self.ops[message.op].canceled
        };
        let mut all = self.messages.iter().enumerate().filter(|(_, message)| can_be(message));
        let (first, second) = (all.next(), all.next());
        // One that was claimed, and is not known, may be either.
        let is_open = |claim: &RdmClaim| {
            claim.at == at && claim.from == sight.from && claim.message.is_none()
        };
        let is_alone =
            second.is_none() && self.claims.iter().filter(|one| is_open(one)).count() <= 1;
        first.filter(|_| is_alone).map(|(number, _)| number)
    }

    /// A claimed message was dropped: that one, if it is known.
    pub(in super::super) fn dropped_claim(&mut self, claim: usize, message: Option<usize>) {
        let now = self.tick();
        self.claims[claim].used = Some(now);
        self.name_claim(claim, message);
    }

    pub(super) fn name_claim(&mut self, claim: usize, message: Option<usize>) {
        if let Some(message) = message {
            self.claims[claim].message = Some(message);
            self.messages[message].claim = Some(claim);
        }
    }

    /// What `cancel` answered of an operation.
    pub(in super::super) fn canceled_op(&mut self, op: usize, answer: bool) -> Outcome {
        self.tick();
        let one = &mut self.ops[op];
        if answer && (one.ended.is_some() || one.canceled) {
            let expected = format!("no cancel of what has ended: {one:?}");
            return Err(Failed::new(expected, "it was canceled"));
        }
        one.canceled |= answer;
        if let (Initiating::Message(message), true) = (one.what, answer && one.at == one.to) {
            let at = one.at;
            self.add(at, Moment::Withdrawn(message));
        }
        Ok(())
    }

    /// The same of a receive.
    pub(in super::super) fn canceled_receive(&mut self, receive: usize, answer: bool) -> Outcome {
        let one = &mut self.receives[receive];
        if answer && (one.ended || one.canceled) {
            let expected = format!("no cancel of what has ended: {one:?}");
            return Err(Failed::new(expected, "it was canceled"));
        }
        one.canceled |= answer;
        let at = one.at;
        self.add(at, Moment::Canceled(receive, answer));
        Ok(())
    }
}
