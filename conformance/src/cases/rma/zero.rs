//! Access to nothing, which no key is needed for.

use fabric::{RemoteSlice, Slice};

use crate::prelude::*;

pub(super) fn write_zero_badkey(rig: &Rig) -> Outcome {
    empty_access(rig, |local, remote| Op::write(local, remote))
}

pub(super) fn read_zero_badkey(rig: &Rig) -> Outcome {
    empty_access(rig, |local, remote| Op::read(local, remote))
}

fn empty_access(rig: &Rig, op: for<'a> fn(Slice<'a>, RemoteSlice) -> Op<'a>) -> Outcome {
    let (a, b) = rig.pair()?;
    let local = a.patterned(64, rig.pattern(0))?;
    let target = b.patterned(64, rig.pattern(0))?;
    let honest = target.region().remote();
    let no_right = b.buffer_with(64, Access::LOCAL_WRITE)?;
    let closed = b.buffer(64)?;
    let stale = closed.at(0);
    closed.region().close()?;
    let places = [
        ("a good place", target.at(0)),
        ("the end of the region", honest.at(honest.len())),
        ("a wrong key", forged_key(&honest, !honest.key()).at(0)),
        ("key and address zero", RemoteRegion::from_parts(0, 0, 0, Access::REMOTE).at(0)),
        ("far beyond the region", forged_range(&honest, 0, 1 << 20).at(1 << 20)),
        ("a region without the right", no_right.at(0)),
        ("a closed region", stale),
    ];
    for (i, (place, remote)) in places.into_iter().enumerate() {
        let done = a.run(op(local.slice(32..32), remote), Done::ok(i))?;
        check_eq!(done.len, 0, "length at {place}");
    }

    // No harm is done: the next access works, and the peer has heard nothing.
    a.run(op(local.slice(..32), target.at(0)), Done::ok(99))?;
    a.settle(&b)?;
    for buffer in [&local, &target] {
        buffer.check_pattern(.., rig.pattern(0))?;
    }
    no_right.check_filled(.., 0)
}
