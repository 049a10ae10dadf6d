//! Where there are no restartable sequences: accesses as any others.

use fabric_core::{AtomicCall, memory};

use super::condition::Condition;

#[allow(dead_code)] // not where there may be some
pub(super) fn is_there() -> bool {
    false
}

/// # Safety
/// As [`super::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, only: Condition<'_>) -> bool {
    let may = only.holds();
    if may {
        // SAFETY: the caller's promise.
        unsafe { memory::copy(dst, src, len) }
    }
    may
}

/// # Safety
/// As [`super::atomic`].
#[inline]
pub(super) unsafe fn atomic(at: *mut u8, call: &AtomicCall, only: Condition<'_>) -> Option<u64> {
    // SAFETY: the caller's promise.
    only.holds().then(|| unsafe { memory::atomic(at, call) })
}
