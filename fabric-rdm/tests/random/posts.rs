//! Posts of a program: messages, receives, claims and one-sided operations, each with its record.

use fabric::{Access as Rights, AtomicOp, Op};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{OpId, PostError, Recv, Send};

use crate::executor::{Executor, Outcome, counter_at, place_at, text};
use crate::memory::{Buffer, UNTOUCHED, payload};
use crate::program::{CLASS_BITS, Claim, From, PLACES, Step, Wanted};
use crate::record::{Access, Message, Met, OneSided, Receive, Time, Which};

impl Executor<'_> {
    pub(crate) fn pattern(&self, at: usize, wanted: Wanted) -> Pattern {
        let Wanted { tag, ignore, from } = wanted;
        let pattern = tag.map_or(Pattern::untagged(), |tag| Pattern::tagged(tag).ignoring(ignore));
        from.map_or(pattern, |from| pattern.from(self.peers[at][from]))
    }

    pub(crate) fn send(&mut self, step: Step) -> Outcome {
        let Step::Send { at, to, class, unique, len, from, matched } = step else { return Ok(()) };
        let number = self.record.messages.len();
        let own = if unique { (number as u64 + 1) << CLASS_BITS } else { 0 };
        let tag = class.map(|class| class | own);
        let max = self.endpoint(at).max_inject().map_err(text)?;
        let len = if from == From::Inject { len.min(max) } else { len };
        let bytes = payload(number as u64, len);
        let buffer;
        let mut send = if from == From::Inject {
            Send::inject(&bytes)
        } else {
            let is_readable = from == From::Readable;
            let rights = if is_readable { Rights::REMOTE_READ } else { Rights::empty() };
            buffer = Buffer::new(self.domain(at), &bytes, rights)?;
            Send::new(buffer.slice())
        };
        let (peer, which) = (self.peers[at][to], Which::Message(number));
        send = send.immediate(number as u32).context(which.to_bits());
        send = if matched { send.matched() } else { send };
        send = tag.map_or(send, |tag| send.tag(tag));
        let is_down = self.is_down(at, to)?;
        let posted = self.endpoint(at).post_send(peer, &send);
        if self.posted(at, to, is_down, posted, which)? {
            self.record.messages.push(Message {
                from: at,
                to,
                peer,
                tag,
                len,
                immediate: Some(number as u32),
                matched,
                posted: self.now,
                canceled: None,
                ended: None,
                met: None,
            });
        }
        Ok(())
    }

    /// Whether an operation was posted, or was refused for a good reason.
    fn posted(
        &mut self,
        at: usize,
        to: usize,
        is_down: bool,
        posted: Result<OpId, PostError>,
        which: Which,
    ) -> Outcome<bool> {
        match posted {
            Ok(_) if is_down => Err(format!("{which:?} was posted to a peer that is down")),
            Ok(op) => {
                self.record.ops.push((at, op, which));
                Ok(true)
            }
            Err(PostError::PeerDown(_)) if self.record.is_lossy(at, to) => Ok(false),
            Err(PostError::Again(_)) if !is_down => Ok(false),
            Err(error) => Err(format!("{which:?} of {at} to {to}: {error}")),
        }
    }

    pub(crate) fn receive(
        &mut self,
        at: usize,
        pattern: Pattern,
        from: Option<usize>,
        room: usize,
        min_free: Option<u64>,
    ) -> Outcome {
        let which = Which::Receive(self.record.receives.len());
        let buffer = Buffer::new(self.domain(at), &vec![UNTOUCHED; room], Rights::LOCAL_WRITE)?;
        let mut recv = Recv::new(pattern, buffer.slice()).context(which.to_bits());
        if let Some(min_free) = min_free.filter(|min_free| *min_free <= room as u64) {
            recv = recv.of_many(min_free);
        }
        match self.endpoint(at).post_recv(&recv) {
            Ok(op) => self.record.ops.push((at, op, which)),
            Err(error) => return Err(format!("{which:?} at {at}: {error}")),
        }
        let min_free = min_free.filter(|min_free| *min_free <= room as u64);
        self.add_receive(at, pattern, from, min_free, None, buffer, room);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // all that a receive is
    fn add_receive(
        &mut self,
        at: usize,
        pattern: Pattern,
        from: Option<usize>,
        min_free: Option<u64>,
        claim: Option<(usize, Time, Pattern)>,
        buffer: Buffer,
        room: usize,
    ) {
        self.record.receives.push(Receive {
            at,
            pattern,
            from,
            room,
            min_free,
            posted: self.now,
            canceled: None,
            ended: None,
            claim,
            broken: false,
            taken: Vec::new(),
            buffer,
        });
    }

    pub(crate) fn probe(&mut self, at: usize, wanted: Wanted, claim: Claim) -> Outcome {
        let pattern = self.pattern(at, wanted);
        let Some(probed) = self.endpoint(at).probe(&pattern).map_err(text)? else {
            self.record.in_vain.push((at, pattern, self.now));
            return Ok(());
        };
        let envelope = probed.envelope;
        if !pattern.matches(&envelope) {
            return Err(format!("a probe for {pattern:?} found {envelope:?}"));
        }
        if let Claim::Leave = claim {
            return Ok(());
        }
        let claimed = self.endpoint(at).claim(&probed).map_err(text)?;
        let Some(claimed) = claimed else {
            // Its peer may have been lost since.
            let from = self.handles[at][&envelope.source];
            return match self.record.is_lossy(at, from) {
                true => Ok(()),
                false => Err(format!("{envelope:?} was probed, and is not there")),
            };
        };
        // Which message it is shows only its tag, if that is its own.
        let own = envelope.tag.map_or(0, |tag| tag >> CLASS_BITS);
        let now = self.now;
        match claim {
            Claim::Drop if own > 0 => {
                drop(claimed);
                let number = own as usize - 1;
                let met = Met::Claim(now, pattern);
                self.meets(number, met, envelope.source)
            }
            Claim::Receive(room) => {
                self.kept.insert(0, (at, claimed, now, pattern));
                self.receive_kept(at, room).map(drop)
            }
            _ => {
                self.kept.push((at, claimed, now, pattern));
                Ok(())
            }
        }
    }

    /// Receives a message that was claimed. Whether there was one.
    pub(crate) fn receive_kept(&mut self, at: usize, room: usize) -> Outcome<bool> {
        let Some(found) = self.kept.iter().position(|(of, ..)| *of == at) else {
            return Ok(false);
        };
        let (_, mut claimed, time, pattern) = self.kept.remove(found);
        let source = claimed.envelope().source;
        let from = self.handles[at][&source];
        let which = Which::Receive(self.record.receives.len());
        let buffer = Buffer::new(self.domain(at), &vec![UNTOUCHED; room], Rights::LOCAL_WRITE)?;
        match claimed.receive(buffer.slice(), which.to_bits()) {
            Ok(op) => {
                self.record.ops.push((at, op, which));
                let claim = Some((from, time, pattern));
                self.add_receive(at, pattern, None, None, claim, buffer, room);
                Ok(true)
            }
            Err(PostError::Fabric(_)) if self.record.is_lossy(at, from) => Ok(true),
            Err(error) => Err(format!("a message of {from} that {at} claimed: {error}")),
        }
    }

    pub(crate) fn access(&mut self, at: usize, to: usize, access: Access) -> Outcome {
        let number = self.record.accesses.len();
        let (which, domain) = (Which::OneSided(number), self.domain(at));
        let buffer = match access {
            // Numbers of writes are not those of messages.
            Access::Write(place) => {
                let bytes = payload(number as u64 + 1_000_000, PLACES[place]);
                Buffer::new(domain, &bytes, Rights::empty())?
            }
            Access::Read(place) => {
                Buffer::new(domain, &vec![UNTOUCHED; PLACES[place]], Rights::LOCAL_WRITE)?
            }
            Access::Add => Buffer::new(domain, &[UNTOUCHED; 8], Rights::LOCAL_WRITE)?,
        };
        let memory = &self.ends[to].memory;
        let op = match access {
            Access::Write(place) => Op::write(buffer.slice(), memory.at(place_at(at, place))),
            Access::Read(place) => Op::read(buffer.slice(), memory.at(place_at(at, place))),
            Access::Add => {
                Op::fetch_atomic(AtomicOp::Add, 1u64, buffer.slice(), memory.at(counter_at(at)))
            }
        };
        let (peer, is_down) = (self.peers[at][to], self.is_down(at, to)?);
        let posted = self.endpoint(at).post(peer, &op.context(which.to_bits()));
        if self.posted(at, to, is_down, posted, which)? {
            let (canceled, ended) = (None, None);
            self.record.accesses.push(OneSided { at, to, peer, access, canceled, ended, buffer });
        }
        Ok(())
    }
}
