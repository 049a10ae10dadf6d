//! Which bytes are reached, to the byte.

use fabric::Slice;

use crate::prelude::*;
use crate::sys::page_size;

/// Every right that a region of any bounds can have.
const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

pub(super) fn unaligned_base(rig: &Rig) -> Outcome {
    const LEN: usize = 4099;
    let (a, b) = rig.pair()?;
    // The payload starts at a multiple of 64, so these regions start 3 bytes behind one.
    let (near, far) = (a.buffer(LEN + 8)?, b.buffer(LEN + 8)?);
    let local = near.register(a.domain(), 3..3 + LEN, RIGHTS)?;
    let region = far.register(b.domain(), 3..3 + LEN, RIGHTS)?;
    check_eq!(region.addr() % 8, 3, "what the region's address leaves over 8");
    check_eq!((region.len(), region.remote().len()), (LEN, LEN as u64), "length of the region");

    near.put_pattern(3..3 + LEN, rig.pattern(0))?;
    a.run(Op::write(&local, region.remote().at(0)), Done::ok(1))?;
    a.settle(&b)?;
    far.check_pattern(3..3 + LEN, rig.pattern(0))?;
    far.check_filled(..3, 0)?;
    far.check_filled(3 + LEN.., 0)?;

    far.put_pattern(3..3 + LEN, rig.pattern(1))?;
    a.run(Op::read(&local, region.remote().at(0)), Done::ok(2))?;
    near.check_pattern(3..3 + LEN, rig.pattern(1))?;

    b.recv(&region, 3)?;
    a.send(&local, 4)?;
    b.expect(Done::recv(3, LEN))?;
    a.expect_ok(4)?;
    let beyond = a.write(local.slice(..1), region.remote().at(LEN as u64), 5);
    check_err!(beyond, Error::InvalidArgument(_), "a write behind the last byte");

    // Not what a page or a word more would hold either: only the target can see that the descriptor lies.
    let lie = forged_range(&region.remote(), 1, 1);
    for (what, at) in [("before the first", 0), ("behind the last", LEN as u64 + 1)] {
        let (a, b) = rig.pair()?;
        a.run_refused(Op::write(local.slice(..1), lie.at(at)), 6, &b)?;
        far.check_pattern(3..3 + LEN, rig.pattern(1))?;
        far.check_filled(..3, 0)?;
        check_bytes!(far.bytes(3 + LEN..)?, [0; 5], "memory after a write to the byte {what}");
    }
    Ok(())
}

pub(super) fn subrange(rig: &Rig) -> Outcome {
    const LEN: usize = 9000;
    let (a, b) = rig.pair()?;
    let (near, far) = (a.buffer(LEN)?, b.buffer(LEN)?);
    let mut rng = rig.rng();
    let (mut near_model, mut far_model) = (vec![0; LEN], vec![0; LEN]);
    for len in [1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 1000, 4095, 4096, 4097, 8999] {
        for writes in [true, false] {
            // Both sides get new bytes all over, so that one byte too many shows whatever it is.
            rng.pattern().fill(0, &mut near_model);
            rng.pattern().fill(0, &mut far_model);
            near.put(0, &near_model)?;
            far.put(0, &far_model)?;
            let (here, there) = (rng.below(LEN - len + 1), rng.below(LEN - len + 1));
            let (local, remote) = (here..here + len, there..there + len);
            if writes {
                a.write(near.slice(local.clone()), far.at(there), 1)?;
                far_model[remote].copy_from_slice(&near_model[local]);
            } else {
                a.read(near.slice(local.clone()), far.at(there), 1)?;
                near_model[local].copy_from_slice(&far_model[remote]);
            }
            a.expect_ok(1)?;
            a.settle(&b)?;
            let what = if writes { "a write" } else { "a read" };
            check_bytes!(near.bytes(..)?, near_model, "the initiator after {what} of {len}");
            check_bytes!(far.bytes(..)?, far_model, "the target after {what} of {len}");
        }
    }
    Ok(())
}

