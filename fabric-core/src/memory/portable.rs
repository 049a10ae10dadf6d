//! Accesses on machines without assembly here: byte-wise atomics for copies, so that every access to a
//! region's bytes is atomic and, copies among themselves, of one width.

#![expect(clippy::useless_conversion, reason = "useless for the widest of the four words only")]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// The atomic at an address.
///
/// # Safety
/// `at` is valid for an atomic read, and is not written through this if it is read-only.
#[inline(always)]
unsafe fn byte<'a>(at: *const u8) -> &'a AtomicU8 {
    // SAFETY: the caller answers for it; a byte is always aligned.
    unsafe { AtomicU8::from_ptr(at.cast_mut()) }
}

/// Private bytes to region memory.
pub(super) unsafe fn store(dst: *mut u8, src: *const u8, len: usize) {
    for i in 0..len {
        // SAFETY: both ranges are valid for `len` bytes; `src` is private.
        unsafe { byte(dst.add(i)).store(src.add(i).read(), Relaxed) }
    }
}

/// Region memory to private bytes.
pub(super) unsafe fn load(dst: *mut u8, src: *const u8, len: usize) {
    for i in 0..len {
        // SAFETY: both ranges are valid for `len` bytes; `dst` is private.
        unsafe { dst.add(i).write(byte(src.add(i)).load(Relaxed)) }
    }
}

/// Region memory to region memory.
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let one = |i: usize| {
        // SAFETY: both ranges are valid for `len` bytes, and `i` is less.
        unsafe { byte(dst.add(i)).store(byte(src.add(i)).load(Relaxed), Relaxed) }
    };
    if dst.addr().wrapping_sub(src.addr()) >= len {
        (0..len).for_each(one);
    } else {
        // The target begins inside the source: its end has to move first.
        (0..len).rev().for_each(one);
    }
}

pub(super) unsafe fn zero(dst: *mut u8, len: usize) {
    for i in 0..len {
        // SAFETY: the range is valid for `len` bytes.
        unsafe { byte(dst.add(i)).store(0, Relaxed) }
    }
}

/// Evaluates an expression with `$word` naming the atomic of `$width` bytes at `$at` and `$int` its integer.
macro_rules! with_word {
    ($at:expr, $width:expr, |$word:ident, $int:ident| $body:expr) => {
        with_word!(@match $width, $at, $word, $int, $body;
            1 => AtomicU8, u8; 2 => AtomicU16, u16; 4 => AtomicU32, u32; _ => AtomicU64, u64)
    };
    (@match $width:expr, $at:expr, $word:ident, $int:ident, $body:expr;
        $($bytes:pat => $atomic:ident, $ty:ident);*) => {
        match $width {
            $($bytes => {
                type $int = $ty;
                // SAFETY: the caller of the surrounding function answers for width and alignment, and that
                // all accesses meanwhile are atomic.
                let $word = unsafe { $atomic::from_ptr($at.cast()) };
                $body
            })*
        }
    };
}

#[inline]
pub(super) unsafe fn load_word(at: *const u8, width: usize) -> u64 {
    with_word!(at.cast_mut(), width, |word, Int| Int::into(word.load(Acquire)))
}

#[inline]
pub(super) unsafe fn store_word(at: *mut u8, width: usize, bits: u64) {
    with_word!(at, width, |word, Int| word.store(bits as Int, Release))
}

#[inline]
pub(super) unsafe fn swap(at: *mut u8, width: usize, bits: u64) -> u64 {
    with_word!(at, width, |word, Int| word.swap(bits as Int, SeqCst).into())
}

#[inline]
pub(super) unsafe fn fetch_add(at: *mut u8, width: usize, bits: u64) -> u64 {
    with_word!(at, width, |word, Int| word.fetch_add(bits as Int, SeqCst).into())
}

/// Returns what it saw: `expected` if it wrote `new`.
#[inline]
pub(super) unsafe fn compare_exchange(at: *mut u8, width: usize, expected: u64, new: u64) -> u64 {
    with_word!(at, width, |word, Int| {
        match word.compare_exchange(expected as Int, new as Int, SeqCst, SeqCst) {
            Ok(seen) | Err(seen) => seen.into(),
        }
    })
}
