//! Regions whose bytes peers name by the addresses that they have in the target's process.

use fabric::RemoteSlice;

use super::accesses::write_and_read;
use crate::prelude::*;

const LEN: usize = 4099;
/// Where a second region begins in the first one.
const PART: usize = 1000;
/// In the middle of a page, and no multiple of 8.
const START: usize = 3;
const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// A place as protocols name it that ship an address and a key; what the region's descriptor says is not known.
fn place(key: u64, address: u64) -> RemoteSlice {
    RemoteRegion::from_parts(key, 0, u64::MAX, Access::REMOTE).at(address)
}

pub(super) fn virtual_addresses(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let far = b.patterned(LEN + 8, rig.pattern(0))?;
    let access = RIGHTS | Access::VIRTUAL_ADDRESSES;
    let region = far.register(b.domain(), START..START + LEN, access)?;
    // The target may be another process: what its addresses are, the descriptor alone says.
    let (start, key) = (region.remote().base(), region.remote().key());
    let later = far.register(b.domain(), START + PART..START + LEN, access)?;
    check_eq!(
        later.remote().base(),
        start + PART as u64,
        "a later byte's address in another descriptor"
    );
    check_eq!(
        (region.access(), region.remote().access()),
        (access, RIGHTS & Access::REMOTE),
        "rights"
    );

    // The ends, and a part that starts anywhere.
    for (offset, len) in [(0, LEN), (0, 1), (LEN - 1, 1), (1001, 2000)] {
        let local = a.buffer(len)?;
        let (to, part) = (place(key, start + offset as u64), START + offset..START + offset + len);
        let mut expected = far.bytes(..)?;
        a.run(Op::read(&local, to), Done::ok(1))?;
        check_bytes!(local.bytes(..)?, expected[part.clone()], "bytes read by their address");
        rig.pattern(len).fill(0, &mut expected[part.clone()]);
        local.put(0, &expected[part])?;
        a.run(Op::write(&local, to), Done::ok(2))?;
        a.settle(&b)?;
        check_bytes!(far.bytes(..)?, expected, "the target after a write by an address");
    }

    far.put_pattern(.., rig.pattern(0))?;
    let end = start + LEN as u64;
    // Beside the region to the byte, counted from its start, and around the end of the address space.
    for address in [start - 1, end - 7, end, 0, 8, u64::MAX - 7] {
        let local = rig.buffer(rig.domain_a(), 8, Access::LOCAL_WRITE)?;
        local.fill(0xee)?;
        let outside = RemoteRegion::from_parts(key, address, 8, Access::REMOTE).at(0);
        for (what, op) in write_and_read(&local, outside) {
            let (a, b) = rig.pair()?;
            let refused = a.run_refused(op, 3, &b);
            refused.map_err(|failed| failed.of(format_args!("{what} at {address:#x}")))?;
            far.check_pattern(.., rig.pattern(0))?;
            local.check_filled(.., 0xee)?;
        }
    }
    Ok(())
}
