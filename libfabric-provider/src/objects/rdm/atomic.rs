//! Atomic operations: on one element each.

use std::ffi::c_int;

use fabric::{Access, AtomicOp, AtomicScalar, AtomicType, Info, Op};
use smallvec::SmallVec;

use super::endpoint::RdmEndpoint;
use super::memory::Memory;
use super::pending::Wants;
use crate::abi::flags::{
    FI_ATOMIC, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EBADFLAGS, FI_FENCE, FI_INJECT,
    FI_INJECT_COMPLETE, FI_MORE, FI_READ, FI_TRANSMIT_COMPLETE, FI_WRITE, datatype, op,
};
use crate::errno::Errno;
use crate::objects::bound::TX;
use crate::objects::transfer::{Buffer, Options, Remote};

/// The flags that an atomic takes. The operand is always copied when it is posted.
const FLAGS: u64 = FI_COMPLETION
    | FI_MORE
    | FI_FENCE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE;

/// What an atomic operation gives back, and needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing.
    Base,
    /// The old value.
    Fetch,
    /// The old value, and it compares first.
    Compare,
}

/// What an application asks for.
#[derive(Clone, Copy)]
pub(crate) struct AtomicRequest<'a> {
    pub(crate) form: Form,
    /// `enum fi_datatype`, `enum fi_op`
    pub(crate) datatype: c_int,
    pub(crate) op: c_int,
    /// The bits of both, in the lower bytes.
    pub(crate) operand: u64,
    pub(crate) compare: u64,
    /// For the old value.
    pub(crate) result: Option<Buffer<'a>>,
    pub(crate) at: Remote,
    pub(crate) options: Options,
}

/// The type of ours.
fn type_of(number: c_int) -> Option<AtomicType> {
    Some(match number {
        datatype::FI_INT8 => AtomicType::I8,
        datatype::FI_UINT8 => AtomicType::U8,
        datatype::FI_INT16 => AtomicType::I16,
        datatype::FI_UINT16 => AtomicType::U16,
        datatype::FI_INT32 => AtomicType::I32,
        datatype::FI_UINT32 => AtomicType::U32,
        datatype::FI_INT64 => AtomicType::I64,
        datatype::FI_UINT64 => AtomicType::U64,
        datatype::FI_FLOAT => AtomicType::F32,
        datatype::FI_DOUBLE => AtomicType::F64,
        _ => return None,
    })
}

/// What is executed: the operation, and the type, as which the bytes are taken.
fn call(form: Form, number: c_int, ty: AtomicType) -> Option<(AtomicOp, AtomicType)> {
    let as_it_is = |op| Some((op, ty));
    match (form, number) {
        // The comparison is of bits, which that of floats is not.
        (Form::Compare, op::FI_CSWAP) if !ty.is_float() => as_it_is(AtomicOp::CompareSwap),
        (Form::Compare, _) => None,
        (Form::Fetch, op::FI_ATOMIC_READ) => Some((AtomicOp::Or, unsigned(ty.size()))),
        (_, op::FI_MIN) => as_it_is(AtomicOp::Min),
        (_, op::FI_MAX) => as_it_is(AtomicOp::Max),
        (_, op::FI_SUM) => as_it_is(AtomicOp::Add),
        (_, op::FI_BOR) => as_it_is(AtomicOp::Or),
        (_, op::FI_BAND) => as_it_is(AtomicOp::And),
        (_, op::FI_BXOR) => as_it_is(AtomicOp::Xor),
        (_, op::FI_ATOMIC_WRITE) => as_it_is(AtomicOp::Swap),
        _ => None,
    }
}

fn unsigned(size: usize) -> AtomicType {
    match size {
        1 => AtomicType::U8,
        2 => AtomicType::U16,
        4 => AtomicType::U32,
        _ => AtomicType::U64,
    }
}

