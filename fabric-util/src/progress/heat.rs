//! Whether a connection is hot: on the list of those that the next step goes over.
//!
//! A connection cools when a step found nothing to do. What comes up between that step and the cooling must not be
//! forgotten, so whoever brings news notes it first and looks whether the connection is hot then, and the cooling
//! goes the other way round: either the one sees that the connection is no longer hot, or the other sees the news.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, fence};

/// A connection's heat.
pub struct Heat {
    /// It is on the list, or about to be.
    hot: AtomicBool,
    /// Something came up since the last step began.
    news: AtomicBool,
}

impl Default for Heat {
    fn default() -> Self {
        Heat::new()
    }
}

impl Heat {
    /// A connection that is not hot.
    pub fn new() -> Self {
        Heat { hot: AtomicBool::new(false), news: AtomicBool::new(false) }
    }

    /// Something came up that only a step can see to. To be followed by the heating.
    pub fn note(&self) {
        self.news.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that it becomes hot; false if it was.
    pub(super) fn kindle(&self) -> bool {
        !self.hot.load(Ordering::Relaxed) && !self.hot.swap(true, Ordering::AcqRel)
    }

    /// A step begins, and will see to what was noted until now.
    #[inline]
    pub(super) fn begin(&self) {
        if self.news.load(Ordering::Relaxed) {
            self.news.store(false, Ordering::Relaxed);
            // Before the step looks at the socket.
            fence(Ordering::SeqCst);
        }
    }

    /// Says that it is no longer hot; true if something came up meanwhile, and it has to be heated again.
    #[must_use]
    pub(super) fn cool(&self) -> bool {
        self.hot.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        self.news.load(Ordering::Relaxed)
    }
}
