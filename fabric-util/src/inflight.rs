//! In-flight accounting: what is posted and not yet finished, on one side of an endpoint.
//!
//! A ring with one producer (the thread that posts, under the side's lock) and one consumer (the thread that polls,
//! under the completion queue's lock), and three counters with one writer each:
//!
//! - `head`: posts so far. Written by the producer.
//! - `tail`: posts that the consumer has taken out. Known to the consumer only.
//! - `credit`: posts that no longer count against the depth. Written by the consumer.
//!
//! `credit <= tail <= head` and `head - credit <= depth <= slots`, so a slot is written by the producer
//! only before it publishes `head`, and read by the consumer only between `tail` and `head`. `credit`
//! trails `tail` because an operation that was reaped counts until the application takes its completion.
//!
//! The slots are most of the memory of an endpoint, and most endpoints of many have few operations under way. So the
//! first `FEW` slots serve until more operations are in flight at once; from that one on, whose number is `moved_at`,
//! operations are in slots for the whole depth, for good.
//!
//! The contract lets operations finish in any order; the connected endpoints of today finish in posting
//! order, and this ring is for those.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use fabric_core::{attr::MAX_DEPTH, cold_path, unlikely};

use crate::sync::{Arc, AtomicU64, CachePadded, Cell};

/// So many slots there are to begin with, a power of two.
const FEW: u32 = if cfg!(loom) {
    1
} else if cfg!(test) {
    2
} else {
    8
};

/// A power of two of them, each for the operations of all numbers that are equal modulo that.
type Slots<T> = OnceLock<Box<[Cell<T>]>>;

struct Ring<T> {
    /// Allocated at the first post: many endpoints never use one of their sides.
    few: Slots<T>,
    /// Allocated when `few` do not do.
    all: Slots<T>,
    /// The first operation that is in `all`. Written by the producer before it publishes such a one.
    moved_at: AtomicU64,
    depth: u32,
    head: CachePadded,
    credit: CachePadded,
}

impl<T> Ring<T> {
    /// The slot of an operation; `moved_at` is the producer's or, of a published one, the ring's.
    #[inline]
    fn slot(&self, sequence: u64, moved_at: u64) -> &Cell<T> {
        let slots = if unlikely(sequence < moved_at) {
            self.few.get_or_init(|| allocate_slots(self.depth.min(FEW)))
        } else {
            self.all.get_or_init(|| allocate_slots(self.depth))
        };
        &slots[sequence as usize & (slots.len() - 1)]
    }

    /// Posts so far, as the consumer may see them: the slots of all of them are filled.
    #[inline]
    fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }
}

#[cold]
fn allocate_slots<T>(count: u32) -> Box<[Cell<T>]> {
    (0..count.next_power_of_two()).map(|_| Cell::empty()).collect()
}

/// The posting end.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    head: u64,
    /// The consumer's `credit` as last seen, so that most posts read no line that another core writes.
    credit: u64,
    moved_at: u64,
}

/// The completing end. What it has not given out when it is dropped leaks: it may still be in use.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    tail: u64,
    credit: u64,
}

/// The two ends of a ring for `depth` operations, 1 to [`MAX_DEPTH`].
pub fn inflight<T>(depth: usize) -> (Producer<T>, Consumer<T>) {
    let depth = depth.clamp(1, MAX_DEPTH) as u32;
    let ring = Arc::new(Ring {
        few: OnceLock::new(),
        all: OnceLock::new(),
        moved_at: AtomicU64::new(u64::MAX),
        depth,
        head: CachePadded::default(),
        credit: CachePadded::default(),
    });
    let producer = Producer { ring: ring.clone(), head: 0, credit: 0, moved_at: u64::MAX };
    (producer, Consumer { ring, tail: 0, credit: 0 })
}

impl<T> Producer<T> {
    /// The most operations at a time.
    pub fn depth(&self) -> usize {
        self.ring.depth as usize
    }

