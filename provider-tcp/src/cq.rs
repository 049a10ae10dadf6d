//! Completion queues: a ring that the engine fills, and a descriptor.

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::stats::Stats;
use fabric_core::{Armed, CqOps, Error, RawCompletion, Result};

use rustix::event::epoll;

use crate::NAME;
use crate::engine::Engine;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Wakeup, lock};

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

/// The descriptor that sleepers know: readable while the ring's is, and while sockets have changed if who sleeps drives.
struct Sleepers {
    both: OwnedFd,
    driving: AtomicBool,
}

impl Sleepers {
    fn new(ring: &Ring, engine: &Engine) -> std::io::Result<Self> {
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&both, ring.wakeup.as_fd(), data, epoll::EventFlags::IN)?;
        epoll::add(&both, &engine.sockets, data, epoll::EventFlags::empty())?;
        Ok(Sleepers { both, driving: AtomicBool::new(false) })
    }

    /// Calls are serialized by the queue's lock, as polls and arms are.
    #[inline]
    fn drive(&self, engine: &Engine, driving: bool) {
        if self.driving.load(Ordering::Relaxed) != driving {
            self.driving.store(driving, Ordering::Relaxed);
            let flags = if driving { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            // It fails only for descriptors that are not there.
            let _ = epoll::modify(&self.both, &engine.sockets, epoll::EventData::new_u64(0), flags);
        }
    }
}

/// A completion queue.
pub struct TcpCq {
    pub(crate) ring: Arc<Ring>,
    sleepers: Sleepers,
    engine: Arc<Engine>,
}

impl TcpCq {
    pub(crate) fn new(engine: &Arc<Engine>) -> Result<Self> {
        let ring = Ring::new(engine.stats())?;
        let sleepers = Sleepers::new(&ring, engine)
            .map_err(|cause| Error::system("make completion queue", NAME, cause))?;
        Ok(TcpCq { ring, sleepers, engine: engine.clone() })
    }
}

// SAFETY: the ring holds what endpoints pushed, each once, and the descriptor lives in the ring.
unsafe impl CqOps for TcpCq {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        self.sleepers.drive(&self.engine, false);
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
        self.sleepers.drive(&self.engine, false);
        let armed = self.ring.arm();
        if armed == Armed::Waiting {
            self.engine.hand_over();
        }
        Ok(armed)
    }

    fn arm_to_drive(&self) -> Result<Armed, Error> {
        if !self.engine.rest() {
            return self.arm();
        }
        self.sleepers.drive(&self.engine, true);
        Ok(self.ring.arm())
    }

    fn wake(&self) {
        self.ring.wakeup.set();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.sleepers.both.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
