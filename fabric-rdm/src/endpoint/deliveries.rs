//! How the payload of a message gets to its receive: from a slot, in pieces, or read from its sender.

use fabric::Slice;
use fabric_core::{RemoteRegion, unlikely};

use super::completion::{Completion, Kind, Status};
use super::link::{Control, PeerLink};
use super::ops::{Delivery, Incoming, Met, Payload};
use super::shared::Shared;
use super::slots::Slots;
use super::table::OpKey;
use super::wire::{MessageHead, Way};
use crate::window::Account;

/// A frame as it lies in its slot.
pub(super) struct InSlot {
    pub(super) slot: u32,
    /// Where its payload begins, and how long it is.
    pub(super) start: usize,
    pub(super) len: usize,
}

impl InSlot {
    /// The first bytes of its payload.
    #[inline]
    pub(super) fn first<'a>(&self, len: usize, slots: &'a Slots) -> Option<Slice<'a>> {
        slots.slice(self.slot, self.start, len.min(self.len))
    }

    /// Copies its payload.
    pub(super) fn read(&self, slots: &Slots, into: &mut [u8]) {
        if let Some(payload) = self.first(into.len(), slots) {
            // The endpoint's own memory.
            let _ = payload.read_at(0, into);
        }
    }

    pub(super) fn to_bytes(&self, slots: &Slots) -> Box<[u8]> {
        let mut bytes = vec![0; self.len];
        self.read(slots, &mut bytes);
        bytes.into()
    }
}

impl Delivery {
    pub(super) fn new(
        met: Met,
        number: u64,
        immediate: Option<u32>,
        taken: u64,
        account: Option<(Account, u64)>,
    ) -> Self {
        Delivery { met, number, immediate, taken, reads: 0, remote: None, account }
    }
}

impl Met {
    /// That of a receive with this context. No call has its address before it is where it stays: so it is put together there, and
    /// never read as a whole right behind the writes of its parts, which a processor waits for.
    #[inline(always)] // one place that is executed for each message calls it
    fn completion(&self, context: u64, status: Status, immediate: Option<u32>) -> Completion {
        let is_truncated = status == Status::Ok && unlikely(self.len < self.envelope.len);
        let status = if is_truncated { Status::Truncated } else { status };
        let mut completion = Completion::new(context, Kind::Recv, status);
        completion.peer = Some(self.envelope.source);
        completion.tag = self.envelope.tag;
        if matches!(status, Status::Ok | Status::Truncated) {
            completion.len = self.len;
            completion.message_len = self.envelope.len;
            completion.offset = self.offset;
            completion.immediate = immediate;
        }
        completion
    }
}

impl Shared {
    /// A message is in its receive.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn end_met(
        &mut self,
        met: &Met,
        status: Status,
        immediate: Option<u32>,
        credit: Option<(Account, u64)>,
    ) {
        let Some(recv) = self.recvs.get(met.recv) else { return };
        let (context, signaled) = (recv.context, recv.signaled);
        if unlikely(met.of_many) {
            return self.end_one_of_many(met, context, (signaled, status), immediate, credit);
        }
        self.recvs.remove(met.recv);
        self.free_place(credit);
        self.end_recv(met.completion(context, status, immediate), signaled, true, None);
    }

    #[inline(never)] // not to be in the way of others
    fn end_one_of_many(
        &mut self,
        met: &Met,
        context: u64,
        (signaled, status): (bool, Status),
        immediate: Option<u32>,
        credit: Option<(Account, u64)>,
    ) {
        // The place is free when the application knows of the message: so these are bounded.
        self.end_recv(met.completion(context, status, immediate), signaled, false, credit);
        let released = met.receive.and_then(|receive| self.matcher.delivered(receive));
        released.into_iter().for_each(|released| self.end_released(released));
    }

    /// Puts bytes where a receive has them.
    pub(super) fn place(&self, met: &Met, at: u64, bytes: &[u8]) {
        if let Some(recv) = self.recvs.get(met.recv)
            && let Some(fits) = bytes.get(..bytes.len().min((met.len - at.min(met.len)) as usize))
        {
            // It was checked when it was posted.
            let _ = recv.into.as_slice().write_at((met.offset + at) as usize, fits);
        }
    }

    /// The same from a slot.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn place_from(&self, met: &Met, at: u64, from: &InSlot) {
        let fits = (from.len as u64).min(met.len - at.min(met.len)) as usize;
        if let Some(recv) = self.recvs.get(met.recv)
            && fits > 0
            && let Some(payload) = from.first(fits, &self.slots)
        {
            let start = (met.offset + at) as usize;
            let _ = recv.into.as_slice().slice(start..start + fits).copy_from(payload);
        }
    }
}

