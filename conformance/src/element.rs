//! Atomic operations that are data, and elements as bytes in memory.

use fabric::provider::AtomicCall;
use fabric::{AtomicOp, AtomicScalar, AtomicType, Op, RemoteSlice, Slice};

/// A generic function, for an element type that is data.
macro_rules! by_type {
    ($type:expr, $function:ident) => {
        match $type {
            fabric::AtomicType::U8 => $function::<u8>,
            fabric::AtomicType::U16 => $function::<u16>,
            fabric::AtomicType::U32 => $function::<u32>,
            fabric::AtomicType::U64 => $function::<u64>,
            fabric::AtomicType::I8 => $function::<i8>,
            fabric::AtomicType::I16 => $function::<i16>,
            fabric::AtomicType::I32 => $function::<i32>,
            fabric::AtomicType::I64 => $function::<i64>,
            fabric::AtomicType::F32 => $function::<f32>,
            fabric::AtomicType::F64 => $function::<f64>,
        }
    };
}
pub(crate) use by_type;

/// The operation of a call that is data: fetching if there is a place for the old value.
pub(crate) fn operation<'a>(call: &AtomicCall, old: Option<Slice<'a>>, at: RemoteSlice) -> Op<'a> {
    fn typed<'a, T: AtomicScalar>(
        call: &AtomicCall,
        old: Option<Slice<'a>>,
        at: RemoteSlice,
    ) -> Op<'a> {
        let (operand, compare) = (T::from_bits64(call.operand), T::from_bits64(call.compare));
        match (call.op, old) {
            (AtomicOp::CompareSwap, None) => Op::compare_swap(compare, operand, at),
            (AtomicOp::CompareSwap, Some(old)) => Op::fetch_compare_swap(compare, operand, old, at),
            (op, None) => Op::atomic(op, operand, at),
            (op, Some(old)) => Op::fetch_atomic(op, operand, old, at),
        }
    }
    let of_type = by_type!(call.ty, typed);
    of_type(call, old, at)
}

/// The bytes of an element in memory, in host order.
pub(crate) fn element(ty: AtomicType, bits: u64) -> Vec<u8> {
    let (bytes, size) = (bits.to_ne_bytes(), ty.size());
    if cfg!(target_endian = "little") { bytes[..size].to_vec() } else { bytes[8 - size..].to_vec() }
}

/// The bits of an element whose bytes in memory these are.
pub(crate) fn element_bits(bytes: &[u8], size: usize) -> u64 {
    let mut all = [0; 8];
    let size = size.min(bytes.len());
    if cfg!(target_endian = "little") {
        all[..size].copy_from_slice(&bytes[..size]);
    } else {
        all[8 - size..].copy_from_slice(&bytes[..size]);
    }
    u64::from_ne_bytes(all)
}
