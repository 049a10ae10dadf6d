//! Completions that a provider made, until the application polls for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::{Armed, RawCompletion, cold_path, likely, unlikely};

use crate::stats::Stats;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Wakeup};

/// Completions on their way from a provider to the poller. The caller of the contract never has more operations in flight than it made
/// queues for, so the ring is bounded by that.
pub struct CompletionRing {
    state: Mutex<RingState>,
    /// The ring's length, to see without the lock that it is empty.
    len: AtomicUsize,
    /// Someone sleeps until the next completion. Changes under the lock.
    armed: AtomicBool,
    wakeup: Wakeup,
    stats: Arc<Stats>,
}

#[derive(Default)]
struct RingState {
    /// Completions in order, and how many of the first were taken; empty if all were.
    queue: Vec<RawCompletion>,
    taken: usize,
}

/// What a poll of a ring takes without the ring: completions that its own step makes.
pub struct Outbox<'a> {
    ring: Option<&'a CompletionRing>,
    out: &'a mut [RawCompletion],
    taken: usize,
}

impl<'a> Outbox<'a> {
    /// Of a poll of this ring.
    pub fn of(ring: &'a CompletionRing, out: &'a mut [RawCompletion]) -> Self {
        Outbox { ring: Some(ring), out, taken: 0 }
    }

    /// Takes none: of a step that is not a poll's.
    pub fn none() -> Self {
        Outbox { ring: None, out: &mut [], taken: 0 }
    }

    /// Takes completions, if they are of its ring, nothing is there that may have to come before them, and there is room for all.
    #[inline]
    fn take(&mut self, ring: &CompletionRing, completions: [&[RawCompletion]; 2]) -> bool {
        let count = completions[0].len() + completions[1].len();
        if !self.ring.is_some_and(|of| std::ptr::eq(of, ring))
            || ring.len.load(Ordering::Acquire) > 0
            || ring.armed.load(Ordering::Relaxed)
            || self.out.len() - self.taken < count
        {
            return false;
        }
        for some in completions {
            for one in some {
                self.out[self.taken] = *one;
                self.taken += 1;
            }
        }
        true
    }

    /// How many it has taken.
    pub fn taken(&self) -> usize {
        self.taken
    }
}

impl CompletionRing {
    /// An empty ring; `stats` counts the sleepers that it wakes.
    ///
    /// # Errors
    /// As `eventfd(2)`: out of descriptors or memory.
    pub fn new(stats: &Arc<Stats>) -> io::Result<Arc<Self>> {
        let wakeup = Wakeup::new()?;
        let (state, len, armed) = Default::default();
        Ok(Arc::new(CompletionRing { state, len, armed, wakeup, stats: stats.clone() }))
    }

    /// Adds completions, in order; wakes the sleeper if one armed the queue.
    #[inline]
    pub fn push(&self, completions: [&[RawCompletion]; 2]) {
        let count = completions[0].len() + completions[1].len();
        if count == 0 {
            return;
        }
        let mut state = self.state.lock();
        if let Some(one) = completions[0].first().or(completions[1].first())
            && likely(count == 1)
        {
            state.queue.push(*one);
        } else {
            completions.iter().for_each(|some| state.queue.extend_from_slice(some));
        }
        self.len.store(state.queue.len() - state.taken, Ordering::Release);
        if unlikely(self.armed.load(Ordering::Relaxed)) {
            self.armed.store(false, Ordering::Relaxed);
            self.wakeup.set();
            self.stats.wakeups.add(1);
        }
    }

    /// As [`push`](Self::push), to the poll that makes them if that can be.
    #[inline]
    pub fn push_or_hand(&self, completions: [&[RawCompletion]; 2], outbox: &mut Outbox<'_>) {
        if !outbox.take(self, completions) {
            self.push(completions);
        }
    }

    /// Takes completions, the oldest first; gives how many.
    #[inline]
    pub fn take(&self, out: &mut [RawCompletion]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let state = &mut *self.state.lock();
        let waiting = &state.queue[state.taken..];
        let taken = waiting.len().min(out.len());
        match (&mut out[..taken], &waiting[..taken]) {
            ([to], [one]) => *to = *one, // mostly
            (to, many) => {
                cold_path();
                to.copy_from_slice(many);
            }
        }
        state.taken += taken;
        if likely(state.taken == state.queue.len()) {
            state.queue.clear();
            state.taken = 0;
        } else if state.taken > state.queue.len() / 2 {
            state.queue.drain(..state.taken);
            state.taken = 0;
        }
        self.len.store(state.queue.len() - state.taken, Ordering::Release);
        taken
    }

