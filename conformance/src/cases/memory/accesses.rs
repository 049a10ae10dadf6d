//! Accesses to a peer's memory.

use fabric::RemoteSlice;

use crate::prelude::*;

/// A write of the local buffer to `to`, and a read from there.
pub(super) fn write_and_read<'a>(
    local: &'a Guarded,
    to: RemoteSlice,
) -> [(&'static str, Op<'a>); 2] {
    [("a write", Op::write(local, to)), ("a read", Op::read(local, to))]
}
