//! A word with a cache line of its own, so that those that others write are not in its way.

#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);
