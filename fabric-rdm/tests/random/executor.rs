//! Runs a program: posts, and keeps a record of what was posted and what became of it.

use std::collections::HashMap;
use std::time::Duration;

use fabric::{Access as Rights, AtomicOp, Catalog, Choice, Domain, Hints, Op};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Claimed, Completion, Endpoint, Peer, PeerEvent, PostError, RdmAttr, Recv, Send};

use crate::memory::{Buffer, UNTOUCHED, payload};
use crate::program::{CLASS_BITS, Claim, From, PLACES, Program, Settings, Step, Wanted};
use crate::record::{Access, Message, OneSided, Receive, Record, Time, Which};

/// What was expected and is not so.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// Where the counter of each initiator is in the target's memory; behind it are its places.
pub(crate) fn counter_at(initiator: usize) -> usize {
    initiator * 16_384
}

/// Where the place of an initiator is in the target's memory.
pub(crate) fn place_at(initiator: usize, place: usize) -> usize {
    counter_at(initiator) + 8 + PLACES[..place].iter().sum::<usize>()
}

/// An endpoint, and the memory that the others write to.
pub(crate) struct End {
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Buffer,
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Endpoints of a program, each on a domain of its own.
pub(crate) fn ends(provider: &str, settings: &Settings) -> Outcome<Vec<End>> {
    let catalog = Catalog::builtin().add(provider_mem::MemProvider::new()).map_err(text)?;
    let choice = Choice::parse(provider).map_err(text)?;
    let end = |_| {
        let domain = catalog.open_with(&choice, &Hints::default()).map_err(text)?;
        let mut attr = RdmAttr::default();
        attr.max_open = settings.max_open;
        attr.slots = settings.slots;
        attr.connection_depth = settings.connection_depth;
        attr.window.places.window = settings.window;
        attr.window.bytes.window = settings.bytes;
        attr.window.bytes.reserved = attr.window.bytes.reserved.min(settings.bytes);
        let endpoint = Endpoint::new(&domain, &attr).map_err(text)?;
        let memory = Buffer::new(&domain, &vec![0; counter_at(settings.ends)], Rights::ALL)?;
        Ok(End { endpoint, memory })
    };
    (0..settings.ends).map(end).collect()
}

/// A program under way.
pub(crate) struct Executor<'a> {
    pub(crate) ends: &'a [End],
    pub(crate) settings: Settings,
    pub(crate) now: Time,
    /// By endpoint, the handle of each.
    pub(crate) peers: Vec<Vec<Peer>>,
    /// Which endpoint a handle was, or is, of.
    pub(crate) handles: Vec<HashMap<Peer, usize>>,
    /// Messages that were claimed, with the time and the pattern.
    pub(crate) kept: Vec<(usize, Claimed<'a>, Time, Pattern)>,
    pub(crate) record: Record,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(ends: &'a [End], program: &Program) -> Outcome<Self> {
        let mut executor = Executor {
            ends,
            settings: program.settings.clone(),
            now: 0,
            peers: Vec::new(),
            handles: Vec::new(),
            kept: Vec::new(),
            record: Record::default(),
        };
        for end in ends {
            let insert = |other: &End| end.endpoint.insert(other.endpoint.address()).map_err(text);
            let peers = ends.iter().map(insert).collect::<Outcome<Vec<_>>>()?;
            executor.handles.push(peers.iter().copied().zip(0..).collect());
            executor.peers.push(peers);
        }
        Ok(executor)
    }

    pub(crate) fn endpoint(&self, at: usize) -> &'a Endpoint {
        &self.ends[at].endpoint
    }

