//! Registered memory of the endpoint's own: slots that frames arrive in, and heads that go before payload.

use std::sync::Arc;

use fabric::{Access, Domain, Endpoint, OpKind, Recv, Region, SharedReceiveQueue, Slice};
use fabric_core::{Error, Result, likely};
use smallvec::SmallVec;

use super::wire::MAX_CONTROL;

/// Parts of one region, so that memory is taken as it is needed.
const CHUNK: usize = 64;

/// Parts of registered memory, all of one length, by numbers.
struct Pool {
    domain: Domain,
    part_len: usize,
    access: Access,
    chunks: Vec<Arc<Region>>,
    free: Vec<u32>,
}

impl Pool {
    fn new(domain: &Domain, part_len: usize, access: Access) -> Self {
        let (domain, chunks, free) = (domain.clone(), Vec::new(), Vec::new());
        Pool { domain, part_len, access, chunks, free }
    }

    fn take(&mut self) -> Result<u32> {
        if self.free.is_empty() {
            let region = self.domain.alloc(CHUNK * self.part_len, self.access)?;
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push(Arc::new(region));
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        // There is one now.
        Ok(self.free.pop().unwrap_or_default())
    }

    /// The region of a part, and where it begins there.
    #[inline]
    fn place(&self, number: u32) -> Option<(&Arc<Region>, usize)> {
        let (chunk, at) = (number as usize / CHUNK, number as usize % CHUNK);
        Some((self.chunks.get(chunk)?, at * self.part_len))
    }

    /// So many bytes of a part, but no more than it has.
    #[inline]
    fn slice(&self, number: u32, from: usize, len: usize) -> Option<Slice<'_>> {
        let (region, start) = self.place(number)?;
        let from = from.min(self.part_len);
        Some(region.slice(start + from..start + from + len.min(self.part_len - from)))
    }
}

/// A head that is kept.
pub(super) struct KeptHead {
    region: Arc<Region>,
    offset: usize,
}

impl KeptHead {
    /// Its first bytes.
    pub(super) fn slice(&self, len: usize) -> Slice<'_> {
        self.region.slice(self.offset..self.offset + len.min(HEAD_LEN))
    }
}

/// Where frames arrive.
pub(super) struct Slots {
    pool: Pool,
    /// Where all of them are posted, unless each connection has some of its own.
    shared: Option<SharedReceiveQueue>,
    /// Those that are free, and to be posted there together.
    emptied: SmallVec<[u32; BATCH]>,
    /// As many of them as are posted at the latest: a small part of all.
    batch: usize,
}

/// Slots that are posted together: each for itself costs twice as much.
const BATCH: usize = 16;

impl Slots {
    /// With `shared`, all `count` slots are posted there at once.
    pub(super) fn new(
        domain: &Domain,
        slot_len: usize,
        shared: Option<(SharedReceiveQueue, usize)>,
    ) -> Result<Self> {
        let (shared, count) = shared.map_or((None, 0), |(queue, count)| (Some(queue), count));
        let pool = Pool::new(domain, slot_len, Access::LOCAL_WRITE);
        let (emptied, batch) = (SmallVec::new(), (count / BATCH).clamp(1, BATCH));
        let mut slots = Slots { pool, shared, emptied, batch };
        for _ in 0..count {
            let slot = slots.pool.take()?;
            slots.emptied.push(slot);
            slots.repost_emptied(slots.batch)?;
        }
        slots.repost_emptied(1)?;
        Ok(slots)
    }

    pub(super) fn shared(&self) -> Option<&SharedReceiveQueue> {
        self.shared.as_ref()
    }

