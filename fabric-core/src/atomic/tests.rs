//! The arithmetic against independent formulations.

use proptest::prelude::*;

use super::*;

const INTEGERS: [AtomicType; 8] = [
    AtomicType::U8,
    AtomicType::U16,
    AtomicType::U32,
    AtomicType::U64,
    AtomicType::I8,
    AtomicType::I16,
    AtomicType::I32,
    AtomicType::I64,
];

/// Few cases under Miri, which is some hundred times slower, and has no files to keep failures in.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() }
    } else {
        ProptestConfig { cases: 2000, ..ProptestConfig::default() }
    }
}

#[test]
fn wire_numbers_are_fixed() {
    let ops: Vec<_> = (0..=u8::MAX).filter_map(AtomicOp::from_wire).map(|op| op.name()).collect();
    assert_eq!(ops, ["add", "min", "max", "and", "or", "xor", "swap", "compare_swap"]);
    let types: Vec<_> =
        (0..=u8::MAX).filter_map(AtomicType::from_wire).map(|ty| ty.name()).collect();
    assert_eq!(types, ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64"]);
    for (wire, op) in (1..).zip(AtomicOp::ALL) {
        assert_eq!((op as u8, AtomicOp::from_wire(wire)), (wire, Some(op)));
    }
    for (wire, ty) in (1..).zip(AtomicType::ALL) {
        assert_eq!((ty as u8, AtomicType::from_wire(wire)), (wire, Some(ty)));
    }
    assert_eq!((AtomicOp::from_wire(0), AtomicOp::from_wire(9)), (None, None));
    assert_eq!((AtomicType::from_wire(0), AtomicType::from_wire(11)), (None, None));
}

#[test]
fn names_pad() {
    assert_eq!(format!("{:>4}|{:<5}|", AtomicOp::Or, AtomicType::F32), "  or|f32  |");
}

#[test]
fn only_bitwise_operations_on_floats_are_undefined() {
    let undefined: Vec<_> = AtomicOp::ALL
        .into_iter()
        .flat_map(|op| AtomicType::ALL.map(|ty| (op, ty)))
        .filter(|(op, ty)| !is_defined(*op, *ty))
        .map(|(op, ty)| format!("{op} {ty}"))
        .collect();
    assert_eq!(undefined, ["and f32", "and f64", "or f32", "or f64", "xor f32", "xor f64"]);
}

/// What an integer operation means, in numbers wide enough for every result.
fn integer_model(op: AtomicOp, ty: AtomicType, old: u64, operand: u64, compare: u64) -> u64 {
    let bits = 8 * ty.size() as u32;
    let modulus = 1i128 << bits;
    let value = |word: u64| {
        let word = i128::from(word) % modulus;
        if ty.name().starts_with('i') && word >= modulus / 2 { word - modulus } else { word }
    };
    let (old, operand, compare) = (value(old), value(operand), value(compare));
    let new = match op {
        AtomicOp::Add => old + operand,
        AtomicOp::Min => old.min(operand),
        AtomicOp::Max => old.max(operand),
        AtomicOp::And => old & operand,
        AtomicOp::Or => old | operand,
        AtomicOp::Xor => old ^ operand,
        AtomicOp::Swap => operand,
        AtomicOp::CompareSwap => {
            if old == compare {
                operand
            } else {
                old
            }
        }
    };
    new.rem_euclid(modulus) as u64
}

#[test]
fn bytes_in_all_combinations() {
    let step = if cfg!(miri) { 63 } else { 1 };
    for ty in [AtomicType::U8, AtomicType::I8] {
        for op in AtomicOp::ALL {
            for old in (0..256).step_by(step) {
                for operand in (0..256).step_by(step) {
                    for compare in [old, operand, 0, 0x80] {
                        assert_eq!(
                            apply(op, ty, old, operand, compare),
                            integer_model(op, ty, old, operand, compare),
                            "{op} {ty} {old} {operand} {compare}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn extremes_of_every_integer() {
    for ty in INTEGERS {
        let half = 1u64 << (8 * ty.size() - 1);
        let values = [half - 1, ty.mask(), 0, 1, 2, half, half + 1, ty.mask() - 1];
        let values = if cfg!(miri) { &values[..2] } else { &values[..] };
        for op in AtomicOp::ALL {
            for (&old, &operand) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
                for &compare in values {
                    let expected = integer_model(op, ty, old, operand, compare);
                    assert_eq!(
                        apply(op, ty, old, operand, compare),
                        expected,
                        "{op} {ty} {old:#x}"
                    );
                }
            }
        }
    }
}

#[test]
fn integer_results_by_example() {
    use AtomicOp::{Add, CompareSwap, Max, Min};
    use AtomicType::{I8, I64, U8, U16, U64};
    assert_eq!(apply(Add, U64, u64::MAX, 1, 0), 0);
    assert_eq!(apply(Add, I8, 127, 1, 0), 0x80);
    assert_eq!(apply(Min, U8, 0xFF, 1, 0), 1);
    assert_eq!(apply(Min, I8, 0xFF, 1, 0), 0xFF);
    assert_eq!(apply(Max, I64, u64::MAX, 0, 0), 0);
    assert_eq!(apply(CompareSwap, U16, 0xABCD_0007, 0xFFFF_0009, 0x1234_0007), 9);
}

/// Quiet and signaling NaNs with payloads and either sign, zeros, and the edges of the range.
const SPECIAL_32: [u32; 17] = [
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x007F_FFFF,
    0x0080_0000,
    0x3F80_0000,
    0xBF80_0000,
    0x7F7F_FFFF,
    0xFF7F_FFFF,
    0x7F80_0000,
    0xFF80_0000,
    0x7F80_0001,
    0xFFA0_1234,
    0x7FC0_0000,
    0xFFC0_0000,
    0x7FFF_FFFF,
];

const SPECIAL_64: [u64; 17] = [
    0x0000_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x0000_0000_0000_0001,
    0x8000_0000_0000_0001,
    0x000F_FFFF_FFFF_FFFF,
    0x0010_0000_0000_0000,
    0x3FF0_0000_0000_0000,
    0xBFF0_0000_0000_0000,
    0x7FEF_FFFF_FFFF_FFFF,
    0xFFEF_FFFF_FFFF_FFFF,
    0x7FF0_0000_0000_0000,
    0xFFF0_0000_0000_0000,
    0x7FF0_0000_0000_0001,
    0xFFF4_0000_1234_5678,
    0x7FF8_0000_0000_0000,
    0xFFF8_0000_0000_0000,
    0x7FFF_FFFF_FFFF_FFFF,
];

macro_rules! float_checks {
    ($check:ident, $float:ty, $bits:ty, $quiet:expr, $default_nan:expr) => {
        /// The rules of IEEE 754-2019, each by its own words.
        fn $check(old_bits: $bits, operand_bits: $bits) {
            let ty = <$float as AtomicScalar>::TYPE;
            let run = |op| {
                let new = apply(op, ty, old_bits.into(), operand_bits.into(), !0);
                assert_eq!(new & !ty.mask(), 0, "zero-extended");
                new as $bits
            };
            let (old, operand) = (<$float>::from_bits(old_bits), <$float>::from_bits(operand_bits));
            let what = format!("{old_bits:#x} {operand_bits:#x}");
            let (min, max) = (run(AtomicOp::Min), run(AtomicOp::Max));
            match (old.is_nan(), operand.is_nan()) {
                (true, true) => {
                    assert_eq!((min, max), (old_bits | $quiet, old_bits | $quiet), "{what}");
                }
                (true, false) => assert_eq!((min, max), (operand_bits, operand_bits), "{what}"),
                (false, true) => assert_eq!((min, max), (old_bits, old_bits), "{what}"),
                (false, false) => {
                    let (low, high) = if old < operand || old == operand && old.is_sign_negative() {
                        (old_bits, operand_bits)
                    } else {
                        (operand_bits, old_bits)
                    };
                    assert_eq!((min, max), (low, high), "{what}");
                }
            }
            let sum = run(AtomicOp::Add);
            if old.is_nan() {
                assert_eq!(sum, old_bits | $quiet, "{what}");
            } else if operand.is_nan() {
                assert_eq!(sum, operand_bits | $quiet, "{what}");
            } else if old.is_infinite() && operand == -old {
                assert_eq!(sum, $default_nan, "{what}");
            } else {
                assert_eq!(sum, (old + operand).to_bits(), "{what}");
            }
            assert_eq!(run(AtomicOp::Swap), operand_bits, "{what}");
            for op in [AtomicOp::And, AtomicOp::Or, AtomicOp::Xor] {
                assert_eq!(run(op), old_bits, "{op} changes nothing: {what}");
            }
        }
    };
}

float_checks!(check_f32, f32, u32, 0x0040_0000, 0x7FC0_0000);
float_checks!(check_f64, f64, u64, 0x0008_0000_0000_0000, 0x7FF8_0000_0000_0000);

#[test]
fn special_floats_in_all_combinations() {
    // Miri chooses other NaNs each time.
    let step = if cfg!(miri) { 3 } else { 1 };
    for a in (0..17).step_by(step) {
        for b in (0..17).step_by(step) {
            check_f32(SPECIAL_32[a], SPECIAL_32[b]);
            check_f64(SPECIAL_64[a], SPECIAL_64[b]);
        }
    }
}

#[test]
fn float_results_by_example() {
    use AtomicOp::{Add, CompareSwap, Max, Min};
    use AtomicType::{F32, F64};
    let (zero, minus_zero) = (0f64.to_bits(), (-0f64).to_bits());
    assert_eq!(apply(Min, F64, zero, minus_zero, 0), minus_zero);
    assert_eq!(apply(Max, F64, minus_zero, zero, 0), zero);
    assert_eq!(apply(Add, F64, minus_zero, minus_zero, 0), minus_zero);
    assert_eq!(apply(Add, F64, zero, minus_zero, 0), zero);
    // A signaling NaN loses to a number too.
    assert_eq!(apply(Max, F32, 0x7F80_0001, 0xBF80_0000, 0), 0xBF80_0000);
    // Compared as bits: zeros differ, a NaN is equal to itself.
    assert_eq!(apply(CompareSwap, F64, minus_zero, 1, zero), minus_zero);
    assert_eq!(apply(CompareSwap, F64, f64::NAN.to_bits(), 1, f64::NAN.to_bits()), 1);
    // Ties go to even.
    let two_to_53 = 9_007_199_254_740_992f64;
    assert_eq!(apply(Add, F64, two_to_53.to_bits(), 1f64.to_bits(), 0), two_to_53.to_bits());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn integers_follow_the_model(
        op in 0..8usize, ty in 0..8usize, old: u64, operand: u64, compare: u64, hit: bool,
    ) {
        let (op, ty) = (AtomicOp::ALL[op], INTEGERS[ty]);
        let compare = if hit { old } else { compare };
        prop_assert_eq!(
            apply(op, ty, old, operand, compare),
            integer_model(op, ty, old, operand, compare)
        );
    }

    #[test]
    fn floats_follow_the_rules(old: u64, operand: u64) {
        check_f32(old as u32, operand as u32);
        check_f64(old, operand);
    }

    #[test]
    fn float_compare_swap_compares_bits(old: u64, operand: u64, compare: u64) {
        for ty in [AtomicType::F32, AtomicType::F64] {
            let swap = |compare| apply(AtomicOp::CompareSwap, ty, old, operand, compare);
            prop_assert_eq!(swap(old), operand & ty.mask());
            let miss = compare & ty.mask() != old & ty.mask();
            prop_assert_eq!(swap(compare), if miss { old } else { operand } & ty.mask());
        }
    }

    #[test]
    fn bits_above_the_width_never_matter(
        op in 0..8usize, ty in 0..10usize, old: u64, operand: u64, compare: u64, noise: u64,
    ) {
        let (op, ty) = (AtomicOp::ALL[op], AtomicType::ALL[ty]);
        let noise = noise & !ty.mask();
        let result = apply(op, ty, old, operand, compare);
        prop_assert_eq!(result & !ty.mask(), 0);
        prop_assert_eq!(apply(op, ty, old ^ noise, operand ^ noise, compare ^ noise), result);
    }

    #[test]
    fn values_keep_their_bits(ty in 0..10usize, bits: u64) {
        let ty = AtomicType::ALL[ty];
        let value = AtomicValue::from_bits(ty, bits);
        prop_assert_eq!(value.ty(), ty);
        prop_assert_eq!(value.bits(), bits & ty.mask());
    }
}

#[test]
fn scalars_name_their_type() {
    fn check<T: AtomicScalar>(value: T, ty: AtomicType, bits: u64) {
        assert_eq!((T::TYPE, size_of::<T>()), (ty, ty.size()));
        assert_eq!(value.to_bits64(), bits);
        assert_eq!(T::from_bits64(bits | !ty.mask()).to_bits64(), bits);
        let dynamic: AtomicValue = value.into();
        assert_eq!((dynamic.ty(), dynamic.bits()), (ty, bits));
        assert_eq!(dynamic, AtomicValue::from_bits(ty, bits));
    }
    check(200u8, AtomicType::U8, 200);
    check(60_000u16, AtomicType::U16, 60_000);
    check(u32::MAX, AtomicType::U32, 0xFFFF_FFFF);
    check(u64::MAX, AtomicType::U64, u64::MAX);
    check(-1i8, AtomicType::I8, 0xFF);
    check(-1i16, AtomicType::I16, 0xFFFF);
    check(-1i32, AtomicType::I32, 0xFFFF_FFFF);
    check(-1i64, AtomicType::I64, u64::MAX);
    check(-0f32, AtomicType::F32, 0x8000_0000);
    check(1f64, AtomicType::F64, 0x3FF0_0000_0000_0000);
    assert_eq!(AtomicValue::from(-3i16).to_string(), "-3");
}
