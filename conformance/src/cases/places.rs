//! Memory that many operations of a case share, each with a place of its own.

use std::ops::{Deref, Range};

use fabric::{RemoteSlice, Slice};

use crate::prelude::*;

/// What many operations move: operation i has [`Rig::pattern`] 0 from byte 8 i on. So no two move the same bytes, and all
/// of them fit into little more than the longest.
pub(super) struct Staggered {
    bytes: Vec<u8>,
    buffer: Guarded,
}

impl Staggered {
    /// A buffer of `end` for `count` operations.
    #[track_caller]
    pub(super) fn new(rig: &Rig, end: &End, longest: usize, count: usize) -> Result<Self, Failed> {
        let bytes = rig.pattern(0).bytes(longest + 8 * count);
        Ok(Staggered { buffer: end.holding(&bytes)?, bytes })
    }

    /// The first `len` bytes of operation `i`.
    pub(super) fn bytes(&self, i: usize, len: usize) -> &[u8] {
        &self.bytes[8 * i..8 * i + len]
    }

    /// Those in the buffer, for the operation.
    pub(super) fn slice(&self, i: usize, len: usize) -> Slice<'_> {
        self.buffer.slice(8 * i..8 * i + len)
    }

    /// Those in the buffer, for an operation of the peer.
    pub(super) fn at(&self, i: usize) -> RemoteSlice {
        self.buffer.at(8 * i)
    }
}

/// A buffer of slots that operations use in turns. It dereferences to the buffer.
pub(super) struct Slots {
    buffer: Guarded,
    len: usize,
    count: usize,
}

impl Slots {
    /// `count` slots of `len` bytes.
    #[track_caller]
    pub(super) fn new(end: &End, count: usize, len: usize) -> Result<Self, Failed> {
        Ok(Slots { buffer: end.buffer(count * len)?, len, count })
    }

    /// Where in the buffer operation `i` has its slot.
    pub(super) fn range(&self, i: usize) -> Range<usize> {
        let start = i % self.count * self.len;
        start..start + self.len
    }

    /// The slot of operation `i`.
    pub(super) fn slot(&self, i: usize) -> Slice<'_> {
        self.buffer.slice(self.range(i))
    }

    /// The first `len` bytes in the slot of operation `i`.
    #[track_caller]
    pub(super) fn seen(&self, i: usize, len: usize) -> Result<Vec<u8>, Failed> {
        let start = self.range(i).start;
        self.buffer.bytes(start..start + len)
    }

    /// Posts receives of these contexts, each into its slot.
    #[track_caller]
    pub(super) fn post(&self, end: &End, contexts: Range<usize>) -> Outcome {
        for i in contexts {
            end.recv(self.slot(i), i as u64)?;
        }
        Ok(())
    }
}

impl Deref for Slots {
    type Target = Guarded;

    fn deref(&self) -> &Guarded {
        &self.buffer
    }
}
