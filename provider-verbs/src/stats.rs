//! Counters of a domain.

use std::sync::atomic::{AtomicU64, Ordering};

use fabric_core::ProviderCounters;

/// A counter with many writers.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a domain counts; the device does the rest and counts for itself.
#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) copied_bytes: Count,
    pub(crate) wakeups: Count,
    pub(crate) protocol_errors: Count,
}

impl Stats {
    pub(crate) fn snapshot(&self) -> ProviderCounters {
        let mut counters = ProviderCounters::default();
        counters.copied_bytes = self.copied_bytes.get();
        counters.wakeups = self.wakeups.get();
        counters.protocol_errors = self.protocol_errors.get();
        counters
    }
}
