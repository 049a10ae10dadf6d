//! What one completion has to say, whatever the others are.

use fabric_rdm::{Completion, Kind, Peer, Status};

use crate::executor::{Executor, Outcome};
use crate::memory::{UNTOUCHED, number, payload};
use crate::record::{Access, Met, Which};

impl Executor<'_> {
    pub(crate) fn completed(&mut self, at: usize, done: &Completion) -> Outcome {
        let which = Which::from_bits(done.context);
        let result = match (done.kind, which) {
            (Kind::Send, Some(Which::Message(number))) => self.sent(at, number, done),
            (Kind::Recv, Some(Which::Receive(number))) => self.received(at, number, done),
            (Kind::Released, Some(Which::Receive(number))) => self.released(at, number, done),
            (_, Some(Which::OneSided(number))) => self.accessed(at, number, done),
            _ => Err("a completion of something that was posted".to_owned()),
        };
        result.map_err(|expected| {
            format!("at {at}, time {}: expected {expected}, not {done:?}", self.now)
        })
    }

    fn sent(&mut self, at: usize, number: usize, done: &Completion) -> Outcome {
        let now = self.now;
        let message = self.record.messages.get(number).ok_or("a post that succeeded")?;
        let is_lossy = self.record.is_lossy(message.from, message.to);
        let len = if done.status == Status::Ok { message.len as u64 } else { 0 };
        if message.from != at || done.peer != Some(message.peer) || done.len != len {
            return Err(format!("the completion of {message:?}"));
        }
        let is_right = match done.status {
            Status::Ok => message.canceled.is_none(),
            Status::Canceled => message.canceled.is_some() || is_lossy,
            Status::PeerLost => message.canceled.is_none() && is_lossy,
            _ => false,
        };
        if message.ended.is_some() || !is_right {
            return Err(format!("one end, and a right one, of {message:?}"));
        }
        self.record.messages[number].ended = Some((now, done.status));
        Ok(())
    }

    /// A message was taken.
    pub(crate) fn meets(&mut self, number: usize, met: Met, source: Peer) -> Outcome {
        let now = self.now;
        let message = self.record.messages.get_mut(number).ok_or("a message that was sent")?;
        if message.met.is_some() || message.canceled.is_some() {
            return Err(format!("that {message:?} comes once, or not if it was canceled"));
        }
        message.met = Some((met, source, now));
        Ok(())
    }

    fn received(&mut self, at: usize, index: usize, done: &Completion) -> Outcome {
        let now = self.now;
        let receive = self.record.receives.get_mut(index).ok_or("a receive that was posted")?;
        if receive.at != at || receive.ended.is_some() {
            return Err("one end of a receive of this endpoint".to_owned());
        }
        let (is_many, canceled) = (receive.min_free.is_some(), receive.canceled.is_some());
        if !matches!(done.status, Status::Ok | Status::Truncated) {
            let has_cuts = !self.record.cuts.is_empty();
            let receive = &mut self.record.receives[index];
            let is_right = match done.status {
                Status::Canceled => canceled && !is_many || has_cuts,
                Status::PeerLost => has_cuts,
                _ => false,
            };
            receive.broken = true;
            if !is_many {
                receive.ended = Some((now, done.status));
            }
            return if is_right { Ok(()) } else { Err("a receive that ends well".to_owned()) };
        }
        if canceled && !is_many {
            return Err("a receive that ends canceled, as `cancel` said".to_owned());
        }
        let bytes = receive.buffer.bytes()?;
        let (offset, len) = (done.offset as usize, done.len as usize);
        let got = bytes.get(offset..offset + len).ok_or("bytes within the buffer")?;
        let id = done.immediate.map(u64::from).or(number(got)).ok_or("an immediate")?;
        let Some(message) = self.record.messages.get(id as usize) else {
            return Err("a message that was sent".to_owned());
        };
        let source = done.peer.ok_or("a peer")?;
        let envelope =
            fabric_rdm::matching::Envelope { source, tag: done.tag, len: done.message_len };
        let is_it = message.to == at
            && self.handles[at].get(&source) == Some(&message.from)
            && done.tag == message.tag
            && done.immediate == message.immediate
            && done.message_len == message.len as u64;
        let room = receive.room - offset;
        let status = if message.len > room { Status::Truncated } else { Status::Ok };
        if !is_it || len != message.len.min(room) || done.status != status {
            return Err(format!("all of {message:?}"));
        }
        if !receive.pattern.matches(&envelope) {
            return Err(format!("a message of {:?}", receive.pattern));
        }
        if got != &payload(id, message.len)[..len] {
            return Err(format!("the payload of {message:?}"));
        }
        if !is_many && bytes[len..].iter().any(|byte| *byte != UNTOUCHED) {
            return Err("nothing behind the message".to_owned());
        }
        let met = match receive.claim {
            Some((_, time, pattern)) => Met::Claim(time, pattern),
            None => Met::Receive(index, done.offset),
        };
        let receive = &mut self.record.receives[index];
        if is_many {
            receive.taken.push((done.offset, done.len, id as usize));
        } else {
            receive.ended = Some((now, done.status));
        }
        self.meets(id as usize, met, source)
    }

    fn released(&mut self, at: usize, index: usize, done: &Completion) -> Outcome {
        let (now, has_cuts) = (self.now, !self.record.cuts.is_empty());
        let receive = self.record.receives.get_mut(index).ok_or("a receive that was posted")?;
        let Some(min_free) = receive.min_free else {
            return Err("no release of a receive of one message".to_owned());
        };
        if receive.at != at || receive.ended.is_some() || done.status != Status::Ok {
            return Err("one release".to_owned());
        }
        receive.ended = Some((now, done.status));
        receive.taken.sort_unstable();
        let bytes = receive.buffer.bytes()?;
        let mut end = 0;
        for &(offset, len, id) in &receive.taken {
            let (from, to) = (offset as usize, (offset + len) as usize);
            if offset < end || offset > end && !receive.broken {
                return Err(format!("messages one behind the other, not {:?}", receive.taken));
            }
            let message = &self.record.messages[id];
            if bytes[from..to] != payload(id as u64, message.len)[..to - from] {
                return Err(format!("the payload of {message:?}, still"));
            }
            end = offset + len;
        }
        if done.len < end || done.len > end && !receive.broken {
            return Err(format!("{end} bytes"));
        }
        let is_full = receive.room as u64 - done.len < min_free;
        let is_ended = receive.canceled.is_some() || receive.from.is_some() && has_cuts;
        if !is_full && !is_ended {
            return Err(format!("a receive that goes on: {min_free} bytes are free"));
        }
        if !receive.broken && bytes[end as usize..].iter().any(|byte| *byte != UNTOUCHED) {
            return Err("nothing behind the messages".to_owned());
        }
        Ok(())
    }

    fn accessed(&mut self, at: usize, number: usize, done: &Completion) -> Outcome {
        let now = self.now;
        let access = self.record.accesses.get(number).ok_or("a post that succeeded")?;
        let kind = match access.access {
            Access::Write(_) => Kind::Write,
            Access::Read(_) => Kind::Read,
            Access::Add => Kind::Atomic,
        };
        let is_lossy = self.record.is_lossy(access.at, access.to);
        let is_right = match done.status {
            Status::Ok => access.canceled.is_none(),
            Status::Canceled => access.canceled.is_some() || is_lossy,
            Status::PeerLost => access.canceled.is_none() && is_lossy,
            _ => false,
        };
        let is_it = (access.at, kind, Some(access.peer)) == (at, done.kind, done.peer);
        if access.ended.is_some() || !is_it || !is_right {
            return Err(format!("one end, and a right one, of {:?}", access.access));
        }
        // Its guards.
        access.buffer.bytes()?;
        self.record.accesses[number].ended = Some((now, done.status));
        Ok(())
    }
}
