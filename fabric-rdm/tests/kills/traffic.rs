//! What a member posts.

use std::time::{Duration, Instant};

use fabric::{AtomicOp, Op};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Full, OpId, PostError, Recv, Send};

use crate::content::{CLASS_MASK, CLASSES, MAX_LEN, Message, PLACES, area, place_at, written};
use crate::member::Member;
use crate::oracle::{Buffer, Posted, What};
use crate::{Outcome, text};

/// Receives that take anything: so many with any tag, and so many without one.
const CATCH_ALL: usize = 3;
/// One message in so many is not signaled, if it is short.
const SIGNALED: usize = 8;

impl Member {
    /// Posts something to someone.
    pub(crate) fn post_one(&mut self) -> Outcome {
        let present = self.roster.present();
        if present.is_empty() {
            return Ok(());
        }
        let id = present[self.random.below(present.len())];
        match self.random.below(10) {
            // There are none to oneself.
            0..3 if id == self.id => Ok(()),
            0 => self.write(id),
            1 => self.read(id),
            2 => self.fetch_add(id),
            3..7 => self.send(id, false).map(drop),
            7 => self.receive_some(id),
            8 if self.random.once_in(4) => self.cancel_one(),
            _ => Ok(()),
        }
    }

    /// Whether it was posted, or refused for a good reason.
    fn note(
        &mut self,
        id: u32,
        was_down: bool,
        result: Result<OpId, PostError>,
        what: What,
    ) -> Outcome<bool> {
        let other = self.roster.get(id);
        let (peer, life) = (other.peer, (id, other.life));
        match result {
            Ok(_) if was_down => Err(format!("no post of {what:?} to {id}, which is down")),
            Ok(op) => {
                let since = Some(Instant::now());
                let posted = Posted { op, life: Some(life), what, since, canceled: false };
                self.keep(posted);
                Ok(true)
            }
            Err(PostError::PeerDown(cause)) => {
                if self.endpoint.down(peer).map_err(text)?.is_none() {
                    return Err(format!("that {id} is down, as the post says: {cause}"));
                }
                self.lost(id);
                Ok(false)
            }
            // The depth is looked at first.
            Err(PostError::Again(Full::Depth)) => Ok(false),
            Err(PostError::Again(Full::Peer(_))) if !was_down => Ok(false),
            Err(error) => Err(format!("a post of {what:?} to {id}: {error}")),
        }
    }

    fn keep(&mut self, posted: Posted) {
        let context = self.next_context;
        self.next_context += 1;
        let is_silent = matches!(posted.what, What::Message { signaled: false, .. });
        let kept = if is_silent { &mut self.silent } else { &mut self.posted };
        kept.insert(context, posted);
    }

    fn is_down(&self, id: u32) -> Outcome<bool> {
        let peer = self.roster.others[&id].peer;
        Ok(self.endpoint.down(peer).map_err(text)?.is_some())
    }

    /// Sends the next message to a member; the last one has to meet its receive. Whether it was posted.
    pub(crate) fn send(&mut self, id: u32, is_last: bool) -> Outcome<bool> {
        let number = self.roster.get(id).messages.posted as u32;
        let message = Message::new(self.id, id, number);
        let payload = message.payload(message.len);
        let is_injected = message.len <= self.max_inject && self.random.once_in(2);
        let signaled = is_last || !is_injected || !self.random.once_in(SIGNALED);
        let buffer = if is_injected {
            None
        } else if self.random.once_in(2) {
            let Some(buffer) = self.plain.take() else { return Ok(false) };
            self.plain.fill(buffer, &payload)?;
            Some(Buffer::Plain(buffer))
        } else {
            let Some(buffer) = self.readable.take() else { return Ok(false) };
            self.readable.fill(buffer, &payload)?;
            Some(Buffer::Readable(buffer))
        };
        let mut send = match buffer {
            None => Send::inject(&payload),
            Some(Buffer::Plain(buffer)) => Send::new(self.plain.slice(buffer, message.len)),
            Some(Buffer::Readable(buffer)) => Send::new(self.readable.slice(buffer, message.len)),
        };
        send = send.immediate(number).context(self.next_context);
        send = message.tag.map_or(send, |tag| send.tag(tag));
        send = if is_last || self.random.once_in(4) { send.matched() } else { send };
        send = if signaled { send } else { send.unsignaled() };
        let (was_down, peer) = (self.is_down(id)?, self.roster.get(id).peer);
        let result = self.endpoint.post_send(peer, &send);
        let is_posted =
            self.note(id, was_down, result, What::Message { message, buffer, signaled })?;
        if is_posted {
            let messages = &mut self.roster.get(id).messages;
            messages.posted += 1;
            messages.certain += u64::from(!signaled);
            self.sent += 1;
        } else {
            match buffer {
                Some(Buffer::Plain(buffer)) => self.plain.give_back(buffer),
                Some(Buffer::Readable(buffer)) => self.readable.give_back(buffer),
                None => {}
            }
        }
        Ok(is_posted)
    }

