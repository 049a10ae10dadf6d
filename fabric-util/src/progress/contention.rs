//! Pollers that find another thread in a step: after some they offer their processor to it.
//!
//! The one in the step may have lost its processor to the very thread that polls, which would keep it, and find nothing, until
//! the kernel takes it away: some milliseconds.

use std::sync::atomic::Ordering;

use crate::sync::AtomicUsize;

/// So many polls in a row that find another thread in a step are not rare: a few microseconds.
const PATIENCE: usize = 64;

/// How many polls in a row have found another thread in a step.
#[derive(Default)]
pub(super) struct Contention(AtomicUsize);

impl Contention {
    /// A poll found another thread in a step.
    #[inline]
    pub(super) fn miss(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) >= PATIENCE {
            self.clear();
            std::thread::yield_now();
        }
    }

    /// A thread begins a step.
    #[inline]
    pub(super) fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}
