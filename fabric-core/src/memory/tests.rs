//! Every access function, of this machine's implementation and of the portable one, against slices.
//!
//! Miri runs them with fewer sizes, and sees all but the assembly and the races.

use super::*;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod registers;
mod words;

struct Backend {
    name: &'static str,
    store: unsafe fn(*mut u8, *const u8, usize),
    load: unsafe fn(*mut u8, *const u8, usize),
    copy: unsafe fn(*mut u8, *const u8, usize),
    zero: unsafe fn(*mut u8, usize),
    load_word: unsafe fn(*const u8, usize) -> u64,
    store_word: unsafe fn(*mut u8, usize, u64),
    swap: unsafe fn(*mut u8, usize, u64) -> u64,
    fetch_add: unsafe fn(*mut u8, usize, u64) -> u64,
    compare_exchange: unsafe fn(*mut u8, usize, u64, u64) -> u64,
}

macro_rules! backend {
    ($module:ident) => {
        Backend {
            name: stringify!($module),
            store: $module::store,
            load: $module::load,
            copy: $module::copy,
            zero: $module::zero,
            load_word: $module::load_word,
            store_word: $module::store_word,
            swap: $module::swap,
            fetch_add: $module::fetch_add,
            compare_exchange: $module::compare_exchange,
        }
    };
}

const BACKENDS: [Backend; 2] = [backend!(arch), backend!(portable)];

/// Bytes that are never zero and differ from their neighbours, other ones for each `salt`.
fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + i / 251 + salt * 101) % 255 + 1) as u8).collect()
}

fn filled(bytes: &[u8]) -> Memory {
    let memory = Memory::zeroed(bytes.len()).unwrap();
    // SAFETY: the memory has that length.
    unsafe { store(memory.as_ptr(), bytes) };
    memory
}

fn contents(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    // SAFETY: the memory has that length.
    unsafe { load(memory.as_ptr(), &mut bytes) };
    bytes
}

fn sizes() -> Vec<usize> {
    if cfg!(miri) { vec![0, 1, 2, 3, 7, 8, 16, 33, 65, 130] } else { (0..=300).collect() }
}

fn offsets() -> Vec<usize> {
    if cfg!(miri) { vec![0, 3] } else { (0..16).collect() }
}

const GUARD: usize = 40;

/// Runs `transfer(dst, src, len)` at every size and offset, and compares all of the target.
fn check_transfer(what: &str, transfer: impl Fn(*mut u8, *const u8, usize)) {
    let large = if cfg!(miri) {
        vec![]
    } else {
        vec![511, 512, 513, 4095, 4096, 32767, 32768, 32769, 65536, 1_000_003]
    };
    let cases = |sizes: Vec<usize>, offsets: Vec<usize>| {
        for len in sizes {
            let total = len + 2 * GUARD;
            let (source, before) = (pattern(total, 1), pattern(total, 2));
            for &to in &offsets {
                for &from in &offsets {
                    let (src, dst) = (filled(&source), filled(&before));
                    // SAFETY: offsets are less than the guard, so `len` bytes follow them.
                    unsafe { transfer(dst.as_ptr().add(to), src.as_ptr().add(from), len) };
                    let mut expected = before.clone();
                    expected[to..to + len].copy_from_slice(&source[from..from + len]);
                    assert!(contents(&dst) == expected, "{what}: {len} bytes, {from} to {to}");
                }
            }
        }
    };
    cases(sizes(), offsets());
    cases(large, vec![0, 1, 5, 31]);
}

#[test]
fn copies_transfer_exactly_their_range() {
    for backend in &BACKENDS {
        // SAFETY: both are valid for `len` bytes.
        check_transfer(backend.name, |dst, src, len| unsafe { (backend.copy)(dst, src, len) });
    }
}

#[test]
fn stores_and_loads_transfer_exactly_their_range() {
    for backend in &BACKENDS {
        check_transfer(backend.name, |dst, src, len| {
            let mut private = vec![0; len];
            // SAFETY: all are valid for `len` bytes.
            unsafe {
                (backend.load)(private.as_mut_ptr(), src, len);
                (backend.store)(dst, private.as_ptr(), len);
            }
        });
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn vectors_of_either_width_transfer_exactly_their_range() {
    for avx in [false, true] {
        if avx && !is_x86_feature_detected!("avx") {
            continue;
        }
        check_transfer("vectors", |dst, src, len| {
            // SAFETY: both are valid for `len` bytes, and shorter copies do not go there.
            unsafe {
                if len > 32 {
                    x86_64::copy_vectors(dst, src, len, avx)
                } else {
                    copy(dst, src, len)
                }
            }
        });
    }
}

/// Moves within one buffer, both ways and by every distance that matters.
fn check_overlap(what: &str, transfer: impl Fn(*mut u8, *const u8, usize)) {
    let (lens, distances): (Vec<usize>, Vec<usize>) = if cfg!(miri) {
        (vec![3, 9, 40], vec![0, 1, 8])
    } else {
        ((0..=300).chain([777, 4096, 40_000]).collect(), (0..=70).chain([127, 129, 300]).collect())
    };
    for len in lens {
        for &distance in &distances {
            for (from, to) in [(GUARD, GUARD + distance), (GUARD + distance, GUARD)] {
                let mut expected = pattern(len + distance + 2 * GUARD, 3);
                let memory = filled(&expected);
                let at = memory.as_ptr();
                // SAFETY: both ranges end before the second guard.
                unsafe { transfer(at.add(to), at.add(from), len) };
                expected.copy_within(from..from + len, to);
                assert!(contents(&memory) == expected, "{what}: {len} bytes, {from} to {to}");
            }
        }
    }
}

#[test]
fn overlapping_copies_move() {
    for backend in &BACKENDS {
        // SAFETY: both are valid for `len` bytes.
        check_overlap(backend.name, |dst, src, len| unsafe { (backend.copy)(dst, src, len) });
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    check_overlap("sse", |dst, src, len| {
        // SAFETY: as above; every processor has SSE.
        unsafe {
            if len > 32 { x86_64::copy_vectors(dst, src, len, false) } else { copy(dst, src, len) }
        }
    });
}

#[test]
fn zero_clears_exactly_its_range() {
    for backend in &BACKENDS {
        for len in sizes().into_iter().chain((!cfg!(miri)).then_some(100_001)) {
            for to in offsets() {
                let mut expected = pattern(len + 2 * GUARD, 4);
                let memory = filled(&expected);
                // SAFETY: the offset is less than the guard.
                unsafe { (backend.zero)(memory.as_ptr().add(to), len) };
                expected[to..to + len].fill(0);
                assert!(contents(&memory) == expected, "{}: {len} bytes at {to}", backend.name);
            }
        }
    }
}

#[test]
fn append_adds_a_copy_behind_what_is_there() {
    for len in [0usize, 1, 7, 64, 4097] {
        let source: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5a).collect();
        let mut out = vec![9; 3];
        // SAFETY: the source is a live vector that nothing else accesses.
        unsafe { append(source.as_ptr(), len, &mut out) };
        assert_eq!((&out[..3], &out[3..]), (&[9; 3][..], &source[..]));
    }
}
