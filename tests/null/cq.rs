//! A completion queue: what endpoints push comes out, oldest first.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use fabric_core::{Armed, CqOps, Error, RawCompletion, Result};
use fabric_util::wakeup::Wakeup;

pub struct NullCq(pub(super) Arc<Queue>);

impl NullCq {
    pub(super) fn new(capacity: usize) -> Result<Self> {
        let wakeup =
            Wakeup::new().map_err(|cause| Error::system("make completion queue", "null", cause))?;
        let ring = Ring {
            completions: VecDeque::with_capacity(capacity),
            armed: false,
            on_arm: None,
            polls: 0,
        };
        Ok(NullCq(Arc::new(Queue { ring: Mutex::new(ring), wakeup })))
    }
}

/// What the queue and the endpoints bound to it share.
pub(super) struct Queue {
    ring: Mutex<Ring>,
    wakeup: Wakeup,
}

struct Ring {
    completions: VecDeque<RawCompletion>,
    /// Somebody sleeps, or is about to.
    armed: bool,
    /// What a test has happen in the middle of the next `arm`.
    on_arm: Option<Box<dyn FnOnce() + Send>>,
    /// How often it was polled.
    polls: u64,
}

impl Ring {
    fn take(&mut self, out: &mut [RawCompletion]) -> usize {
        let count = out.len().min(self.completions.len());
        out.iter_mut().zip(self.completions.drain(..count)).for_each(|(out, raw)| *out = raw);
        count
    }
}

impl Queue {
    pub(super) fn push(&self, completions: impl IntoIterator<Item = RawCompletion>) {
        let mut ring = self.ring.lock().unwrap();
        let before = ring.completions.len();
        ring.completions.extend(completions);
        if ring.armed && ring.completions.len() > before {
            ring.armed = false;
            self.wakeup.set();
        }
    }

    pub(super) fn polls(&self) -> u64 {
        self.ring.lock().unwrap().polls
    }

    /// Has something happen in the middle of the next `arm`.
    pub(super) fn on_arm(&self, then: impl FnOnce() + Send + 'static) {
        self.ring.lock().unwrap().on_arm = Some(Box::new(then));
    }
}

// SAFETY: what endpoints pushed comes out once, in order; the descriptor is the wakeup's.
unsafe impl CqOps for NullCq {
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let mut ring = self.0.ring.lock().unwrap();
        ring.polls += 1;
        ring.take(out)
    }

    fn collect(&self, out: &mut [RawCompletion]) -> usize {
        self.0.ring.lock().unwrap().take(out)
    }

    fn arm(&self) -> Result<Armed, Error> {
        let on_arm = self.0.ring.lock().unwrap().on_arm.take();
        if let Some(on_arm) = on_arm {
            on_arm();
        }
        let mut ring = self.0.ring.lock().unwrap();
        self.0.wakeup.clear();
        ring.armed = ring.completions.is_empty();
        Ok(if ring.armed { Armed::Waiting } else { Armed::Ready })
    }

    fn wake(&self) {
        self.0.wakeup.set();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.wakeup.as_fd()
    }
}