/// The bytes of an element, if a device executes this operation on it.
pub(crate) fn valid(info: &Info, form: Form, number: c_int, datatype: c_int) -> Option<usize> {
    let ty = type_of(datatype)?;
    let (op, as_type) = call(form, number, ty)?;
    info.supports_atomic(op, as_type).then_some(ty.size())
}

/// An operation of ours by its parts.
fn build<'a, T: AtomicScalar>(
    op: AtomicOp,
    (operand, compare): (u64, u64),
    old: Option<fabric::Slice<'a>>,
    at: fabric::RemoteSlice,
) -> Op<'a> {
    let (operand, compare) = (T::from_bits64(operand), T::from_bits64(compare));
    match (op, old) {
        (AtomicOp::CompareSwap, Some(old)) => Op::fetch_compare_swap(compare, operand, old, at),
        (AtomicOp::CompareSwap, None) => Op::compare_swap(compare, operand, at),
        (_, Some(old)) => Op::fetch_atomic(op, operand, old, at),
        (_, None) => Op::atomic(op, operand, at),
    }
}

fn build_for<'a>(
    (op, ty): (AtomicOp, AtomicType),
    values: (u64, u64),
    old: Option<fabric::Slice<'a>>,
    at: fabric::RemoteSlice,
) -> Op<'a> {
    match ty {
        AtomicType::U8 => build::<u8>(op, values, old, at),
        AtomicType::U16 => build::<u16>(op, values, old, at),
        AtomicType::U32 => build::<u32>(op, values, old, at),
        AtomicType::U64 => build::<u64>(op, values, old, at),
        AtomicType::I8 => build::<i8>(op, values, old, at),
        AtomicType::I16 => build::<i16>(op, values, old, at),
        AtomicType::I32 => build::<i32>(op, values, old, at),
        AtomicType::I64 => build::<i64>(op, values, old, at),
        AtomicType::F32 => build::<f32>(op, values, old, at),
        AtomicType::F64 => build::<f64>(op, values, old, at),
    }
}

impl RdmEndpoint {
    /// The bytes of an element, if the operation can be posted.
    pub(crate) fn valid(&self, form: Form, op: c_int, datatype: c_int) -> Result<usize, Errno> {
        let info = self.domain.device.domain.info();
        valid(info, form, op, datatype).ok_or(Errno(libc::EOPNOTSUPP))
    }

    pub(crate) fn atomic(&self, request: &AtomicRequest<'_>, injects: bool) -> Result<(), Errno> {
        let enabled = self.enabled()?;
        let options = request.options;
        if options.flags & !FLAGS != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let wants = match enabled.is_selective[TX] && options.flags & FI_COMPLETION == 0 {
            _ if injects => Wants::Nothing,
            true => Wants::Error,
            false => Wants::Completion,
        };
        let ty = type_of(request.datatype).ok_or(Errno(libc::EOPNOTSUPP))?;
        let unknown = Errno(libc::EOPNOTSUPP);
        let (op, as_type) = call(request.form, request.op, ty).ok_or(unknown)?;
        // A read changes nothing, whatever the operand would be.
        let is_read = request.op == op::FI_ATOMIC_READ;
        let operand = if is_read { 0 } else { request.operand };
        let peer = enabled.peers.peer(&enabled.endpoint, options.peer)?;
        let buffers: SmallVec<[Buffer<'_>; 1]> = request.result.into_iter().collect();
        let result = match buffers.is_empty() {
            true => None,
            false => Some(Memory::of_message(enabled, &buffers, Access::LOCAL_WRITE)?),
        };
        let old = result.as_ref().map(Memory::slice).transpose()?;
        let copied = result.as_ref().and_then(Memory::copied);
        let values = (operand, request.compare);
        let op = build_for((op, as_type), values, old, request.at.place());
        let direction = if request.form == Form::Base { FI_WRITE } else { FI_READ };
        enabled.post_one_sided(peer, op, direction | FI_ATOMIC, options, wants, copied)
    }
}
