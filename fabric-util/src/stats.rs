//! Counters that a provider keeps for a domain.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::log_limiter::PeerLog;
use fabric_core::provider::ProviderCounters;

/// A counter with many writers.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Counts `n` more.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a domain counts; see [`ProviderCounters`].
#[derive(Debug, Default)]
pub struct Stats {
    /// Payload bytes copied.
    pub copied_bytes: Count,
    /// Sleepers woken.
    pub wakeups: Count,
    /// System calls on the data path, where the provider makes them itself.
    pub system_calls: Count,
    /// Connections ended by a peer's breach of the protocol.
    pub protocol_errors: Count,
    /// Connections that came in and were closed before the application heard of them.
    pub peers_refused: Count,
    /// Of these, those that did not prove to have the secret.
    pub peers_unauthenticated: Count,
    /// How often the log reports what peers do; a line is logged only if this admits it.
    pub peer_log: PeerLog,
}

impl Stats {
    /// The counts as they are now.
    pub fn snapshot(&self) -> ProviderCounters {
        let mut counters = ProviderCounters::default();
        counters.copied_bytes = self.copied_bytes.get();
        counters.wakeups = self.wakeups.get();
        counters.system_calls = self.system_calls.get();
        counters.protocol_errors = self.protocol_errors.get();
        counters.peers_refused = self.peers_refused.get();
        counters.peers_unauthenticated = self.peers_unauthenticated.get();
        counters
    }
}
