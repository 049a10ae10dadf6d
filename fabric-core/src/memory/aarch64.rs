//! Accesses on aarch64.
//!
//! Up to 128 bytes a copy loads everything into registers before it stores anything, by two runs that meet
//! or overlap in the middle; so overlapping ranges need no care. Longer ones loop, with the last (going
//! down: the first) 64 bytes loaded before and stored after the loop. Atomics are exclusive pairs, which
//! every processor of this kind has.

use std::arch::asm;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("addresses go to this assembly in registers of 64 bits");

pub(super) use self::{copy as load, copy as store};

/// Copies `len` bytes as if by way of a buffer.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes.
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    /// Two moves that cover `len` bytes, each at least half: load both, then store both.
    macro_rules! two {
        ($class:ident, $size:literal, $suffix:literal, $reg:literal) => {
            asm!(
                concat!("ldr", $suffix, " {a", $reg, "}, [{src}]"),
                concat!("ldr", $suffix, " {b", $reg, "}, [{src}, {last}]"),
                concat!("str", $suffix, " {a", $reg, "}, [{dst}]"),
                concat!("str", $suffix, " {b", $reg, "}, [{dst}, {last}]"),
                a = out($class) _,
                b = out($class) _,
                src = in(reg) src,
                dst = in(reg) dst,
                last = in(reg) len - $size,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: every access lies within the `len` bytes that the caller answers for.
    unsafe {
        match len {
            0 => {}
            1 => two!(reg, 1, "b", ":w"),
            2..=3 => two!(reg, 2, "h", ":w"),
            4..=7 => two!(reg, 4, "", ":w"),
            8..=16 => two!(reg, 8, "", ":x"),
            17..=32 => two!(vreg, 16, "", ":q"),
            33.. => copy_long(dst, src, len),
        }
    }
}

/// [`copy`] of 33 bytes and more.
unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: every access lies within the `len` bytes that the caller of `copy` answers for.
    unsafe {
        match len {
            ..=64 => asm!(
                "ldp {a:q}, {b:q}, [{src}]",
                "ldp {c:q}, {d:q}, [{src_end}, #-32]",
                "stp {a:q}, {b:q}, [{dst}]",
                "stp {c:q}, {d:q}, [{dst_end}, #-32]",
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                src = in(reg) src,
                dst = in(reg) dst,
                src_end = in(reg) src.add(len),
                dst_end = in(reg) dst.add(len),
                options(nostack, preserves_flags),
            ),
            65..=128 => asm!(
                "ldp {a:q}, {b:q}, [{src}]",
                "ldp {c:q}, {d:q}, [{src}, #32]",
                "ldp {e:q}, {f:q}, [{src_end}, #-64]",
                "ldp {g:q}, {h:q}, [{src_end}, #-32]",
                "stp {a:q}, {b:q}, [{dst}]",
                "stp {c:q}, {d:q}, [{dst}, #32]",
                "stp {e:q}, {f:q}, [{dst_end}, #-64]",
                "stp {g:q}, {h:q}, [{dst_end}, #-32]",
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                e = out(vreg) _, f = out(vreg) _, g = out(vreg) _, h = out(vreg) _,
                src = in(reg) src,
                dst = in(reg) dst,
                src_end = in(reg) src.add(len),
                dst_end = in(reg) dst.add(len),
                options(nostack, preserves_flags),
            ),
            _ if dst.addr().wrapping_sub(src.addr()) >= len => up(dst, src, len),
            _ => down(dst, src, len),
        }
    }
}

/// More than 128 bytes to a target that does not begin inside the source: no store of the loop hits a byte
/// that is still to be loaded.
unsafe fn up(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `dst` goes up by 64 as long as more than 64 bytes are left, and `src` with it; the last 64
    // are stored apart.
    unsafe {
        asm!(
            "ldp {e:q}, {f:q}, [{src_end}, #-64]",
            "ldp {g:q}, {h:q}, [{src_end}, #-32]",
            "2:",
            "ldp {a:q}, {b:q}, [{src}]",
            "ldp {c:q}, {d:q}, [{src}, #32]",
            "add {src}, {src}, #64",
            "stp {a:q}, {b:q}, [{dst}]",
            "stp {c:q}, {d:q}, [{dst}, #32]",
            "add {dst}, {dst}, #64",
            "cmp {dst}, {last}",
            "b.lo 2b",
            "stp {e:q}, {f:q}, [{last}]",
            "stp {g:q}, {h:q}, [{last}, #32]",
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
            e = out(vreg) _, f = out(vreg) _, g = out(vreg) _, h = out(vreg) _,
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            src_end = in(reg) src.add(len),
            last = in(reg) dst.add(len - 64),
            options(nostack),
        )
    }
}

/// More than 128 bytes to a target that begins inside the source, from the end.
unsafe fn down(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `dst_end` goes down by 64 as long as more than 64 bytes are left, and `src_end` with it; the
    // first 64 are stored apart.
    unsafe {
        asm!(
            "ldp {e:q}, {f:q}, [{src}]",
            "ldp {g:q}, {h:q}, [{src}, #32]",
            "2:",
            "ldp {a:q}, {b:q}, [{src_end}, #-64]",
            "ldp {c:q}, {d:q}, [{src_end}, #-32]",
            "sub {src_end}, {src_end}, #64",
            "stp {a:q}, {b:q}, [{dst_end}, #-64]",
            "stp {c:q}, {d:q}, [{dst_end}, #-32]",
            "sub {dst_end}, {dst_end}, #64",
            "cmp {dst_end}, {first_end}",
            "b.hi 2b",
            "stp {e:q}, {f:q}, [{dst}]",
            "stp {g:q}, {h:q}, [{dst}, #32]",
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
            e = out(vreg) _, f = out(vreg) _, g = out(vreg) _, h = out(vreg) _,
            src = in(reg) src,
            dst = in(reg) dst,
            src_end = inout(reg) src.add(len) => _,
            dst_end = inout(reg) dst.add(len) => _,
            first_end = in(reg) dst.add(64),
            options(nostack),
        )
    }
}

/// Clears `len` bytes.
///
/// # Safety
/// `dst` is writable for them.
pub(super) unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: `at` goes up to `dst + len`, by 16 bytes as long as as many are left, then by one.
    unsafe {
        asm!(
            "2:",
            "subs {left}, {left}, #16",
            "b.lo 3f",
            "stp xzr, xzr, [{at}], #16",
            "b 2b",
            "3:",
            "adds {left}, {left}, #16",
            "b.eq 5f",
            "4:",
            "strb wzr, [{at}], #1",
            "subs {left}, {left}, #1",
            "b.ne 4b",
            "5:",
            at = inout(reg) dst => _,
            left = inout(reg) len => _,
            options(nostack),
        )
    }
}

