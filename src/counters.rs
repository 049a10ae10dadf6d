//! Counters of endpoints and domains, cheap enough to stay on.
//!
//! Each counter has one writer at a time (the holder of the side's or the queue's lock), so it is a load and
//! a store, not a locked instruction.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_core::{ProviderCounters, Side};

/// A counter with one writer at a time and any number of readers.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an endpoint counts, apart by who writes it.
#[derive(Default)]
pub(crate) struct EndpointCounters {
    pub(crate) send: SideCounters,
    pub(crate) recv: SideCounters,
}

/// What happens on one side. Posters and pollers are often different threads: each has its cache line.
#[derive(Default)]
pub(crate) struct SideCounters {
    pub(crate) posts: Posts,
    pub(crate) ends: Ends,
}

/// Written under the side's lock.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Posts {
    pub(crate) operations: Counter,
    pub(crate) bytes: Counter,
    pub(crate) again: Counter,
}

/// Written under the lock of the side's completion queue.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Ends {
    pub(crate) completed: Counter,
    pub(crate) bytes: Counter,
    pub(crate) errors: Counter,
}

impl EndpointCounters {
    pub(crate) fn side(&self, side: Side) -> &SideCounters {
        match side {
            Side::Send => &self.send,
            Side::Recv => &self.recv,
        }
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let EndpointCounters { send, recv } = self;
        Counters {
            posted_sends: send.posts.operations.get(),
            posted_recvs: recv.posts.operations.get(),
            posted_bytes: send.posts.bytes.get(),
            received: recv.ends.completed.get(),
            received_bytes: recv.ends.bytes.get(),
            completed: send.ends.completed.get() + recv.ends.completed.get(),
            errors: send.ends.errors.get() + recv.ends.errors.get(),
            again: send.posts.again.get() + recv.posts.again.get(),
            leaked_regions: 0,
            provider: ProviderCounters::default(),
        }
    }
}

/// What an endpoint, or all endpoints of a domain, did so far.
///
/// Snapshots of running counters: each value is right, but they are not all of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Counters {
    /// Operations posted to send queues.
    pub posted_sends: u64,
    /// Receives posted.
    pub posted_recvs: u64,
    /// Payload bytes of what was posted to send queues.
    pub posted_bytes: u64,
    /// Receives that took a message, or a peer's write with immediate.
    pub received: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// Operations that ended well, unsignaled ones included.
    pub completed: u64,
    /// Operations that ended otherwise.
    pub errors: u64,
    /// Posts that the depth refused.
    pub again: u64,
    /// Regions that stay registered, and their memory allocated, until the process ends, since nothing proved that no
    /// device touches them; zero for a single endpoint. Each comes with a line in the log.
    pub leaked_regions: u64,
    /// What the provider counts; zero for a single endpoint.
    pub provider: ProviderCounters,
}

impl Counters {
    pub(crate) fn add(&mut self, other: &Counters) {
        self.posted_sends += other.posted_sends;
        self.posted_recvs += other.posted_recvs;
        self.posted_bytes += other.posted_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.completed += other.completed;
        self.errors += other.errors;
        self.again += other.again;
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "posted {} sends ({} B) and {} receives, received {} ({} B), completed {}, errors {}, again {}",
            self.posted_sends,
            self.posted_bytes,
            self.posted_recvs,
            self.received,
            self.received_bytes,
            self.completed,
            self.errors,
            self.again
        )
    }
}
