//! Atomic operations as data: the operation and type matrix, and the one reference arithmetic.
//!
//! Here is what an atomic operation means; [`memory`](crate::memory) executes it on memory. Every provider,
//! model and test computes with [`apply`], so that they agree bit for bit on every machine.

use std::fmt;

#[cfg(test)]
mod tests;

/// An atomic operation. The numbers are part of the wire format; zero is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum AtomicOp {
    /// Add the operand. Integers wrap; floats round to nearest, ties to even.
    Add = 1,
    /// Keep the lesser; on floats IEEE 754-2019 `minimumNumber`.
    Min = 2,
    /// Keep the greater; on floats IEEE 754-2019 `maximumNumber`.
    Max = 3,
    /// Bitwise and; integers only.
    And = 4,
    /// Bitwise or; integers only.
    Or = 5,
    /// Bitwise exclusive or; integers only.
    Xor = 6,
    /// Replace by the operand.
    Swap = 7,
    /// Replace by the operand if the old bits equal the compare value's. Floats are compared as bits too:
    /// a NaN equals itself, and the two zeros differ.
    CompareSwap = 8,
}

impl AtomicOp {
    /// Every operation, in wire order.
    pub const ALL: [AtomicOp; 8] = [
        AtomicOp::Add,
        AtomicOp::Min,
        AtomicOp::Max,
        AtomicOp::And,
        AtomicOp::Or,
        AtomicOp::Xor,
        AtomicOp::Swap,
        AtomicOp::CompareSwap,
    ];

    /// The operation with this number on the wire.
    pub fn from_wire(wire: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == wire)
    }

    /// The name in texts and on command lines, such as `compare_swap`.
    pub const fn name(self) -> &'static str {
        match self {
            AtomicOp::Add => "add",
            AtomicOp::Min => "min",
            AtomicOp::Max => "max",
            AtomicOp::And => "and",
            AtomicOp::Or => "or",
            AtomicOp::Xor => "xor",
            AtomicOp::Swap => "swap",
            AtomicOp::CompareSwap => "compare_swap",
        }
    }
}

impl fmt::Display for AtomicOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The type of an atomic operation's one element. The numbers are part of the wire format; zero is none of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[repr(u8)]
pub enum AtomicType {
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Unsigned, 16 bits.
    U16 = 2,
    /// Unsigned, 32 bits.
    U32 = 3,
    /// Unsigned, 64 bits.
    U64 = 4,
    /// Signed, 8 bits.
    I8 = 5,
    /// Signed, 16 bits.
    I16 = 6,
    /// Signed, 32 bits.
    I32 = 7,
    /// Signed, 64 bits.
    I64 = 8,
    /// IEEE 754 binary32.
    F32 = 9,
    /// IEEE 754 binary64.
    F64 = 10,
}

impl AtomicType {
    /// Every type, in wire order.
    pub const ALL: [AtomicType; 10] = [
        AtomicType::U8,
        AtomicType::U16,
        AtomicType::U32,
        AtomicType::U64,
        AtomicType::I8,
        AtomicType::I16,
        AtomicType::I32,
        AtomicType::I64,
        AtomicType::F32,
        AtomicType::F64,
    ];

    /// The type with this number on the wire.
    pub fn from_wire(wire: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| *ty as u8 == wire)
    }

    /// The name in texts and on command lines: Rust's, such as `u64`.
    pub const fn name(self) -> &'static str {
        match self {
            AtomicType::U8 => "u8",
            AtomicType::U16 => "u16",
            AtomicType::U32 => "u32",
            AtomicType::U64 => "u64",
            AtomicType::I8 => "i8",
            AtomicType::I16 => "i16",
            AtomicType::I32 => "i32",
            AtomicType::I64 => "i64",
            AtomicType::F32 => "f32",
            AtomicType::F64 => "f64",
        }
    }

    /// Bytes of one element (1, 2, 4 or 8), which is also the alignment its address needs.
    pub const fn size(self) -> usize {
        match self {
            AtomicType::U8 | AtomicType::I8 => 1,
            AtomicType::U16 | AtomicType::I16 => 2,
            AtomicType::U32 | AtomicType::I32 | AtomicType::F32 => 4,
            AtomicType::U64 | AtomicType::I64 | AtomicType::F64 => 8,
        }
    }

    /// The low bits that one element fills, as ones.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.size())
    }

    /// Whether it is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, AtomicType::F32 | AtomicType::F64)
    }

    const fn is_signed_integer(self) -> bool {
        matches!(self, AtomicType::I8 | AtomicType::I16 | AtomicType::I32 | AtomicType::I64)
    }
}

