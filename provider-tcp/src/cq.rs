//! Completion queues: a ring that the engine fills, and a descriptor.

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::stats::Stats;
use fabric_core::{Armed, CqOps, Error, RawCompletion, Result};

use crate::NAME;
use crate::engine::Engine;
use crate::sync::{AtomicUsize, Mutex, Wakeup, lock};

/// What the engine fills. The caller of the contract never has more operations in flight than it made
/// queues for, so the ring is bounded by that.
pub(crate) struct Ring {
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

impl Ring {
    pub(crate) fn new(stats: &Arc<Stats>) -> Result<Arc<Self>> {
        let wakeup =
            Wakeup::new().map_err(|cause| Error::system("make completion queue", NAME, cause))?;
        let (state, len) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Arc::new(Ring { state, len, wakeup, stats: stats.clone() }))
    }

    /// Adds completions, in order; wakes the sleeper if one armed the queue.
    #[inline]
    pub(crate) fn push(&self, completions: &[RawCompletion]) {
        let mut state = lock(&self.state);
        // Mostly it is one: reserving for many and copying runs costs more than this.
        completions.iter().for_each(|completion| state.queue.push_back(*completion));
        self.len.store(state.queue.len(), Ordering::Release);
        if std::mem::take(&mut state.armed) {
            self.wakeup.set();
            self.stats.wakeups.add(1);
        }
    }

    #[inline]
    pub(crate) fn take(&self, out: &mut [RawCompletion]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut state = lock(&self.state);
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

    fn arm(&self) -> Armed {
        let mut state = lock(&self.state);
        self.wakeup.clear();
        if state.queue.is_empty() {
            state.armed = true;
            return Armed::Waiting;
        }
        Armed::Ready
    }
}

/// A completion queue.
pub struct TcpCq {
    pub(crate) ring: Arc<Ring>,
    engine: Arc<Engine>,
}

impl TcpCq {
    pub(crate) fn new(engine: &Arc<Engine>) -> Result<Self> {
        Ok(TcpCq { ring: Ring::new(engine.stats())?, engine: engine.clone() })
    }
}

// SAFETY: the ring holds what endpoints pushed, each once, and the descriptor lives in the ring.
unsafe impl CqOps for TcpCq {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let taken = self.ring.take(out);
        if taken > 0 {
            if self.engine.is_holding() {
                // What is held waits for a poll, and this is one.
                self.engine.poll();
            } else {
                self.engine.note_poll();
            }
            return taken;
        }
        self.engine.poll();
        self.ring.take(out)
    }

    fn arm(&self) -> Result<Armed, Error> {
        let armed = self.ring.arm();
        if armed == Armed::Waiting {
            self.engine.hand_over();
        }
        Ok(armed)
    }

    fn wake(&self) {
        self.ring.wakeup.set();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.ring.wakeup.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
