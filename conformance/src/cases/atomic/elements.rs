//! Elements that atomics are of, and what cases find in them.

use fabric::RemoteSlice;
use fabric::provider::AtomicCall;

use crate::element::{element, operation};
use crate::prelude::*;

/// Executes the call on an element, which holds these bits, and checks what it brings back into `old`.
#[track_caller]
pub(super) fn finds(
    a: &End,
    call: &AtomicCall,
    at: RemoteSlice,
    old: &Guarded,
    bits: u64,
) -> Outcome {
    let size = call.ty.size();
    let done = Done::ok(1).kind(OpKind::Atomic);
    a.run(operation(call, Some(old.slice(..size)), at), done)?;
    let (seen, expected) = (old.bytes(..size)?, element(call.ty, bits));
    check_bytes!(seen, expected, "the old {} of {}", call.ty, call.op);
    Ok(())
}

/// The integer types.
pub(super) const INTEGERS: [AtomicType; 8] = [
    AtomicType::U8,
    AtomicType::U16,
    AtomicType::U32,
    AtomicType::U64,
    AtomicType::I8,
    AtomicType::I16,
    AtomicType::I32,
    AtomicType::I64,
];

/// The numbers in bytes that hold a `u64` each, in host order.
pub(super) fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}
