//! Posts of a program, probes and cancels; the model judges what they return.

use fabric::{Access, AtomicOp, Op};
use fabric_rdm::matching::Pattern as TagPattern;
use fabric_rdm::window::Blocked;
use fabric_rdm::{Full, OpId, PostError, Recv, Send};

use super::{Kept, RdmExecutor, Which, counter_at, place_at};
use crate::check::{Failed, Outcome};
use crate::guarded::Guarded;
use crate::pattern::Pattern;
use crate::random::rdm::model::{Posting, Sight, written};
use crate::random::rdm::program::{Claiming, NUMBER, PLACES, Payload, RemoteOp, SendSpec, Want};

/// What memory is filled with that is received into.
pub(super) const UNTOUCHED: u8 = 0xee;

/// The bytes of a message: they begin with its number, if there is room.
pub(super) fn payload(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = Pattern::new(number as u64).bytes(len);
    if let Some(first) = bytes.get_mut(..NUMBER) {
        first.copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}

impl RdmExecutor<'_> {
    /// `None`: it names an endpoint that is not known here.
    fn pattern(&self, at: usize, want: Want) -> Option<TagPattern> {
        let Want { tag, ignore, from } = want;
        let pattern = match tag {
            Some(tag) => TagPattern::tagged(tag).ignoring(ignore),
            None => TagPattern::untagged(),
        };
        let Some(from) = from else { return Some(pattern) };
        let peer = self.members[at].peers.get(from).copied().flatten()?;
        Some(pattern.from(peer))
    }

    /// What a post returned, if it is something that can be judged.
    fn posting<T>(posted: &Result<T, PostError>, is_present: bool) -> Result<Posting, Failed> {
        Ok(match posted {
            Ok(_) => Posting::Taken,
            Err(PostError::Again(Full::Depth)) => Posting::Depth,
            Err(PostError::Again(Full::Peer(Blocked::Window))) => Posting::Window,
            Err(PostError::Again(Full::Peer(Blocked::Places))) => Posting::Places,
            Err(PostError::PeerDown(_)) => Posting::PeerDown,
            Err(PostError::Fabric(fabric::Error::InvalidArgument(_))) if !is_present => {
                Posting::NoPeer
            }
            Err(error) => {
                let expected = "a post, or a refusal for its reason";
                return Err(Failed::new(expected, format!("{error} ({error:?})")));
            }
        })
    }

    pub(super) fn send(&mut self, at: usize, to: usize, mut spec: SendSpec) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        let Some(peer) = self.members[at].peers[to] else { return Ok(()) };
        if spec.payload == Payload::Inject {
            spec.len = spec.len.min(endpoint.max_inject()?);
        }
        if self.has_silent_receives {
            (spec.len, spec.immediate) = (spec.len.max(NUMBER), true);
        }
        spec.immediate |= spec.len < NUMBER || !self.has_room_for_numbers;
        let (op, number) = (self.model.ops.len(), self.model.messages.len());
        let bytes = payload(number, spec.len);
        let buffer = match spec.payload {
            Payload::Inject => None,
            Payload::Region => Some(self.buffer(at, &bytes, Access::empty())?),
            Payload::Readable => Some(self.buffer(at, &bytes, Access::REMOTE_READ)?),
        };
        let mut send = match &buffer {
            Some(buffer) => Send::new(buffer),
            None => Send::inject(&bytes),
        };
        send = send.context(Which::Op(op).to_bits());
        send = if spec.matched { send.matched() } else { send };
        send = if spec.unsignaled { send.unsignaled() } else { send };
        send = if spec.immediate { send.immediate(number as u32) } else { send };
        send = spec.tag.map_or(send, |tag| send.tag(tag));
        let is_down = self.look_down(at, to)?;
        let posted = endpoint.post_send(peer, &send);
        let posting = Self::posting(&posted, self.model.is_present(at, to))?;
        self.model.posted_send((at, to), spec, is_down, posting)?;
        self.keep_op(at, op, posted.ok(), posting, buffer);
        Ok(())
    }

    fn keep_op(
        &mut self,
        at: usize,
        op: usize,
        posted: Option<OpId>,
        posting: Posting,
        buffer: Option<Guarded>,
    ) {
        match posted {
            Some(id) => {
                self.note(format!("operation {op}"));
                self.members[at].posted.push((id, Which::Op(op)));
                buffer.into_iter().for_each(|buffer| _ = self.buffers.insert((false, op), buffer));
            }
            None => self.note(format!("{posting:?}")),
        }
    }

    fn buffer(&self, at: usize, bytes: &[u8], access: Access) -> Result<Guarded, Failed> {
        let buffer = Guarded::new(self.domain(at), bytes.len(), access)?;
        buffer.put(0, bytes)?;
        Ok(buffer)
    }

    /// Memory to receive into.
    fn room(&self, at: usize, len: usize) -> Result<Guarded, Failed> {
        let buffer = Guarded::new(self.domain(at), len, Access::LOCAL_WRITE)?;
        buffer.fill(UNTOUCHED)?;
        Ok(buffer)
    }

    /// Whether it was posted.
    pub(super) fn receive(
        &mut self,
        at: usize,
        want: Want,
        (room, min_free): (usize, Option<usize>),
        unsignaled: bool,
    ) -> Result<bool, Failed> {
        let Some(endpoint) = self.endpoint(at) else { return Ok(false) };
        let Some(pattern) = self.pattern(at, want) else { return Ok(false) };
        let silent = unsignaled && self.has_silent_receives;
        let room = if silent { room.max(NUMBER) } else { room };
        let min_free = min_free.filter(|min_free| (1..=room).contains(min_free));
        let number = self.model.receives.len();
        let buffer = self.room(at, room)?;
        let mut recv = Recv::new(pattern, &buffer);
        recv = if silent { recv.unsignaled() } else { recv };
        recv = recv.context(Which::Receive(number).to_bits());
        recv = min_free.map_or(recv, |min_free| recv.of_many(min_free as u64));
        let posted = endpoint.post_recv(&recv);
        let is_present = want.from.is_none_or(|from| self.model.is_present(at, from));
        let posting = Self::posting(&posted, is_present)?;
        self.model.posted_receive(at, (want, room, min_free), silent, None, posting)?;
        self.keep_receive(at, number, posted.ok(), posting, buffer);
        Ok(posting == Posting::Taken)
    }

    fn keep_receive(
        &mut self,
        at: usize,
        number: usize,
        posted: Option<OpId>,
        posting: Posting,
        buffer: Guarded,
    ) {
        match posted {
            Some(id) => {
                self.note(format!("receive {number}"));
                self.members[at].posted.push((id, Which::Receive(number)));
                self.buffers.insert((true, number), buffer);
            }
            None => self.note(format!("{posting:?}")),
        }
    }

    pub(super) fn probe(&mut self, at: usize, want: Want, claiming: Claiming) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        let Some(pattern) = self.pattern(at, want) else { return Ok(()) };
        let Some(probed) = endpoint.probe(&pattern)? else {
            self.note("nothing");
            self.model.probed(at, want, None, false);
            return Ok(());
        };
        let envelope = probed.envelope;
        let Some(from) = self.whose(at, envelope.source)? else {
            return Err(Failed::new("a message of a peer", format!("{envelope:?}")));
        };
        let sight = Sight { from, tag: envelope.tag, len: envelope.len as usize };
        self.note(format!("{sight:?}"));
        let claimed = match claiming {
            Claiming::Leave => None,
            _ => endpoint.claim_shared(&probed)?,
        };
        if claimed.is_none() && claiming != Claiming::Leave && !self.model.is_lossy(at, from) {
            return Err(Failed::new("what was just probed to be there", "it was not claimed"));
        }
        let claim = self.model.probed(at, want, Some(sight), claimed.is_some());
        let (Some(claim), Some(claimed)) = (claim, claimed) else { return Ok(()) };
        let kept = Kept { at, claimed, claim, sight };
        match claiming {
            Claiming::Keep | Claiming::Leave => {
                self.kept.push_back(kept);
                Ok(())
            }
            Claiming::Receive(room) => {
                self.kept.push_front(kept);
                self.use_kept(0, Some(room))
            }
            Claiming::Drop => {
                self.kept.push_front(kept);
                self.use_kept(0, None)
            }
        }
    }

    /// Receives a claimed message, or drops it if there is no other that it could be.
    pub(super) fn use_kept(&mut self, found: usize, room: Option<usize>) -> Outcome {
        let Some(mut kept) = self.kept.remove(found) else { return Ok(()) };
        let Kept { at, claim, sight, .. } = kept;
        let room = match room {
            Some(room) => room,
            None => match self.model.guess(at, &sight) {
                Some(message) => {
                    drop(kept.claimed);
                    self.note(format!("message {message} is dropped"));
                    self.model.dropped_claim(claim, Some(message));
                    return Ok(());
                }
                None => sight.len,
            },
        };
        let number = self.model.receives.len();
        let buffer = self.room(at, room)?;
        let posted = kept.claimed.receive(&buffer, Which::Receive(number).to_bits());
        if let Err(PostError::Fabric(_)) = &posted
            && self.model.is_lossy(at, sight.from)
        {
            self.note("its sender was lost");
            self.model.dropped_claim(claim, None);
            return Ok(());
        }
        let posting = Self::posting(&posted, true)?;
        let want = Want { tag: sight.tag, ignore: 0, from: None };
        self.model.posted_receive(at, (want, room, None), false, Some(claim), posting)?;
        if posting != Posting::Taken {
            self.kept.push_front(kept);
        }
        self.keep_receive(at, number, posted.ok(), posting, buffer);
        Ok(())
    }

    pub(super) fn one_sided(
        &mut self,
        at: usize,
        to: usize,
        what: RemoteOp,
        (fence, unsignaled): (bool, bool),
    ) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        let Some(peer) = self.members[at].peers[to] else { return Ok(()) };
        // Without a completion it is not known when a buffer has its bytes.
        let unsignaled = unsignaled && matches!(what, RemoteOp::Write(_));
        let op = self.model.ops.len();
        let buffer = match what {
            RemoteOp::Write(place) => {
                self.buffer(at, &written(op, PLACES[place]), Access::empty())?
            }
            RemoteOp::Read(place) => self.room(at, PLACES[place])?,
            RemoteOp::Add => self.room(at, 8)?,
            RemoteOp::Forbidden => self.buffer(at, &[0; 8], Access::empty())?,
        };
        let memory = &self.members[to].memory;
        let remote = |place| memory.at(place_at(at, place));
        let add = |into| Op::fetch_atomic(AtomicOp::Add, 1u64, into, memory.at(counter_at(at)));
        let mut post = match what {
            RemoteOp::Write(place) => Op::write(buffer.slice(..), remote(place)),
            RemoteOp::Read(place) => Op::read(buffer.slice(..), remote(place)),
            RemoteOp::Add => add(buffer.slice(..)),
            RemoteOp::Forbidden => Op::write(buffer.slice(..), memory.by_wrong_key(counter_at(at))),
        };
        post = post.context(Which::Op(op).to_bits());
        post = if fence { post.fence() } else { post };
        post = if unsignaled { post.unsignaled() } else { post };
        let is_down = self.look_down(at, to)?;
        let posted = endpoint.post(peer, &post);
        let posting = Self::posting(&posted, self.model.is_present(at, to))?;
        self.model.posted_access((at, to), (what, fence, unsignaled), is_down, posting)?;
        self.keep_op(at, op, posted.ok(), posting, Some(buffer));
        Ok(())
    }

    pub(super) fn cancel(&mut self, at: usize, op: OpId, which: Which) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        let answer = endpoint.cancel(op)?;
        self.note(format!("{which:?}: {answer}"));
        match which {
            Which::Op(op) => self.model.canceled_op(op, answer),
            Which::Receive(receive) => self.model.canceled_receive(receive, answer),
        }
    }
}