    /// So many bytes of a slot, but no more than it has.
    #[inline]
    pub(super) fn slice(&self, slot: u32, from: usize, len: usize) -> Option<Slice<'_>> {
        self.pool.slice(slot, from, len)
    }

    /// A receive into all of a slot.
    fn recv(&self, slot: u32) -> Option<Recv<'_>> {
        let all = self.pool.slice(slot, 0, self.pool.part_len)?;
        Some(Recv::new(all, Posting::Slot(slot).to_bits()))
    }

    /// Posts so many slots to a connection that has receives of its own.
    pub(super) fn equip(&mut self, endpoint: &Endpoint, count: usize) -> Result<()> {
        if self.shared.is_some() {
            return Ok(());
        }
        for _ in 0..count {
            let slot = self.pool.take()?;
            self.repost(slot, Some(endpoint));
        }
        Ok(())
    }

    /// A slot is free: it is posted to the shared queue again, with others.
    #[inline]
    pub(super) fn repost_shared(&mut self, slot: u32) -> Result<()> {
        self.emptied.push(slot);
        self.repost_emptied(self.batch)
    }

    /// The same where connections have receives of their own, if its connection has not ended.
    pub(super) fn repost(&mut self, slot: u32, endpoint: Option<&Endpoint>) {
        let is_posted = (self.recv(slot).zip(endpoint))
            .is_some_and(|(recv, endpoint)| endpoint.post_recvs(&[recv]).is_ok());
        if !is_posted {
            // The connection is over: the slot is for another one.
            self.pool.free.push(slot);
        }
    }

    /// Nothing else is to be done: slots that are free are posted if it is worth it.
    #[inline]
    pub(super) fn on_idle(&mut self) -> Result<()> {
        self.repost_emptied(self.batch.div_ceil(2))
    }

    /// Posts slots to the shared queue, if there are so many.
    #[inline]
    fn repost_emptied(&mut self, min: usize) -> Result<()> {
        if likely(self.emptied.len() < min) { Ok(()) } else { self.repost_all() }
    }

    #[inline(never)] // not to be in the way of each poll
    fn repost_all(&mut self) -> Result<()> {
        let Some(shared) = self.shared.as_ref() else { return Ok(()) };
        let posted = {
            let recvs: SmallVec<[_; BATCH]> =
                self.emptied.iter().filter_map(|slot| self.recv(*slot)).collect();
            shared.post_recvs(&recvs).map_err(|stopped| stopped.error)
        };
        self.emptied.clear();
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

/// Bytes of one head: as many as any has, and as a confirmation.
const HEAD_LEN: usize = 320;
const _: () = assert!(HEAD_LEN >= MAX_CONTROL);

/// Where the heads of messages are whose payload goes from the application's memory.
pub(super) struct Heads(Pool);

impl Heads {
    pub(super) fn new(domain: &Domain) -> Self {
        Heads(Pool::new(domain, HEAD_LEN, Access::empty()))
    }

    /// Writes a head, and keeps it until it is [given back](Self::give_back).
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(u32, KeptHead)> {
        const OP: &str = "write head";
        let number = self.0.take()?;
        let place = self.0.place(number);
        let head = place.map(|(region, offset)| KeptHead { region: region.clone(), offset });
        let head = head.ok_or_else(|| Error::state(OP, "the pool has no such head"));
        let written =
            head.and_then(|head| head.slice(bytes.len()).write_at(0, bytes).map(|()| head));
        written.map(|head| (number, head)).inspect_err(|_| self.give_back(number))
    }

    pub(super) fn give_back(&mut self, head: u32) {
        self.0.free.push(head);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::time::{Duration, Instant};

    use fabric::Hints;

    use super::{Access, HEAD_LEN};
    use crate::matching::Pattern;
    use crate::{Endpoint, Peer, RdmAttr, Recv, Send, Status};

    /// Much less than a connection is waited for.
    const SOON: Duration = Duration::from_secs(20);

    fn endpoint() -> Endpoint {
        let domain =
            fabric::Domain::open(&Hints { provider: Some("tcp".into()), ..Hints::default() });
        let mut attr = RdmAttr::default();
        (attr.timeouts.connect, attr.timeouts.attempt) = (10 * SOON, 5 * SOON);
        Endpoint::new(&domain.unwrap(), &attr).unwrap()
    }

    /// There is memory for heads, or none.
    fn have_memory(endpoint: &Endpoint, is_there: bool) {
        endpoint.driver.call(|core| {
            let pool = &mut core.shared.heads.0;
            pool.free.clear();
            pool.part_len = if is_there { HEAD_LEN } else { 1 << 40 };
        });
    }

    /// A message that goes from where it is, once there is memory for its head.
    fn send_late(a: &Endpoint, b: &Endpoint, to_b: Peer) {
        let (from, into) =
            (a.domain().alloc(1000, Access::empty()), b.domain().alloc(1000, Access::LOCAL_WRITE));
        let (from, into) = (from.unwrap(), into.unwrap());
        have_memory(a, false);
        b.post_recv(&Recv::new(Pattern::tagged(7), &into)).unwrap();
        a.post_send(to_b, &Send::new(&from).tag(7)).unwrap();
        assert!(a.wait_one(Some(Duration::from_millis(50))).is_err(), "there is no head");
        have_memory(a, true);
        let begun = Instant::now();
        for end in [a, b] {
            let done = end.wait_one(Some(SOON)).unwrap_or_else(|error| {
                panic!("{error} after {:?}\n{}\n{}", begun.elapsed(), a.dump(), b.dump())
            });
            assert_eq!(done.status, Status::Ok);
        }
    }

    #[test]
    fn what_found_no_memory_for_its_head_goes_when_there_is_some() {
        let (a, b) = (endpoint(), endpoint());
        let (to_b, _) = (a.insert(b.address()).unwrap(), b.insert(a.address()).unwrap());
        // The word that a connection is used, and what goes by it when nothing else does.
        for _ in 0..2 {
            send_late(&a, &b, to_b);
        }
    }
}
