//! Operations of the near end, made anew with the regions of this one.

use std::collections::HashMap;

use fabric::provider::{AtomicCall, SendFlags};
use fabric::{Access, AtomicOp, AtomicType, Error, Op, RemoteRegion, RemoteSlice, Result, Slice};

use super::protocol::{Local, Piece, Place, WireOp, Work};
use super::session::{Hosted, known};
use crate::element::operation;

/// The parts of regions that an operation uses.
pub(super) fn slices<'a>(
    regions: &'a HashMap<u64, Hosted>,
    pieces: &[Piece],
) -> Result<Vec<Slice<'a>>> {
    let slice = |piece: &Piece| {
        let Hosted { region, start } = known(regions, piece.region, "region")?;
        // A range that does not fit is refused by the post.
        let from = usize::try_from(piece.start.wrapping_sub(*start)).unwrap_or(usize::MAX);
        let len = usize::try_from(piece.len).unwrap_or(usize::MAX);
        Ok(region.slice(from..from.saturating_add(len)))
    };
    pieces.iter().map(slice).collect()
}

/// What is to be posted. Its context is the near end's token.
pub(super) fn op<'a>(work: &'a Work, slices: &'a [Slice<'a>]) -> Result<Op<'a>> {
    let len = match &work.local {
        Local::Pieces(pieces) => pieces.iter().map(|piece| piece.len).sum(),
        Local::Inject(bytes) => bytes.len() as u64,
    };
    let op = match (work.op, &work.local) {
        (WireOp::Send { imm }, Local::Pieces(_)) => told(Op::send(slices), imm),
        (WireOp::Send { imm }, Local::Inject(bytes)) => told(Op::inject(bytes), imm),
        (WireOp::Write { to, imm }, Local::Pieces(_)) => {
            told(Op::write(slices, place(to, len)), imm)
        }
        (WireOp::Write { to, imm }, Local::Inject(bytes)) => {
            told(Op::inject_write(bytes, place(to, len)), imm)
        }
        (WireOp::Read { from }, _) => Op::read(slices, place(from, len)),
        (WireOp::Atomic { at, op, ty, operand, compare, fetch }, _) => {
            let old = if fetch { Some(*slices.first().ok_or_else(unknown)?) } else { None };
            let (op, ty) =
                AtomicOp::from_wire(op).zip(AtomicType::from_wire(ty)).ok_or_else(unknown)?;
            let call = AtomicCall { op, ty, operand, compare };
            operation(&call, old, place(at, ty.size() as u64))
        }
    };
    Ok(refined(op.context(work.token), SendFlags::from_bits_truncate(work.flags)))
}

fn unknown() -> Error {
    Error::invalid("atomic", "the other end asks for one that is not known here")
}

fn told(op: Op<'_>, immediate: Option<u32>) -> Op<'_> {
    match immediate {
        Some(immediate) => op.immediate(immediate),
        None => op,
    }
}

fn refined(mut op: Op<'_>, flags: SendFlags) -> Op<'_> {
    if !flags.contains(SendFlags::SIGNALED) {
        op = op.unsignaled();
    }
    if flags.contains(SendFlags::FENCE) {
        op = op.fence();
    }
    if flags.contains(SendFlags::DELIVERY_COMPLETE) {
        op = op.delivery_complete();
    }
    op
}

/// A place in the near end's memory. Whether it may be reached, that end has checked as far as its case wants.
fn place(place: Place, len: u64) -> RemoteSlice {
    RemoteRegion::from_parts(place.key, place.addr, len, Access::REMOTE).at(0)
}
