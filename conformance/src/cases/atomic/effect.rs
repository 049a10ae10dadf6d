//! What one operation does to its element, and what it gives back.

use fabric::provider::AtomicCall;
use fabric::provider::atomic::is_defined;

use super::elements::{INTEGERS, finds};
use crate::arithmetic::left_by;
use crate::element::{element, element_bits, operation};
use crate::prelude::*;

pub(super) fn faa(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    for ty in INTEGERS {
        let (size, start) = (ty.size(), ty.mask() - 2);
        let (old, target) = (a.buffer(size)?, b.patterned(16, rig.pattern(0))?);
        target.put(0, &element(ty, start))?;
        let call = AtomicCall { op: AtomicOp::Add, ty, operand: 5, compare: 0 };
        finds(&a, &call, target.at(0), &old, start)?;
        a.settle(&b)?;
        check_bytes!(target.bytes(..size)?, element(ty, 2), "the {ty} that has wrapped");
        // The carry goes nowhere.
        check_bytes!(target.bytes(size..)?, rig.pattern(0).bytes(16)[size..], "what is beside it");
    }
    Ok(())
}

pub(super) fn cas_hit(rig: &Rig) -> Outcome {
    let mut rng = rig.rng();
    compares(rig, |ty| {
        let (found, new) = (rng.next_u64() & ty.mask(), rng.next_u64() & ty.mask());
        (found, vec![(found, new)])
    })
}

pub(super) fn cas_miss(rig: &Rig) -> Outcome {
    let mut rng = rig.rng();
    compares(rig, |ty| {
        let found = rng.next_u64() & ty.mask();
        // Values that differ in one bit: the lowest of all, and the highest of all.
        let bits = [1, ty.mask() ^ ty.mask() >> 1];
        (found, bits.map(|bit| (found ^ bit, !found)).to_vec())
    })
}

/// Compares and swaps on every type: `values` gives the bits that are there, and what they are compared with and swapped
/// for, one after the other.
fn compares(rig: &Rig, mut values: impl FnMut(AtomicType) -> (u64, Vec<(u64, u64)>)) -> Outcome {
    let (a, b) = rig.pair()?;
    for ty in AtomicType::ALL {
        let (found, swaps) = values(ty);
        let (old, target) = (a.buffer(ty.size())?, b.buffer(8)?);
        target.put(0, &element(ty, found))?;
        for (compare, operand) in swaps {
            let call = AtomicCall { op: AtomicOp::CompareSwap, ty, operand, compare };
            old.fill(0)?;
            finds(&a, &call, target.at(0), &old, found)?;
            a.settle(&b)?;
            let left = if compare == found { operand } else { found };
            check_bytes!(target.bytes(..ty.size())?, element(ty, left), "the {ty} afterwards");
        }
        target.check_filled(ty.size().., 0)?;
    }
    Ok(())
}

