//! What a peer must not do, and what becomes of the connection when it tries.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[Case::new(
    Group::Protection,
    "prefix_ok",
    Needs::RMA,
    "5 good writes, 1 refused, 5 good: 5 Ok, RemoteAccess, 5 Canceled that never happen",
    prefix_ok,
)
.trap()];

fn prefix_ok(rig: &Rig) -> Outcome {
    const EACH: usize = 512;
    const BAD: usize = 5;
    const WRITES: usize = 11;
    let (a, b) = rig.pair()?;
    let source = a.buffer(WRITES * EACH)?;
    let target = b.buffer(WRITES * EACH)?;
    source.put_pattern(.., rig.pattern(0))?;
    let slot = |i: usize| i * EACH..(i + 1) * EACH;

    // The descriptor lies about its key, so that only the target can refuse.
    let honest = target.region().remote();
    let lie = forged_key(&honest, !honest.key());
    let writes: Vec<_> = (0..WRITES)
        .map(|i| {
            let to = target.at(i * EACH);
            let to = if i == BAD { lie.at(to.offset()) } else { to };
            Op::write(source.slice(slot(i)), to).context(i as u64)
        })
        .collect();
    // In one batch: one by one, the last of them could be refused by the call already.
    a.post_batch(&writes)?;

    for i in 0..BAD {
        a.expect_ok(i as u64)?;
    }
    a.expect(BAD as u64, Status::RemoteAccess)?;
    for i in BAD + 1..WRITES {
        a.expect(i as u64, Status::Canceled)?;
    }
    check_eq!(a.state(), EndpointState::Dead, "state of the initiator");
    b.expect_disconnected()?;
    check_eq!(b.state(), EndpointState::Dead, "state of the target");

    // No receive tells the target's CPU that the good ones are there.
    rig.eventually(|| {
        target.bytes(..BAD * EACH).and_then(|seen| {
            check_bytes!(
                seen,
                rig.pattern(0).bytes(BAD * EACH),
                "the writes before the refused one"
            );
            Ok(())
        })
    })?;
    target.check_filled(BAD * EACH.., 0)?;
    target.check_guards()
}
