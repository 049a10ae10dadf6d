use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fabric_core::{AtomicOp, AtomicType, memory};
use fabric_util::sync::AtomicU64;

use super::*;

const KEY: u64 = 3;

struct Words {
    key: AtomicU64,
    connection: AtomicU64,
}

impl Words {
    fn new() -> Self {
        Words { key: AtomicU64::new(KEY), connection: AtomicU64::new(4) }
    }

    fn both(&self) -> Condition<'_> {
        Condition { key: (&self.key, KEY), connection: (&self.connection, 4) }
    }
}

#[test]
fn bytes_are_copied_if_both_words_are_what_they_should_be() {
    let words = Words::new();
    let from: Vec<u8> = (0..1000_usize).map(|at| (at * 7 % 251) as u8).collect();
    for len in (0..200).chain([999]) {
        let mut to = vec![0; len + 1];
        // SAFETY: both slices have that length.
        assert!(unsafe { copy(to.as_mut_ptr(), from.as_ptr(), len, words.both()) });
        assert!(to[..len] == from[..len] && to[len] == 0, "{len}");
    }
    let mut to = [0; 8];
    for word in [&words.key, &words.connection] {
        let before = word.swap(0, Ordering::Relaxed);
        // SAFETY: both slices have that length.
        assert!(!unsafe { copy(to.as_mut_ptr(), from.as_ptr(), 8, words.both()) });
        word.store(before, Ordering::Relaxed);
    }
    assert_eq!(to, [0; 8]);
}

#[test]
fn atomics_are_those_of_memory() {
    let words = Words::new();
    let ops = [AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::Swap, AtomicOp::CompareSwap];
    let types = [
        AtomicType::U8,
        AtomicType::I16,
        AtomicType::U32,
        AtomicType::I64,
        AtomicType::F32,
        AtomicType::F64,
    ];
    let mut numbers = fabric_util::splitmix::SplitMix64::new(1);
    for ty in types {
        for op in ops {
            for _ in 0..200 {
                let [begin, operand] = [0; 2].map(|_| numbers.next_u64());
                let compare = if numbers.once_in(2) { begin } else { numbers.next_u64() };
                let call = AtomicCall { op, ty, operand, compare };
                let (mut one, mut other) = (begin, begin);
                // SAFETY: values of the test's, as wide and as aligned.
                let (old, reference) = unsafe {
                    let at = (&raw mut one).cast();
                    let reference = memory::atomic((&raw mut other).cast(), &call);
                    (atomic(at, &call, words.both()), reference)
                };
                assert_eq!((old, one), (Some(reference), other), "{call:?} on {begin:x}");
            }
        }
    }
    words.key.store(0, Ordering::Relaxed);
    let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 1, compare: 0 };
    let mut value = 5_u64;
    // SAFETY: a value of the test's.
    assert_eq!(unsafe { atomic((&raw mut value).cast(), &call, words.both()) }, None);
    assert_eq!(value, 5);
}

/// A thread copies without end; what it says that it has copied, and not more, has changed when the key is gone and the
/// processors were visited.
#[test]
fn nothing_is_copied_any_more_behind_a_visit_of_all_processors() {
    const LEN: usize = 1 << 20;
    if !is_there() || !may_visit() {
        return;
    }
    for round in 0..30_u64 {
        let words = Words::new();
        let (to, goes_on) = (vec![0_u8; LEN], AtomicBool::new(true));
        let at = to.as_ptr().addr();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = 1_u8;
                while goes_on.load(Ordering::Relaxed) {
                    let from = vec![byte; LEN];
                    let at = std::ptr::with_exposed_provenance_mut(at);
                    // SAFETY: both have that length; others reach it by `fabric_core::memory` only.
                    if !unsafe { copy(at, from.as_ptr(), LEN, words.both()) } {
                        break;
                    }
                    byte = byte.wrapping_add(1).max(1);
                }
            });
            thread::sleep(Duration::from_micros(300 + 77 * round));
            words.key.store(0, Ordering::SeqCst);
            visit_processors(Duration::from_secs(10)).unwrap();
            let look = || {
                let mut bytes = vec![0; LEN];
                // SAFETY: all of it.
                unsafe { memory::load(to.as_ptr(), &mut bytes) };
                bytes
            };
            let before = look();
            thread::sleep(Duration::from_millis(2));
            assert!(look() == before, "round {round}");
            goes_on.store(false, Ordering::Relaxed);
        });
    }
}

/// Whether this process may run on all processors: in a cpuset(7) it may not.
fn may_visit() -> bool {
    match visit_processors(Duration::from_secs(20)) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            println!("not run: this process may not run on all processors");
            false
        }
    }
}

#[test]
fn a_visit_ends_in_time_and_leaves_the_caller_where_it_was() {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let begun = Instant::now();
    may_visit();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(rustix::thread::sched_getaffinity(None).unwrap() == before);
}

#[test]
fn lists_of_processors_are_read() {
    assert_eq!(processors("0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
    assert_eq!(processors("0").unwrap(), [0]);
    assert!(processors("all").is_err() && processors("").is_err());
}
