//! In-flight accounting where operations end in any order: what is posted to a shared receive queue and not yet finished.
//!
//! As [`inflight`](crate::inflight) for one producer (the thread that posts, under the queue's lock) and one consumer (the thread
//! that polls, under the completion queue's lock), without a lock of their own. But each operation is in a slot, and has a
//! number by which it is taken out: the slot's, with a count of how often that was filled.
//!
//! A slot is the producer's while its `state` is even, and the consumer's while that is odd. The consumer gives it back by
//! `freed`, a ring with as many places as there are slots. Operations that were taken out count against the depth until they
//! are credited, so that there is always a free slot for one that does not exceed it.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use fabric_core::{attr::MAX_DEPTH, cold_path, likely};

use crate::sync::{Arc, AtomicU32, CachePadded, Cell};

/// Bits of a number that are the slot's index; those above count how often it was filled.
const INDEX: u32 = 20;
const _: () = assert!(MAX_DEPTH <= 1 << INDEX);

struct Slot<T> {
    /// Odd while it is filled: how often it was filled and emptied, both counted.
    state: AtomicU32,
    /// With how many were posted before it.
    value: Cell<(u64, T)>,
}

struct Places<T> {
    slots: Box<[Slot<T>]>,
    /// The index of each slot that was given back, by how many were before.
    freed: Box<[AtomicU32]>,
}

struct SlotRing<T> {
    /// Allocated at the first post.
    places: OnceLock<Places<T>>,
    depth: u32,
    /// Operations that were taken out. Written by the consumer, behind what it wrote to `freed`.
    taken: CachePadded,
    /// Those that no longer count against the depth. Written by the consumer.
    credit: CachePadded,
}

impl<T> SlotRing<T> {
    #[cold]
    fn allocate(&self) -> Places<T> {
        let slot = |_| Slot { state: AtomicU32::new(0), value: Cell::empty() };
        let freed = (0..self.depth.next_power_of_two()).map(|_| AtomicU32::new(0));
        Places { slots: (0..self.depth).map(slot).collect(), freed: freed.collect() }
    }
}

/// The posting end.
pub struct SlotProducer<T> {
    shared: Arc<SlotRing<T>>,
    posted: u64,
    /// Slots that were filled at least once: the first ones.
    used: u32,
    /// Slots that were taken from `freed`.
    reused: u64,
    /// The consumer's `credit` as last seen.
    credit: u64,
}

/// The completing end. What it has not given out when it is dropped leaks: it may still be in use.
pub struct SlotConsumer<T> {
    shared: Arc<SlotRing<T>>,
    taken: u64,
    credit: u64,
}

/// The two ends for `depth` operations, 1 to [`MAX_DEPTH`].
pub fn slots<T>(depth: usize) -> (SlotProducer<T>, SlotConsumer<T>) {
    let shared = Arc::new(SlotRing {
        places: OnceLock::new(),
        depth: depth.clamp(1, MAX_DEPTH) as u32,
        taken: CachePadded::default(),
        credit: CachePadded::default(),
    });
    let producer =
        SlotProducer { shared: shared.clone(), posted: 0, used: 0, reused: 0, credit: 0 };
    (producer, SlotConsumer { shared, taken: 0, credit: 0 })
}

impl<T> SlotProducer<T> {
    /// Whether there is room for one more.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        let depth = u64::from(self.shared.depth);
        if self.posted - self.credit < depth {
            return true;
        }
        cold_path();
        self.credit = self.shared.credit.0.load(Ordering::Acquire);
        self.posted - self.credit < depth
    }

    /// Operations that have not been taken out.
    pub fn len(&self) -> usize {
        (self.posted - self.shared.taken.0.load(Ordering::Acquire)) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an operation, and gives its number.
    ///
    /// # Errors
    /// The operation itself: there is no room.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<u32, T> {
        if !self.has_room() {
            return Err(value);
        }
        let places = self.shared.places.get_or_init(|| self.shared.allocate());
        let index = if likely(self.reused < self.shared.taken.0.load(Ordering::Acquire)) {
            let at = self.reused as usize & (places.freed.len() - 1);
            self.reused += 1;
            places.freed[at].load(Ordering::Relaxed)
        } else {
            // All that were used are filled, which are fewer than the depth.
            self.used += 1;
            self.used - 1
        };
        let Slot { state, value: place } = &places.slots[index as usize];
        // SAFETY: it was never filled, or was given back: it is the producer's until its state says otherwise.
        unsafe { place.write((self.posted, value)) };
        let filled = state.load(Ordering::Relaxed).wrapping_add(1);
        state.store(filled, Ordering::Release);
        self.posted += 1;
        Ok((filled >> 1) << INDEX | index)
    }
}

