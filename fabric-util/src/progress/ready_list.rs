//! Connections that became ready, until the next step takes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::unlikely;

use super::ready_flag::ReadyFlag;
use crate::fair_table::Network;
use crate::sync::{AtomicBool, Mutex};

/// What an engine serves: a connection.
pub trait Source {
    /// Its ready flag.
    fn ready_flag(&self) -> &ReadyFlag;

    /// Where its peer is. All connections from there have one long turn in a step; where it is unknown, one each.
    fn network(&self) -> Option<Network>;
}

/// The connections that the next step adds to its own.
pub(super) struct ReadyList<S> {
    sources: Mutex<Vec<Arc<S>>>,
    /// There are some: a look at this costs less than the lock.
    some: AtomicBool,
}

impl<S: Source> ReadyList<S> {
    pub(super) fn new() -> Self {
        ReadyList { sources: Mutex::default(), some: AtomicBool::new(false) }
    }

    /// Adds a connection; false if it was ready.
    #[inline(always)] // it is called with each post
    pub(super) fn push(&self, source: &Arc<S>) -> bool {
        let added = source.ready_flag().set();
        if unlikely(added) {
            self.sources.lock().push(source.clone());
            self.some.store(true, Ordering::Release);
        }
        added
    }

    /// Takes them all.
    #[inline]
    pub(super) fn take(&self, to: impl FnMut(Arc<S>)) {
        if !self.is_empty() && self.some.swap(false, Ordering::AcqRel) {
            self.sources.lock().drain(..).for_each(to);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.some.load(Ordering::Acquire)
    }

    /// Drops every connection.
    pub(super) fn clear(&self) {
        self.sources.lock().clear();
    }
}
