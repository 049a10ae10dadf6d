//! Registered memory of the endpoint's own: slots that frames arrive in, and heads that go before payload.

use std::sync::Arc;

use fabric::{Access, Domain, Endpoint, OpKind, Recv, Region, SharedReceiveQueue, Slice};
use fabric_core::Result;

use super::wire::MAX_CONTROL;

/// Slots of one region, so that memory is taken as connections come.
const CHUNK: usize = 64;

/// Where frames arrive.
pub(super) struct Slots {
    domain: Domain,
    slot_len: usize,
    chunks: Vec<Arc<Region>>,
    free: Vec<u32>,
    /// Where all of them are posted, unless each connection has some of its own.
    shared: Option<SharedReceiveQueue>,
}

impl Slots {
    /// With `shared`, all `count` slots are posted there at once.
    pub(super) fn new(
        domain: &Domain,
        slot_len: usize,
        shared: Option<(SharedReceiveQueue, usize)>,
    ) -> Result<Self> {
        let (queue, count) = shared.map_or((None, 0), |(queue, count)| (Some(queue), count));
        let mut slots = Slots {
            domain: domain.clone(),
            slot_len,
            chunks: Vec::new(),
            free: Vec::new(),
            shared: queue,
        };
        for _ in 0..count {
            let slot = slots.take()?;
            slots.repost(slot, None)?;
        }
        Ok(slots)
    }

    pub(super) fn shared(&self) -> Option<&SharedReceiveQueue> {
        self.shared.as_ref()
    }

    fn take(&mut self) -> Result<u32> {
        if self.free.is_empty() {
            let region = self.domain.alloc(CHUNK * self.slot_len, Access::LOCAL_WRITE)?;
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push(Arc::new(region));
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        // There is one now.
        Ok(self.free.pop().unwrap_or_default())
    }

    /// The memory of a slot.
    pub(super) fn part(&self, slot: u32) -> Option<SlotPart> {
        let (chunk, offset) = (slot as usize / CHUNK, slot as usize % CHUNK * self.slot_len);
        Some(SlotPart { region: self.chunks.get(chunk)?.clone(), offset, len: self.slot_len })
    }

    /// Posts so many slots to a connection that has receives of its own.
    pub(super) fn equip(&mut self, endpoint: &Endpoint, count: usize) -> Result<()> {
        if self.shared.is_some() {
            return Ok(());
        }
        for _ in 0..count {
            let slot = self.take()?;
            self.repost(slot, Some(endpoint))?;
        }
        Ok(())
    }

    /// A slot is free: it is posted again, where it can be.
    pub(super) fn repost(&mut self, slot: u32, endpoint: Option<&Endpoint>) -> Result<()> {
        let Some(part) = self.part(slot) else { return Ok(()) };
        let slice = part.slice(0, part.len);
        let context = Posting::Slot(slot).to_bits();
        let posted = match (&self.shared, endpoint) {
            (Some(shared), _) => shared.recv(slice, context),
            (None, Some(endpoint)) => {
                endpoint.post_recvs(&[Recv::new(slice, context)]).map_err(|stopped| stopped.error)
            }
            (None, None) => {
                self.free.push(slot);
                return Ok(());
            }
        };
        if posted.is_err() && self.shared.is_none() {
            // The connection is over: the slot is for another one.
            self.free.push(slot);
            return Ok(());
        }
        posted
    }
}

/// What is posted to `fabric`, by the context of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Posting {
    /// A receive into this slot.
    Slot(u32),
    /// An operation of a send queue, by its number there.
    Sent(u64),
}

impl Posting {
    const SENT: u64 = 1 << 63;

    pub(super) fn to_bits(self) -> u64 {
        match self {
            Posting::Slot(slot) => slot.into(),
            Posting::Sent(number) => number | Self::SENT,
        }
    }

    pub(super) fn of(completion: &fabric::Completion) -> Self {
        match completion.kind {
            OpKind::Recv | OpKind::RecvWrite => Posting::Slot(completion.context as u32),
            _ => Posting::Sent(completion.context & !Self::SENT),
        }
    }
}

/// A part of the endpoint's own memory.
pub(super) struct SlotPart {
    region: Arc<Region>,
    offset: usize,
    len: usize,
}

impl SlotPart {
    /// So many bytes of it.
    pub(super) fn slice(&self, from: usize, len: usize) -> Slice<'_> {
        self.region.slice(self.offset..self.offset + self.len).slice(from..from + len)
    }
}

/// Bytes of one head: as many as any has, and as a confirmation.
const HEAD_LEN: usize = 320;
const _: () = assert!(HEAD_LEN >= MAX_CONTROL);

/// Where the heads of messages are whose payload goes from the application's memory.
pub(super) struct Heads {
    domain: Domain,
    chunks: Vec<Arc<Region>>,
    free: Vec<u32>,
}

impl Heads {
    pub(super) fn new(domain: &Domain) -> Self {
        Heads { domain: domain.clone(), chunks: Vec::new(), free: Vec::new() }
    }

    /// Writes a head, and keeps it until it is [given back](Self::give_back).
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(u32, SlotPart)> {
        if self.free.is_empty() {
            let region = self.domain.alloc(CHUNK * HEAD_LEN, Access::empty())?;
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push(Arc::new(region));
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        let head = self.free.pop().unwrap_or_default();
        let (chunk, offset) = (head as usize / CHUNK, head as usize % CHUNK * HEAD_LEN);
        let part = SlotPart { region: self.chunks[chunk].clone(), offset, len: HEAD_LEN };
        match part.slice(0, bytes.len()).write_at(0, bytes) {
            Ok(()) => Ok((head, part)),
            Err(error) => {
                self.free.push(head);
                Err(error)
            }
        }
    }

    pub(super) fn give_back(&mut self, head: u32) {
        self.free.push(head);
    }
}
