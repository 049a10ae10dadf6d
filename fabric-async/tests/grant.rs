//! Grants over connections: own part, own connection, and nothing once they have ended.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use common::{between, eventually, node, pair};
use fabric::{Access, Capabilities, Region, RemoteRegion};
use fabric_async::{Buffer, Connection, Error, Node, block_on};
use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

const RIGHTS: Access = Access::REMOTE;

/// Memory of a node whose device has grants.
fn memory(node: &Node, len: usize) -> Option<Region> {
    let domain = node.domain();
    let has_grants = domain.info().capabilities.contains(Capabilities::GRANTS);
    has_grants.then(|| domain.alloc(len, Access::ALL).unwrap())
}

fn filled(conn: &Connection, len: usize, byte: u8) -> Buffer {
    let mut buffer = conn.alloc(len).unwrap();
    buffer.fill(byte);
    buffer
}

/// The same key, for a range that is as much longer on both sides, with all rights.
fn wider(part: &RemoteRegion, by: u64) -> RemoteRegion {
    let (key, base) = (part.key(), part.base() - if part.base() >= by { by } else { 0 });
    RemoteRegion::from_parts(key, base, part.len() + 2 * by, Access::REMOTE)
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T, fabric_async::OpError<Buffer>>) {
    let failed = result.unwrap_err();
    assert!(matches!(failed.error, Error::RemoteAccess), "{failed:?}");
}

#[test]
fn a_part_with_its_rights_alone() {
    let (user, owner) = (node(|b| b), node(|b| b));
    let Some(region) = memory(&owner, 4096) else { return };
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let grant = b.grant(&region, 1024..2048, RIGHTS).await.unwrap();
        let part = grant.remote();
        assert_eq!((part.len(), part.access(), grant.endpoint()), (1024, RIGHTS, b.id()));
        a.write(filled(&a, 1024, 7), part.at(0)).delivered().await.unwrap();
        assert_eq!(*a.read(filled(&a, 1024, 0), part.at(0)).await.unwrap(), [7; 1024]);
        assert_eq!(a.fetch_add(part.at(8), 0).await.unwrap(), u64::from_ne_bytes([7; 8]));
        let (before, behind) = (region.to_vec(..1024).unwrap(), region.to_vec(2048..).unwrap());
        assert!(before.iter().chain(&behind).all(|byte| *byte == 0));
        is_refused(a.write(filled(&a, 8, 9), wider(&part, 8).at(part.len() + 8)).await);

        let (a, b) = between(&user, &owner).await;
        let grant = b.grant(&region, 1024..2048, Access::REMOTE_READ).await.unwrap();
        let failed = a.write(filled(&a, 8, 9), grant.remote().at(0)).await.unwrap_err();
        assert!(matches!(failed.error, Error::Fabric(fabric::Error::InvalidArgument(_))));
        is_refused(a.write(filled(&a, 8, 9), wider(&grant.remote(), 0).at(0)).await);
        assert_eq!(region.to_vec(1024..2048).unwrap(), [7; 1024]);
    });
}

#[test]
fn its_own_connection_alone() {
    let (user, owner) = (node(|b| b), node(|b| b));
    let Some(region) = memory(&owner, 4096) else { return };
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let grant = b.grant(&region, .., RIGHTS).await.unwrap();
        // Another connection of the same two nodes, and one of another node.
        for node in [&user, &owner] {
            let (other, _other_end) = between(node, &owner).await;
            is_refused(other.write(filled(&other, 8, 9), grant.remote().at(0)).await);
        }
        a.write(filled(&a, 8, 7), grant.remote().at(0)).delivered().await.unwrap();
        assert_eq!(region.to_vec(..16).unwrap(), [[7; 8], [0; 8]].concat());
    });
}

#[test]
fn many_at_once() {
    const COUNT: usize = 16;
    let (user, owner) = (node(|b| b), node(|b| b));
    let Some(region) = memory(&owner, 64 * COUNT) else { return };
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        // Where a device opens one after the other, each waits its turn; those that are given up do not hold up others.
        let part = |i: usize| 64 * i..64 * (i + 1);
        drop(join_all((0..COUNT).map(|i| b.grant(&region, part(i), RIGHTS))).now_or_never());
        let grants = join_all((0..COUNT).map(|i| b.grant(&region, part(i), RIGHTS))).await;
        let mut grants: Vec<_> = grants.into_iter().map(Result::unwrap).collect();
        for (i, grant) in grants.iter().enumerate() {
            let byte = i as u8 + 1;
            a.write(filled(&a, 64, byte), grant.remote().at(0)).delivered().await.unwrap();
            assert_eq!(region.to_vec(part(i)).unwrap(), [byte; 64]);
        }
        grants.sort_by_key(|grant| grant.remote().key());
        grants.dedup_by_key(|grant| grant.remote().key());
        assert_eq!(grants.len(), COUNT);
        drop(grants);
        eventually("the region closes", || region.close().is_ok());
    });
}

