//! Completion queues: a ring that the engine fills, and a descriptor.

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_core::stats::Stats;
use fabric_core::wakeup::Wakeup;
use fabric_core::{Armed, CqOps, Error, RawCompletion, Result};

use crate::NAME;
use crate::engine::Engine;

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

    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds completions, in order; wakes the sleeper if one armed the queue.
    pub(crate) fn push(&self, completions: impl IntoIterator<Item = RawCompletion>) {
        let mut state = self.lock();
        state.queue.extend(completions);
        self.len.store(state.queue.len(), Ordering::Release);
        if std::mem::take(&mut state.armed) {
            self.wakeup.set();
            self.stats.wakeups.add(1);
        }
    }

    pub(crate) fn take(&self, out: &mut [RawCompletion]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut state = self.lock();
        let taken = out.len().min(state.queue.len());
        for (place, completion) in out.iter_mut().zip(state.queue.drain(..taken)) {
            *place = completion;
        }
        self.len.store(state.queue.len(), Ordering::Release);
        taken
    }

    fn arm(&self) -> Armed {
        let mut state = self.lock();
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
            self.engine.note_poll();
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
