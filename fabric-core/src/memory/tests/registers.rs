//! Values that a caller keeps in registers across an inlined access. A block of assembly that changes a register
//! without declaring it changes one of them.
//!
//! Only optimised code is inlined: `scripts/assembly` builds these tests so, for each kind of processor.

use std::arch::asm;
use std::slice;

use super::*;

/// More than any class has registers, so that every register that the compiler takes to be unchanged holds one.
const COUNT: usize = 36;

trait Hold {
    type Value: Copy;

    /// Gives `values` back, which are in registers, as many as fit, while `access` runs.
    ///
    /// # Safety
    /// The processor has these registers.
    unsafe fn hold(values: &[Self::Value; COUNT], access: impl FnOnce()) -> [Self::Value; COUNT];
}

macro_rules! registers {
    ($(#[$attribute:meta])* $name:ident: $value:ty, $class:ident) => {
        struct $name;

        impl Hold for $name {
            type Value = $value;

            $(#[$attribute])*
            #[inline(never)]
            unsafe fn hold(values: &[$value; COUNT], access: impl FnOnce()) -> [$value; COUNT] {
                registers!(@body $class, values, access;
                    a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee ff gg hh ii jj)
            }
        }
    };
    (@body $class:ident, $values:ident, $access:ident; $($value:ident)*) => {{
        let [$(mut $value),*] = *$values;
        // From here on the compiler knows nothing of them, and cannot load them from `values` again.
        $(
            // SAFETY: there is no instruction in it.
            #[allow(asm_sub_register, reason = "a comment takes any name of the register")]
            unsafe {
                asm!("/* {0} */", inout($class) $value, options(nomem, nostack, preserves_flags));
            }
        )*
        $access();
        [$($value),*]
    }};
}

registers!(General: u64, reg);
#[cfg(target_arch = "x86_64")]
registers!(Xmm: std::arch::x86_64::__m128i, xmm_reg);
#[cfg(target_arch = "x86_64")]
registers!(#[target_feature(enable = "avx")] Ymm: std::arch::x86_64::__m256i, ymm_reg);
#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
registers!(Zmm: std::arch::x86_64::__m512i, zmm_reg);
#[cfg(target_arch = "aarch64")]
registers!(Vector: std::arch::aarch64::uint64x2_t, vreg);

/// Whether all values outlive `access`.
///
/// # Safety
/// As for [`Hold::hold`].
unsafe fn outlive<H: Hold>(access: impl FnOnce()) -> bool {
    let before = pattern(size_of::<[H::Value; COUNT]>(), 7);
    // SAFETY: it has that many bytes, and any are a number or a vector.
    let values = unsafe { before.as_ptr().cast::<[H::Value; COUNT]>().read_unaligned() };
    // SAFETY: the caller answers for the processor.
    let after = unsafe { H::hold(&values, access) };
    // SAFETY: these are the bytes of `after`, without padding.
    let after = unsafe { slice::from_raw_parts((&raw const after).cast::<u8>(), before.len()) };
    after == before
}

/// Checks copies of `LEN` bytes, apart and overlapping in both directions.
///
/// # Safety
/// As for [`Hold::hold`].
unsafe fn check_copies<H: Hold, const LEN: usize>() {
    let memory = Memory::zeroed(2 * LEN + 1).unwrap();
    for (to, from) in [(0, LEN), (0, 1), (1, 0)] {
        // SAFETY: both ranges lie in the memory.
        let (dst, src) = unsafe { (memory.as_ptr().add(to), memory.as_ptr().add(from)) };
        let check =
            |what: &str, outlived: bool| assert!(outlived, "{what}: {LEN} bytes, {from} to {to}");
        // SAFETY: as above; AVX is used where it is there; what is shorter does not go to vectors.
        unsafe {
            check("copy", outlive::<H>(|| copy(dst, src, LEN)));
            #[cfg(target_arch = "x86_64")]
            if LEN > 32 {
                check("sse", outlive::<H>(|| x86_64::copy_vectors(dst, src, LEN, false)));
                if is_x86_feature_detected!("avx") {
                    check("avx", outlive::<H>(|| x86_64::copy_vectors(dst, src, LEN, true)));
                }
            }
        }
    }
}

/// Checks accesses to words of `WIDTH` bytes.
///
/// # Safety
/// As for [`Hold::hold`].
unsafe fn check_words<H: Hold, const WIDTH: usize>() {
    let memory = Memory::zeroed(8).unwrap();
    let at = memory.as_ptr();
    let check = |what: &str, outlived: bool| assert!(outlived, "{what}: {WIDTH} bytes");
    // SAFETY: eight aligned bytes, and each operand fits.
    unsafe {
        check("load", outlive::<H>(|| _ = arch::load_word(at, WIDTH)));
        check("store", outlive::<H>(|| arch::store_word(at, WIDTH, 5)));
        check("swap", outlive::<H>(|| _ = arch::swap(at, WIDTH, 6)));
        check("add", outlive::<H>(|| _ = arch::fetch_add(at, WIDTH, 7)));
        check("hit", outlive::<H>(|| _ = arch::compare_exchange(at, WIDTH, 13, 8)));
        check("miss", outlive::<H>(|| _ = arch::compare_exchange(at, WIDTH, 13, 9)));
    }
}

/// Checks every path of every access.
///
/// # Safety
/// As for [`Hold::hold`].
unsafe fn check<H: Hold>() {
    let memory = Memory::zeroed(100).unwrap();
    let at = memory.as_ptr();
    // SAFETY: the caller answers for the processor; all ranges lie in the memory.
    unsafe {
        check_copies::<H, 1>();
        check_copies::<H, 3>();
        check_copies::<H, 7>();
        check_copies::<H, 16>();
        check_copies::<H, 32>();
        check_copies::<H, 64>();
        check_copies::<H, 128>();
        check_copies::<H, 256>();
        check_copies::<H, 1000>();
        check_copies::<H, 40_000>();
        #[cfg(target_arch = "x86_64")]
        assert!(outlive::<H>(|| x86_64::string_move(at, at.add(50), 50)), "string move");
        assert!(outlive::<H>(|| zero(at, 100)), "zero");
        check_words::<H, 1>();
        check_words::<H, 2>();
        check_words::<H, 4>();
        check_words::<H, 8>();
    }
}

#[test]
fn numbers_outlive_accesses() {
    // SAFETY: every processor has these registers.
    unsafe { check::<General>() }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn vectors_of_128_bits_outlive_accesses() {
    // SAFETY: every processor of this kind has these registers.
    unsafe { check::<Xmm>() }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn vectors_of_256_bits_outlive_accesses() {
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has these registers.
        unsafe { check::<Ymm>() }
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
#[test]
fn vectors_of_512_bits_outlive_accesses() {
    // SAFETY: a program built for such processors runs on one.
    unsafe { check::<Zmm>() }
}

#[cfg(target_arch = "aarch64")]
#[test]
fn vectors_outlive_accesses() {
    // SAFETY: every processor of this kind has these registers.
    unsafe { check::<Vector>() }
}