impl<T> SlotConsumer<T> {
    /// Takes out the operation with this number. It counts until it is [credited](Self::credit).
    #[inline]
    pub fn take(&mut self, number: u32) -> Option<T> {
        let index = number & ((1 << INDEX) - 1);
        let has_number = |filled: u32| (filled >> 1) << INDEX | index == number;
        self.take_from(index, has_number).map(|(_, value)| value)
    }

    /// Takes out the operation of a slot, if it is filled, so often.
    #[inline(always)] // once for each operation
    fn take_from(&mut self, index: u32, is_it: impl Fn(u32) -> bool) -> Option<(u64, T)> {
        let places = self.shared.places.get()?;
        let Slot { state, value } = places.slots.get(index as usize)?;
        let filled = state.load(Ordering::Acquire);
        if filled & 1 == 0 || !is_it(filled) {
            cold_path();
            return None;
        }
        // SAFETY: it is filled, and the consumer's until it is given back below.
        let value = unsafe { value.read() };
        state.store(filled.wrapping_add(1), Ordering::Relaxed);
        let at = self.taken as usize & (places.freed.len() - 1);
        places.freed[at].store(index, Ordering::Relaxed);
        self.taken += 1;
        self.shared.taken.0.store(self.taken, Ordering::Release);
        Some(value)
    }

    /// Takes out all of them, in the order in which they were posted.
    pub fn take_all(&mut self) -> Vec<T> {
        let mut all: Vec<_> =
            (0..self.shared.depth).filter_map(|index| self.take_from(index, |_| true)).collect();
        all.sort_by_key(|(before, _)| *before);
        all.into_iter().map(|(_, value)| value).collect()
    }

    /// One that was taken out counts no more against the depth. Does nothing where none does.
    #[inline]
    pub fn credit(&mut self) {
        self.credit += u64::from(self.credit < self.taken);
        self.shared.credit.0.store(self.credit, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg_attr(miri, ignore = "so many fills take Miri long, and show it nothing new")]
    fn the_number_of_an_earlier_fill_names_nothing_also_when_they_wrap() {
        let (mut producer, mut consumer) = slots(1);
        let mut before = None;
        // More often than a number can count.
        for fill in 0..2u64 << (32 - INDEX) {
            assert!(producer.has_room() && producer.is_empty());
            let number = producer.insert(Box::new(fill)).unwrap();
            assert!(!producer.has_room() && producer.len() == 1);
            assert_ne!(before, Some(number));
            assert!(before.is_none_or(|before| consumer.take(before).is_none()));
            assert_eq!(consumer.take(number), Some(Box::new(fill)));
            assert!(consumer.take(number).is_none(), "it is taken once");
            assert_eq!(producer.insert(Box::new(0)), Err(Box::new(0)), "until it is credited");
            consumer.credit();
            consumer.credit();
            before = Some(number);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "what it shows is a leak")]
    fn what_was_not_given_out_is_not_dropped() {
        let (mut producer, consumer) = slots(2);
        let witness = std::sync::Arc::new(());
        producer.insert(witness.clone()).unwrap();
        drop((producer, consumer));
        assert_eq!(std::sync::Arc::strong_count(&witness), 2, "perhaps it is still worked on");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 3 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        /// Steps: to post, to credit, to take all, else to take one.
        #[test]
        fn operations_end_in_any_order(
            depth in 1usize..9,
            steps in proptest::collection::vec(0..24usize, 0..if cfg!(miri) { 50 } else { 200 }),
        ) {
            let (mut producer, mut consumer) = slots(depth);
            let (mut model, mut counted, mut next) = (Vec::new(), 0, 0u64);
            for step in steps {
                match step {
                    0..12 => {
                        let number = producer.insert(Box::new(next));
                        prop_assert_eq!(number.is_ok(), counted < depth);
                        if let Ok(number) = number {
                            model.push((number, next));
                            (counted, next) = (counted + 1, next + 1);
                        }
                    }
                    12..16 if counted > model.len() => {
                        consumer.credit();
                        counted -= 1;
                    }
                    16 => {
                        let all = consumer.take_all().into_iter().map(|value| *value);
                        prop_assert!(all.eq(model.drain(..).map(|(_, value)| value)));
                    }
                    at if !model.is_empty() => {
                        let (number, value) = model.remove(at % model.len());
                        prop_assert_eq!(consumer.take(number), Some(Box::new(value)));
                        prop_assert_eq!(consumer.take(number), None);
                    }
                    _ => {}
                }
                prop_assert_eq!(consumer.take(u32::MAX), None);
                prop_assert_eq!(producer.len(), model.len());
            }
            consumer.take_all();
        }
    }
}
