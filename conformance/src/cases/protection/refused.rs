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
    let (a, b) = rig.pair()?;
    let memory = b.buffer_with(AREA, Access::LOCAL_WRITE)?;
    let region = memory.register(b.domain(), REGION, Access::ALL)?;
    let source = a.patterned(len, rig.pattern(1))?;
    memory.put_pattern(.., rig.pattern(0))?;
    a.run(Op::write(&source, lie(&region.remote())), Done::refused(1))?;
    b.expect_disconnected()?;
    memory.check_pattern(.., rig.pattern(0))
}

pub(super) fn no_remote_read(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let secret = b.buffer_with(64, Access::ALL.difference(Access::REMOTE_READ))?;
    let into = a.patterned(64, rig.pattern(1))?;
    secret.put_pattern(.., rig.pattern(0))?;
    // The descriptor tells, so the call does; and nothing has happened.
    let refused = a.read(&into, secret.at(0), 1);
    check_err!(refused, Error::InvalidArgument(_), "a read by a descriptor that grants none");
    check_eq!(a.state(), EndpointState::Connected, "state after the refused call");

    let lie = forged_access(&secret.region().remote(), Access::ALL);
    a.run(Op::read(&into, lie.at(secret.at(0).offset())), Done::refused(2))?;
    b.expect_disconnected()?;
    into.check_pattern(.., rig.pattern(1))
}

pub(super) fn no_remote_write(rig: &Rig) -> Outcome {
    for access in [Access::ALL.difference(Access::REMOTE_WRITE), Access::REMOTE_READ] {
        let (a, b) = rig.pair()?;
        let target = b.buffer_with(64, access)?;
        let source = a.buffer(64)?;
        target.put_pattern(.., rig.pattern(0))?;
        let refused = a.write(&source, target.at(0), 1);
        check_err!(refused, Error::InvalidArgument(_), "a write by a descriptor that grants none");
        check_eq!(a.state(), EndpointState::Connected, "state after the refused call");

        let lie = forged_access(&target.region().remote(), Access::ALL);
        a.run(Op::write(&source, lie.at(target.at(0).offset())), Done::refused(2))?;
        b.expect_disconnected()?;
        target.check_pattern(.., rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn read_bad(rig: &Rig) -> Outcome {
    let read_is_refused = |len: usize, lie: &dyn Fn(&RemoteRegion) -> RemoteSlice| -> Outcome {
        let (a, b) = rig.pair()?;
        let memory = b.buffer_with(AREA, Access::LOCAL_WRITE)?;
        let region = memory.register(b.domain(), REGION, Access::ALL)?;
        let into = a.patterned(len, rig.pattern(0))?;
        a.run(Op::read(&into, lie(&region.remote())), Done::refused(1))?;
        b.expect_disconnected()?;
        into.check_pattern(.., rig.pattern(0))
    };
    for len in [1, LEN] {
        read_is_refused(len, &|honest| forged_key(honest, !honest.key()).at(0))?;
        read_is_refused(len, &|honest| forged_range(honest, 0, LEN as u64).at(LEN as u64))?;
        read_is_refused(len, &|honest| forged_range(honest, 1, 0).at(0))?;
    }
    // All of it is there but for the last byte.
    read_is_refused(LEN, &|honest| forged_range(honest, 0, 1).at(1))
}

pub(super) fn write_imm_bad(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let target = b.buffer(64)?;
    let receive = b.buffer(64)?;
    let source = a.patterned(64, rig.pattern(0))?;
    b.recv(&receive, 7)?;
    let honest = target.region().remote();
    let lie = forged_key(&honest, !honest.key()).at(target.at(0).offset());
    a.run(Op::write(&source, lie).immediate(0xdead_beef), Done::refused(1))?;
    b.expect_disconnected()?;
    b.expect(Done::canceled(7).len(0).immediate(None))?;
    for untouched in [&target, &receive] {
        untouched.check_filled(.., 0)?;
    }
    Ok(())
}