    fn domain(&self, at: usize) -> &'a Domain {
        self.endpoint(at).domain()
    }

    pub(crate) fn step(&mut self, step: Step) -> Outcome {
        self.now += 1;
        match step {
            Step::Send { .. } => self.send(step),
            Step::Recv { at, wanted, room, min_free } => {
                let pattern = self.pattern(at, wanted);
                self.receive(at, pattern, wanted.from, room, min_free)
            }
            Step::Probe { at, wanted, claim } => self.probe(at, wanted, claim),
            Step::ReceiveKept { at, room } => self.receive_kept(at, room).map(drop),
            Step::Write { at, to, place } => self.access(at, to, Access::Write(place)),
            Step::Read { at, to, place } => self.access(at, to, Access::Read(place)),
            Step::Add { at, to } => self.access(at, to, Access::Add),
            Step::Cancel { at, back } => {
                let ops = self.record.ops.iter().filter(|(of, ..)| *of == at);
                let found = ops.rev().nth(back).copied();
                found.map_or(Ok(()), |(at, op, which)| self.cancel(at, op, which))
            }
            Step::Poll { at } => self.poll(at).map(drop),
            Step::Wait { at } => self.wait(at),
            Step::Cut { at, peer } => self.cut(at, peer),
            Step::Revive { at } => self.revive(at),
        }
    }

    fn pattern(&self, at: usize, wanted: Wanted) -> Pattern {
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
        posted: Result<fabric_rdm::OpId, PostError>,
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

    fn is_down(&self, at: usize, to: usize) -> Outcome<bool> {
        let down = self.endpoint(at).down(self.peers[at][to]).map_err(text)?;
        if let Some(cause) = down
            && !self.record.is_lossy(at, to)
        {
            return Err(format!("{to} is down for {at}, and nothing was cut: {cause}"));
        }
        Ok(down.is_some())
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

    fn probe(&mut self, at: usize, wanted: Wanted, claim: Claim) -> Outcome {
        let pattern = self.pattern(at, wanted);
        let Some(probed) = self.endpoint(at).probe(&pattern).map_err(text)? else { return Ok(()) };
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
                let met = crate::record::Met::Claim(now, pattern);
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

    fn access(&mut self, at: usize, to: usize, access: Access) -> Outcome {
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

    pub(crate) fn cancel(&mut self, at: usize, op: fabric_rdm::OpId, which: Which) -> Outcome {
        let is_canceled = self.endpoint(at).cancel(op).map_err(text)?;
        let (canceled, ended) = match which {
            Which::Message(at) => {
                let message = &mut self.record.messages[at];
                (&mut message.canceled, message.ended)
            }
            Which::Receive(at) => {
                let receive = &mut self.record.receives[at];
                (&mut receive.canceled, receive.ended)
            }
            Which::OneSided(at) => {
                let access = &mut self.record.accesses[at];
                (&mut access.canceled, access.ended)
            }
        };
        if !is_canceled {
            return Ok(());
        }
        if ended.is_some() {
            return Err(format!("{which:?} had ended, and was canceled"));
        }
        canceled.get_or_insert(self.now);
        Ok(())
    }

    /// Takes all completions and events. How many completions there were.
    pub(crate) fn poll(&mut self, at: usize) -> Outcome<usize> {
        let mut all = [Completion::default(); 16];
        let mut taken = 0;
        loop {
            let found = self.endpoint(at).poll(&mut all).map_err(text)?;
            for completion in &all[..found] {
                self.completed(at, completion)?;
            }
            taken += found;
            if found < all.len() {
                break;
            }
        }
        while let Some(event) = self.endpoint(at).poll_event().map_err(text)? {
            let PeerEvent::Down(peer, cause) = event else {
                return Err(format!("{at}: {event:?}"));
            };
            let of = self.handles[at][&peer];
            if self.peers[at][of] != peer || !self.record.is_lossy(at, of) {
                return Err(format!("{of} is down for {at}, and should not be: {cause}"));
            }
        }
        let open = self.endpoint(at).connections().map_err(text)?;
        if open > self.settings.max_open {
            return Err(format!("{at} has {open} connections"));
        }
        Ok(taken)
    }

    pub(crate) fn wait(&mut self, at: usize) -> Outcome {
        if let Ok(completion) = self.endpoint(at).wait_one(Some(Duration::from_millis(3))) {
            self.completed(at, &completion)?;
        }
        self.poll(at).map(drop)
    }

    fn cut(&mut self, at: usize, of: usize) -> Outcome {
        let endpoint = self.endpoint(at);
        self.record.cuts.push((at, of, self.now));
        endpoint.remove(self.peers[at][of]).map_err(text)?;
        let peer = endpoint.insert(self.endpoint(of).address()).map_err(text)?;
        self.peers[at][of] = peer;
        match self.handles[at].insert(peer, of) {
            Some(_) => Err(format!("{at}: the handle of {of} was there before")),
            None => Ok(()),
        }
    }

    pub(crate) fn revive(&mut self, at: usize) -> Outcome {
        for of in 0..self.ends.len() {
            if self.is_down(at, of)? {
                let peer = self.peers[at][of];
                self.endpoint(at).revive(peer).map_err(text)?;
            }
        }
        Ok(())
    }
}
