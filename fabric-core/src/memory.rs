//! Region memory: the one place where library code touches bytes that a peer or a device may change at the
//! same time.
//!
//! Here are [`Memory`], which owns such bytes, and the functions that go to them. No reference to region
//! memory is ever made, and no access to it is visible to the compiler as a Rust access: on x86-64 and
//! aarch64 it is `asm!`, elsewhere byte-wise relaxed atomics. So a racing peer yields bytes that are old or
//! new, never undefined behaviour; plain accesses (`ptr::copy`, slices) would, and so would atomic accesses
//! beside others of another width.
//!
//! - Copies have no order and no atomicity: each byte is old or new. When bytes must be seen by another
//!   thread, publish them as any other data, by a lock or a release store after the copy.
//! - [`atomic()`], [`load_scalar`] and [`store_scalar`] are single accesses of their width.
//!
//! Under `cfg(miri)` each function takes one global lock and accesses memory plainly. Miri then checks
//! bounds, provenance, initialization and lifetimes of every access; races it cannot see. Sanitizers see
//! nothing of `asm!` at all.

mod owned;

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(miri)]
mod locked;
#[cfg(any(test, miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[cfg_attr(miri, allow(dead_code))] // there only its words are used
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(test)]
mod tests;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use aarch64 as arch;
#[cfg(miri)]
use locked as arch;
#[cfg(not(any(miri, target_arch = "x86_64", target_arch = "aarch64")))]
use portable as arch;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as arch;

use std::mem::MaybeUninit;

use crate::atomic::{self, AtomicCall, AtomicOp, AtomicScalar};

pub use owned::Memory;

/// Copies private bytes into region memory.
///
/// # Safety
/// `dst` to `dst + src.len()` is mapped and writable, and stays so until the return. No reference to those
/// bytes is alive; that also rules out that `src` overlaps them. Any thread, process or device may access
/// them meanwhile, other than by plain Rust accesses.
#[inline]
pub unsafe fn store(dst: *mut u8, src: &[u8]) {
    // SAFETY: the caller answers for `dst`; `src` is a live slice.
    unsafe { arch::store(dst, src.as_ptr(), src.len()) }
}

/// Copies region memory out to private bytes.
///
/// # Safety
/// `src` to `src + dst.len()` is mapped, readable and initialized, and stays so until the return. No
/// exclusive reference to those bytes is alive; that also rules out that `dst` overlaps them. Any thread,
/// process or device may access them meanwhile, other than by plain Rust writes.
#[inline]
pub unsafe fn load(src: *const u8, dst: &mut [u8]) {
    // SAFETY: the caller answers for `src`; `dst` is a live slice.
    unsafe { arch::load(dst.as_mut_ptr(), src, dst.len()) }
}

/// As [`load`], to bytes that need not be initialized before.
///
/// # Safety
/// As for [`load`].
#[inline]
pub unsafe fn load_into(src: *const u8, dst: &mut [MaybeUninit<u8>]) {
    // SAFETY: the caller answers for `src`; `dst` is a live slice.
    unsafe { arch::load(dst.as_mut_ptr().cast(), src, dst.len()) }
}

/// Appends a copy of `len` bytes of region memory to `out`.
///
/// # Safety
/// As for [`load`].
#[inline]
pub unsafe fn append(src: *const u8, len: usize, out: &mut Vec<u8>) {
    out.reserve(len);
    let (before, spare) = (out.len(), out.spare_capacity_mut().as_mut_ptr());
    // SAFETY: the caller answers for `src`; `reserve` made room for `len` bytes, which are written before they count.
    unsafe {
        arch::load(spare.cast(), src, len);
        out.set_len(before + len);
    }
}

/// Copies region memory to region memory. The two may overlap: like `memmove`, all of the source is
/// transferred as it was before.
///
/// # Safety
/// As for [`load`] on `len` bytes at `src` and for [`store`] on `len` bytes at `dst`.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller answers for both.
    unsafe { arch::copy(dst, src, len) }
}

/// Sets region memory to zero.
///
/// # Safety
/// As for [`store`] on `len` bytes at `dst`.
#[inline]
pub unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: the caller answers for it.
    unsafe { arch::zero(dst, len) }
}

/// Reads one value in a single access, with acquire order: what happened before the
/// [`store_scalar`] that wrote it has happened before what follows.
///
/// # Safety
/// `at` is a multiple of the value's size; as for [`load`] on that many bytes.
#[inline]
pub unsafe fn load_scalar<T: AtomicScalar>(at: *const u8) -> T {
    // SAFETY: the caller answers for it.
    T::from_bits64(unsafe { arch::load_word(at, T::TYPE.size()) })
}

/// Writes one value in a single access, with release order: who sees it by [`load_scalar`] sees what
/// happened before.
///
/// # Safety
/// `at` is a multiple of the value's size; as for [`store`] on that many bytes.
#[inline]
pub unsafe fn store_scalar<T: AtomicScalar>(at: *mut u8, value: T) {
    // SAFETY: the caller answers for it.
    unsafe { arch::store_word(at, T::TYPE.size(), value.to_bits64()) }
}

/// Executes `call` on the element at `at` as one sequentially consistent access of the processor, and
/// returns the old bits, zero-extended. The new bits are those of [`atomic::apply`]; an operation that is
/// not defined on the type changes nothing.
///
/// It is atomic with respect to every other access of this function, [`load_scalar`] and [`store_scalar`] to
/// the element, from this process or another one that shares the memory. Beside accesses of another width
/// each is still one access on x86-64; elsewhere the processor's rules for mixed widths apply.
///
/// # Safety
/// `at` is a multiple of the type's size; as for [`load`] and [`store`] on that many bytes.
#[inline]
pub unsafe fn atomic(at: *mut u8, call: &AtomicCall) -> u64 {
    let width = call.ty.size();
    let mask = call.ty.mask();
    let operand = call.operand & mask;
    // SAFETY: the caller answers for `at`; `width` is one of 1, 2, 4 and 8, and no operand exceeds it.
    unsafe {
        match call.op {
            AtomicOp::Swap => arch::swap(at, width, operand),
            AtomicOp::CompareSwap => {
                arch::compare_exchange(at, width, call.compare & mask, operand)
            }
            AtomicOp::Add if !call.ty.is_float() => arch::fetch_add(at, width, operand),
            _ => {
                let mut old = arch::load_word(at, width);
                loop {
                    let new = atomic::apply(call.op, call.ty, old, operand, 0);
                    let seen = arch::compare_exchange(at, width, old, new);
                    if seen == old {
                        return old;
                    }
                    old = seen;
                }
            }
        }
    }
}
