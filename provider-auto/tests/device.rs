//! Shared memory joined with an RDMA device; only with `FABRIC_TEST_DEVICE=1` (scripts/device-tests).

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use fabric::{Access, Capabilities, Catalog, Choice, Hints, Status};
use side::{SOON, Side, way};

#[test]
fn peers_of_both_ways_meet_in_one_region() {
    if std::env::var_os("FABRIC_TEST_DEVICE").is_none() {
        println!("not run: FABRIC_TEST_DEVICE is not set");
        return;
    }
    // Without atomics: those of the device and those of the processor are none of each other's.
    let capabilities = Capabilities::SEND | Capabilities::RMA;
    let hints = Hints { capabilities, ..Hints::default() };
    let catalog = Catalog::builtin();
    let found = catalog.discover_with(&Choice::only("verbs"), &hints).unwrap();
    let info = found.into_iter().find_map(|found| found.usable.ok()).unwrap();
    let ip = *info.addresses.iter().find(|ip| ip.is_ipv4()).unwrap();
    let open = |provider: &str| Side::of(&catalog, provider, &hints);
    let all = open(&format!("auto:{}", info.device));
    assert_eq!(all.domain.provider(), "auto");
    let listener = all.domain.listen((ip, 0).into()).unwrap();
    // Where peers may do nothing, a device has one key for all.
    for access in [Access::empty(), Access::LOCAL_WRITE, Access::LOCAL_WRITE] {
        all.domain.alloc(64, access).unwrap().close().unwrap();
    }
    let _local = [0, 1].map(|_| all.domain.alloc(64, Access::LOCAL_WRITE).unwrap());
    let peers = [("shm", "shm"), ("verbs", "verbs"), ("auto", "shm")].map(|(provider, by)| {
        let peer = open(provider);
        let (end, own) = peer.connect(&all, &listener);
        assert_eq!((way(&end), way(&own)), (by, by));
        (peer, end, own)
    });
    for (at, (peer, end, own)) in peers.iter().enumerate() {
        peer.region.put(0, &(7 + at as u64)).unwrap();
        end.write(peer.region.slice(..8), all.region.remote().at(8 * at as u64), 1).unwrap();
        assert_eq!(peer.done(), 1);
        peer.settle(end, &all, own);
        assert_eq!(all.region.get::<u64>(8 * at).unwrap(), 7 + at as u64);
        own.read(all.region.slice(64..72), peer.region.remote().at(0), 2).unwrap();
        assert_eq!(all.done(), 2);
        assert_eq!(all.region.get::<u64>(64).unwrap(), 7 + at as u64);
    }
    all.region.close().unwrap();
    for (peer, end, _) in &peers {
        end.write(peer.region.slice(..8), all.region.remote().at(0), 3).unwrap();
        assert_eq!(peer.queue.wait_one(Some(SOON)).unwrap().status, Status::RemoteAccess);
    }
}
