//! Where decrypted bytes go: memory that others may be looking at.

use fabric_core::memory;

use crate::stream::IoVec;

/// Runs of memory that are filled from the front.
#[derive(Default)]
pub(super) struct Scatter<'a> {
    runs: &'a [IoVec],
    /// Bytes of the first run that are filled.
    skip: usize,
    filled: usize,
}

impl<'a> Scatter<'a> {
    /// # Safety
    /// The memory must be allocated and writable as long as this lives, without a reference into it.
    pub(super) unsafe fn new(runs: &'a [IoVec]) -> Self {
        Scatter { runs, skip: 0, filled: 0 }
    }

    /// How many bytes are in it.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    pub(super) fn is_full(&self) -> bool {
        // A run that is full is none of them any more.
        self.runs.iter().all(|run| run.1 == 0)
    }

    /// Takes as many of the bytes as there is room for, and says how many.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> usize {
        let before = self.filled;
        while let (false, Some((&(addr, len), rest))) = (bytes.is_empty(), self.runs.split_first())
        {
            let (now, later) = bytes.split_at(bytes.len().min(len - self.skip));
            // SAFETY: what `new` was promised; the run has that much room.
            unsafe { memory::store(addr.wrapping_add(self.skip), now) };
            bytes = later;
            self.filled += now.len();
            self.skip += now.len();
            if self.skip == len {
                (self.runs, self.skip) = (rest, 0);
            }
        }
        self.filled - before
    }
}
