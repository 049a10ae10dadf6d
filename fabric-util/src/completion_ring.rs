//! Completions that a provider made, until the application polls for them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::{Armed, RawCompletion};

use crate::stats::Stats;
use crate::sync::{AtomicUsize, Mutex, Wakeup};

/// Completions on their way from a provider to the poller. The caller of the contract never has more operations in flight than it made
/// queues for, so the ring is bounded by that.
pub struct CompletionRing {
    state: Mutex<RingState>,
    /// The ring's length, to see without the lock that it is empty.
    len: AtomicUsize,
    wakeup: Wakeup,
    stats: Arc<Stats>,
}

#[derive(Default)]
struct RingState {
    queue: VecDeque<RawCompletion>,
    armed: bool,
}

impl CompletionRing {
    /// An empty ring; `stats` counts the sleepers that it wakes.
    ///
    /// # Errors
    /// As `eventfd(2)`: out of descriptors or memory.
    pub fn new(stats: &Arc<Stats>) -> io::Result<Arc<Self>> {
        let wakeup = Wakeup::new()?;
        let (state, len) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Arc::new(CompletionRing { state, len, wakeup, stats: stats.clone() }))
    }

    /// Adds completions, in order; wakes the sleeper if one armed the queue.
    #[inline]
    pub fn push(&self, completions: [&[RawCompletion]; 2]) {
        if completions.iter().all(|some| some.is_empty()) {
            return;
        }
        let mut state = self.state.lock();
        for some in completions {
            for one in some {
                // Mostly it is one: reserving for many and copying runs costs more than this.
                state.queue.push_back(*one);
            }
        }
        self.len.store(state.queue.len(), Ordering::Release);
        if std::mem::take(&mut state.armed) {
            self.wakeup.set();
            self.stats.wakeups.add(1);
        }
    }

    /// Takes completions, the oldest first; gives how many.
    #[inline]
    pub fn take(&self, out: &mut [RawCompletion]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut state = self.state.lock();
        let mut taken = 0;
        while taken < out.len()
            && let Some(completion) = state.queue.pop_front()
        {
            out[taken] = completion;
            taken += 1;
        }
        self.len.store(state.queue.len(), Ordering::Release);
        taken
    }

    /// Makes the next completion wake the sleeper, unless completions are there.
    pub fn arm(&self) -> Armed {
        let mut state = self.state.lock();
        self.wakeup.clear();
        if state.queue.is_empty() {
            state.armed = true;
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
