//! The ends of what was posted to peers: exactly one each, and what the loss of a peer does.
//!
//! Of what is outstanding when a peer is lost the oldest operation ends `PeerLost`, the others `Canceled`, and nothing of that
//! life ends well afterwards. A peer is lost only if one side removed the other, or was dropped, or the target refused an
//! operation, which ends so, or did not know the initiator.

use fabric_rdm::{DeathCause, Kind, Status};

use super::super::program::{PLACES, RemoteOp};
use super::record::{Initiated, Initiating, LifeEnd, Moment, RdmModel};
use crate::check::{Failed, Outcome};

/// A completion, with its numbers in place of handles.
#[derive(Clone, Debug)]
pub(in super::super) struct SeenEnd {
    pub(in super::super) kind: Kind,
    pub(in super::super) status: Status,
    pub(in super::super) peer: Option<usize>,
    pub(in super::super) tag: Option<u64>,
    pub(in super::super) len: usize,
    pub(in super::super) message_len: usize,
    pub(in super::super) offset: usize,
    pub(in super::super) has_immediate: bool,
    /// The message that its immediate, or its bytes, name.
    pub(in super::super) message: Option<usize>,
}

impl RdmModel {
    /// An operation to a peer has ended.
    pub(in super::super) fn ended_op(&mut self, at: usize, op: usize, seen: &SeenEnd) -> Outcome {
        let Some(one) = self.ops.get(op).cloned() else {
            return Err(Failed::new("a completion of what was posted", format!("{seen:?}")));
        };
        let (kind, len) = self.shape_of(&one);
        let len = if seen.status == Status::Ok { len } else { 0 };
        let is_it = (one.at, Some(one.to), kind) == (at, seen.peer, seen.kind)
            && (seen.len, one.ended) == (len, None);
        if !is_it || !self.may_end(op, seen.status) {
            let expected = format!("one end, and a right one, of operation {op}: {one:?}");
            return Err(Failed::new(expected, format!("{seen:?}")));
        }
        self.tick();
        self.ops[op].ended = Some(seen.status);
        if matches!(seen.status, Status::PeerLost | Status::PeerGone | Status::RemoteAccess) {
            self.links[at][one.to].lives[one.life].has_lost = true;
        }
        match one.what {
            Initiating::Access(access) => self.accesses[access].known = Some(self.now),
            Initiating::Message(message) if seen.status == Status::Ok => {
                self.arriving[one.to].push(message);
                if self.messages[message].spec.matched {
                    self.add(one.to, Moment::Matched(message));
                }
            }
            Initiating::Message(_) => {}
        }
        Ok(())
    }

    /// The kind of an operation, and how long it is.
    pub(super) fn shape_of(&self, op: &Initiated) -> (Kind, usize) {
        match op.what {
            Initiating::Message(message) => (Kind::Send, self.messages[message].spec.len),
            Initiating::Access(access) => match self.accesses[access].what {
                RemoteOp::Write(place) => (Kind::Write, PLACES[place]),
                RemoteOp::Read(place) => (Kind::Read, PLACES[place]),
                RemoteOp::Add => (Kind::Atomic, 8),
                RemoteOp::Forbidden => (Kind::Write, 8),
            },
        }
    }

    fn may_end(&self, op: usize, status: Status) -> bool {
        let one = &self.ops[op];
        let life = self.links[one.at][one.to].lives[one.life];
        let is_forbidden = self.is_forbidden(one);
        match status {
            Status::Ok => {
                let may_be = !life.has_lost || self.is_kept_here(one);
                !one.canceled && !one.unsignaled && may_be && !is_forbidden
            }
            // Those before it have ended, or wait for more than their connection.
            Status::RemoteAccess => is_forbidden && !one.canceled && !life.has_lost,
            Status::Canceled => {
                one.canceled || life.is_removed || life.has_lost && !self.is_kept_here(one)
            }
            Status::PeerLost => self.may_be_lost(one) && !life.has_lost && self.is_oldest(op),
            // Where one was dropped another program's endpoint may be.
            Status::PeerGone => {
                self.dropped[one.to] && !one.canceled && !life.has_lost && self.is_oldest(op)
            }
            _ => false,
        }
    }

    /// Whether it is a message of an endpoint to itself that was there before a refusal ended the life: that leaves it.
    pub(super) fn is_kept_here(&self, op: &Initiated) -> bool {
        let is_refusal = |other: &Initiated| {
            (other.at, other.to, other.life) == (op.at, op.to, op.life)
                && other.posted < op.posted
                && self.is_forbidden(other)
                && !other.canceled
        };
        op.at == op.to
            && matches!(op.what, Initiating::Message(_))
            && !self.ops.iter().any(is_refusal)
    }

    fn is_forbidden(&self, op: &Initiated) -> bool {
        matches!(op.what, Initiating::Access(access) if self.accesses[access].what == RemoteOp::Forbidden)
    }

    fn may_be_lost(&self, one: &Initiated) -> bool {
        !one.canceled && one.at != one.to && self.is_lossy(one.at, one.to)
    }

