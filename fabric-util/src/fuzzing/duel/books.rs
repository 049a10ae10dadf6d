//! What one side of a duel has posted, and what must become of it.

use std::rc::Rc;

use fabric_core::{RawCompletion, SendFlags, Status};

use super::memory::{Guarded, is_all};

/// What memory holds before a message or an answer comes.
pub(super) const FRESH: u8 = 0x5c;

/// A message, or a write with immediate data: what a receive of the peer's gets.
pub(super) struct Parcel {
    pub(super) bytes: Rc<[u8]>,
    pub(super) imm: Option<u32>,
    pub(super) remote_write: bool,
}

/// What the memory of an operation holds when it has ended well.
pub(super) enum Expected {
    /// What was there before.
    Source(Rc<[u8]>),
    /// It was the application's again after the post.
    Injected,
    /// What is read; of a byte that something changes meanwhile that is open.
    Read { area: usize, at: usize, bytes: Vec<u8>, is_open: Vec<bool>, is_under_way: bool },
    /// The old value of an atomic.
    Old(Vec<u8>),
}

/// An operation of the send queue.
pub(super) struct Order {
    pub(super) flags: SendFlags,
    pub(super) memory: Vec<Guarded>,
    pub(super) expected: Expected,
    /// Whether the peer's receive must have it.
    pub(super) is_message: bool,
    pub(super) status: Option<Status>,
}

/// A receive.
pub(super) struct Landing {
    pub(super) memory: Vec<Guarded>,
    pub(super) len: usize,
    pub(super) status: Option<Status>,
}

/// One side's books.
#[derive(Default)]
pub(super) struct Books {
    pub(super) orders: Vec<Order>,
    pub(super) landings: Vec<Landing>,
    /// As many of them as have ended.
    pub(super) orders_done: usize,
    landings_done: usize,
    /// For the peer, in order.
    pub(super) parcels: Vec<Parcel>,
    /// Parcels that were acknowledged, and those of the peer's that came.
    pub(super) delivered: usize,
    pub(super) received: usize,
}

fn concat(memory: &[Guarded]) -> Vec<u8> {
    memory.iter().flat_map(Guarded::bytes).copied().collect()
}

impl Order {
    /// It has ended; its memory is the application's again. `is_clean`: the peer's answers came as it gave them.
    fn end(&mut self, status: Status, is_clean: bool) {
        assert!(self.status.replace(status).is_none(), "an operation that ended twice");
        let now = concat(&self.memory);
        match &mut self.expected {
            Expected::Source(bytes) => assert!(**bytes == *now, "the memory of a send changed"),
            Expected::Injected => return,
            Expected::Read { bytes, is_open, is_under_way, .. } => {
                *is_under_way = false;
                let mut each = bytes.iter().zip(&now).zip(is_open);
                let is_right =
                    *bytes == now || each.all(|((then, now), open)| then == now || *open);
                assert!(is_right || status != Status::Ok || !is_clean, "read what was not there");
            }
            Expected::Old(old) => {
                assert!(*old == now || status != Status::Ok || !is_clean, "another old value");
            }
        }
        self.memory.iter_mut().for_each(Guarded::scribble);
    }
}

impl Books {
    /// An operation of the send queue was completed; those before it without a completion have ended well by that.
    pub(super) fn end_order(&mut self, completion: &RawCompletion, first: u32, is_clean: bool) {
        let at = completion.token.sequence().wrapping_sub(first) as usize;
        assert!((self.orders_done..self.orders.len()).contains(&at), "completed out of its order");
        for earlier in self.orders_done..at {
            let order = &mut self.orders[earlier];
            assert!(!order.flags.contains(SendFlags::SIGNALED), "a completion was lost");
            order.end(Status::Ok, is_clean);
        }
        let has_failed = at > 0 && self.orders[at - 1].status != Some(Status::Ok);
        assert!(!has_failed || completion.status != Status::Ok, "ended well behind a failure");
        self.orders[at].end(completion.status, is_clean);
        let ended = &self.orders[self.orders_done..=at];
        let is_in = |order: &&Order| order.is_message && order.status == Some(Status::Ok);
        self.delivered += ended.iter().filter(is_in).count();
        self.orders_done = at + 1;
    }

    /// A receive was completed. `parcels`: what the peer sent, if that came as it was sent.
    pub(super) fn end_landing(
        &mut self,
        completion: &RawCompletion,
        first: u32,
        parcels: Option<&[Parcel]>,
    ) {
        let at = completion.token.sequence().wrapping_sub(first) as usize;
        assert_eq!(at, self.landings_done, "a receive out of its order");
        let has_failed = at > 0 && self.landings[at - 1].status != Some(Status::Ok);
        let landing = &mut self.landings[at];
        assert!(landing.status.replace(completion.status).is_none());
        self.landings_done += 1;
        if completion.status == Status::Ok {
            assert!(!has_failed, "received behind the end");
            if let Some(parcels) = parcels {
                landing.check(completion, &parcels[self.received]);
            }
            self.received += 1;
        }
        landing.memory.iter_mut().for_each(Guarded::scribble);
    }

    /// Whether all that was posted to the send queue has ended, as far as the application knows.
    pub(super) fn is_idle(&self) -> bool {
        self.orders_done == self.orders.len()
    }

    /// As `is_idle`, but for operations at the end that have no completion if they end well.
    pub(super) fn is_said(&self) -> bool {
        let left = &self.orders[self.orders_done..];
        left.iter().all(|order| !order.flags.contains(SendFlags::SIGNALED))
    }

    /// Whether all of it has ended well.
    pub(super) fn is_well(&self) -> bool {
        self.orders.iter().all(|order| order.status == Some(Status::Ok))
    }

    /// How many receives have not ended.
    pub(super) fn landings_left(&self) -> usize {
        self.landings.len() - self.landings_done
    }

    /// The endpoint is gone; what has not ended is the application's again. `receives`: those too.
    pub(super) fn abandon(&mut self, receives: bool) {
        let orders = self.orders[self.orders_done..].iter_mut().map(|order| &mut order.memory);
        let left = self.landings[self.landings_done..].iter_mut();
        let landings = left.filter(|_| receives).map(|landing| &mut landing.memory);
        orders.chain(landings).flatten().for_each(Guarded::scribble);
    }

    /// The reads that are under way, of an area.
    pub(super) fn reads(&mut self) -> impl Iterator<Item = &mut Expected> {
        let left = self.orders[self.orders_done..].iter_mut().map(|order| &mut order.expected);
        left.filter(|one| matches!(one, Expected::Read { is_under_way: true, .. }))
    }

    pub(super) fn check_memory(&self) {
        let orders = self.orders.iter().map(|order| &order.memory);
        let landings = self.landings.iter().map(|landing| &landing.memory);
        orders.chain(landings).flatten().for_each(Guarded::check);
    }
}

impl Landing {
    /// It has this parcel, and behind it what was there before.
    fn check(&self, completion: &RawCompletion, parcel: &Parcel) {
        let now = concat(&self.memory);
        assert_eq!(completion.len, parcel.bytes.len() as u64, "another length");
        assert_eq!(
            (completion.immediate, completion.remote_write),
            (parcel.imm, parcel.remote_write)
        );
        let came = if parcel.remote_write { 0 } else { parcel.bytes.len() };
        let (message, rest) = now.split_at(came);
        assert!(parcel.remote_write || *message == *parcel.bytes, "another message came");
        assert!(is_all(rest, FRESH), "more changed than the message");
    }
}
