//! Copies by vector registers.
//!
//! Up to eight vectors everything is loaded before anything is stored, by two runs that meet or overlap in
//! the middle. Longer copies loop over aligned stores, with the edges loaded before and stored after the
//! loop; it runs up or down, whichever loads each byte before it is overwritten.

/// [`copy`](super::copy) of 33 bytes and more by vectors, with `avx` by those of 32 bytes.
///
/// # Safety
/// As for [`copy`](super::copy); the processor has AVX if `avx` says so.
pub(crate) unsafe fn copy_vectors(dst: *mut u8, src: *const u8, len: usize, avx: bool) {
    // SAFETY: the caller's promise; each length is in the range of the function it goes to.
    unsafe {
        match (len, avx) {
            (..=64, _) => sse::four(dst, src, len),
            (..=128, true) => avx::four(dst, src, len),
            (..=256, true) => avx::eight(dst, src, len),
            (_, true) => avx::many(dst, src, len),
            (..=128, false) => sse::eight(dst, src, len),
            (_, false) => sse::many(dst, src, len),
        }
    }
}

/// `asm!` that declares every vector register as changed, in all its width. `vzeroupper` clears the upper halves of
/// all sixteen, in which a caller built for AVX may hold values where the block is inlined; those from 16 on, of
/// AVX-512, keep theirs.
macro_rules! vector_asm {
    ($($text_and_operands:tt)*) => {
        std::arch::asm!(
            $($text_and_operands)*
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        )
    };
}

