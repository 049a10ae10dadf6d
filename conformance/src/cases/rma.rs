//! One-sided writes and reads.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[Case::new(
    Group::Rma,
    "write_sizes",
    Needs::SEND_RMA,
    "writes of 1 B to 64 MiB, or the maximum, arrive exactly and touch nothing else",
    write_sizes,
)];

/// The largest transfer of a run that is no soak.
const LARGE: u64 = 64 << 20;

/// Powers of two and their neighbours, where thresholds of protocols lie, from 1 to `most`.
fn sizes(most: u64) -> Vec<usize> {
    let around = |shift: u32| [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1];
    let mut sizes: Vec<u64> =
        (0..=26).flat_map(around).filter(|size| (1..most).contains(size)).collect();
    sizes.push(most);
    sizes.dedup();
    sizes.into_iter().map(|size| size as usize).collect()
}

fn write_sizes(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    for (i, len) in sizes(rig.info().limits.message.min(LARGE)).into_iter().enumerate() {
        // Buffers of just this length, so that the guards begin at the very next byte.
        let source = a.buffer(len)?;
        let target = b.buffer(len)?;
        source.put_pattern(.., rig.pattern(i))?;
        a.write(&source, target.at(0), i as u64)?;
        let done = a.expect_ok(i as u64)?;
        check_eq!(done.kind, OpKind::Write, "kind of the write of {len} bytes");
        check_eq!(done.len, len, "length of the write of {len} bytes");
        // `Ok` says that the peer accepted the bytes; its CPU sees them by the next receive.
        a.settle(&b)?;
        target.check_pattern(.., rig.pattern(i))?;
        target.check_guards()?;
    }
    Ok(())
}