/// Picks the instruction's suffix and the register's name for `$width` bytes.
macro_rules! by_width {
    ($width:expr, $asm:ident) => {
        match $width {
            1 => $asm!("b", ":w"),
            2 => $asm!("h", ":w"),
            4 => $asm!("", ":w"),
            _ => $asm!("", ":x"),
        }
    };
}

/// Reads `width` (1, 2, 4 or 8) bytes, with acquire order.
#[inline]
pub(super) unsafe fn load_word(at: *const u8, width: usize) -> u64 {
    let bits: u64;
    macro_rules! load {
        ($suffix:literal, $reg:literal) => {
            asm!(
                concat!("ldar", $suffix, " {bits", $reg, "}, [{at}]"),
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

/// Writes the low `width` bytes of `bits`, with release order.
#[inline]
pub(super) unsafe fn store_word(at: *mut u8, width: usize, bits: u64) {
    macro_rules! store {
        ($suffix:literal, $reg:literal) => {
            asm!(
                concat!("stlr", $suffix, " {bits", $reg, "}, [{at}]"),
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
            let old: u64;
            macro_rules! exchange {
                ($suffix:literal, $reg:literal) => {
                    asm!(
                        "2:",
                        concat!("ldaxr", $suffix, " {old", $reg, "}, [{at}]"),
                        $instruction,
                        concat!("stlxr", $suffix, " {failed:w}, {new", $reg, "}, [{at}]"),
                        "cbnz {failed:w}, 2b",
                        old = out(reg) old,
                        new = out(reg) _,
                        failed = out(reg) _,
                        operand = in(reg) operand,
                        at = in(reg) at,
                        options(nostack, preserves_flags),
                    )
                };
            }
            // SAFETY: the caller answers for the `width` bytes.
            unsafe { by_width!(width, exchange) }
            old
        }
    };
}

read_modify_write! {
    /// Replaces `width` bytes by `operand`; the old ones come back.
    swap: "mov {new}, {operand}"
}
read_modify_write! {
    /// Adds `operand` to `width` bytes; the old ones come back.
    fetch_add: "add {new}, {old}, {operand}"
}

/// Writes `new` if it finds `expected`; both fit into `width` bytes. Returns what it found.
#[inline]
pub(super) unsafe fn compare_exchange(at: *mut u8, width: usize, expected: u64, new: u64) -> u64 {
    let seen: u64;
    macro_rules! exchange {
        ($suffix:literal, $reg:literal) => {
            asm!(
                "2:",
                concat!("ldaxr", $suffix, " {seen", $reg, "}, [{at}]"),
                "cmp {seen}, {expected}",
                "b.ne 3f",
                concat!("stlxr", $suffix, " {failed:w}, {new", $reg, "}, [{at}]"),
                "cbnz {failed:w}, 2b",
                "b 4f",
                "3:",
                "clrex",
                "4:",
                seen = out(reg) seen,
                failed = out(reg) _,
                expected = in(reg) expected,
                new = in(reg) new,
                at = in(reg) at,
                options(nostack),
            )
        };
    }
    // SAFETY: the caller answers for the `width` bytes.
    unsafe { by_width!(width, exchange) }
    seen
}
