//! Accesses on x86-64.
//!
//! Up to 32 bytes a copy loads two registers that meet or overlap in the middle, then stores both; up to 128 bytes, four
//! or eight. So overlapping ranges need no care. Longer ones go by `vectors`, very long ones by `rep movsb`. No store is
//! of the weakly ordered (non-temporal) kind, so a release store afterwards publishes them all.

use std::arch::asm;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("addresses go to this assembly in registers of 64 bits");

mod vectors;

pub(super) use self::{copy as load, copy as store};
pub(super) use vectors::copy_vectors;

/// Copies `len` bytes as if by way of a buffer. Not inlined: a message is copied several times on its way, and then this code is in
/// the cache.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes.
#[inline(never)]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    /// Two moves that cover `len` bytes, each at least half: load both, then store both.
    macro_rules! two {
        ($class:ident, $size:literal, $mov:literal, $ptr:literal, $instruction:literal) => {
            asm!(
                concat!($instruction, " {a", $mov, "}, ", $ptr, " ptr [{src}]"),
                concat!($instruction, " {b", $mov, "}, ", $ptr, " ptr [{src} + {len} - ", $size, "]"),
                concat!($instruction, " ", $ptr, " ptr [{dst}], {a", $mov, "}"),
                concat!($instruction, " ", $ptr, " ptr [{dst} + {len} - ", $size, "], {b", $mov, "}"),
                a = out($class) _,
                b = out($class) _,
                src = in(reg) src,
                dst = in(reg) dst,
                len = in(reg) len,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: every access lies within the `len` bytes that the caller answers for.
    unsafe {
        if len > 128 {
            copy_long(dst, src, len);
        } else if len > 32 {
            copy_vectors(dst, src, len, false);
        } else if len > 16 {
            two!(xmm_reg, 16, ":x", "xmmword", "movups");
        } else if len >= 8 {
            two!(reg, 8, ":r", "qword", "mov");
        } else if len >= 4 {
            two!(reg, 4, ":e", "dword", "mov");
        } else if len >= 2 {
            two!(reg, 2, ":x", "word", "mov");
        } else if len == 1 {
            asm!(
                "movzx {a:e}, byte ptr [{src}]",
                "mov byte ptr [{dst}], {a:l}",
                a = out(reg) _,
                src = in(reg) src,
                dst = in(reg) dst,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// From this length on a copy is left to `rep movsb`, which writes whole lines without reading them first.
const STRING_MOVE: usize = 32 << 10;

/// [`copy`] of 129 bytes and more.
#[inline(never)]
unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise; AVX is used only where it is there.
    unsafe {
        if len >= STRING_MOVE && suits_string_move(dst, src, len) {
            string_move(dst, src, len);
        } else {
            copy_vectors(dst, src, len, is_x86_feature_detected!("avx"));
        }
    }
}

/// Whether `rep movsb` is right and fast for this copy: ranges apart, and a processor with fast strings.
/// Some (Zen 3 and later) get several times slower when the target lies a few bytes above the source within
/// the page.
fn suits_string_move(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let up = dst.addr().wrapping_sub(src.addr());
    let apart = up >= len && up.wrapping_neg() >= len;
    let aliased = (1..64).contains(&(up % 4096));
    apart && !aliased && is_x86_feature_detected!("ermsb")
}

/// Copies by `rep movsb`.
///
/// # Safety
/// As for [`copy`], of ranges apart.
pub(super) unsafe fn string_move(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller answers for all `len` bytes; the direction flag is clear by Rust's rules.
    unsafe {
        asm!(
            "rep movsb",
            inout("rdi") dst => _,
            inout("rsi") src => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags),
        )
    }
}

/// Clears `len` bytes.
///
/// # Safety
/// `dst` is writable for them.
#[inline]
pub(super) unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: the caller answers for all `len` bytes; the direction flag is clear by Rust's rules.
    unsafe {
        asm!(
            "rep stosb",
            inout("rdi") dst => _,
            inout("rcx") len => _,
            in("eax") 0,
            options(nostack, preserves_flags),
        )
    }
}

/// Picks the instruction's form for `$width` bytes: the operand's size and the register's name.
macro_rules! by_width {
    ($width:expr, $asm:ident) => {
        match $width {
            1 => $asm!("byte", ":l", "movzx", ":e"),
            2 => $asm!("word", ":x", "movzx", ":e"),
            4 => $asm!("dword", ":e", "mov", ":e"),
            _ => $asm!("qword", ":r", "mov", ":r"),
        }
    };
}

/// Reads `width` (1, 2, 4 or 8) bytes. Every load of this processor acquires.
#[inline]
pub(super) unsafe fn load_word(at: *const u8, width: usize) -> u64 {
    let bits: u64;
    macro_rules! load {
        ($ptr:literal, $_low:literal, $mov:literal, $reg:literal) => {
            asm!(
                concat!($mov, " {bits", $reg, "}, ", $ptr, " ptr [{at}]"),
                bits = lateout(reg) bits,
                at = in(reg) at,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: the caller answers for the `width` bytes.
    unsafe { by_width!(width, load) }
    bits
}

/// Writes the low `width` bytes of `bits`. Every store of this processor releases.
#[inline]
pub(super) unsafe fn store_word(at: *mut u8, width: usize, bits: u64) {
    macro_rules! store {
        ($ptr:literal, $low:literal, $_mov:literal, $_reg:literal) => {
            asm!(
                concat!("mov ", $ptr, " ptr [{at}], {bits", $low, "}"),
                bits = in(reg) bits,
                at = in(reg) at,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: the caller answers for the `width` bytes.
    unsafe { by_width!(width, store) }
}

macro_rules! read_modify_write {
    ($(#[$doc:meta])* $name:ident: $instruction:literal) => {
        $(#[$doc])*
        #[inline]
        pub(super) unsafe fn $name(at: *mut u8, width: usize, operand: u64) -> u64 {
            // Its bits above `width` are zero and stay as they are, so it is zero-extended afterwards.
            let mut bits = operand;
            macro_rules! exchange {
                ($ptr:literal, $low:literal, $_mov:literal, $_reg:literal) => {
                    asm!(
                        concat!($instruction, " ", $ptr, " ptr [{at}], {bits", $low, "}"),
                        bits = inout(reg) bits,
                        at = in(reg) at,
                        options(nostack),
                    )
                };
            }
            // SAFETY: the caller answers for the `width` bytes.
            unsafe { by_width!(width, exchange) }
            bits
        }
    };
}

read_modify_write! {
    /// Replaces `width` bytes by `operand`, which fits; the old ones come back. `xchg` locks by itself.
    swap: "xchg"
}
read_modify_write! {
    /// Adds `operand`, which fits, to `width` bytes; the old ones come back.
    fetch_add: "lock xadd"
}

/// Writes `new` if it finds `expected`; both fit into `width` bytes. Returns what it found.
#[inline]
pub(super) unsafe fn compare_exchange(at: *mut u8, width: usize, expected: u64, new: u64) -> u64 {
    let mut seen = expected;
    macro_rules! exchange {
        ($ptr:literal, $low:literal, $_mov:literal, $_reg:literal) => {
            asm!(
                concat!("lock cmpxchg ", $ptr, " ptr [{at}], {new", $low, "}"),
                new = in(reg) new,
                at = in(reg) at,
                inout("rax") seen,
                options(nostack),
            )
        };
    }
    // SAFETY: the caller answers for the `width` bytes.
    unsafe { by_width!(width, exchange) }
    seen
}
