//! Numbers and times as large as they can be: an error, or all there is, and no overflow.

#![cfg(not(miri))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::time::Duration;

use common::{between, node, pair};
use fabric::Access;
use fabric_async::{Error, LeasePolicy, Node, NodeBuilder, block_on};

const MAX: usize = usize::MAX;

/// Every setting, as large as it can be: refused when the node is made, or taken, and then two ends can be connected.
#[test]
fn settings() {
    type Set = fn(NodeBuilder) -> NodeBuilder;
    let all: [(&str, Set); 15] = [
        ("pool_bytes", |b| b.pool_bytes(MAX)),
        ("pool_keep", |b| b.pool_keep(MAX)),
        ("completions", |b| b.completions(MAX)),
        ("send_depth", |b| b.send_depth(MAX)),
        ("segments", |b| b.segments(MAX)),
        ("receives", |b| b.receives(MAX)),
        ("receives and notifications", |b| b.receives(MAX).notifications(MAX)),
        ("max_message", |b| b.max_message(MAX)),
        ("notifications", |b| b.notifications(MAX)),
        ("connect_timeout", |b| b.connect_timeout(Duration::MAX)),
        ("liveness", |b| b.liveness(Some(Duration::MAX))),
        ("stall", |b| b.stall(Some(Duration::MAX))),
        ("backlog", |b| b.backlog(MAX)),
        ("lend", |b| {
            let mut policy = LeasePolicy::default();
            (policy.max_bytes, policy.max_total_bytes, policy.max_leases) =
                (u64::MAX, Some(u64::MAX), MAX);
            policy.max_duration = Duration::MAX;
            b.lend(policy)
        }),
        ("nothing", |b| b),
    ];
    for (name, set) in all {
        match set(Node::builder()).build() {
            Ok(node) => drop(block_on(pair(&node))),
            Err(Error::Fabric(fabric::Error::InvalidArgument(_))) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn memory() {
    for bytes in [MAX, 1 << 20] {
        let node = node(|b| b.pool_bytes(bytes));
        let pool = node.pool();
        for shift in 0..20 {
            let len = MAX >> shift;
            assert!(pool.alloc(len).is_err(), "{len}");
            assert!(pool.alloc_dirty(len).is_err(), "{len}");
            assert!(block_on(pool.alloc_wait(len)).is_err(), "{len}");
        }
        let mut buffer = pool.alloc(10).unwrap();
        assert!(buffer.resize(MAX).is_err());
        buffer.truncate(MAX);
        assert_eq!(buffer.len(), 10);
        assert_eq!(pool.metrics().in_use, 1);
    }
}

#[test]
fn operations_and_leases() {
    let far = node(|b| {
        let mut policy = LeasePolicy::default();
        (policy.max_bytes, policy.max_total_bytes, policy.max_leases) =
            (u64::MAX, Some(u64::MAX), MAX);
        policy.max_duration = Duration::MAX;
        b.lend(policy).pool_bytes(MAX)
    });
    let near = node(|b| b);
    block_on(async {
        let (a, b) = between(&near, &far).await;
        for len in [MAX, MAX - 1, MAX / 2, MAX / 4, MAX / 8] {
            assert!(a.request_lease(len, Duration::MAX).await.is_err(), "{len}");
        }
        let remote = a.request_lease(64, Duration::MAX).await.unwrap();
        remote.renew(Duration::MAX).await.unwrap();
        assert!(remote.time_left() > Duration::from_secs(86_400));
        for at in [u64::MAX, u64::MAX - 7, u64::MAX / 2, 65] {
            assert!(a.write(a.alloc(8).unwrap(), remote.at(at)).await.is_err());
            assert!(a.read(a.alloc(8).unwrap(), remote.at(at)).await.is_err());
            assert!(a.fetch_add(remote.at(at), 1).await.is_err());
        }
        let lent = b.local_lease(remote.id()).unwrap();
        for at in [MAX, MAX - 7, 64] {
            assert!(lent.get::<u64>(at).is_err() && lent.put(at, &7u64).is_err());
        }
        let lent = a.lend(a.alloc(64).unwrap(), Duration::MAX, Access::REMOTE).unwrap();
        assert!(lent.is_active());
        lent.take().unwrap();
        for (from, to) in [(MAX, MAX), (0, MAX), (MAX - 1, MAX), (5, MAX)] {
            let failed = a.send(a.alloc(8).unwrap().slice(from..to)).await.unwrap_err();
            assert_eq!(failed.buffer.len(), 8);
        }
        assert!(a.send(a.alloc(8).unwrap().slice(..=MAX)).await.is_err());
        assert!(a.send(a.alloc(8).unwrap().slice(MAX..)).await.is_err());
        a.shutdown(Duration::MAX).await.unwrap();
    });
}