impl fmt::Display for AtomicType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether `op` exists on `ty`: everything but `and`, `or` and `xor` on floats.
pub const fn is_defined(op: AtomicOp, ty: AtomicType) -> bool {
    !(ty.is_float() && matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor))
}

/// One atomic operation with its operands, as engines execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AtomicCall {
    /// What to do.
    pub op: AtomicOp,
    /// On what.
    pub ty: AtomicType,
    /// The operand's bits, in the low [`size`](AtomicType::size) bytes; the rest is ignored.
    pub operand: u64,
    /// What [`AtomicOp::CompareSwap`] compares with, in the same form; others ignore it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub compare: u64,
}

impl AtomicCall {
    /// The bits this call leaves where it found `old`; see the function [`apply`].
    #[inline]
    pub fn apply(&self, old: u64) -> u64 {
        apply(self.op, self.ty, old, self.operand, self.compare)
    }
}

/// The reference arithmetic: the bits that `op` leaves where it found `old`.
///
/// - Of `old`, `operand` and `compare` only the low [`size`](AtomicType::size) bytes count; the result is
///   zero-extended.
/// - Integers wrap, and are ordered by their type's sign.
/// - Float `min` and `max`: a number beats a NaN, -0 is less than +0; of two NaNs the old one stays, made
///   quiet.
/// - Float `add` with a NaN on either side gives that NaN (the old one of two), made quiet; infinities that
///   cancel give the positive quiet NaN without payload. IEEE 754 leaves that choice open and processors
///   differ; here it is fixed.
/// - An operation that is not [defined](is_defined) on the type leaves `old`. Nothing panics.
#[inline]
pub fn apply(op: AtomicOp, ty: AtomicType, old: u64, operand: u64, compare: u64) -> u64 {
    let mask = ty.mask();
    let (old, operand, compare) = (old & mask, operand & mask, compare & mask);
    match op {
        AtomicOp::Swap => operand,
        AtomicOp::CompareSwap if old == compare => operand,
        AtomicOp::CompareSwap => old,
        _ => match ty {
            AtomicType::F32 => f32_arithmetic(op, old as u32, operand as u32).into(),
            AtomicType::F64 => f64_arithmetic(op, old, operand),
            _ => integer_arithmetic(op, ty, old, operand) & mask,
        },
    }
}

#[inline]
fn integer_arithmetic(op: AtomicOp, ty: AtomicType, old: u64, operand: u64) -> u64 {
    let operand_is_less = if ty.is_signed_integer() {
        // The sign bit moves to the top, where it orders 64-bit numbers; zeros below change no order.
        let shift = 64 - 8 * ty.size();
        ((operand << shift) as i64) < ((old << shift) as i64)
    } else {
        operand < old
    };
    match op {
        AtomicOp::Add => old.wrapping_add(operand),
        AtomicOp::Min if operand_is_less => operand,
        AtomicOp::Max if !operand_is_less => operand,
        AtomicOp::Min | AtomicOp::Max => old,
        AtomicOp::And => old & operand,
        AtomicOp::Or => old | operand,
        AtomicOp::Xor => old ^ operand,
        // `apply` has dealt with them.
        AtomicOp::Swap | AtomicOp::CompareSwap => old,
    }
}

