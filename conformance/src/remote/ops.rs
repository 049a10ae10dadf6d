//! Operations of the near end, made anew with the regions of this one.

use std::collections::HashMap;
use std::sync::Arc;

use fabric::provider::{RemoteAddr, SendFlags, SendOp};
use fabric::{Access, Error, Op, Region, RemoteRegion, RemoteSlice, Result, Slice};

use super::allocation::Reserved;
use super::protocol::{LocalBytes, Piece, SendMsg};
use crate::element::operation;

/// A region, and the address by which the near end knows its first byte.
pub(super) struct Hosted {
    pub(super) region: Region,
    pub(super) start: u64,
    /// The region keeps its memory.
    pub(super) _reserved: Arc<Reserved>,
}

/// An object of the session, or the near end's mistake.
pub(super) fn known<'a, T>(objects: &'a HashMap<u64, T>, name: u64, what: &str) -> Result<&'a T> {
    objects.get(&name).ok_or_else(|| Error::invalid("remote", format!("no {what} {name} is here")))
}

/// The parts of regions that an operation uses.
pub(super) fn slices<'a>(
    regions: &'a HashMap<u64, Hosted>,
    pieces: &[Piece],
) -> Result<Vec<Slice<'a>>> {
    let slice = |piece: &Piece| {
        let Hosted { region, start, .. } = known(regions, piece.region, "region")?;
        // A range that does not fit is refused by the post.
        let from = usize::try_from(piece.start.wrapping_sub(*start)).unwrap_or(usize::MAX);
        let len = usize::try_from(piece.len).unwrap_or(usize::MAX);
        Ok(region.slice(from..from.saturating_add(len)))
    };
    pieces.iter().map(slice).collect()
}

/// What is to be posted. Its context is the near end's token.
pub(super) fn op<'a>(work: &'a SendMsg, slices: &'a [Slice<'a>]) -> Result<Op<'a>> {
    let len = match &work.local {
        LocalBytes::Pieces(pieces) => pieces.iter().map(|piece| piece.len).sum(),
        LocalBytes::Inject(bytes) => bytes.len() as u64,
    };
    let op = match (work.op, &work.local) {
        (SendOp::Send { imm }, LocalBytes::Pieces(_)) => with_immediate(Op::send(slices), imm),
        (SendOp::Send { imm }, LocalBytes::Inject(bytes)) => with_immediate(Op::inject(bytes), imm),
        (SendOp::Write { to, imm }, LocalBytes::Pieces(_)) => {
            with_immediate(Op::write(slices, slice_at(to, len)), imm)
        }
        (SendOp::Write { to, imm }, LocalBytes::Inject(bytes)) => {
            with_immediate(Op::inject_write(bytes, slice_at(to, len)), imm)
        }
        (SendOp::Read { from }, _) => Op::read(slices, slice_at(from, len)),
        (SendOp::Atomic { at, call, fetch }, _) => {
            let old = if fetch { Some(*slices.first().ok_or_else(unknown)?) } else { None };
            operation(&call, old, slice_at(at, call.ty.size() as u64))
        }
        _ => return Err(unknown()),
    };
    Ok(with_flags(op.context(work.token.to_bits()), SendFlags::from_bits_truncate(work.flags)))
}

fn unknown() -> Error {
    Error::invalid("post", "the other end sends an operation that is not known here")
}

fn with_immediate(op: Op<'_>, immediate: Option<u32>) -> Op<'_> {
    match immediate {
        Some(immediate) => op.immediate(immediate),
        None => op,
    }
}

fn with_flags(mut op: Op<'_>, flags: SendFlags) -> Op<'_> {
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

/// A range of the peer's memory. Whether it may be reached, the near end has checked as far as its case wants.
fn slice_at(addr: RemoteAddr, len: u64) -> RemoteSlice {
    RemoteRegion::from_parts(addr.key, addr.addr, len, Access::REMOTE).at(0)
}
