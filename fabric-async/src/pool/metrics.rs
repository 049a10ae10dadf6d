//! What a pool counts.

/// What a pool does and did.
///
/// ```
/// let node = fabric_async::Node::builder().build()?;
/// for _ in 0..100 {
///     node.pool().alloc(1000)?;
/// }
/// let metrics = node.pool().metrics();
/// assert_eq!((metrics.allocations, metrics.registrations), (100, 1)); // memory is registered once
/// assert_eq!((metrics.in_use, metrics.refusals), (0, 0));
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PoolMetrics {
    /// Blocks that buffers, or operations in flight, have.
    pub in_use: usize,
    /// Blocks that wait in the caches of threads.
    pub cached: usize,
    /// Bytes that are registered now.
    pub registered_bytes: usize,
    /// Buffers taken so far.
    pub allocations: u64,
    /// Extents registered so far.
    pub registrations: u64,
    /// Extents deregistered so far.
    pub deregistrations: u64,
    /// How often [`Pool::alloc_wait`](crate::Pool::alloc_wait) had to wait.
    pub waits: u64,
    /// How often the bound, or the system, refused memory.
    pub refusals: u64,
    /// Blocks of operations that had not ended when their node did, since a device did not stop them: it may still use the
    /// memory, so it is not reused. They stay among those in use.
    pub leaks: u64,
}
