//! Whether a connection is ready: on the list of those that the next step serves.
//!
//! A step that finds nothing to do takes a connection from the list. An event that comes up meanwhile must not be lost, so
//! producer and step follow Dekker's handshake: the producer sets `event`, then reads `ready`; the step clears `ready`, then
//! reads `event`. One of them sees the other.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, fence};

/// A connection's ready flag.
#[derive(Default)]
pub struct ReadyFlag {
    /// The connection is on the list, or about to be.
    ready: AtomicBool,
    /// Something came up since the last step began.
    event: AtomicBool,
}

impl ReadyFlag {
    /// Notes that something came up which only a step can do. The caller marks the connection ready afterwards.
    pub fn note(&self) {
        self.event.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The connection becomes ready; false if it was.
    #[inline]
    pub(super) fn set(&self) -> bool {
        !self.ready.load(Ordering::Relaxed) && !self.ready.swap(true, Ordering::AcqRel)
    }

    /// A step begins, which does what was noted until now.
    #[inline]
    pub(super) fn begin(&self) {
        if self.event.load(Ordering::Relaxed) {
            self.event.store(false, Ordering::Relaxed);
            // Before the step looks at the connection.
            fence(Ordering::SeqCst);
        }
    }

    /// The connection is no longer ready; true if something came up meanwhile, so that it must become ready again.
    #[must_use]
    #[inline]
    pub(super) fn clear(&self) -> bool {
        self.ready.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        self.event.load(Ordering::Relaxed)
    }
}
