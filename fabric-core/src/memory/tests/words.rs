//! Scalars and atomics, and what threads see of each other.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::atomic::AtomicType;

/// Bits that do not fit into `width` bytes are cut off.
fn cut(bits: u64, width: usize) -> u64 {
    bits & (u64::MAX >> (64 - 8 * width))
}

const WORDS: &[u64] = if cfg!(miri) {
    &[0x7F7F_7F7F_7F7F_7F7F, 0x8081_8283_8485_8687]
} else {
    &[0, 1, 0x7F7F_7F7F_7F7F_7F7F, 0x8081_8283_8485_8687, u64::MAX - 1, u64::MAX]
};

#[test]
fn word_accesses_touch_exactly_their_width() {
    for backend in &BACKENDS {
        for width in [1, 2, 4, 8] {
            for at in (8..16).step_by(width) {
                for (old, operand) in WORDS.iter().flat_map(|a| WORDS.iter().map(move |b| (*a, *b)))
                {
                    let (old, operand) = (cut(old, width), cut(operand, width));
                    let before = {
                        let mut bytes = pattern(24, 5);
                        put(&mut bytes[at..at + width], old);
                        bytes
                    };
                    let check = |op: &str, new: u64, seen: u64, run: &dyn Fn(*mut u8) -> u64| {
                        let memory = filled(&before);
                        // SAFETY: an offset inside.
                        let returned = run(unsafe { memory.as_ptr().add(at) });
                        let mut expected = before.clone();
                        put(&mut expected[at..at + width], new);
                        let name = backend.name;
                        assert_eq!(returned, seen, "{name}: {op} of {operand:#x} on {old:#x}");
                        assert_eq!(contents(&memory), expected, "{name}: {op} at {at}");
                    };
                    // SAFETY: `at` is aligned to `width`, and the memory has 24 bytes.
                    unsafe {
                        check("load", old, old, &|p| (backend.load_word)(p, width));
                        check("store", operand, 0, &|p| {
                            (backend.store_word)(p, width, operand);
                            0
                        });
                        check("swap", operand, old, &|p| (backend.swap)(p, width, operand));
                        let sum = cut(old.wrapping_add(operand), width);
                        check("add", sum, old, &|p| (backend.fetch_add)(p, width, operand));
                        check("hit", operand, old, &|p| {
                            (backend.compare_exchange)(p, width, old, operand)
                        });
                        check("miss", old, old, &|p| {
                            (backend.compare_exchange)(p, width, cut(!old, width), operand)
                        });
                    }
                }
            }
        }
    }
}

/// Writes the low bytes of `bits` in the machine's order.
fn put(bytes: &mut [u8], bits: u64) {
    match bytes.len() {
        1 => bytes.copy_from_slice(&(bits as u8).to_ne_bytes()),
        2 => bytes.copy_from_slice(&(bits as u16).to_ne_bytes()),
        4 => bytes.copy_from_slice(&(bits as u32).to_ne_bytes()),
        _ => bytes.copy_from_slice(&bits.to_ne_bytes()),
    }
}

