//! What the target refuses.

use std::ops::Range;

use fabric::RemoteSlice;

use crate::prelude::*;

/// The region that writes and reads reach for lies in the middle of a larger memory, so that it shows when a byte
/// around it changes. It is longer than a provider is likely to handle at once: one that looks at a range only as
/// far as the bytes came changes some before it finds the end.
const LEN: usize = 1 << 20;
const MARGIN: usize = 8192;
const AREA: usize = MARGIN + LEN + MARGIN;
const REGION: Range<usize> = MARGIN..MARGIN + LEN;

pub(super) fn bad_key(rig: &Rig) -> Outcome {
    for len in [1, 4096, LEN] {
        write_is_refused(rig, len, |honest| forged_key(honest, !honest.key()).at(0))?;
    }
    write_is_refused(rig, 8, |honest| forged_key(honest, honest.key() ^ 1 << 20).at(0))?;
    write_is_refused(rig, 8, |honest| forged_key(honest, 0).at(0))
}

pub(super) fn oob_low(rig: &Rig) -> Outcome {
    for len in [1, 8, MARGIN] {
        write_is_refused(rig, len, |honest| forged_range(honest, len as u64, 0).at(0))?;
    }
    Ok(())
}

pub(super) fn oob_high(rig: &Rig) -> Outcome {
    for len in [1, 8, MARGIN] {
        write_is_refused(rig, len, |honest| forged_range(honest, 0, len as u64).at(LEN as u64))?;
    }
    write_is_refused(rig, 8, |honest| forged_range(honest, 0, 1 << 40).at(1 << 39))
}

pub(super) fn oob_straddle(rig: &Rig) -> Outcome {
    for len in [2, 4096, LEN] {
        // The last byte is outside; then the first.
        let last = (LEN - len + 1) as u64;
        write_is_refused(rig, len, |honest| forged_range(honest, 0, 1).at(last))?;
        write_is_refused(rig, len, |honest| forged_range(honest, 1, 0).at(0))?;
    }
    Ok(())
}

pub(super) fn addr_wrap(rig: &Rig) -> Outcome {
    // Up to the last address, and beyond it to where a region may lie.
    for (before_end, len) in [(8, 8), (8, 64), (1, 4096), (4096, LEN)] {
        let base = 0u64.wrapping_sub(before_end);
        write_is_refused(rig, len, |honest| {
            RemoteRegion::from_parts(honest.key(), base, 1 << 40, honest.access()).at(0)
        })?;
    }
    // From the true base, by the offset.
    write_is_refused(rig, 8, |honest| forged_range(honest, 0, u64::MAX).at(u64::MAX - 8))
}

/// A write of `len` bytes to the place that `lie` gives, which only the target can refuse: `RemoteAccess` here, the
/// end of the connection there; neither the region nor anything around it changes.
fn write_is_refused(rig: &Rig, len: usize, lie: impl Fn(&RemoteRegion) -> RemoteSlice) -> Outcome {
    is_refused(rig, len, lie, |local, at| Op::write(local, at))
}

/// The same of a read, which leaves the local buffer alone, too.
fn read_is_refused(rig: &Rig, len: usize, lie: impl Fn(&RemoteRegion) -> RemoteSlice) -> Outcome {
    is_refused(rig, len, lie, |local, at| Op::read(local, at))
}

fn is_refused(
    rig: &Rig,
    len: usize,
    lie: impl Fn(&RemoteRegion) -> RemoteSlice,
    op: for<'a> fn(&'a Guarded, RemoteSlice) -> Op<'a>,
) -> Outcome {
    let (a, b) = rig.pair()?;
    let memory = b.buffer_with(AREA, Access::LOCAL_WRITE)?;
    let region = memory.register(b.domain(), REGION, Access::ALL)?;
    let local = a.patterned(len, rig.pattern(1))?;
    memory.put_pattern(.., rig.pattern(0))?;
    a.run_refused(op(&local, lie(&region.remote())), 1, &b)?;
    memory.check_pattern(.., rig.pattern(0))?;
    local.check_pattern(.., rig.pattern(1))
}

pub(super) fn no_remote_read(rig: &Rig) -> Outcome {
    is_not_granted(rig, Access::ALL.difference(Access::REMOTE_READ), |local, at| {
        Op::read(local, at)
    })
}

pub(super) fn no_remote_write(rig: &Rig) -> Outcome {
    for access in [Access::ALL.difference(Access::REMOTE_WRITE), Access::REMOTE_READ] {
        is_not_granted(rig, access, |local, at| Op::write(local, at))?;
    }
    Ok(())
}

/// Access that a region does not grant: the descriptor says so, and the call; if it lies, the target refuses.
fn is_not_granted(
    rig: &Rig,
    access: Access,
    op: for<'a> fn(&'a Guarded, RemoteSlice) -> Op<'a>,
) -> Outcome {
    let (a, b) = rig.pair()?;
    let (local, target) = (a.patterned(64, rig.pattern(1))?, b.buffer_with(64, access)?);
    target.put_pattern(.., rig.pattern(0))?;
    let refused = a.post(&op(&local, target.at(0)).context(1));
    check_err!(refused, Error::InvalidArgument(_), "access by a descriptor that grants none");
    check_eq!(a.state(), EndpointState::Connected, "state after the refused call");

    let lie = forged_access(&target.region().remote(), Access::ALL);
    a.run_refused(op(&local, lie.at(target.at(0).offset())), 2, &b)?;
    local.check_pattern(.., rig.pattern(1))?;
    target.check_pattern(.., rig.pattern(0))
}

pub(super) fn read_bad(rig: &Rig) -> Outcome {
    for len in [1, LEN] {
        read_is_refused(rig, len, |honest| forged_key(honest, !honest.key()).at(0))?;
        read_is_refused(rig, len, |honest| forged_range(honest, 0, LEN as u64).at(LEN as u64))?;
        read_is_refused(rig, len, |honest| forged_range(honest, 1, 0).at(0))?;
    }
    // All of it is there but for the last byte.
    read_is_refused(rig, LEN, |honest| forged_range(honest, 0, 1).at(1))
}

pub(super) fn write_imm_bad(rig: &Rig) -> Outcome {
    let (a, b, source, target) = rig.transfer(64)?;
    let receive = b.buffer(64)?;
    b.recv(&receive, 7)?;
    let lie = target.by_wrong_key(0);
    a.run_refused(Op::write(&source, lie).immediate(0xdead_beef), 1, &b)?;
    b.expect(Done::canceled(7).len(0).immediate(None))?;
    for untouched in [&target, &receive] {
        untouched.check_filled(.., 0)?;
    }
    Ok(())
}