#[test]
fn revoked_it_is_refused() {
    let (user, owner) = (node(|b| b), node(|b| b));
    let Some(region) = memory(&owner, 4096) else { return };
    block_on(async {
        for by_drop in [false, true] {
            let (a, b) = between(&user, &owner).await;
            let grant = b.grant(&region, ..64, RIGHTS).await.unwrap();
            let other = b.grant(&region, 64..128, RIGHTS).await.unwrap();
            let stale = grant.remote();
            a.write(filled(&a, 64, 1), stale.at(0)).delivered().await.unwrap();
            let kept = (!by_drop).then_some(grant);
            kept.iter().for_each(|grant| grant.revoke().unwrap());
            a.write(filled(&a, 64, 2), other.remote().at(0)).delivered().await.unwrap();
            is_refused(a.write(filled(&a, 64, 3), stale.at(0)).await);
            assert_eq!(region.to_vec(..128).unwrap(), [[1; 64], [2; 64]].concat());
        }
    });
}

#[test]
fn dropped_while_the_peer_writes() {
    const LEN: usize = 64 << 10;
    let (user, owner) = (node(|b| b), node(|b| b));
    let Some(region) = memory(&owner, LEN) else { return };
    for round in 0..20 {
        let (a, b) = block_on(between(&user, &owner));
        let grant = block_on(b.grant(&region, .., Access::REMOTE_WRITE)).unwrap();
        let part = grant.remote();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                block_on(async {
                    let mut writes: FuturesUnordered<_> =
                        (1..=8).map(|byte| a.write(filled(&a, LEN, byte), part.at(0))).collect();
                    loop {
                        match writes.next().await.unwrap() {
                            Ok(buffer) => writes.push(a.write(buffer, part.at(0))),
                            Err(failed) => break failed.error,
                        }
                    }
                })
            });
            eventually("the peer writes", || region.get::<u8>(LEN - 1).unwrap() != 0);
            std::thread::sleep(std::time::Duration::from_micros(50 * round));
            drop(grant);
            // From here on no byte changes.
            let then = region.to_vec(..).unwrap();
            let ended = writing.join().unwrap();
            let fits =
                matches!(ended, Error::RemoteAccess | Error::Failed(_) | Error::Disconnected(_));
            assert!(fits, "{ended}");
            assert!(region.to_vec(..).unwrap() == then, "bytes changed behind the end of a grant");
        });
        region.fill(0).unwrap();
    }
}

#[test]
fn it_ends_with_its_region_and_its_connection() {
    let (user, owner) = (node(|b| b), node(|b| b));
    let Some(region) = memory(&owner, 4096) else { return };
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let grant = b.grant(&region, .., RIGHTS).await.unwrap();
        b.close();
        a.closed().await;
        let gone = b.grant(&region, .., RIGHTS).await;
        assert!(matches!(gone, Err(Error::Disconnected(_))), "{gone:?}");
        grant.revoke().unwrap();
        let (a, b) = between(&user, &owner).await;
        let granted = b.grant(&region, .., RIGHTS).await.unwrap();
        region.close().unwrap();
        is_refused(a.write(filled(&a, 8, 9), granted.remote().at(0)).await);
        let closed = b.grant(&region, .., RIGHTS).await;
        assert!(matches!(closed, Err(Error::Disconnected(_) | Error::Fabric(_))), "{closed:?}");
    });
}

#[test]
fn mistakes_are_the_fabrics() {
    let (one, other) = (node(|b| b), node(|b| b));
    let Some(region) = memory(&one, 64) else { return };
    block_on(async {
        let (a, _b) = pair(&one).await;
        let mistake =
            |result| matches!(result, Err(Error::Fabric(fabric::Error::InvalidArgument(_))));
        assert!(mistake(a.grant(&region, 8..8, RIGHTS).await.map(drop)));
        assert!(mistake(a.grant(&region, ..65, RIGHTS).await.map(drop)));
        assert!(mistake(a.grant(&region, .., Access::LOCAL_WRITE).await.map(drop)));
        let (c, _d) = pair(&other).await;
        assert!(mistake(c.grant(&region, .., RIGHTS).await.map(drop)));
        // A future that is never polled, or dropped at once, leaves nothing.
        drop(a.grant(&region, .., RIGHTS));
        drop(a.grant(&region, .., RIGHTS).now_or_never());
        region.close().unwrap();
    });
}
