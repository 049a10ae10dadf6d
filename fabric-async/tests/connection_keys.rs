//! Leases by keys that one connection has: no other reaches what is lent, unless the lease is passed on.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::time::Duration;

use common::{between, eventually, node};
use fabric::{Access, Capabilities};
use fabric_async::{Buffer, Connection, Error, LeaseEnd, Node, OpError, RemoteTarget, block_on};
use futures_util::FutureExt;
use futures_util::future::{join_all, join3};

const LONG: Duration = Duration::from_secs(600);

/// A node whose leases open to their connection alone, where the device can.
fn owner() -> Option<Node> {
    let info = Node::shared().unwrap().domain().info().clone();
    let built = Node::builder().connection_keys(true).build();
    if info.capabilities.contains(Capabilities::GRANTS) {
        return Some(built.unwrap());
    }
    let text = built.unwrap_err().to_string();
    assert!(text.contains("connection_keys") && text.contains(&info.device), "{text}");
    None
}

fn filled(conn: &Connection, len: usize, byte: u8) -> Buffer {
    let mut buffer = conn.alloc(len).unwrap();
    buffer.fill(byte);
    buffer
}

#[track_caller]
fn is_refused(result: Result<Buffer, OpError<Buffer>>) {
    let failed = result.unwrap_err();
    assert!(matches!(failed.error, Error::RemoteAccess), "{failed:?}");
}

#[test]
fn a_lease_opens_to_its_connection_alone() {
    let Some(owner) = owner() else { return };
    let user = node(|b| b);
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let asked = a.request_lease(64, LONG).await.unwrap();
        let lent = b.lend(filled(&b, 64, 4), LONG, Access::REMOTE).unwrap();
        let unasked = a.next_lease().await.unwrap();
        a.write(filled(&a, 8, 1), asked.at(56)).delivered().await.unwrap();
        assert_eq!(*a.read(a.alloc(8).unwrap(), unasked.at(0)).await.unwrap(), [4; 8]);
        for lease in [&asked, &unasked] {
            // Over the same two nodes, and with a descriptor that claims more.
            let (thief, _end) = between(&user, &owner).await;
            is_refused(thief.read(thief.alloc(8).unwrap(), lease.at(0)).await);
            let (thief, _end) = between(&user, &owner).await;
            let known: RemoteTarget = lease.descriptor().at(0).into();
            is_refused(thief.write(filled(&thief, 8, 9), known).await);
        }
        assert_eq!(*lent.take().unwrap(), [4; 64]);
        assert_eq!(b.local_lease(asked.id()).unwrap().get::<[u8; 8]>(56).unwrap(), [1; 8]);
        eventually("the holder is notified", || unasked.end() == Some(LeaseEnd::Revoked));
        is_refused(a.read(a.alloc(8).unwrap(), unasked.descriptor().at(0)).await);
    });
}

#[test]
fn one_that_is_passed_on_opens_to_all_until_it_ends() {
    let Some(owner) = owner() else { return };
    let (user, third) = (node(|b| b), node(|b| b));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let (to_third, c) = between(&user, &third).await;
        let (third_to_owner, _d) = between(&third, &owner).await;
        let remote = a.request_lease(64, LONG).await.unwrap();
        remote.pass_on(&to_third).await.unwrap();
        remote.pass_on(&to_third).await.unwrap();
        let (first, again) = (c.next_lease().await.unwrap(), c.next_lease().await.unwrap());
        assert_eq!(first.descriptor(), again.descriptor());
        assert_ne!(first.descriptor().key(), remote.descriptor().key());
        third_to_owner.write(filled(&third_to_owner, 64, 5), first.at(0)).await.unwrap();
        assert_eq!(*a.read(a.alloc(64).unwrap(), remote.at(0)).await.unwrap(), [5; 64]);
        // The third peer passes it on by itself.
        first.pass_on(&third_to_owner).await.unwrap();
        let lent = b.local_lease(remote.id()).unwrap();
        assert_eq!(*lent.take().unwrap(), [5; 64]);
        let known = first.descriptor().at(0);
        is_refused(third_to_owner.read(third_to_owner.alloc(8).unwrap(), known).await);
        let gone = remote.pass_on(&to_third).await;
        assert!(matches!(gone, Err(Error::LeaseEnded(_) | Error::NotGranted(_))), "{gone:?}");
    });
}

/// Where the device opens grants in the order of what was posted, a lease waits for a send that waits for a receive.
#[test]
fn a_lease_comes_behind_what_was_posted_before_it() {
    let Some(owner) = owner() else { return };
    let user = node(|b| b.receives(1).notifications(1));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        // More than the one receive that is posted there.
        let send = join_all((0..4).map(|i| b.send(filled(&b, 8, i))));
        let ask = async { a.request_lease(64, LONG).await.unwrap() };
        let take = async {
            for i in 0..4 {
                assert_eq!(*a.recv().await.unwrap(), [i; 8]);
            }
        };
        let (sent, lease, ()) = join3(send, ask, take).await;
        assert!(sent.iter().all(Result::is_ok));
        a.write(filled(&a, 8, 1), lease.at(0)).await.unwrap();
    });
}

/// The connection ends while leases wait to be opened: their memory comes back.
#[test]
fn a_lease_that_was_never_open_ends_with_its_connection() {
    let Some(owner) = owner() else { return };
    let user = node(|b| b.receives(1).notifications(1));
    block_on(async {
        for dropped_first in [false, true] {
            let (a, b) = between(&user, &owner).await;
            let mut sends: Vec<_> = (0..4).map(|i| b.send(filled(&b, 8, i)).boxed()).collect();
            sends.iter_mut().for_each(|send| drop(send.as_mut().now_or_never()));
            let lend = || b.lend(filled(&b, 64, 1), LONG, Access::REMOTE).unwrap();
            let leases: Vec<_> = (0..8).map(|_| lend()).collect();
            let asked = a.request_lease(64, LONG).now_or_never();
            drop((asked, sends));
            if dropped_first {
                drop((leases, a, b));
            } else {
                drop((a, b, leases));
            }
            eventually("no block is in use", || owner.pool().metrics().in_use == 0);
        }
        assert_eq!(owner.pool().metrics().leaks, 0);
    });
}
