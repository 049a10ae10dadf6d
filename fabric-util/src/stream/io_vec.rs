//! Memory for one system call, and bytes that are put there.

use fabric_core::memory;

/// A piece of memory, of an operation or a region: address and length.
pub type IoVec = (*mut u8, usize);

/// The maximum number of pieces that a link gives at a time.
pub const MAX_IO_VECS: usize = 64;

/// Copies bytes to runs of memory whose lengths sum up to theirs.
///
/// # Safety
/// As [`memory::store`] on each run.
pub(super) unsafe fn store(runs: impl IntoIterator<Item = IoVec>, mut bytes: &[u8]) {
    for (addr, len) in runs {
        let (now, rest) = bytes.split_at(len.min(bytes.len()));
        // SAFETY: the caller's promise.
        unsafe { memory::store(addr, now) };
        bytes = rest;
    }
}

/// The same of a value's low `len` bytes, whichever end they are at.
///
/// # Safety
/// As [`memory::store`] on each run.
pub unsafe fn store_value(runs: impl IntoIterator<Item = IoVec>, value: u64, len: usize) {
    let bytes = value.to_ne_bytes();
    let low = if cfg!(target_endian = "little") { &bytes[..len] } else { &bytes[8 - len..] };
    // SAFETY: the caller's promise.
    unsafe { store(runs, low) };
}