macro_rules! float_arithmetic {
    ($name:ident, $float:ty, $bits:ty) => {
        #[inline]
        fn $name(op: AtomicOp, old_bits: $bits, operand_bits: $bits) -> $bits {
            const QUIET: $bits = 1 << (<$float>::MANTISSA_DIGITS - 2);
            // Infinity has all exponent bits, and a NaN another one.
            const DEFAULT_NAN: $bits = <$float>::INFINITY.to_bits() | QUIET;
            let (old, operand) = (<$float>::from_bits(old_bits), <$float>::from_bits(operand_bits));
            // On numbers the usual order, with -0 before +0; NaNs are sorted out before it is asked.
            let operand_is_less = operand.total_cmp(&old).is_lt();
            match op {
                AtomicOp::Add | AtomicOp::Min | AtomicOp::Max
                    if old.is_nan() && operand.is_nan() =>
                {
                    old_bits | QUIET
                }
                AtomicOp::Add if old.is_nan() => old_bits | QUIET,
                AtomicOp::Add if operand.is_nan() => operand_bits | QUIET,
                AtomicOp::Add => {
                    let sum = old + operand;
                    if sum.is_nan() { DEFAULT_NAN } else { sum.to_bits() }
                }
                AtomicOp::Min | AtomicOp::Max if old.is_nan() => operand_bits,
                AtomicOp::Min | AtomicOp::Max if operand.is_nan() => old_bits,
                AtomicOp::Min if operand_is_less => operand_bits,
                AtomicOp::Max if !operand_is_less => operand_bits,
                // What is left: the old value wins, or the operation is not defined on floats.
                _ => old_bits,
            }
        }
    };
}

float_arithmetic!(f32_arithmetic, f32, u32);
float_arithmetic!(f64_arithmetic, f64, u64);

mod sealed {
    pub trait Sealed {}
}

/// The ten Rust types that have an [`AtomicType`]. Sealed: the wire knows no others.
pub trait AtomicScalar: sealed::Sealed + Copy + Send + Sync + Into<AtomicValue> + 'static {
    /// The type's name on the wire.
    const TYPE: AtomicType;

    /// The value's bits, zero-extended.
    fn to_bits64(self) -> u64;

    /// The value with these bits; what is above the type's width is ignored.
    fn from_bits64(bits: u64) -> Self;
}

/// A value of any atomic type. Floats compare as floats do: a NaN is unequal to itself; compare
/// [`bits`](AtomicValue::bits) where that matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AtomicValue {
    /// A `u8`.
    U8(u8),
    /// A `u16`.
    U16(u16),
    /// A `u32`.
    U32(u32),
    /// A `u64`.
    U64(u64),
    /// An `i8`.
    I8(i8),
    /// An `i16`.
    I16(i16),
    /// An `i32`.
    I32(i32),
    /// An `i64`.
    I64(i64),
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
}

macro_rules! scalars {
    ($($variant:ident $scalar:ty: $to:expr, $from:expr;)*) => {
        impl AtomicValue {
            /// Its type.
            pub const fn ty(self) -> AtomicType {
                match self {
                    $(AtomicValue::$variant(_) => AtomicType::$variant,)*
                }
            }

            /// Its bits, zero-extended.
            pub fn bits(self) -> u64 {
                match self {
                    $(AtomicValue::$variant(value) => value.to_bits64(),)*
                }
            }

            /// The value of type `ty` with these bits; what is above the type's width is ignored.
            pub fn from_bits(ty: AtomicType, bits: u64) -> Self {
                match ty {
                    $(AtomicType::$variant => <$scalar>::from_bits64(bits).into(),)*
                }
            }
        }

        impl fmt::Display for AtomicValue {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(AtomicValue::$variant(value) => value.fmt(f),)*
                }
            }
        }

        $(
            impl From<$scalar> for AtomicValue {
                fn from(value: $scalar) -> Self {
                    AtomicValue::$variant(value)
                }
            }

            impl sealed::Sealed for $scalar {}

            impl AtomicScalar for $scalar {
                const TYPE: AtomicType = AtomicType::$variant;

                #[inline]
                fn to_bits64(self) -> u64 {
                    $to(self)
                }

                #[inline]
                fn from_bits64(bits: u64) -> Self {
                    $from(bits)
                }
            }
        )*
    };
}

scalars! {
    U8 u8: u64::from, |bits| bits as u8;
    U16 u16: u64::from, |bits| bits as u16;
    U32 u32: u64::from, |bits| bits as u32;
    U64 u64: u64::from, u64::from;
    // By way of the unsigned type, else the sign would extend.
    I8 i8: |value| u64::from(value as u8), |bits| bits as i8;
    I16 i16: |value| u64::from(value as u16), |bits| bits as i16;
    I32 i32: |value| u64::from(value as u32), |bits| bits as i32;
    I64 i64: |value| value as u64, |bits| bits as i64;
    F32 f32: |value: f32| u64::from(value.to_bits()), |bits| f32::from_bits(bits as u32);
    F64 f64: f64::to_bits, f64::from_bits;
}
