//! Completions and events as they are taken: with numbers in place of handles, they go to the model.

use std::time::Duration;

use fabric_rdm::{Completion, Kind, PeerEvent, Status};

use super::posts::{NUMBER, UNTOUCHED, payload};
use super::{RdmExecutor, Which, place_at};
use crate::check::{Failed, Outcome};
use crate::random::rdm::model::{Initiating, SeenEnd};
use crate::random::rdm::program::{PLACES, RemoteOp};

/// How long a step that waits sleeps.
const NAP: Duration = Duration::from_millis(2);

impl RdmExecutor<'_> {
    /// Takes all completions and events. How many completions there were.
    pub(super) fn poll(&mut self, at: usize) -> Result<usize, Failed> {
        let Some(endpoint) = self.endpoint(at) else { return Ok(0) };
        let mut all = [Completion::default(); 16];
        let mut taken = 0;
        loop {
            let found = endpoint.poll(&mut all)?;
            for done in &all[..found] {
                self.completed(at, done)?;
            }
            taken += found;
            if found < all.len() {
                break;
            }
        }
        while let Some(event) = endpoint.poll_event()? {
            self.event(at, event)?;
        }
        let (open, max) = (endpoint.connections()?, self.program.settings.max_open);
        if open > max {
            let expected = format!("e{at}: at most {max} connections");
            return Err(Failed::new(expected, open.to_string()));
        }
        Ok(taken)
    }

    /// Sleeps until something has come, or for a moment.
    pub(super) fn wait(&mut self, at: usize) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        if let Ok(done) = endpoint.wait_one(Some(NAP)) {
            self.completed(at, &done)?;
        }
        self.poll(at).map(drop)
    }

    fn event(&mut self, at: usize, event: PeerEvent) -> Outcome {
        let PeerEvent::Down(peer, cause) = event else {
            return Err(Failed::new("no stranger", format!("e{at}: {event:?}")));
        };
        let member = &self.members[at];
        let of = member.handles.get(&peer).copied().filter(|of| member.peers[*of] == peer);
        match of {
            Some(of) => {
                self.note(format!("e{at}: e{of} is down: {cause}"));
                self.model.event(at, of).map_err(|failed| failed.of(cause))
            }
            None => Err(Failed::new("an event of a peer", format!("e{at}: {event:?}"))),
        }
    }

    fn completed(&mut self, at: usize, done: &Completion) -> Outcome {
        self.note(brief(at, done));
        let which = Which::from_bits(done.context);
        let is_receive = matches!(done.kind, Kind::Recv | Kind::Released);
        let mut seen = SeenEnd {
            kind: done.kind,
            status: done.status,
            peer: done.peer.and_then(|peer| self.members[at].handles.get(&peer).copied()),
            tag: done.tag,
            len: done.len as usize,
            message_len: done.message_len as usize,
            offset: done.offset as usize,
            message: None,
        };
        match which {
            Which::Op(op) if !is_receive => {
                self.model.ended_op(at, op, &seen)?;
                self.found(at, op, done.status)
            }
            Which::Receive(number) if is_receive => {
                let is_ok = done.status == Status::Ok;
                let (well, badly) = &mut self.members[at].received;
                *(if is_ok { well } else { badly }) += 1;
                seen.message = self.name(number, done)?;
                self.model.ended_receive(at, number, &seen)?;
                self.look(at, number, &seen)
            }
            _ => Err(Failed::new("a completion of what was posted", format!("e{at}: {done:?}"))),
        }
    }

    /// Which message it is that a receive has.
    fn name(&self, number: usize, done: &Completion) -> Result<Option<usize>, Failed> {
        if done.kind != Kind::Recv || !matches!(done.status, Status::Ok | Status::Truncated) {
            return Ok(None);
        }
        if let Some(immediate) = done.immediate {
            return Ok(Some(immediate as usize));
        }
        let Some(buffer) = self.buffers.get(&(true, number)) else { return Ok(None) };
        let (from, to) = (done.offset as usize, (done.offset + done.len) as usize);
        if to > buffer.len() || to - from < NUMBER {
            return Ok(None);
        }
        let bytes = buffer.bytes(from..from + NUMBER)?;
        Ok(bytes.try_into().ok().map(|bytes| u64::from_le_bytes(bytes) as usize))
    }

    /// What a receive has: the bytes of the message, and of writes before it.
    fn look(&mut self, at: usize, number: usize, seen: &SeenEnd) -> Outcome {
        let (Some(buffer), Some(message)) = (self.buffers.get(&(true, number)), seen.message)
        else {
            return Ok(());
        };
        let from = seen.offset;
        let sent = &self.model.messages[message];
        let whole = payload(message, sent.spec.len);
        if buffer.bytes(from..from + seen.len)? != whole[..seen.len] {
            return Err(Failed::new(format!("the bytes of message {message}"), "others"));
        }
        if self.model.receives[number].min_free.is_none() {
            buffer.check_filled(seen.len.., UNTOUCHED)?;
        }
        buffer.check_guards()?;
        let initiator = sent.from;
        if initiator == at || !self.model.has_writes(initiator, at) {
            return Ok(());
        }
        let time = self.model.posted_at(sent.op);
        for (place, len) in PLACES.into_iter().enumerate() {
            let start = place_at(initiator, place);
            let bytes = self.members[at].memory.bytes(start..start + len)?;
            let checked = self.model.check_place((initiator, at), place, time, &bytes);
            checked.map_err(|failed| failed.of(format!("behind it, message {message}")))?;
        }
        Ok(())
    }

    /// What a read or an atomic has found.
    fn found(&mut self, at: usize, op: usize, status: Status) -> Outcome {
        let Some(buffer) = self.buffers.get(&(false, op)) else { return Ok(()) };
        buffer.check_guards()?;
        let one = &self.model.ops[op];
        let (Initiating::Access(access), Status::Ok) = (one.what, status) else { return Ok(()) };
        let (to, time) = (one.to, self.model.posted_at(op));
        match self.model.accesses[access].what {
            RemoteOp::Write(_) => Ok(()),
            RemoteOp::Read(place) => {
                let bytes = buffer.bytes(..)?;
                let checked = self.model.check_place((at, to), place, time, &bytes);
                checked.map_err(|failed| failed.of(format!("what operation {op} reads")))
            }
            RemoteOp::Add => {
                let value = buffer.get::<u64>(0)?;
                self.model.fetched(op, value)
            }
        }
    }
}

/// A completion on one line.
fn brief(at: usize, done: &Completion) -> String {
    let Completion { kind, status, tag, len, message_len, offset, immediate, .. } = done;
    let which = Which::from_bits(done.context);
    let mut text = format!("e{at}: {which:?} {kind:?} {status:?}");
    if matches!(kind, Kind::Recv | Kind::Released) {
        text += &format!(" {len} of {message_len} bytes at {offset}, tag {tag:?}, {immediate:?}");
    }
    text
}
