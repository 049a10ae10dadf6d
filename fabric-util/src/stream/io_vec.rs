//! Memory for one system call.

/// A piece of memory, of an operation or a region: address and length.
pub type IoVec = (*mut u8, usize);

/// The maximum number of pieces that a link gives at a time.
pub const MAX_IO_VECS: usize = 64;