#[test]
fn atomics_do_the_reference_arithmetic() {
    let nan = u64::from(f32::NAN.to_bits());
    for op in AtomicOp::ALL {
        for ty in AtomicType::ALL {
            for &old in WORDS.iter().chain(&[nan]) {
                for &operand in WORDS {
                    for compare in [old, !old] {
                        // Above the type's width the operands carry what must not matter.
                        let call = AtomicCall { op, ty, operand, compare };
                        let mut expected = pattern(24, 6);
                        let field = 8..8 + ty.size();
                        put(&mut expected[field.clone()], old);
                        let memory = filled(&expected);
                        // SAFETY: offset 8 of 24 bytes is aligned for every type.
                        let seen = unsafe { atomic(memory.as_ptr().add(8), &call) };
                        assert_eq!(seen, old & ty.mask(), "{call:?}");
                        put(&mut expected[field], call.apply(old));
                        assert_eq!(contents(&memory), expected, "{call:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn scalars_keep_their_value() {
    fn check<T: AtomicScalar + PartialEq + std::fmt::Debug>(values: &[T]) {
        let memory = Memory::zeroed(16).unwrap();
        for &value in values {
            // SAFETY: offset 8 of 16 bytes is aligned for every type.
            let seen: T = unsafe {
                let at = memory.as_ptr().add(8);
                store_scalar(at, value);
                load_scalar(at)
            };
            assert_eq!(seen, value);
        }
        assert_eq!(contents(&memory)[..8], [0; 8]);
    }
    check(&[0, 1, u8::MAX]);
    check(&[0, 1, u16::MAX]);
    check(&[0, 1, u32::MAX]);
    check(&[0, 1, u64::MAX]);
    check(&[0, -1, i8::MIN, i8::MAX]);
    check(&[0, -1, i16::MIN, i16::MAX]);
    check(&[0, -1, i32::MIN, i32::MAX]);
    check(&[0, -1, i64::MIN, i64::MAX]);
    check(&[0.0, -1.5, f32::MIN_POSITIVE, f32::INFINITY]);
    check(&[0.0, -1.5, f64::MIN_POSITIVE, f64::INFINITY]);
}

/// Four threads execute `call` at one of `offsets` each, many times; gives the final bytes.
fn hammer(rounds: usize, calls: [(usize, AtomicCall); 4]) -> Vec<u8> {
    let memory = Memory::zeroed(16).unwrap();
    // They have to meet: without it, each would be done before the next has started.
    let start = Barrier::new(calls.len());
    thread::scope(|scope| {
        for (offset, call) in calls {
            let (memory, start) = (memory.clone(), &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..rounds {
                    // SAFETY: the callers name aligned offsets below 16.
                    unsafe { atomic(memory.as_ptr().add(offset), &call) };
                }
            });
        }
    });
    contents(&memory)
}

const ROUNDS: usize = if cfg!(miri) { 20 } else { 200_000 };

fn add(ty: AtomicType, operand: u64) -> AtomicCall {
    AtomicCall { op: AtomicOp::Add, ty, operand, compare: 0 }
}

#[test]
fn concurrent_adds_lose_nothing() {
    // Enough for the threads to meet even if other tests hold the processors for a while.
    let rounds = ROUNDS * if cfg!(miri) { 1 } else { 5 };
    let call = add(AtomicType::U64, 3);
    let bytes = hammer(rounds, [(8, call); 4]);
    assert_eq!(bytes[8..], (4 * 3 * rounds as u64).to_ne_bytes());

    let call = add(AtomicType::F64, 1f64.to_bits());
    let bytes = hammer(rounds, [(8, call); 4]);
    assert_eq!(bytes[8..], (4.0 * rounds as f64).to_ne_bytes());
}

#[test]
fn concurrent_neighbours_do_not_disturb_each_other() {
    let call = add(AtomicType::U8, 1);
    let xor = AtomicCall { op: AtomicOp::Xor, ty: AtomicType::U16, operand: 0x8001, compare: 0 };
    let bytes = hammer(ROUNDS, [(0, call), (1, call), (2, xor), (4, call)]);
    assert_eq!(bytes[..8], [ROUNDS as u8, ROUNDS as u8, 0, 0, ROUNDS as u8, 0, 0, 0]);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn concurrent_widths_see_each_other() {
    let low = add(AtomicType::U16, 1);
    let all = add(AtomicType::U64, 1 << 16);
    let bytes = hammer(30_000, [(0, low), (0, all), (0, low), (0, all)]);
    assert_eq!(bytes[..8], (60_000u64 << 16 | 60_000).to_ne_bytes());
}

#[test]
fn racing_copies_yield_old_or_new_bytes() {
    let len = 200;
    let memory = filled(&vec![0xAA; len]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let byte = if round % 2 == 0 { 0x55 } else { 0xAA };
                // SAFETY: the memory has that length.
                unsafe { store(memory.as_ptr(), &vec![byte; len]) };
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            assert!(contents(&memory).iter().all(|byte| matches!(byte, 0xAA | 0x55)));
            thread::yield_now();
        }
    });
}

#[test]
fn scalars_are_never_torn() {
    let memory = Memory::zeroed(8).unwrap();
    let at = memory.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 1..=ROUNDS as u64 {
                let value = if round == ROUNDS as u64 { 1 } else { (round % 2).wrapping_neg() };
                // SAFETY: eight aligned bytes.
                unsafe { store_scalar(at.as_ptr(), value) };
            }
        });
        loop {
            // SAFETY: eight aligned bytes.
            match unsafe { load_scalar(memory.as_ptr()) } {
                1u64 => break,
                value => assert!(value == 0 || value == u64::MAX, "{value:#x}"),
            }
            thread::yield_now();
        }
    });
}

#[test]
fn a_release_store_publishes_a_copy() {
    let rounds = ROUNDS as u32 / 20;
    let memory = Memory::zeroed(256).unwrap();
    let at = memory.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 1..=rounds {
                // SAFETY: the flag is at 0, the answer at 4, the payload from 64 to 256.
                unsafe {
                    store(at.as_ptr().add(64), &[round as u8; 192]);
                    store_scalar(at.as_ptr(), round);
                    while load_scalar::<u32>(at.as_ptr().add(4)) != round {
                        thread::yield_now();
                    }
                }
            }
        });
        for round in 1..=rounds {
            let mut payload = [0; 192];
            // SAFETY: as above.
            unsafe {
                while load_scalar::<u32>(memory.as_ptr()) != round {
                    thread::yield_now();
                }
                load(memory.as_ptr().add(64), &mut payload);
                store_scalar(memory.as_ptr().add(4), round);
            }
            assert_eq!(payload, [round as u8; 192]);
        }
    });
}
