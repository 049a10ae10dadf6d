//! What an atomic operation leaves, as the contract says it. The library's own arithmetic is no witness: a provider
//! computes with it, so the two would be wrong together.

use fabric::provider::AtomicCall;
use fabric::{AtomicOp, AtomicScalar, AtomicType};

/// The bits that `call` leaves where it found `old`. Float operations are those that exist.
pub(crate) fn left_by(call: &AtomicCall, old: u64) -> u64 {
    match call.ty {
        AtomicType::U8 => integer::<u8>(call, old),
        AtomicType::U16 => integer::<u16>(call, old),
        AtomicType::U32 => integer::<u32>(call, old),
        AtomicType::U64 => integer::<u64>(call, old),
        AtomicType::I8 => integer::<i8>(call, old),
        AtomicType::I16 => integer::<i16>(call, old),
        AtomicType::I32 => integer::<i32>(call, old),
        AtomicType::I64 => integer::<i64>(call, old),
        AtomicType::F32 => float::<f32>(call, old, 1 << 22, 0x7fc0_0000),
        AtomicType::F64 => float::<f64>(call, old, 1 << 51, 0x7ff8_0000_0000_0000),
    }
}

/// In 128 bits nothing wraps, and the order is that of the numbers.
fn integer<T: AtomicScalar + Into<i128>>(call: &AtomicCall, old: u64) -> u64 {
    let value = |bits| T::from_bits64(bits).into();
    let (found, operand): (i128, i128) = (value(old), value(call.operand));
    let number = match call.op {
        AtomicOp::Add => found + operand,
        AtomicOp::Min => found.min(operand),
        AtomicOp::Max => found.max(operand),
        AtomicOp::And => found & operand,
        AtomicOp::Or => found | operand,
        AtomicOp::Xor => found ^ operand,
        AtomicOp::Swap => operand,
        AtomicOp::CompareSwap if found == value(call.compare) => operand,
        AtomicOp::CompareSwap => found,
    };
    number as u64 & call.ty.mask()
}

/// IEEE 754-2019; `quiet` is the bit that makes a NaN quiet, `default` the NaN of infinities that cancel.
fn float<T>(call: &AtomicCall, old: u64, quiet: u64, default: u64) -> u64
where
    T: AtomicScalar + PartialOrd + std::ops::Add<Output = T>,
{
    let (found, operand) = (T::from_bits64(old), T::from_bits64(call.operand));
    let is_nan = |value: T| value.partial_cmp(&value).is_none();
    let negative = |bits: u64| bits >> (8 * call.ty.size() - 1) == 1;
    // Zeros are equal as numbers, and ordered by their sign.
    let less = operand < found || operand == found && negative(call.operand) && !negative(old);
    match (call.op, is_nan(found), is_nan(operand)) {
        (AtomicOp::Swap, ..) => call.operand,
        (AtomicOp::CompareSwap, ..) => {
            if old == call.compare {
                call.operand
            } else {
                old
            }
        }
        (_, true, true) | (AtomicOp::Add, true, false) => old | quiet,
        (AtomicOp::Add, false, true) => call.operand | quiet,
        (AtomicOp::Add, false, false) => {
            let sum = found + operand;
            if is_nan(sum) { default } else { sum.to_bits64() }
        }
        // A number beats a NaN.
        (_, true, false) => call.operand,
        (_, false, true) => old,
        (AtomicOp::Min, ..) => {
            if less {
                call.operand
            } else {
                old
            }
        }
        (_, false, false) => {
            if less {
                old
            } else {
                call.operand
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::provider::atomic::is_defined;

    /// Two that were written apart, by the same rules, agree.
    #[test]
    fn library_and_suite_compute_the_same() {
        let mut rng = crate::pattern::Rng::named(1, "arithmetic");
        let special = [
            0,
            1,
            u64::MAX,
            1 << 63,
            1 << 31,
            0x7f80_0000,
            0xff80_0000,
            0x7fa0_0001,
            0x7ff0 << 48,
            0xfff0 << 48,
            0x7ff4 << 48 | 1,
        ];
        for _ in 0..200_000 {
            let [old, operand, compare] = std::array::from_fn(|_| match rng.below(2) {
                0 => special[rng.below(special.len())],
                _ => rng.next_u64(),
            });
            let (op, ty) = (AtomicOp::ALL[rng.below(8)], AtomicType::ALL[rng.below(10)]);
            if !is_defined(op, ty) {
                continue;
            }
            let mask = ty.mask();
            let compare = if compare & 1 == 0 { old } else { compare } & mask;
            let call = AtomicCall { op, ty, operand: operand & mask, compare };
            let (ours, theirs) = (left_by(&call, old & mask), call.apply(old & mask));
            assert_eq!(ours, theirs, "{op} of {operand:#x} on {ty} {old:#x}");
        }
    }
}
