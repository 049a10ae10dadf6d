//! Descriptors: what travels to the peer.

use fabric::Region;

use super::accesses::write_and_read;
use crate::prelude::*;

pub(super) fn cross_domain(rig: &Rig) -> Outcome {
    let other = rig.extra_domain()?;
    let elsewhere = rig.buffer(&other, 64, Access::ALL)?;
    let own = rig.buffer(rig.domain_a(), 64, Access::ALL)?;
    // A third party's region, and one of the initiator's: neither is the target's.
    for (whose, foreign) in [("another domain's", &elsewhere), ("the initiator's", &own)] {
        foreign.put_pattern(.., rig.pattern(0))?;
        let local = rig.buffer(rig.domain_a(), 64, Access::LOCAL_WRITE)?;
        local.fill(0xee)?;
        for (what, op) in write_and_read(&local, foreign.at(0)) {
            let (a, b) = rig.pair()?;
            let bystander = b.buffer(64)?;
            let refused = a.run_refused(op, 1, &b);
            refused.map_err(|failed| failed.of(format_args!("{what} by a key of {whose}")))?;
            foreign.check_pattern(.., rig.pattern(0))?;
            local.check_filled(.., 0xee)?;
            bystander.check_filled(.., 0)?;
        }
    }
    // The key is good where it belongs.
    let (a, _c) = rig.pair_on(rig.domain_a(), &other)?;
    let local = a.buffer(64)?;
    a.run(Op::read(&local, elsewhere.at(0)), Done::ok(1))?;
    local.check_pattern(.., rig.pattern(0))
}

pub(super) fn desc_roundtrip(rig: &Rig) -> Outcome {
    const BYTES: usize = RemoteRegion::BYTES;
    let (a, b) = rig.pair()?;
    let rights = [
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
        Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        Access::REMOTE_READ,
    ];
    let (shipped, arrived) = (b.buffer(BYTES)?, a.buffer(BYTES)?);
    for (i, access) in rights.into_iter().enumerate() {
        let far = b.patterned(300, rig.pattern(i))?;
        let part = far.register(b.domain(), 100..200, access)?;
        shipped.put(0, &part.remote().to_bytes())?;
        a.recv(&arrived, 1)?;
        b.send(&shipped, 2)?;
        a.expect_ok(1)?;
        b.expect_ok(2)?;

        let remote = RemoteRegion::from_bytes(&arrived.bytes(..)?)?;
        check_eq!(remote, part.remote(), "the descriptor that arrived");
        check_eq!((remote.len(), remote.access()), (100, access & Access::REMOTE), "what it says");
        let local = a.buffer(100)?;
        if access.contains(Access::REMOTE_READ) {
            a.run(Op::read(&local, remote.at(0)), Done::ok(3))?;
            check_bytes!(local.bytes(..)?, far.bytes(100..200)?, "bytes read through it");
        }
        if access.contains(Access::REMOTE_WRITE) {
            local.put_pattern(.., rig.pattern(100 + i))?;
            a.run(Op::write(&local, remote.at(0)), Done::ok(4))?;
            a.settle(&b)?;
            far.check_pattern(100..200, rig.pattern(100 + i))?;
        }
        let around = rig.pattern(i).bytes(300);
        check_bytes!(far.bytes(..100)?, around[..100], "bytes before the region");
        check_bytes!(far.bytes(200..)?, around[200..], "bytes behind the region");
    }
    Ok(())
}

pub(super) fn desc_corrupt(rig: &Rig) -> Outcome {
    let regions: Vec<Region> = [Access::ALL, Access::REMOTE_READ, Access::empty()]
        .into_iter()
        .map(|access| rig.domain_a().alloc(4096, access))
        .collect::<Result<_, _>>()?;
    for region in &regions {
        let good = region.remote().to_bytes();
        check_eq!(RemoteRegion::from_bytes(&good)?, region.remote(), "the intact descriptor");
        for bit in 0..8 * good.len() {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let parsed = RemoteRegion::from_bytes(&bytes);
            check_err!(parsed, Error::InvalidArgument(_), "a descriptor with bit {bit} flipped");
        }
        for len in 0..good.len() {
            let parsed = RemoteRegion::from_bytes(&good[..len]);
            check_err!(parsed, Error::InvalidArgument(_), "the first {len} bytes of a descriptor");
        }
        let longer = [&good[..], &[0]].concat();
        let parsed = RemoteRegion::from_bytes(&longer);
        check_err!(parsed, Error::InvalidArgument(_), "a descriptor with a byte more");
    }
    let parsed = RemoteRegion::from_bytes(&[0; RemoteRegion::BYTES]);
    check_err!(parsed, Error::InvalidArgument(_), "zeroes instead of a descriptor");
    Ok(())
}
