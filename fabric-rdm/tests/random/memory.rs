//! Buffers between guards, and what is in messages.

use fabric::{Access, Domain, Region, RemoteSlice, Slice};

use fabric_util::splitmix::mix;

const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;
/// In buffers that nothing has come to.
pub(crate) const UNTOUCHED: u8 = 0xee;

/// Memory of an operation.
pub(crate) struct Buffer {
    region: Region,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(domain: &Domain, bytes: &[u8], access: Access) -> Result<Self, String> {
        let guard = [GUARD_BYTE; GUARD];
        let whole = [&guard[..], bytes, &guard[..]].concat();
        let region = domain.alloc(whole.len().next_multiple_of(8), access);
        let region = region.map_err(|error| format!("memory: {error}"))?;
        region.write_at(0, &whole).map_err(|error| format!("memory: {error}"))?;
        Ok(Buffer { region, len: bytes.len() })
    }

    pub(crate) fn slice(&self) -> Slice<'_> {
        self.region.slice(GUARD..GUARD + self.len)
    }

    pub(crate) fn at(&self, offset: usize) -> RemoteSlice {
        self.region.remote().at((GUARD + offset) as u64)
    }

    /// Its bytes, if the guards are as they were.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        let all = self.region.to_vec(..).map_err(|error| format!("memory: {error}"))?;
        let (before, rest) = all.split_at(GUARD);
        let (bytes, after) = rest.split_at(self.len);
        if before.iter().chain(&after[..GUARD]).any(|byte| *byte != GUARD_BYTE) {
            return Err(format!("guards around {} bytes were written to", self.len));
        }
        Ok(bytes.to_vec())
    }
}

/// The payload of a message or a write: its number, and then what belongs to that number.
pub(crate) fn payload(number: u64, len: usize) -> Vec<u8> {
    let words = (1..=len as u64 / 8).map(|at| mix(number << 20 | at));
    let bytes = std::iter::once(number).chain(words).flat_map(u64::to_le_bytes);
    bytes.take(len).collect()
}

/// The number in a payload.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}
