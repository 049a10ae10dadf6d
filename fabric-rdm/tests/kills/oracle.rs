//! What each completion may be.

use std::time::{Duration, Instant};

use fabric_rdm::matching::{Envelope, Pattern};
use fabric_rdm::{Completion, DeathCause, Kind, OpId, PeerEvent, Status};

use crate::arrivals::Met;
use crate::content::{Message, PLACES, numbers};
use crate::member::Member;
use crate::roster::{Effects, LifeId};
use crate::{Outcome, text};

/// What was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// With the buffer that it is in, if it is in one.
    Message {
        message: Message,
        buffer: Option<Buffer>,
        signaled: bool,
    },
    Write {
        place: usize,
        number: u64,
        buffer: usize,
    },
    /// A read finds the last write, or if that was lost an earlier one that is not older than the last one that is certain.
    Read {
        place: usize,
        writes: Effects,
        buffer: usize,
    },
    /// So many were certain before.
    Add {
        lowest: u64,
        buffer: usize,
    },
    Receive {
        pattern: Pattern,
        room: usize,
        buffer: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Buffer {
    Plain(usize),
    Readable(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) op: OpId,
    /// The peer; of a receive, if it is from that peer alone.
    pub(crate) life: Option<LifeId>,
    pub(crate) what: What,
    /// Since when it has a reason to end.
    pub(crate) since: Option<Instant>,
    /// By the application.
    pub(crate) canceled: bool,
}

impl Posted {
    pub(crate) fn is_receive(&self) -> bool {
        matches!(self.what, What::Receive { .. })
    }
}

impl Member {
    /// Takes all completions and events. How many completions there were.
    pub(crate) fn take(&mut self) -> Outcome<usize> {
        let mut all = [Completion::default(); 16];
        let mut taken = 0;
        loop {
            let found = self.endpoint.poll(&mut all).map_err(text)?;
            for done in &all[..found] {
                self.completed(done)?;
            }
            taken += found;
            if found < all.len() {
                break;
            }
        }
        while let Some(event) = self.endpoint.poll_event().map_err(text)? {
            self.happened(event)?;
        }
        Ok(taken)
    }

    fn happened(&mut self, event: PeerEvent) -> Outcome {
        let PeerEvent::Down(peer, cause) = event else {
            return Err(format!("no stranger: {event:?}"));
        };
        let id = self.roster.of(Some(peer)).ok_or("an event of a peer")?;
        let other = self.roster.get(id);
        if other.removed || other.peer != peer {
            return Err(format!("no event of {id}, which was removed: {cause}"));
        }
        if cause == DeathCause::Protocol {
            if other.dead && !other.cut {
                return Err(format!("that {id} keeps to the protocol, also if it is killed"));
            }
            other.misses = true;
        }
        // It may have been revived since.
        if self.endpoint.down(peer).map_err(text)?.is_some() {
            self.lost(id);
        }
        Ok(())
    }

    /// A peer is down: it is revived later, and receives from it have to end.
    pub(crate) fn lost(&mut self, id: u32) {
        let wait = Duration::from_millis(self.random.below(150) as u64);
        let now = Instant::now();
        self.roster.lost(id, now + wait);
        self.has_to_end(id);
    }

    /// All receives from a member alone have to end from now on.
    pub(crate) fn has_to_end(&mut self, id: u32) {
        let life = (id, self.roster.get(id).life);
        let now = Instant::now();
        for posted in self.posted.values_mut().filter(|posted| posted.life == Some(life)) {
            posted.since.get_or_insert(now);
        }
    }

    pub(crate) fn completed(&mut self, done: &Completion) -> Outcome {
        let count = self.counts.entry(kind_of(done.kind)).or_default();
        count[usize::from(!done.is_ok())] += 1;
        let posted = self.posted.remove(&done.context);
        let posted = posted.or_else(|| self.silent.remove(&done.context));
        let Some(posted) = posted else {
            return Err(format!("one end of an operation that was posted, not {done:?}"));
        };
        let result = match posted.what {
            What::Receive { pattern, room, buffer } => {
                let result = self.received(&posted, done, pattern, room, buffer);
                self.inboxes.give_back(buffer);
                result
            }
            _ => self.initiated(&posted, done),
        };
        result.map_err(|expected| format!("{expected}: not {done:?} of {posted:?}"))
    }

    fn initiated(&mut self, posted: &Posted, done: &Completion) -> Outcome {
        let life = posted.life.unwrap();
        let id = life.0;
        if self.roster.of(done.peer) != Some(id) {
            return Err(format!("the peer {id}"));
        }
        let is_ok = done.is_ok();
        if is_ok {
            if posted.canceled {
                return Err("an end as `cancel` said".to_owned());
            }
        } else {
            self.ended_badly(posted, done, life)?;
        }
        let (me, other) = (self.id, self.roster.get(id));
        let (kind, len) = match posted.what {
            What::Message { message, buffer, signaled } => {
                if is_ok && !signaled {
                    return Err("no completion".to_owned());
                }
                // One that is not signaled was taken for certain.
                match (is_ok, signaled) {
                    (true, _) => other.messages.certain += 1,
                    (false, true) => {}
                    (false, false) => other.messages.certain -= 1,
                }
                match buffer {
                    Some(Buffer::Plain(buffer)) => self.plain.give_back(buffer),
                    Some(Buffer::Readable(buffer)) => self.readable.give_back(buffer),
                    None => {}
                }
                (Kind::Send, message.len)
            }
            What::Write { place, number, buffer } => {
                if is_ok {
                    other.writes[place].certain = other.writes[place].certain.max(number);
                }
                self.one_sided.give_back(buffer);
                (Kind::Write, PLACES[place])
            }
            What::Read { place, writes, buffer } => {
                let len = PLACES[place];
                let bytes = self.one_sided.bytes(buffer, len, len)?;
                self.one_sided.give_back(buffer);
                if is_ok {
                    let (low, high) = numbers(me, &bytes).ok_or("a write of this member")?;
                    if u64::from(low) < writes.certain || u64::from(high) > writes.posted {
                        return Err(format!("{writes:?}, not writes {low} to {high}"));
                    }
                }
                (Kind::Read, len)
            }
            What::Add { lowest, buffer } => {
                let bytes = self.one_sided.bytes(buffer, 8, 8)?;
                self.one_sided.give_back(buffer);
                let value = u64::from_le_bytes(bytes.try_into().unwrap());
                if is_ok {
                    other.adds.certain += 1;
                    if value < lowest || value >= other.adds.posted {
                        let posted = other.adds.posted;
                        return Err(format!("a counter of {lowest} to {posted}, not {value}"));
                    }
                }
                (Kind::Atomic, 8)
            }
            What::Receive { .. } => unreachable!(),
        };
        let len = if is_ok { len as u64 } else { 0 };
        if (done.kind, done.len) != (kind, len) {
            return Err(format!("{kind:?} of {len}"));
        }
        Ok(())
    }

    /// The oldest operation of a peer that is lost says so, the others are canceled.
    fn ended_badly(&mut self, posted: &Posted, done: &Completion, life: LifeId) -> Outcome {
        if posted.canceled {
            return match done.status {
                Status::Canceled => Ok(()),
                _ => Err("an end as `cancel` said".to_owned()),
            };
        }
        let end = *self.roster.life(life);
        match done.status {
            Status::PeerLost | Status::PeerGone => {
                if end.first.is_some() {
                    return Err("one operation of those that end with a peer".to_owned());
                }
                let is_older = |(context, other): (&u64, &Posted)| {
                    *context < done.context
                        && other.life == Some(life)
                        && !other.canceled
                        && !other.is_receive()
                };
                if let Some(older) = self.posted.iter().find(|entry| is_older(*entry)) {
                    return Err(format!("the oldest operation, which is {older:?}"));
                }
                self.roster.life(life).first = Some(done.context);
                self.explained(life.0);
                Ok(())
            }
            Status::Canceled if end.first.is_some() || end.removed => Ok(()),
            _ => Err("the loss of its peer before it".to_owned()),
        }
    }

    /// The parent has to explain a loss.
    fn explained(&mut self, id: u32) {
        let other = self.roster.get(id);
        if other.is_strict() {
            other.unexplained.get_or_insert_with(Instant::now);
        }
    }

    fn received(
        &mut self,
        posted: &Posted,
        done: &Completion,
        pattern: Pattern,
        room: usize,
        buffer: usize,
    ) -> Outcome {
        if done.kind != Kind::Recv {
            return Err("a receive".to_owned());
        }
        if !matches!(done.status, Status::Ok | Status::Truncated) {
            return self.received_nothing(posted, done);
        }
        if posted.canceled {
            return Err("an end as `cancel` said".to_owned());
        }
        let (source, from) = (done.peer, self.roster.of(done.peer));
        let (Some(source), Some(from)) = (source, from) else {
            return Err("a peer that there is".to_owned());
        };
        let number = done.immediate.ok_or("a number")?;
        let message = Message::new(from, self.id, number);
        let envelope = Envelope { source, tag: done.tag, len: done.message_len };
        let len = message.len.min(room);
        let status = if message.len > room { Status::Truncated } else { Status::Ok };
        let said = (done.tag, done.message_len, done.len, done.status);
        if said != (message.tag, message.len as u64, len as u64, status) {
            return Err(format!("all of {message:?} in {room} bytes"));
        }
        if !pattern.matches(&envelope) {
            return Err("a message of the pattern".to_owned());
        }
        if self.inboxes.bytes(buffer, len, room)? != message.payload(len) {
            return Err(format!("the payload of {message:?}"));
        }
        let met = Met { receive: done.context, pattern, envelope, number };
        self.roster.get(from).inbox.add(&message, met)
    }

    fn received_nothing(&mut self, posted: &Posted, done: &Completion) -> Outcome {
        if posted.canceled {
            return match done.status {
                Status::Canceled => Ok(()),
                _ => Err("an end as `cancel` said".to_owned()),
            };
        }
        // The peer of the receive, or of the message that it had met.
        let id = posted.life.map(|life| life.0).or(self.roster.of(done.peer));
        let Some(id) = id else { return Err("a receive from any peer to stay".to_owned()) };
        match done.status {
            Status::PeerLost => {
                self.explained(id);
                Ok(())
            }
            Status::Canceled => {
                let lives = 0..=self.roster.get(id).life;
                let was_removed =
                    lives.into_iter().any(|life| self.roster.life((id, life)).removed);
                if was_removed { Ok(()) } else { Err(format!("that {id} was removed")) }
            }
            _ => Err("another end".to_owned()),
        }
    }
}

/// As counters count them.
pub(crate) fn kind_of(kind: Kind) -> Kind {
    if kind == Kind::Released { Kind::Recv } else { kind }
}
