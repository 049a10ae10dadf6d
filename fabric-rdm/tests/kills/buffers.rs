//! Memory of operations: places of one length in one region, each given out and taken back.

use fabric::{Access, Domain, Region, Slice};

use crate::{Outcome, text};

const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

pub(crate) struct Buffers {
    region: Region,
    len: usize,
    free: Vec<usize>,
}

impl Buffers {
    pub(crate) fn new(domain: &Domain, count: usize, len: usize, access: Access) -> Outcome<Self> {
        let region = domain.alloc(count * (len + GUARD), access).map_err(text)?;
        Ok(Buffers { region, len, free: (0..count).collect() })
    }

    pub(crate) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub(crate) fn give_back(&mut self, buffer: usize) {
        self.free.push(buffer);
    }

    fn begin(&self, buffer: usize) -> usize {
        buffer * (self.len + GUARD)
    }

    pub(crate) fn slice(&self, buffer: usize, len: usize) -> Slice<'_> {
        self.region.slice(self.begin(buffer)..self.begin(buffer) + len)
    }

    /// Puts a guard behind the first bytes.
    pub(crate) fn guard(&self, buffer: usize, len: usize) -> Outcome {
        self.region.write_at(self.begin(buffer) + len, &[GUARD_BYTE; GUARD]).map_err(text)
    }

    pub(crate) fn fill(&self, buffer: usize, bytes: &[u8]) -> Outcome {
        self.region.write_at(self.begin(buffer), bytes).map_err(text)
    }

    /// The first bytes, of a buffer with a guard behind `room`.
    pub(crate) fn bytes(&self, buffer: usize, len: usize, room: usize) -> Outcome<Vec<u8>> {
        let begin = self.begin(buffer);
        let guard = self.region.to_vec(begin + room..begin + room + GUARD).map_err(text)?;
        if guard != [GUARD_BYTE; GUARD] {
            return Err(format!("nothing behind the {room} bytes of a buffer"));
        }
        self.region.to_vec(begin..begin + len).map_err(text)
    }
}
