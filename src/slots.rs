//! What is in flight of a shared receive queue. Its receives end in any order, so each has a slot with a number of its own.

use std::sync::Arc;

use fabric_core::{EndpointId, cold_path};
use fabric_util::endpoint_map::EndpointMap;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::inflight::{Fate, InFlightOp};
use crate::registry::EndpointShared;

/// Bits of a token's sequence number that are the slot's index; those above count how often it was filled.
const INDEX: u32 = 20;

/// The slots of one queue, and the endpoints that take receives from it. Posters and the completion queue share it.
pub(crate) struct Slots(Mutex<SlotTable>);

/// See [`Slots`].
pub(crate) struct SlotTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    depth: usize,
    posted: u64,
    /// Receives that count against the depth: those in a slot, and those whose completion was not taken yet.
    counted: usize,
    endpoints: EndpointMap<Arc<EndpointShared>>,
    /// What becomes of the receives that are left at the end.
    fate: Fate,
}

#[derive(Default)]
struct Slot {
    fills: u32,
    /// The receive, and how many were posted before it.
    op: Option<(u64, InFlightOp)>,
}

impl Slots {
    pub(crate) fn new(depth: usize) -> Self {
        Slots(Mutex::new(SlotTable {
            slots: Vec::new(),
            free: Vec::new(),
            depth,
            posted: 0,
            counted: 0,
            endpoints: EndpointMap::default(),
            fate: Fate::Free,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.0.lock()
    }
}

impl SlotTable {
    /// Whether there is room for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.counted < self.depth
    }

    /// Receives in flight.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a receive, and gives its number; there must be room.
    pub(crate) fn insert(&mut self, op: InFlightOp) -> u32 {
        if self.slots.is_empty() {
            cold_path();
            self.slots.reserve_exact(self.depth);
            self.free.reserve_exact(self.depth);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            cold_path();
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.op = Some((self.posted, op));
        self.posted += 1;
        self.counted += 1;
        slot.fills << INDEX | index
    }

    /// Takes out the receive with this number. It counts until it is [credited](SlotTable::credit).
    pub(crate) fn take(&mut self, number: u32) -> Option<InFlightOp> {
        let index = number & ((1 << INDEX) - 1);
        let slot = self.slots.get_mut(index as usize)?;
        if number >> INDEX != slot.fills << INDEX >> INDEX {
            cold_path();
            return None;
        }
        let Some((_, op)) = slot.op.take() else {
            cold_path();
            return None;
        };
        slot.fills = slot.fills.wrapping_add(1);
        self.free.push(index);
        Some(op)
    }

    /// Takes out all of them, in the order in which they were posted.
    pub(crate) fn take_all(&mut self) -> Vec<InFlightOp> {
        let mut all = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(op) = slot.op.take() {
                slot.fills = slot.fills.wrapping_add(1);
                self.free.push(index as u32);
                all.push(op);
            }
        }
        all.sort_by_key(|(before, _)| *before);
        all.into_iter().map(|(_, op)| op).collect()
    }

    /// A receive that was taken out counts no more against the depth.
    pub(crate) fn credit(&mut self) {
        self.counted = self.counted.saturating_sub(1);
    }

    pub(crate) fn add_endpoint(&mut self, shared: &Arc<EndpointShared>) {
        self.endpoints.insert(shared.id, shared.clone());
    }

    /// An endpoint is gone; with [`Fate::Leak`] it may still touch any of the receives, from now on.
    pub(crate) fn remove_endpoint(&mut self, id: EndpointId, fate: Fate) {
        self.endpoints.remove(id);
        if fate == Fate::Leak {
            self.fate = fate;
        }
    }

    #[inline]
    pub(crate) fn endpoint(&mut self, id: EndpointId) -> Option<&Arc<EndpointShared>> {
        self.endpoints.get(id)
    }

    /// See [`SlotTable::remove_endpoint`].
    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }
}

#[cfg(test)]
mod tests {
    use fabric_core::OpKind;

    use super::*;
    use crate::inflight::{RegionRefs, ReportMode};

    fn op(context: u64) -> InFlightOp {
        let (kind, report, regions) = (OpKind::Recv, ReportMode::Always, RegionRefs::default());
        InFlightOp { context, len: 0, kind, report, regions }
    }

    fn context(op: Option<InFlightOp>) -> Option<u64> {
        op.map(|op| op.context)
    }

    #[test]
    #[cfg_attr(miri, ignore = "so many fills take Miri long, and show it nothing new")]
    fn the_number_of_an_earlier_fill_names_nothing_also_when_they_wrap() {
        let slots = Slots::new(1);
        let mut slots = slots.lock();
        let mut before = None;
        // More often than a number can count.
        for fill in 0..2u64 << (32 - INDEX) {
            assert!(slots.has_room() && slots.len() == 0);
            let number = slots.insert(op(fill));
            assert!(!slots.has_room() && slots.len() == 1);
            assert_ne!(before, Some(number));
            assert!(before.is_none_or(|before| slots.take(before).is_none()));
            assert_eq!(context(slots.take(number)), Some(fill));
            assert!(slots.take(number).is_none(), "it is taken once");
            assert!(!slots.has_room(), "it counts until its completion is taken");
            slots.credit();
            before = Some(number);
        }
    }

    #[test]
    fn receives_end_in_any_order_and_all_at_once_in_that_of_their_posts() {
        let slots = Slots::new(4);
        let mut slots = slots.lock();
        let numbers: Vec<_> = (0..4).map(|context| slots.insert(op(context))).collect();
        for at in [2, 0] {
            assert_eq!(context(slots.take(numbers[at])), Some(at as u64));
            slots.credit();
        }
        assert!(slots.take(4).is_none() && slots.take(u32::MAX).is_none(), "no slot is there");
        let again: Vec<_> = (4..6).map(|context| slots.insert(op(context))).collect();
        assert!(!slots.has_room());
        let all: Vec<_> = slots.take_all().iter().map(|op| op.context).collect();
        assert_eq!((all, slots.len()), (vec![1, 3, 4, 5], 0));
        for number in numbers.into_iter().chain(again) {
            assert!(slots.take(number).is_none());
        }
    }
}