pub(super) fn local_oob(rig: &Rig) -> Outcome {
    const LEN: usize = 100;
    let (a, b) = rig.pair()?;
    let local = a.domain().alloc(LEN, Access::LOCAL_WRITE)?;
    let target = b.filled(256, 0x55)?;
    let (five, three) = (5, 3);
    let bad: [Slice<'_>; 6] = [
        local.slice(..LEN + 1),
        local.slice(1..LEN + 1),
        local.slice(LEN + 1..LEN + 1),
        local.slice(usize::MAX - 7..),
        local.slice(usize::MAX - 1..=usize::MAX),
        local.slice(five..three),
    ];
    for slice in bad {
        // Alone, and behind a good one.
        for slices in [&[slice][..], &[local.slice(..8), slice][..]] {
            for (what, posted) in [
                ("a send", a.send(slices, 7)),
                ("a write", a.write(slices, target.at(0), 7)),
                ("a read", a.read(slices, target.at(0), 7)),
                ("a receive", a.recv(slices, 7)),
            ] {
                check_err!(posted, Error::InvalidArgument(_), "{what} of {slices:?}");
            }
        }
    }
    let batch = [Op::write(local.slice(..8), target.at(0)), Op::write(bad[0], target.at(8))];
    let refused = a.post_batch(&batch);
    let posted = refused.map_err(|batch| (batch.posted, batch.error));
    let _ =
        check_matches!(posted, Err((1, Error::InvalidArgument(_))), "a batch with a bad second");

    // The endpoint is unharmed: the first completions are those of what was accepted, and the first message to
    // arrive is the first that was sent.
    a.expect_ok(0)?;
    b.recv(&target, 1)?;
    a.run(Op::send(local.slice(..LEN)), Done::ok(2))?;
    b.expect(Done::recv(1, LEN))?;
    a.settle(&b)?;
    target.check_filled(..LEN, 0)?;
    target.check_filled(LEN.., 0x55)?;
    // No receive was left behind that would take this.
    a.recv(local.slice(..LEN), 3)?;
    b.send(target.slice(LEN..LEN + 50), 4)?;
    a.expect(Done::recv(3, 50))?;
    check_bytes!(local.to_vec(..50)?, [0x55; 50], "what it received");
    Ok(())
}

pub(super) fn local_ro_dest(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let fixed = a.buffer_with(64, Access::REMOTE_READ)?;
    fixed.put_pattern(.., rig.pattern(0))?;
    let writable = a.buffer(64)?;
    let target = b.patterned(64, rig.pattern(1))?;
    let before = target.bytes(..)?;
    // Alone, and behind one that may be written.
    for slices in [&[fixed.slice(..8)][..], &[writable.slice(..8), fixed.slice(..1)][..]] {
        for (what, posted) in
            [("a receive", a.recv(slices, 7)), ("a read", a.read(slices, target.at(0), 7))]
        {
            check_err!(posted, Error::InvalidArgument(_), "{what} into {slices:?}");
        }
    }
    for (what, posted) in [
        ("an old value", a.fetch_add(1u64, fixed.slice(..8), target.at(0), 7)),
        ("a compared value", a.compare_swap(0u64, 1, fixed.slice(..8), target.at(0), 7)),
    ] {
        check_err!(posted, Error::InvalidArgument(_), "{what} into a region without local write");
    }

    // Nothing of it was executed or is matched later, and what only reads the region is allowed.
    a.recv(&writable, 1)?;
    b.send(&target, 2)?;
    a.expect(Done::recv(1, 64))?;
    b.expect_ok(2)?;
    writable.check_pattern(.., rig.pattern(1))?;
    check_bytes!(target.bytes(..)?, before, "the target of atomics that were refused");
    a.run(Op::write(&fixed, target.at(0)), Done::ok(3))?;
    a.settle(&b)?;
    target.check_pattern(.., rig.pattern(0))?;
    fixed.check_pattern(.., rig.pattern(0))
}

pub(super) fn page_cross(rig: &Rig) -> Outcome {
    const LEN: usize = 24;
    let page = page_size();
    let (a, b) = rig.pair()?;
    let (near, far) = (a.buffer(3 * page)?, b.buffer(3 * page)?);
    let (mut near_model, mut far_model) = (vec![0; 3 * page], vec![0; 3 * page]);
    let mut rng = rig.rng();
    // Where the second page begins, counted from the start of the payload.
    let edge = |buffer: &Guarded| 2 * page - (buffer.region().addr() + GUARD) % page;
    let (near_edge, far_edge) = (edge(&near), edge(&far));
    for before in 0..=LEN {
        rng.pattern().fill(0, &mut near_model);
        rng.pattern().fill(0, &mut far_model);
        near.put(0, &near_model)?;
        far.put(0, &far_model)?;
        // So many bytes lie before the boundary there; here they cross it elsewhere, so that the two sides never
        // agree on how to cut.
        let here = near_edge - (before + 7) % (LEN + 1);
        let there = far_edge - before;
        for len in [LEN, 17, 16, 9, 8, 7, 2, 1] {
            // New bytes behind those that are written too, so that one too many shows.
            rng.pattern().fill(0, &mut near_model[here..here + LEN]);
            near.put(here, &near_model[here..here + LEN])?;
            a.run(Op::write(near.slice(here..here + len), far.at(there)), Done::ok(0))?;
            far_model[there..there + len].copy_from_slice(&near_model[here..here + len]);
        }
        // Into the page before, which the writes left alone.
        let (into, from) = (near_edge - page - before, far_edge - (before + 5) % (LEN + 1));
        a.run(Op::read(near.slice(into..into + LEN), far.at(from)), Done::ok(1))?;
        near_model[into..into + LEN].copy_from_slice(&far_model[from..from + LEN]);
        a.settle(&b)?;
        for (whose, buffer, model) in
            [("the initiator", &near, &near_model), ("the target", &far, &far_model)]
        {
            check_bytes!(buffer.bytes(..)?, model, "{whose}, {before} bytes before the boundary");
        }
    }
    Ok(())
}