pub(super) fn faa_zero_reads(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    for ty in INTEGERS {
        let (old, target) = (a.buffer(ty.size())?, b.patterned(8, rig.pattern(0))?);
        let call = AtomicCall { op: AtomicOp::Add, ty, operand: 0, compare: 0 };
        let there = element_bits(&rig.pattern(0).bytes(8), ty.size());
        finds(&a, &call, target.at(0), &old, there)?;
        a.settle(&b)?;
        target.check_pattern(.., rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn endian(rig: &Rig) -> Outcome {
    const NUMBER: u64 = 0x0102_0304_0506_0708;
    const ADDED: u64 = 0x1020_3040_5060_7080;
    let (a, b) = rig.pair()?;
    let (old, target) = (a.buffer(16)?, b.buffer(16)?);
    target.set(0, NUMBER)?;
    target.set(8, NUMBER as u32)?;
    // A compare value, an operand and a result; of the device's own width, and of one that a device may emulate.
    a.compare_swap(NUMBER, ADDED, old.slice(0..8), target.at(0), 1)?;
    a.compare_swap(NUMBER as u32, ADDED as u32, old.slice(8..12), target.at(8), 2)?;
    a.expect_each([1, 2])?;
    check_eq!(old.get::<u64>(0)?, NUMBER, "the u64 that the compare-and-swap found");
    check_eq!(old.get::<u32>(8)?, NUMBER as u32, "the u32 that it found");
    a.fetch_add(NUMBER, old.slice(0..8), target.at(0), 3)?;
    a.fetch_add(NUMBER as u32, old.slice(8..12), target.at(8), 4)?;
    a.expect_each([3, 4])?;
    check_eq!(old.get::<u64>(0)?, ADDED, "the u64 that the add found");
    check_eq!(old.get::<u32>(8)?, ADDED as u32, "the u32 that the add found");

    a.settle(&b)?;
    let sum = ADDED + NUMBER;
    check_eq!(target.get::<u64>(0)?, sum, "the u64 in the target's memory");
    check_eq!(target.get::<u32>(8)?, sum as u32, "the u32 in the target's memory");
    target.check_filled(12.., 0)?;
    old.check_filled(12.., 0)
}

pub(super) fn all_ops_types(rig: &Rig) -> Outcome {
    equals_reference(rig, Access::ALL, extremes)
}

pub(super) fn right_only(rig: &Rig) -> Outcome {
    let few = |ty: AtomicType| extremes(ty).into_iter().rev().take(3).collect();
    equals_reference(rig, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC, few)
}

/// Values that are special to a type, as bits.
fn extremes(ty: AtomicType) -> Vec<u64> {
    match ty {
        AtomicType::F32 => {
            let floats = [0.0, -0.0, 1.0, -1.5, f32::MAX, f32::INFINITY, f32::NEG_INFINITY];
            // The smallest number, and NaNs quiet and signaling, of either sign.
            let bits = [1, 0x7fc0_0001, 0xffc0_0002, 0x7f80_0001, 0xff80_0003];
            floats.into_iter().map(f32::to_bits).chain(bits).map(u64::from).collect()
        }
        AtomicType::F64 => {
            let floats = [0.0, -0.0, 1.0, -1.5, f64::MAX, f64::INFINITY, f64::NEG_INFINITY];
            let quiet = [1, 0x7ff8_0000_0000_0001, 0xfff8_0000_0000_0002];
            let signaling = [0x7ff0_0000_0000_0001, 0xfff0_0000_0000_0003];
            floats.into_iter().map(f64::to_bits).chain(quiet).chain(signaling).collect()
        }
        _ => {
            let max = ty.mask();
            let sign = max ^ max >> 1;
            vec![0, 1, max, sign, sign - 1, 0xfedc_ba98_7654_3210 & max]
        }
    }
}

/// One operation: what it finds, and where in its word that lies.
struct Trial {
    call: AtomicCall,
    fetch: bool,
    found: u64,
    place: usize,
}

/// Every operation, on every type that has it, plain and fetching, finding each of `values` with each of them as its
/// operand; compare-and-swap once with a compare value that fits and once with one that does not.
fn trials(rig: &Rig, values: impl Fn(AtomicType) -> Vec<u64>) -> Vec<Trial> {
    let mut rng = rig.rng();
    let mut trials = Vec::new();
    for (op, ty) in AtomicOp::ALL.iter().flat_map(|op| AtomicType::ALL.map(|ty| (*op, ty))) {
        if !is_defined(op, ty) {
            continue;
        }
        let values = values(ty);
        let mut each = Vec::new();
        for (found, operand) in values.iter().flat_map(|x| values.iter().map(|y| (*x, *y))) {
            let compares =
                if op == AtomicOp::CompareSwap { vec![found, found ^ 1] } else { vec![0] };
            for (compare, fetch) in compares.iter().flat_map(|x| [(*x, false), (*x, true)]) {
                let place = rng.below(8 / ty.size()) * ty.size();
                let call = AtomicCall { op, ty, operand, compare };
                each.push(Trial { call, fetch, found, place });
            }
        }
        rng.shuffle(&mut each);
        each.truncate(rig.bulk(each.len()));
        trials.extend(each);
    }
    rng.shuffle(&mut trials);
    trials
}

/// Executes all trials, each on a word of its own, and compares the memory and what came back with what the
/// contract says.
fn equals_reference(rig: &Rig, access: Access, values: impl Fn(AtomicType) -> Vec<u64>) -> Outcome {
    const AT_ONCE: usize = 100;
    let trials = trials(rig, values);
    let (a, b) = rig.pair()?;
    let target = b.buffer_with(trials.len() * 8, access)?;
    let old = a.patterned(trials.len() * 8, rig.pattern(1))?;
    target.put_pattern(.., rig.pattern(0))?;
    for (i, Trial { call, found, place, .. }) in trials.iter().enumerate() {
        target.put(i * 8 + place, &element(call.ty, *found))?;
    }
    for first in (0..trials.len()).step_by(AT_ONCE) {
        let round = first..trials.len().min(first + AT_ONCE);
        let op = |i: usize| {
            let Trial { call, fetch, place, .. } = &trials[i];
            let old = fetch.then(|| old.slice(i * 8..i * 8 + call.ty.size()));
            operation(call, old, target.at(i * 8 + place)).context(i as u64)
        };
        a.post_batch(&round.clone().map(op).collect::<Vec<_>>())?;
        a.expect_each(round)?;
    }
    a.settle(&b)?;

    let (memory, olds) = (target.bytes(..)?, old.bytes(..)?);
    let mut expected = (rig.pattern(0).bytes(memory.len()), rig.pattern(1).bytes(olds.len()));
    for (i, Trial { call, fetch, found, place }) in trials.iter().enumerate() {
        let (ty, word) = (call.ty, i * 8..i * 8 + 8);
        let (operand, compare) = (call.operand, call.compare);
        let what = format!("{} of {operand:#x} ({compare:#x}) on {ty} {found:#x}", call.op);
        let expected_word = &mut expected.0[word.clone()];
        expected_word[*place..place + ty.size()]
            .copy_from_slice(&element(ty, left_by(call, *found)));
        check_bytes!(memory[word.clone()], expected_word, "the word after {what}");
        let expected_old = &mut expected.1[word.clone()];
        if *fetch {
            expected_old[..ty.size()].copy_from_slice(&element(ty, *found));
        }
        check_bytes!(olds[word], expected_old, "the old value of {what}");
    }
    Ok(())
}

pub(super) fn neighbours(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let target = b.buffer(16)?;
    // A carry out of the element, bits into it, and zeros over it.
    let steps = [(AtomicOp::Add, 1), (AtomicOp::Xor, u64::MAX), (AtomicOp::Swap, 0)];
    for ty in [AtomicType::U8, AtomicType::U16, AtomicType::U32] {
        for at in (0..16).step_by(ty.size()) {
            let mut expected = vec![0xff; 16];
            target.put(0, &expected)?;
            for (op, operand) in steps {
                let call = AtomicCall { op, ty, operand, compare: 0 };
                a.run(operation(&call, None, target.at(at)), Done::ok(1))?;
                a.settle(&b)?;
                let value = if op == AtomicOp::Xor { ty.mask() } else { 0 };
                expected[at..at + ty.size()].copy_from_slice(&element(ty, value));
                check_bytes!(target.bytes(..)?, expected, "words after {op} on {ty} at byte {at}");
            }
        }
    }
    Ok(())
}

pub(super) fn result_anywhere(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (local, target) = (a.buffer(16)?, b.buffer(8)?);
    for ty in INTEGERS {
        let size = ty.size();
        for at in 0..=8 {
            let value = (0x8070_6050_4030_2010 + at as u64) & ty.mask();
            target.fill(0)?;
            target.put(0, &element(ty, value))?;
            local.fill(0xdd)?;
            let call = AtomicCall { op: AtomicOp::Add, ty, operand: 1, compare: 0 };
            let old = local.slice(at..at + size);
            a.run(operation(&call, Some(old), target.at(0)), Done::ok(1))?;
            check_bytes!(local.bytes(at..at + size)?, element(ty, value), "the old {ty} at {at}");
            local.check_filled(..at, 0xdd)?;
            local.check_filled(at + size.., 0xdd)?;
        }
        let call = AtomicCall { op: AtomicOp::Add, ty, operand: 1, compare: 0 };
        let wrong = operation(&call, Some(local.slice(..size + 1)), target.at(0));
        check_err!(a.post(&wrong), Error::InvalidArgument(_), "a result longer than its {ty}");
    }
    a.settle(&b)
}
