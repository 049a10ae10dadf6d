//! A word with a cache line of its own, so that those that others write are not in its way.

/// Bytes of a cache line.
pub(crate) const LINE: u32 = if cfg!(loom) { 1 } else { 64 };

#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);