impl PeerLink {
    pub(super) fn begin_delivery(
        &mut self,
        shared: &mut Shared,
        met: Met,
        head: &MessageHead,
        credit: Option<(Account, u64)>,
    ) {
        let mut delivery = Delivery::new(met, head.number, head.immediate, 0, credit);
        match head.way {
            Way::Offered(remote) => delivery.remote = Some(remote),
            Way::Fetched => {}
            Way::Whole | Way::Pieces => {
                self.keep_delivery(shared, delivery);
                if head.matched {
                    self.say(shared, Control::Matched(head.number));
                }
                return;
            }
        }
        self.add_delivery(shared, delivery);
    }

    /// Its payload comes from now on.
    pub(super) fn keep_delivery(&mut self, shared: &mut Shared, delivery: Delivery) -> OpKey {
        let number = delivery.number;
        let key = shared.deliveries.insert(delivery);
        self.incoming.insert(number, Incoming::Delivery(key));
        key
    }

    /// All of its payload is here. Gives its number.
    fn complete_delivery(&mut self, shared: &mut Shared, key: OpKey) -> Option<u64> {
        let delivery = shared.deliveries.remove(key)?;
        self.incoming.remove(&delivery.number);
        shared.end_met(&delivery.met, Status::Ok, delivery.immediate, delivery.account);
        Some(delivery.number)
    }

    /// Begins to take a payload that is at its sender.
    pub(super) fn add_delivery(&mut self, shared: &mut Shared, delivery: Delivery) {
        let (number, remote, len) = (delivery.number, delivery.remote, delivery.met.len);
        let envelope = delivery.met.envelope;
        let key = self.keep_delivery(shared, delivery);
        match remote {
            _ if len == 0 => self.end_delivery(shared, key),
            Some(remote) if remote.len() >= envelope.len => {
                self.reading.push_back(key);
                self.mark(shared);
            }
            _ => {
                if let Some(delivery) = shared.deliveries.get_mut(key) {
                    delivery.remote = None;
                }
                self.say(shared, Control::Fetch(number));
            }
        }
    }

    /// All of a payload that was at its sender is here.
    pub(super) fn end_delivery(&mut self, shared: &mut Shared, key: OpKey) {
        if let Some(number) = self.complete_delivery(shared, key) {
            self.say(shared, Control::Done(number));
        }
    }

    /// The next bytes of a message. False: no honest peer sends these.
    pub(super) fn on_data(&mut self, shared: &mut Shared, number: u64, from: &InSlot) -> bool {
        let Some(&incoming) = self.incoming.get(&number) else { return false };
        let more = from.len as u64;
        match incoming {
            Incoming::Arrival(key) => {
                let Some(arrival) = shared.arrivals.get_mut(key) else { return false };
                let Payload::Partial(bytes) = &mut arrival.payload else { return false };
                let before = bytes.len();
                if before as u64 + more > arrival.envelope.len || more == 0 {
                    return false;
                }
                bytes.resize(before + from.len, 0);
                from.read(&shared.slots, &mut bytes[before..]);
                if bytes.len() as u64 == arrival.envelope.len {
                    let bytes = std::mem::take(bytes);
                    arrival.payload = Payload::Whole(bytes.into());
                    self.incoming.remove(&number);
                }
                true
            }
            Incoming::Delivery(key) => {
                let Some(delivery) = shared.deliveries.get_mut(key) else { return false };
                let (met, taken) = (delivery.met, delivery.taken);
                if taken + more > met.envelope.len || more == 0 || delivery.remote.is_some() {
                    return false;
                }
                delivery.taken += more;
                shared.place_from(&met, taken, from);
                if taken + more == met.envelope.len {
                    self.complete_delivery(shared, key);
                }
                true
            }
            Incoming::Dropped { left, .. } if more > left || more == 0 => false,
            Incoming::Dropped { left, place } if more == left => {
                self.incoming.remove(&number);
                shared.free_place(place);
                true
            }
            Incoming::Dropped { left, place } => {
                let left = left - more;
                self.incoming.insert(number, Incoming::Dropped { left, place }).is_some()
            }
        }
    }

    /// Where the payload of a message can be read. False: no honest peer says that.
    pub(super) fn on_offer(
        &mut self,
        shared: &mut Shared,
        number: u64,
        remote: RemoteRegion,
    ) -> bool {
        match self.incoming.get(&number) {
            Some(&Incoming::Delivery(key)) => {
                let Some(delivery) = shared.deliveries.get_mut(key) else { return false };
                // Not to what comes in pieces.
                let is_fair = delivery.remote.is_none()
                    && delivery.taken == 0
                    && remote.len() >= delivery.met.envelope.len;
                if is_fair {
                    delivery.remote = Some(remote);
                    self.reading.push_back(key);
                }
                is_fair
            }
            // It was fetched by a receive that has ended since.
            Some(Incoming::Arrival(_) | Incoming::Dropped { .. }) => false,
            None => true,
        }
    }
}