    fn write(&mut self, id: u32) -> Outcome {
        let Some(buffer) = self.one_sided.take() else { return Ok(()) };
        let place = self.random.below(PLACES.len());
        let (me, len) = (self.id, PLACES[place]);
        let other = self.roster.get(id);
        let number = other.writes[place].posted + 1;
        let (peer, at) = (other.peer, other.place.memory.at(place_at(me, place) as u64));
        self.one_sided.fill(buffer, &written(me, number as u32, len))?;
        let was_down = self.is_down(id)?;
        let op = Op::write(self.one_sided.slice(buffer, len), at).context(self.next_context);
        // Reads that are under way would find a part of it.
        let is_read = |posted: &Posted| {
            matches!(posted.what, What::Read { place: of, .. } if of == place)
                && posted.life.is_some_and(|(of, _)| of == id)
        };
        let op = if self.posted.values().any(is_read) { op.fence() } else { op };
        let result = self.endpoint.post(peer, &op);
        if self.note(id, was_down, result, What::Write { place, number, buffer })? {
            self.roster.get(id).writes[place].posted = number;
        } else {
            self.one_sided.give_back(buffer);
        }
        Ok(())
    }

    fn read(&mut self, id: u32) -> Outcome {
        let Some(buffer) = self.one_sided.take() else { return Ok(()) };
        let place = self.random.below(PLACES.len());
        let (me, len) = (self.id, PLACES[place]);
        let other = self.roster.get(id);
        let (peer, at) = (other.peer, other.place.memory.at(place_at(me, place) as u64));
        let writes = other.writes[place];
        self.one_sided.guard(buffer, len)?;
        let was_down = self.is_down(id)?;
        let op = Op::read(self.one_sided.slice(buffer, len), at).context(self.next_context);
        let op = if self.random.once_in(2) { op.fence() } else { op };
        let result = self.endpoint.post(peer, &op);
        if !self.note(id, was_down, result, What::Read { place, writes, buffer })? {
            self.one_sided.give_back(buffer);
        }
        Ok(())
    }

    pub(crate) fn fetch_add(&mut self, id: u32) -> Outcome {
        let Some(buffer) = self.one_sided.take() else { return Ok(()) };
        let me = self.id;
        let other = self.roster.get(id);
        let (peer, at) = (other.peer, other.place.memory.at(area(me).0 as u64));
        let lowest = other.adds.certain;
        self.one_sided.guard(buffer, 8)?;
        let was_down = self.is_down(id)?;
        let into = self.one_sided.slice(buffer, 8);
        let op = Op::fetch_atomic(AtomicOp::Add, 1u64, into, at).context(self.next_context);
        let result = self.endpoint.post(peer, &op);
        if self.note(id, was_down, result, What::Add { lowest, buffer })? {
            self.roster.get(id).adds.posted += 1;
        } else {
            self.one_sided.give_back(buffer);
        }
        Ok(())
    }