    /// Makes the next completion wake the sleeper, unless completions are there.
    pub fn arm(&self) -> Armed {
        let state = self.state.lock();
        self.wakeup.clear();
        if state.queue.is_empty() {
            self.armed.store(true, Ordering::Relaxed);
            return Armed::Waiting;
        }
        Armed::Ready
    }

    /// Wakes the sleeper, armed or not.
    pub fn wake(&self) {
        self.wakeup.set();
    }
}

/// Readable from an armed completion, or a [`wake`](CompletionRing::wake), to the next [`arm`](CompletionRing::arm).
impl AsFd for CompletionRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use fabric_core::{Status, Token};

    use super::*;

    fn completion(number: u64) -> RawCompletion {
        RawCompletion::new(Token::from_bits(number), Status::Ok)
    }

    #[test]
    fn a_poll_is_handed_what_it_makes_unless_something_comes_before() {
        let [ring, other] = [(); 2].map(|()| CompletionRing::new(&Arc::default()).unwrap());
        let mut out = [RawCompletion::default(); 3];
        let mut outbox = Outbox::of(&ring, &mut out);
        ring.push_or_hand([&[completion(1)], &[completion(2)]], &mut outbox);
        other.push_or_hand([&[completion(10)], &[]], &mut outbox);
        // There is no room for all of these, and the next one is behind them.
        ring.push_or_hand([&[completion(3), completion(4)], &[]], &mut outbox);
        ring.push_or_hand([&[completion(5)], &[]], &mut outbox);
        assert_eq!(outbox.taken(), 2);
        assert_eq!(out.map(|one| one.token.to_bits())[..2], [1, 2]);
        let mut rest = [RawCompletion::default(); 8];
        assert_eq!(ring.take(&mut rest), 3);
        assert_eq!(rest.map(|one| one.token.to_bits())[..3], [3, 4, 5]);
        ring.push_or_hand([&[completion(6)], &[]], &mut Outbox::none());
        assert_eq!((ring.take(&mut rest), other.take(&mut rest)), (1, 1));
    }

    #[test]
    fn a_sleeper_wakes_for_what_a_poll_makes() {
        let ring = CompletionRing::new(&Arc::default()).unwrap();
        let mut out = [RawCompletion::default(); 2];
        assert_eq!(ring.arm(), Armed::Waiting);
        let mut outbox = Outbox::of(&ring, &mut out);
        ring.push_or_hand([&[completion(1)], &[]], &mut outbox);
        assert_eq!(outbox.taken(), 0);
        assert!(!ring.armed.load(Ordering::Relaxed));
        assert_eq!(ring.stats.wakeups.get(), 1);
        assert_eq!(ring.take(&mut out), 1);
        // It is armed for one completion.
        let mut outbox = Outbox::of(&ring, &mut out);
        ring.push_or_hand([&[completion(2)], &[]], &mut outbox);
        assert_eq!(outbox.taken(), 1);
    }

    #[test]
    fn takers_of_few_get_all_in_order() {
        let ring = CompletionRing::new(&Arc::default()).unwrap();
        let (mut pushed, mut taken) = (0, 0);
        for round in 0..200 {
            let mut next = || {
                pushed += 1;
                RawCompletion::new(Token::from_bits(pushed), Status::Ok)
            };
            let many = (0..round % 7).map(|_| next()).collect::<Vec<_>>();
            ring.push([&many, &[next()]]);
            let mut out = [RawCompletion::default(); 4];
            let count = ring.take(&mut out[..round % 5]);
            for one in &out[..count] {
                taken += 1;
                assert_eq!(one.token, Token::from_bits(taken));
            }
            let state = ring.state.lock();
            assert_eq!((pushed - taken) as usize, state.queue.len() - state.taken);
            assert!(state.taken <= state.queue.len() / 2, "what was taken is not kept");
        }
        while ring.take(&mut [RawCompletion::default()]) == 1 {
            taken += 1;
        }
        assert_eq!(pushed, taken);
    }
}
