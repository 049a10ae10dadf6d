//! Memory for one system call.

/// A run of memory, of an operation or a region: address and length.
pub type Run = (*mut u8, usize);

/// The most runs that a link gives at a time.
pub const MAX_RUNS: usize = 64;