    /// Posts a receive for some messages: of all, or of this member alone.
    fn receive_some(&mut self, id: u32) -> Outcome {
        let class = self.random.below(CLASSES) as u64;
        let pattern = match self.random.below(3) {
            0 => Pattern::untagged(),
            1 => Pattern::tagged(class).ignoring(!CLASS_MASK),
            _ => Pattern::tagged(0).ignoring(u64::MAX),
        };
        let room = if self.random.once_in(8) { self.random.below(MAX_LEN) } else { MAX_LEN };
        if !self.random.once_in(2) {
            return self.receive(pattern, None, room).map(drop);
        }
        if self.is_down(id)? {
            return Ok(());
        }
        let context = self.next_context;
        let pattern = pattern.from(self.roster.get(id).peer);
        // One that was posted after a loss stays: whether it was is not known.
        if self.receive(pattern, Some(id), room)? && self.is_down(id)? {
            self.cancel(context)?;
        }
        Ok(())
    }

    fn receive(&mut self, pattern: Pattern, from: Option<u32>, room: usize) -> Outcome<bool> {
        let Some(buffer) = self.inboxes.take() else { return Ok(false) };
        self.inboxes.guard(buffer, room)?;
        let recv = Recv::new(pattern, self.inboxes.slice(buffer, room)).context(self.next_context);
        match self.endpoint.post_recv(&recv) {
            Ok(op) => {
                let life = from.map(|id| (id, self.roster.get(id).life));
                let what = What::Receive { pattern, room, buffer };
                self.keep(Posted { op, life, what, since: None, canceled: false });
                Ok(true)
            }
            Err(error) => Err(format!("a receive: {error}")),
        }
    }

    /// Keeps receives that take anything.
    pub(crate) fn catch_all(&mut self) -> Outcome {
        for pattern in [Pattern::untagged(), Pattern::tagged(0).ignoring(u64::MAX)] {
            let is_one = |posted: &&Posted| matches!(posted.what, What::Receive { pattern: of, room: MAX_LEN, .. } if of == pattern);
            let there = self.posted.values().filter(is_one).count();
            for _ in there..CATCH_ALL {
                if !self.receive(pattern, None, MAX_LEN)? {
                    return self.cancel_directed();
                }
            }
        }
        Ok(())
    }

    /// Other receives may hold all the memory.
    fn cancel_directed(&mut self) -> Outcome {
        let found = self
            .posted
            .iter()
            .find(|(_, posted)| posted.is_receive() && posted.life.is_some() && !posted.canceled);
        let found = found.map(|(context, _)| *context);
        found.map_or(Ok(()), |context| self.cancel(context))
    }

    fn cancel_one(&mut self) -> Outcome {
        let Some((&last, _)) = self.posted.last_key_value() else { return Ok(()) };
        let from = last.saturating_sub(self.random.below(64) as u64);
        let found = self.posted.range(from..).next().map(|(context, _)| *context);
        found.map_or(Ok(()), |context| self.cancel(context))
    }

    pub(crate) fn cancel(&mut self, context: u64) -> Outcome {
        let Some(posted) = self.posted.get_mut(&context) else { return Ok(()) };
        let was_canceled = posted.canceled;
        if self.endpoint.cancel(posted.op).map_err(text)? {
            if was_canceled {
                return Err(format!("that {posted:?} is canceled once"));
            }
            posted.canceled = true;
            posted.since = Some(Instant::now());
        }
        Ok(())
    }

    /// Removes a live member and inserts it again; both sides lose what is under way between them.
    pub(crate) fn cut_one(&mut self) -> Outcome {
        let (now, steady) = (Instant::now(), self.steady);
        let lives = self.roster.others.values().filter(|other| {
            let stays = other.id == self.id || other.steady && steady;
            !(other.removed || other.dead || stays)
        });
        let ids: Vec<_> = lives.map(|other| other.id).collect();
        self.next_cut = now + Duration::from_millis(500 + self.random.below(5000) as u64);
        if ids.is_empty() {
            return Ok(());
        }
        let id = ids[self.random.below(ids.len())];
        crate::process::say(&format!("cut {id}"));
        self.has_to_end(id);
        self.roster.cut(&self.endpoint, id)
    }
}
