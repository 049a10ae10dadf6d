//! Runs a program: posts, and keeps a record of what was posted and what became of it.

use std::collections::HashMap;
use std::time::Duration;

use fabric::{Access as Rights, Catalog, Choice, Domain, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Claimed, Completion, Endpoint, OpId, Peer, PeerEvent, RdmAttr};

use crate::memory::Buffer;
use crate::program::{PLACES, Program, Settings, Step};
use crate::record::{Access, Record, Time, Which};

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
        attr.slot_len = settings.slot_len;
        attr.rendezvous = settings.rendezvous;
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

    pub(crate) fn domain(&self, at: usize) -> &'a Domain {
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

    pub(crate) fn is_down(&self, at: usize, to: usize) -> Outcome<bool> {
        let down = self.endpoint(at).down(self.peers[at][to]).map_err(text)?;
        if let Some(cause) = down
            && !self.record.is_lossy(at, to)
        {
            return Err(format!("{to} is down for {at}, and nothing was cut: {cause}"));
        }
        Ok(down.is_some())
    }

    pub(crate) fn cancel(&mut self, at: usize, op: OpId, which: Which) -> Outcome {
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
