//! Counters that different threads write.

use super::AtomicU64;

/// A counter on a cache line of its own: posters and pollers are often different threads.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct CachePadded(pub(crate) AtomicU64);
