//! Where there are no restartable sequences: accesses as any others.

use std::sync::atomic::Ordering;

use fabric_core::{AtomicCall, memory};
use fabric_util::sync::fence;

use super::condition::Condition;

#[allow(dead_code)] // not where there may be some
pub(super) fn is_there() -> bool {
    false
}

/// # Safety
/// As [`super::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, only: Condition<'_>) -> bool {
    if !only.holds() {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { memory::copy(dst, src, len) }
    // An owner that did not wait for the end may have taken its memory back.
    fence(Ordering::SeqCst);
    only.holds()
}

/// # Safety
/// As [`super::atomic`].
#[inline]
pub(super) unsafe fn atomic(at: *mut u8, call: &AtomicCall, only: Condition<'_>) -> Option<u64> {
    // SAFETY: the caller's promise.
    only.holds().then(|| unsafe { memory::atomic(at, call) })
}