    /// Whether all that was posted to the peer in this life before it has ended.
    fn is_oldest(&self, op: usize) -> bool {
        let Initiated { at, to, life, .. } = self.ops[op];
        let is_older = |other: &&Initiated| (other.at, other.to, other.life) == (at, to, life);
        self.ops[..op].iter().filter(is_older).all(|other| {
            // Of what is canceled the completion may come later, and of what is unsignaled none may come.
            other.ended.is_some() || other.unsignaled || other.canceled
        })
    }

    /// A peer was seen to be down, for a reason: no endpoint breaks the protocol, and only one that was dropped may have left its
    /// address to another one.
    pub(in super::super) fn fell_by(&mut self, at: usize, of: usize, cause: DeathCause) -> Outcome {
        match cause {
            DeathCause::Gone if self.dropped[of] => Ok(()),
            DeathCause::Protocol | DeathCause::Gone => {
                let expected = format!("e{of} to be lost for e{at}, or not to be reached");
                Err(Failed::new(expected, cause.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// A peer was seen to be down.
    pub(in super::super) fn fell(&mut self, at: usize, of: usize) -> Outcome {
        if !self.is_lossy(at, of) || !self.links[at][of].present {
            let expected = format!("e{of} not to be down for e{at}: neither removed the other");
            return Err(Failed::new(expected, "it is"));
        }
        let link = &mut self.links[at][of];
        if !std::mem::replace(&mut link.down, true) {
            link.falls += 1;
            if let Some(life) = link.lives.last_mut() {
                life.is_over = true;
            }
        }
        self.add(at, Moment::Fallen(of));
        Ok(())
    }

    /// An event says that a peer is down: one for each time.
    pub(in super::super) fn event(&mut self, at: usize, of: usize) -> Outcome {
        let link = &mut self.links[at][of];
        link.events += 1;
        if link.events > link.falls { self.fell(at, of) } else { Ok(()) }
    }

    /// An event says that a peer connected that was not inserted: one for each, and no more than may be.
    pub(in super::super) fn admitted(&mut self, at: usize, of: usize) -> Outcome {
        let is_new = !std::mem::replace(&mut self.links[at][of].admitted, true);
        let count = self.links[at].iter().filter(|link| link.admitted).count();
        let is_strange =
            self.settings.strange.contains(&(at, of)) || !self.links[at][of].removed.is_empty();
        if !is_new || !is_strange || count > self.settings.max_strangers as usize {
            let max = self.settings.max_strangers;
            let expected = format!("e{at}: at most {max} strangers, each once");
            return Err(Failed::new(expected, format!("e{of} is the {count}. one")));
        }
        if !self.links[at][of].present {
            self.links[at][of].present = true;
            self.links[at][of].lives.push(LifeEnd::default());
            self.add(at, Moment::Admitted(of));
        }
        Ok(())
    }

    /// An event that did not come.
    pub(in super::super) fn check_events(&self) -> Outcome {
        for (at, links) in self.links.iter().enumerate() {
            for (of, link) in links.iter().enumerate() {
                if link.events != link.falls && !self.dropped[at] {
                    let expected = format!("e{at}: {} events of e{of}, one each time", link.falls);
                    return Err(Failed::new(expected, link.events.to_string()));
                }
            }
        }
        Ok(())
    }

    /// A peer is not down.
    pub(in super::super) fn stands(&self, at: usize, of: usize) -> Outcome {
        match self.links[at][of].down {
            true => {
                let expected = format!("e{of} to be down for e{at} until it is revived");
                Err(Failed::new(expected, "it is not"))
            }
            false => Ok(()),
        }
    }

    /// A peer was revived.
    pub(in super::super) fn revived(&mut self, at: usize, of: usize) {
        if std::mem::take(&mut self.links[at][of].down) {
            self.links[at][of].lives.push(LifeEnd::default());
            self.add(at, Moment::Revived(of));
        }
    }

    /// A peer was removed.
    pub(in super::super) fn removed(&mut self, at: usize, of: usize) {
        self.add(at, Moment::Removed(of));
        let now = self.now;
        let link = &mut self.links[at][of];
        (link.present, link.down) = (false, false);
        // With it go its events.
        (link.falls, link.events, link.admitted) = (0, 0, false);
        link.removed.push(now);
        if let Some(life) = link.lives.last_mut() {
            life.is_removed = true;
        }
    }

    /// A peer was inserted again.
    pub(in super::super) fn inserted(&mut self, at: usize, of: usize) {
        self.links[at][of].present = true;
        self.links[at][of].lives.push(LifeEnd::default());
        self.add(at, Moment::Inserted(of));
    }

    /// An endpoint was dropped.
    pub(in super::super) fn drops(&mut self, at: usize) {
        let now = self.tick();
        self.dropped[at] = true;
        self.dropped_at[at] = now;
        for claim in self.claims.iter_mut().filter(|claim| claim.at == at) {
            claim.used.get_or_insert(now);
        }
    }
}
