//! Elements that are out of reach.

use std::ops::Range;

use fabric::RemoteSlice;
use fabric::provider::AtomicCall;

use super::elements::finds;
use crate::element::{element, element_bits, operation};
use crate::forge::MISALIGN;
use crate::prelude::*;

pub(super) fn misaligned(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let target = b.patterned(32, rig.pattern(0))?;
    let old = a.buffer(8)?;
    for ty in AtomicType::ALL {
        for at in (0..16).filter(|at| at % ty.size() != 0) {
            let call = AtomicCall { op: AtomicOp::Swap, ty, operand: 0, compare: 0 };
            for old in [None, Some(old.slice(..ty.size()))] {
                let posted = a.post(&operation(&call, old, target.at(at)));
                check_err!(posted, Error::InvalidArgument(_), "an atomic on a {ty} at byte {at}");
            }
        }
    }
    // A place of another size than the old value's is as wrong.
    let posted = a.fetch_add(1u32, old.slice(..8), target.at(0), 2);
    check_err!(posted, Error::InvalidArgument(_), "8 bytes for the old value of a u32");

    a.run(Op::fetch_atomic(AtomicOp::Add, 0u64, old.slice(..8), target.at(8)), Done::ok(1))?;
    check_bytes!(old.bytes(..)?, rig.pattern(0).bytes(16)[8..], "what an aligned one reads");
    a.settle(&b)?;
    target.check_pattern(.., rig.pattern(0))
}

pub(super) fn misaligned_wire(rig: &Rig) -> Outcome {
    for ty in [AtomicType::U64, AtomicType::U32, AtomicType::U16] {
        let (a, b) = rig.pair()?;
        let target = b.patterned(32, rig.pattern(0))?;
        let old = a.buffer(8)?;
        let honest = target.region().remote();
        let (key, base) = (honest.key(), honest.base() | MISALIGN);
        let forged = RemoteRegion::from_parts(key, base, honest.len(), honest.access());
        let call = AtomicCall { op: AtomicOp::Swap, ty, operand: 0, compare: 0 };
        let old_value = Some(old.slice(..ty.size()));
        a.run_refused(operation(&call, old_value, forged.at(target.at(8).offset())), 1, &b)?;
        target.check_pattern(.., rig.pattern(0))?;
        old.check_filled(.., 0)?;
    }
    Ok(())
}

/// The region that the cases below reach for, in the middle of a larger memory.
const REGION: Range<usize> = 64..128;
const AROUND: usize = 192;

pub(super) fn oob(rig: &Rig) -> Outcome {
    let len = REGION.len() as u64;
    is_refused(rig, Access::ALL, |honest| forged_range(honest, 0, 8).at(len))?;
    is_refused(rig, Access::ALL, |honest| forged_range(honest, 8, 0).at(0))?;
    is_refused(rig, Access::ALL, |honest| forged_range(honest, 0, 1 << 40).at(1 << 39))
}

pub(super) fn no_perm(rig: &Rig) -> Outcome {
    let access = Access::ALL.difference(Access::REMOTE_ATOMIC);
    is_refused(rig, access, |honest| forged_access(honest, Access::ALL).at(0))
}

pub(super) fn readonly_key(rig: &Rig) -> Outcome {
    is_refused(rig, Access::REMOTE_READ, |honest| forged_access(honest, Access::ALL).at(0))
}

/// The target refuses atomics at the place that `lie` gives: `RemoteAccess` here, the end of the connection there;
/// neither the region, which has these rights, nor anything around it changes.
fn is_refused(rig: &Rig, access: Access, lie: impl Fn(&RemoteRegion) -> RemoteSlice) -> Outcome {
    let forms = [(AtomicType::U64, true), (AtomicType::U64, false), (AtomicType::U32, true)];
    for (ty, fetch) in forms {
        let (a, b) = rig.pair()?;
        let around = b.buffer_with(AROUND, Access::LOCAL_WRITE)?;
        let region = around.register(b.domain(), REGION, access)?;
        let old = a.buffer(8)?;
        around.put_pattern(.., rig.pattern(0))?;
        let call = AtomicCall { op: AtomicOp::Add, ty, operand: 1, compare: 0 };
        let old_value = fetch.then(|| old.slice(..ty.size()));
        a.run_refused(operation(&call, old_value, lie(&region.remote())), 1, &b)?;
        around.check_pattern(.., rig.pattern(0))?;
        old.check_filled(.., 0)?;
    }
    Ok(())
}

pub(super) fn last_word(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let around = b.buffer_with(AROUND, Access::LOCAL_WRITE)?;
    let region = around.register(b.domain(), REGION, Access::ALL)?;
    let old = a.buffer(8)?;
    around.put_pattern(.., rig.pattern(0))?;
    let mut expected = rig.pattern(0).bytes(AROUND);
    // The last element of each width.
    for ty in [AtomicType::U64, AtomicType::U32, AtomicType::U16, AtomicType::U8] {
        let last = REGION.end - ty.size()..REGION.end;
        let operand = 0x1122_3344_5566_7788 & ty.mask();
        let call = AtomicCall { op: AtomicOp::Swap, ty, operand, compare: 0 };
        let at = region.remote().at((REGION.len() - ty.size()) as u64);
        finds(&a, &call, at, &old, element_bits(&expected[last.clone()], ty.size()))?;
        expected[last].copy_from_slice(&element(ty, operand));
    }
    a.settle(&b)?;
    check_bytes!(around.bytes(..)?, expected, "the region and its surroundings");

    let (honest, len) = (region.remote(), REGION.len() as u64);
    let add = |at| Op::fetch_atomic(AtomicOp::Add, 1u64, old.slice(..8), at);
    let behind = a.post(&add(honest.at(len)).context(2));
    check_err!(behind, Error::InvalidArgument(_), "an element behind what the descriptor says");
    a.run_refused(add(forged_range(&honest, 0, 8).at(len)), 3, &b)?;
    check_bytes!(around.bytes(..)?, expected, "the region and its surroundings after the refusal");
    Ok(())
}