    /// Posts that count against the depth.
    pub fn len(&self) -> usize {
        (self.head - self.ring.credit.0.load(Ordering::Acquire)) as usize
    }

    /// Whether nothing counts against the depth.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is room for one more.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.is_below(self.ring.depth)
    }

    /// Whether fewer than `count` posts count against the depth.
    #[inline]
    fn is_below(&mut self, count: u32) -> bool {
        if self.head - self.credit < u64::from(count) {
            return true;
        }
        cold_path();
        self.credit = self.ring.credit.0.load(Ordering::Acquire);
        self.head - self.credit < u64::from(count)
    }

    /// The sequence number that the next operation gets.
    #[inline]
    pub fn next(&self) -> u32 {
        self.head as u32
    }

    /// Room for the next operation; `None` at the depth.
    #[inline]
    pub fn reserve(&mut self) -> Option<Vacancy<'_, T>> {
        if !self.has_room() {
            return None;
        }
        if self.head < self.moved_at && !self.is_below(FEW) {
            cold_path();
            self.move_at(self.head);
        }
        let slot: *const Cell<T> = self.ring.slot(self.head, self.moved_at);
        Some(Vacancy { producer: self, slot })
    }

    fn move_at(&mut self, sequence: u64) {
        self.moved_at = sequence;
        // The `head` that is published next covers it.
        self.ring.moved_at.store(sequence, Ordering::Relaxed);
    }

    /// Takes back the last `count` operations, which the provider refused and will therefore never complete.
    ///
    /// # Safety
    /// The consumer must not be asked to take any of them, now or later, under these sequence numbers
    /// until they are given out again.
    pub unsafe fn unpush(&mut self, count: u32) {
        for _ in 0..u64::from(count).min(self.head - self.credit) {
            self.head -= 1;
            self.ring.head.0.store(self.head, Ordering::Release);
            // SAFETY: the slot was filled and, as the caller states, not taken.
            drop(unsafe { self.ring.slot(self.head, self.moved_at).read() });
        }
    }
}

/// Room for one operation.
#[must_use]
pub struct Vacancy<'a, T> {
    producer: &'a mut Producer<T>,
    /// Found beforehand, so that nothing can fail between the making of an operation and its insertion.
    slot: *const Cell<T>,
}

impl<T> Vacancy<'_, T> {
    /// Adds an operation, and gives its sequence number.
    #[inline]
    pub fn insert(self, value: T) -> u32 {
        // SAFETY: `head - credit` is below the number of slots there, so this slot is neither published nor still
        // to be taken; only the producer touches it until `head` is stored.
        unsafe { (*self.slot).write(value) };
        let Producer { ring, head, .. } = self.producer;
        let sequence = *head as u32;
        *head += 1;
        ring.head.0.store(*head, Ordering::Release);
        sequence
    }
}

impl<T> Consumer<T> {
    /// Whether an operation of this number is in flight.
    #[inline]
    pub fn contains(&self, sequence: u32) -> bool {
        u64::from(sequence.wrapping_sub(self.tail as u32)) < self.ring.head() - self.tail
    }

    /// The number of the operation that [`pop`](Consumer::pop) takes next, if there is one.
    #[inline]
    pub fn oldest(&self) -> u32 {
        self.tail as u32
    }

    /// Takes the oldest operation out, with its number.
    #[inline]
    pub fn pop(&mut self) -> Option<(u32, T)> {
        if self.ring.head() == self.tail {
            return None;
        }
        let sequence = self.tail;
        self.tail += 1;
        let slot = self.ring.slot(sequence, self.ring.moved_at.load(Ordering::Relaxed));
        // SAFETY: `tail < head`, so the slot is published, and moving `tail` on makes this its only read.
        Some((sequence as u32, unsafe { slot.read() }))
    }