/// Copies by vectors of `$size` bytes; `$mov` moves one at any address, `$aligned` at a multiple of its
/// size, and `$leave` brings the registers into the state that the code outside expects.
macro_rules! by_vectors {
    ($name:ident, $size:literal, $mov:literal, $aligned:literal, $reg:literal, $leave:literal) => {
        mod $name {
            /// Copies two to four vectors.
            ///
            /// # Safety
            /// As for [`copy_vectors`](super::copy_vectors), with a processor that has these vectors.
            pub(super) unsafe fn four(dst: *mut u8, src: *const u8, len: usize) {
                // SAFETY: every access lies within the `len` bytes.
                unsafe {
                    vector_asm!(
                        concat!($mov, " ", $reg, "0, [{src}]"),
                        concat!($mov, " ", $reg, "1, [{src} + ", $size, "]"),
                        concat!($mov, " ", $reg, "2, [{src} + {len} - 2*", $size, "]"),
                        concat!($mov, " ", $reg, "3, [{src} + {len} - ", $size, "]"),
                        concat!($mov, " [{dst}], ", $reg, "0"),
                        concat!($mov, " [{dst} + ", $size, "], ", $reg, "1"),
                        concat!($mov, " [{dst} + {len} - 2*", $size, "], ", $reg, "2"),
                        concat!($mov, " [{dst} + {len} - ", $size, "], ", $reg, "3"),
                        $leave,
                        src = in(reg) src,
                        dst = in(reg) dst,
                        len = in(reg) len,
                        options(nostack, preserves_flags),
                    )
                }
            }

            /// Copies four to eight vectors.
            ///
            /// # Safety
            /// As for [`four`].
            pub(super) unsafe fn eight(dst: *mut u8, src: *const u8, len: usize) {
                // SAFETY: every access lies within the `len` bytes.
                unsafe {
                    vector_asm!(
                        concat!($mov, " ", $reg, "0, [{src}]"),
                        concat!($mov, " ", $reg, "1, [{src} + ", $size, "]"),
                        concat!($mov, " ", $reg, "2, [{src} + 2*", $size, "]"),
                        concat!($mov, " ", $reg, "3, [{src} + 3*", $size, "]"),
                        concat!($mov, " ", $reg, "4, [{src} + {len} - 4*", $size, "]"),
                        concat!($mov, " ", $reg, "5, [{src} + {len} - 3*", $size, "]"),
                        concat!($mov, " ", $reg, "6, [{src} + {len} - 2*", $size, "]"),
                        concat!($mov, " ", $reg, "7, [{src} + {len} - ", $size, "]"),
                        concat!($mov, " [{dst}], ", $reg, "0"),
                        concat!($mov, " [{dst} + ", $size, "], ", $reg, "1"),
                        concat!($mov, " [{dst} + 2*", $size, "], ", $reg, "2"),
                        concat!($mov, " [{dst} + 3*", $size, "], ", $reg, "3"),
                        concat!($mov, " [{dst} + {len} - 4*", $size, "], ", $reg, "4"),
                        concat!($mov, " [{dst} + {len} - 3*", $size, "], ", $reg, "5"),
                        concat!($mov, " [{dst} + {len} - 2*", $size, "], ", $reg, "6"),
                        concat!($mov, " [{dst} + {len} - ", $size, "], ", $reg, "7"),
                        $leave,
                        src = in(reg) src,
                        dst = in(reg) dst,
                        len = in(reg) len,
                        options(nostack, preserves_flags),
                    )
                }
            }

            /// Copies more than eight vectors, by a loop of four at a time over aligned targets.
            ///
            /// # Safety
            /// As for [`four`].
            pub(super) unsafe fn many(dst: *mut u8, src: *const u8, len: usize) {
                let to_src = src.addr().wrapping_sub(dst.addr());
                // SAFETY: the caller's promise.
                unsafe {
                    if to_src.wrapping_neg() >= len {
                        up(dst, src, len, to_src)
                    } else {
                        down(dst, src, len, to_src)
                    }
                }
            }

            /// For targets that do not begin inside the source: no store of the loop hits a byte that is
            /// still to be loaded.
            unsafe fn up(dst: *mut u8, src: *const u8, len: usize, to_src: usize) {
                // SAFETY: `at` goes from the first aligned address behind `dst` up to the last four
                // vectors, where it stops less than four vectors later: at the end or before.
                unsafe {
                    vector_asm!(
                        concat!($mov, " ", $reg, "8, [{src}]"),
                        concat!($mov, " ", $reg, "4, [{src} + {len} - 4*", $size, "]"),
                        concat!($mov, " ", $reg, "5, [{src} + {len} - 3*", $size, "]"),
                        concat!($mov, " ", $reg, "6, [{src} + {len} - 2*", $size, "]"),
                        concat!($mov, " ", $reg, "7, [{src} + {len} - ", $size, "]"),
                        ".p2align 5",
                        "2:",
                        concat!($mov, " ", $reg, "0, [{at} + {to_src}]"),
                        concat!($mov, " ", $reg, "1, [{at} + {to_src} + ", $size, "]"),
                        concat!($mov, " ", $reg, "2, [{at} + {to_src} + 2*", $size, "]"),
                        concat!($mov, " ", $reg, "3, [{at} + {to_src} + 3*", $size, "]"),
                        concat!($aligned, " [{at}], ", $reg, "0"),
                        concat!($aligned, " [{at} + ", $size, "], ", $reg, "1"),
                        concat!($aligned, " [{at} + 2*", $size, "], ", $reg, "2"),
                        concat!($aligned, " [{at} + 3*", $size, "], ", $reg, "3"),
                        concat!("add {at}, 4*", $size),
                        "cmp {at}, {last}",
                        "jb 2b",
                        concat!($mov, " [{last}], ", $reg, "4"),
                        concat!($mov, " [{last} + ", $size, "], ", $reg, "5"),
                        concat!($mov, " [{last} + 2*", $size, "], ", $reg, "6"),
                        concat!($mov, " [{last} + 3*", $size, "], ", $reg, "7"),
                        concat!($mov, " [{dst}], ", $reg, "8"),
                        $leave,
                        src = in(reg) src,
                        dst = in(reg) dst,
                        len = in(reg) len,
                        to_src = in(reg) to_src,
                        last = in(reg) dst.add(len - 4 * $size),
                        at = inout(reg) dst.add($size - dst.addr() % $size) => _,
                        options(nostack),
                    )
                }
            }

            /// For targets that begin inside the source, from the end.
            unsafe fn down(dst: *mut u8, src: *const u8, len: usize, to_src: usize) {
                let aligned = len - dst.addr().wrapping_add(len) % $size;
                // SAFETY: `at` goes from the last aligned address in `dst` down to the first four vectors,
                // where it stops less than four vectors further down: at `dst` or behind.
                unsafe {
                    vector_asm!(
                        concat!($mov, " ", $reg, "8, [{src} + {len} - ", $size, "]"),
                        concat!($mov, " ", $reg, "4, [{src}]"),
                        concat!($mov, " ", $reg, "5, [{src} + ", $size, "]"),
                        concat!($mov, " ", $reg, "6, [{src} + 2*", $size, "]"),
                        concat!($mov, " ", $reg, "7, [{src} + 3*", $size, "]"),
                        ".p2align 5",
                        "2:",
                        concat!("sub {at}, 4*", $size),
                        concat!($mov, " ", $reg, "0, [{at} + {to_src}]"),
                        concat!($mov, " ", $reg, "1, [{at} + {to_src} + ", $size, "]"),
                        concat!($mov, " ", $reg, "2, [{at} + {to_src} + 2*", $size, "]"),
                        concat!($mov, " ", $reg, "3, [{at} + {to_src} + 3*", $size, "]"),
                        concat!($aligned, " [{at}], ", $reg, "0"),
                        concat!($aligned, " [{at} + ", $size, "], ", $reg, "1"),
                        concat!($aligned, " [{at} + 2*", $size, "], ", $reg, "2"),
                        concat!($aligned, " [{at} + 3*", $size, "], ", $reg, "3"),
                        "cmp {at}, {first_end}",
                        "ja 2b",
                        concat!($mov, " [{dst}], ", $reg, "4"),
                        concat!($mov, " [{dst} + ", $size, "], ", $reg, "5"),
                        concat!($mov, " [{dst} + 2*", $size, "], ", $reg, "6"),
                        concat!($mov, " [{dst} + 3*", $size, "], ", $reg, "7"),
                        concat!($mov, " [{dst} + {len} - ", $size, "], ", $reg, "8"),
                        $leave,
                        src = in(reg) src,
                        dst = in(reg) dst,
                        len = in(reg) len,
                        to_src = in(reg) to_src,
                        first_end = in(reg) dst.add(4 * $size),
                        at = inout(reg) dst.add(aligned) => _,
                        options(nostack),
                    )
                }
            }
        }
    };
}

by_vectors!(sse, 16, "movups", "movaps", "xmm", "");
by_vectors!(avx, 32, "vmovups", "vmovaps", "ymm", "vzeroupper");
