//! Restartable sequences on x86-64 (`linux/rseq.h`).

use std::arch::asm;
use std::sync::OnceLock;

use fabric_core::{AtomicCall, AtomicOp, memory};

use super::condition::Condition;
use super::plain;

/// What a sequence ended with.
const CLOSED: u32 = 0;
const DONE: u32 = 1;

/// Where a thread's area for the kernel is: at this distance from its thread pointer. `None`: the C library has registered none.
fn offset() -> Option<isize> {
    static OFFSET: OnceLock<Option<isize>> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        // SAFETY: names of glibc's (`sys/rseq.h`), which are looked for, and have these types where they are there.
        unsafe {
            let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
            let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
            let is_there = !size.is_null() && !offset.is_null() && *size > 0;
            is_there.then(|| *offset)
        }
    })
}

/// `struct rseq`, as far as it matters here.
#[repr(C)]
struct Area {
    cpu_id_start: u32,
    /// Negative: the thread is not registered.
    cpu_id: i32,
    rseq_cs: u64,
}

/// The calling thread's area.
#[inline]
fn area() -> Option<*mut Area> {
    let offset = offset()?;
    let pointer: *mut u8;
    // SAFETY: the thread pointer's first word is its own address (ELF handling for thread-local storage, 3.4.6).
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags, pure));
    }
    let area = pointer.wrapping_offset(offset).cast::<Area>();
    // SAFETY: glibc's, and as long as the thread.
    let is_registered = unsafe { (&raw const (*area).cpu_id).read_volatile() >= 0 };
    is_registered.then_some(area)
}

pub(super) fn is_there() -> bool {
    area().is_some()
}

/// A sequence: the condition, and `$body`, whose last instruction is what counts. Gives what it ended with.
macro_rules! sequence {
    ($area:expr, $only:expr, [$($body:literal),* $(,)?], $($operands:tt)*) => {{
        let mut end: u32;
        asm!(
            // What the kernel finds of it: version and flags, where it begins, how long it is, where it goes when it is over.
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "70:",
            ".long 0, 0",
            ".quad 71f, 72f - 71f, 73f",
            ".popsection",
            "lea {scratch}, [rip + 70b]",
            "mov qword ptr [{area} + 8], {scratch}",
            "71:",
            "mov {scratch}, qword ptr [{key_at}]",
            "cmp {scratch}, {key}",
            "jne 74f",
            "mov {scratch}, qword ptr [{connection_at}]",
            "cmp {scratch}, {connection}",
            "jne 74f",
            $($body,)*
            "72:",
            "mov {end:e}, 1",
            "jmp 75f",
            "74:",
            "mov {end:e}, 0",
            "jmp 75f",
            // In front of where the kernel goes to stands what the area was registered with.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "73:",
            "mov {end:e}, 2",
            "75:",
            "mov qword ptr [{area} + 8], 0",
            area = in(reg) $area,
            key_at = in(reg) $only.key.0.as_ptr(),
            key = in(reg) $only.key.1,
            connection_at = in(reg) $only.connection.0.as_ptr(),
            connection = in(reg) $only.connection.1,
            scratch = out(reg) _,
            end = out(reg) end,
            $($operands)*
            options(nostack),
        );
        end
    }};
}

/// # Safety
/// As [`super::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, only: Condition<'_>) -> bool {
    let Some(area) = area() else {
        // SAFETY: the caller's promise.
        return unsafe { plain::copy(dst, src, len, only) };
    };
    loop {
        // SAFETY: the accesses are within the `len` bytes that the caller answers for; the area is the thread's own.
        let end = unsafe {
            sequence!(
                area,
                only,
                [
                    "cmp rcx, 64",
                    "jb 81f",
                    "80:",
                    "movups {a}, xmmword ptr [rsi]",
                    "movups {b}, xmmword ptr [rsi + 16]",
                    "movups {c}, xmmword ptr [rsi + 32]",
                    "movups {d}, xmmword ptr [rsi + 48]",
                    "movups xmmword ptr [rdi], {a}",
                    "movups xmmword ptr [rdi + 16], {b}",
                    "movups xmmword ptr [rdi + 32], {c}",
                    "movups xmmword ptr [rdi + 48], {d}",
                    "add rsi, 64",
                    "add rdi, 64",
                    "sub rcx, 64",
                    "cmp rcx, 64",
                    "jae 80b",
                    "81:",
                    "cmp rcx, 8",
                    "jb 83f",
                    "82:",
                    "mov {scratch}, qword ptr [rsi]",
                    "mov qword ptr [rdi], {scratch}",
                    "add rsi, 8",
                    "add rdi, 8",
                    "sub rcx, 8",
                    "cmp rcx, 8",
                    "jae 82b",
                    "83:",
                    "test rcx, rcx",
                    "jz 72f",
                    "84:",
                    "mov {scratch:l}, byte ptr [rsi]",
                    "mov byte ptr [rdi], {scratch:l}",
                    "inc rsi",
                    "inc rdi",
                    "dec rcx",
                    "jnz 84b",
                ],
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                inout("rcx") len => _,
            )
        };
        match end {
            DONE => return true,
            CLOSED => return false,
            _ => {}
        }
    }
}

/// Compares and exchanges a word of `size` bytes: gives what was there.
///
/// # Safety
/// As [`super::atomic`].
unsafe fn compare_exchange(
    area: *mut Area,
    at: *mut u8,
    size: usize,
    (compare, new): (u64, u64),
    only: Condition<'_>,
) -> Option<u64> {
    macro_rules! of_width {
        ($instruction:literal, $mask:expr) => {{
            loop {
                let mut old = compare;
                // SAFETY: the element is the caller's; the area is the thread's own.
                let end = unsafe {
                    sequence!(
                        area, only, [$instruction],
                        at = in(reg) at,
                        new = in(reg) new,
                        inout("rax") old,
                    )
                };
                match end {
                    DONE => break Some(old & $mask),
                    CLOSED => break None,
                    _ => {}
                }
            }
        }};
    }
    match size {
        1 => of_width!("lock cmpxchg byte ptr [{at}], {new:l}", 0xFF),
        2 => of_width!("lock cmpxchg word ptr [{at}], {new:x}", 0xFFFF),
        4 => of_width!("lock cmpxchg dword ptr [{at}], {new:e}", 0xFFFF_FFFF),
        _ => of_width!("lock cmpxchg qword ptr [{at}], {new:r}", u64::MAX),
    }
}

/// # Safety
/// As [`super::atomic`].
#[inline]
pub(super) unsafe fn atomic(at: *mut u8, call: &AtomicCall, only: Condition<'_>) -> Option<u64> {
    let Some(area) = area() else {
        // SAFETY: the caller's promise.
        return unsafe { plain::atomic(at, call, only) };
    };
    let (size, mask) = (call.ty.size(), call.ty.mask());
    if call.op == AtomicOp::CompareSwap {
        let both = (call.compare & mask, call.operand & mask);
        // SAFETY: the caller's promise.
        return unsafe { compare_exchange(area, at, size, both, only) };
    }
    // SAFETY: the caller's promise.
    let mut old = unsafe {
        match size {
            1 => memory::load_scalar::<u8>(at).into(),
            2 => memory::load_scalar::<u16>(at).into(),
            4 => memory::load_scalar::<u32>(at).into(),
            _ => memory::load_scalar::<u64>(at),
        }
    };
    loop {
        // SAFETY: the caller's promise.
        let seen = unsafe { compare_exchange(area, at, size, (old, call.apply(old)), only) }?;
        if seen == old {
            return Some(old);
        }
        old = seen;
    }
}