    /// Operations that are in flight and not taken out.
    pub fn len(&self) -> usize {
        (self.ring.head() - self.tail) as usize
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets `count` operations that were taken out no longer count against the depth; at most all that still do.
    #[inline]
    pub fn credit(&mut self, count: u32) {
        let counted = self.tail - self.credit;
        self.credit += u64::from(count).min(counted);
        self.ring.credit.0.store(self.credit, Ordering::Release);
    }

    /// Posts that count against the depth.
    pub fn outstanding(&self) -> usize {
        (self.ring.head() - self.credit) as usize
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Unpush,
        Pop,
        Credit,
    }

    #[test]
    fn no_more_credit_than_was_taken_out() {
        let (mut producer, mut consumer) = inflight::<Box<u32>>(1);
        let _ = producer.reserve().map(|vacancy| vacancy.insert(Box::new(1)));
        consumer.credit(1);
        assert!(producer.reserve().is_none(), "nothing was taken out");
        assert_eq!(consumer.pop().map(|(_, value)| *value), Some(1));
        consumer.credit(2);
        assert!(consumer.pop().is_none());
        assert_eq!(producer.reserve().map(|vacancy| vacancy.insert(Box::new(2))), Some(1));
        assert_eq!(consumer.pop().map(|(_, value)| *value), Some(2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "what it shows is a leak")]
    fn what_was_not_given_out_is_not_dropped() {
        let (mut producer, consumer) = inflight::<std::sync::Arc<()>>(2);
        let witness = std::sync::Arc::new(());
        let _ = producer.reserve().map(|vacancy| vacancy.insert(witness.clone()));
        drop((producer, consumer));
        assert_eq!(std::sync::Arc::strong_count(&witness), 2, "perhaps it is still worked on");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 3 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn behaves_like_a_deque(
            depth in 1usize..9,
            steps in prop::collection::vec(
                prop_oneof![4 => Just(Step::Push), 1 => Just(Step::Unpush), 3 => Just(Step::Pop), 3 => Just(Step::Credit)],
                0..if cfg!(miri) { 50 } else { 200 },
            ),
        ) {
            let (mut producer, mut consumer) = inflight::<Box<u32>>(depth);
            let (mut model, mut taken, mut next) = (VecDeque::new(), 0usize, 0u32);
            for step in steps {
                match step {
                    Step::Push => {
                        let room = model.len() + taken < depth;
                        let vacancy = producer.reserve();
                        prop_assert_eq!(vacancy.is_some(), room);
                        if let Some(vacancy) = vacancy {
                            prop_assert_eq!(vacancy.insert(Box::new(next)), next);
                        }
                        if room { model.push_back(next); next += 1; }
                    }
                    Step::Unpush if !model.is_empty() => {
                        // SAFETY: nothing asks for the number before the next operation reuses it.
                        unsafe { producer.unpush(1) };
                        model.pop_back();
                        next -= 1;
                    }
                    Step::Unpush => {}
                    Step::Pop => {
                        let got = consumer.pop().map(|(s, v)| { assert_eq!(s, *v); *v });
                        prop_assert_eq!(got, model.pop_front());
                        taken += usize::from(got.is_some());
                    }
                    Step::Credit if taken > 0 => { consumer.credit(1); taken -= 1; }
                    Step::Credit => {}
                }
                prop_assert_eq!(consumer.len(), model.len());
                prop_assert_eq!(producer.len(), model.len() + taken);
            }
            // What is left in the ring is leaked.
            while consumer.pop().is_some() {}
        }
    }

    #[test]
    fn two_threads() {
        let (mut producer, mut consumer) = inflight::<Box<u32>>(4);
        let count = if cfg!(miri) { 50 } else { 100_000 };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for i in 0..count {
                    while !producer.has_room() {
                        std::thread::yield_now();
                    }
                    producer.reserve().unwrap().insert(Box::new(i));
                }
            });
            for i in 0..count {
                let (_, value) = loop {
                    match consumer.pop() {
                        Some(got) => break got,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(*value, i);
                consumer.credit(1);
            }
        });
    }
}
