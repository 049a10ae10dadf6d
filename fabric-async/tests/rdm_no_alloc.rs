//! Operations of datagram endpoints allocate nothing, once they are warm: no thread of the process does, those of the node, the
//! provider and the endpoints included.

#![cfg(all(feature = "rdm", not(miri)))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::{allocates_nothing, check_counters};
use common::{exposed, node};
use fabric::{Op, Slice};
use fabric_async::rdm::Endpoint;
use fabric_async::{Node, WaitStrategy, block_on};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{OpId, PostError, RdmAttr, Recv, Send};
use futures_util::future::{join3, join5};

/// So many messages have room at a peer.
const PLACES: usize = 4;

// The only test of this program, as all threads are counted.
#[test]
fn operations() {
    check_counters();
    for wait in [WaitStrategy::Busy, WaitStrategy::Blocking, WaitStrategy::Adaptive] {
        let node = node(|b| b.wait(wait));
        block_on(kept(&node));
        let mut attr = RdmAttr::default();
        attr.window.places.window = PLACES as u64;
        attr.window.places.reserved = PLACES as u64;
        let (a, b) = (Endpoint::new(&node, &attr).unwrap(), Endpoint::new(&node, &attr).unwrap());
        let (to_b, to_a) = (a.insert(b.address()).unwrap(), b.insert(a.address()).unwrap());
        let to_a_itself = a.insert(a.address()).unwrap();
        attr.connection_depth = 8;
        let narrow = Endpoint::new(&node, &attr).unwrap();
        let from_narrow_to_b = narrow.insert(b.address()).unwrap();
        b.insert(narrow.address()).unwrap();
        let (_region, remote) = exposed(&node, 4096);
        let alloc = |len| node.pool().alloc(len).unwrap();
        block_on(async {
            // In one frame each, and in pieces.
            for len in [8, 4000, 20_000] {
                allocates_nothing(&format!("messages of {len} bytes"), 1000, async || {
                    let mut received = b.recv(Pattern::tagged(7).from(to_a), alloc(len));
                    received.posted().await;
                    drop(a.send(to_b, alloc(len)).tag(7).await.unwrap());
                    drop(received.await.unwrap());
                })
                .await;
            }
            // Of two endpoints in one task, one is not polled while the other one is waited for: the library's thread serves it
            // after some milliseconds. So there are fewer of the messages that wait for both.
            allocates_nothing("messages that end with their receive", 100, async || {
                let mut received = b.recv(Pattern::untagged(), alloc(100));
                received.posted().await;
                drop(a.send(to_b, alloc(100)).matched().await.unwrap());
                drop(received.await.unwrap());
            })
            .await;
            allocates_nothing("injected messages", 1000, async || {
                let mut received = b.recv(Pattern::untagged(), alloc(100));
                received.posted().await;
                a.inject(to_b, &[1; 64]).await.unwrap();
                drop(received.await.unwrap());
            })
            .await;
            allocates_nothing("injected messages that wait for room", 100, async || {
                let mut received: [_; 4 * PLACES] =
                    std::array::from_fn(|_| b.recv(Pattern::untagged(), alloc(100)));
                for recv in &mut received {
                    recv.posted().await;
                }
                for _ in 0..4 * PLACES {
                    a.inject(to_b, &[1; 64]).await.unwrap();
                }
                for recv in received {
                    drop(recv.await.unwrap());
                }
            })
            .await;
            allocates_nothing("writes and reads", 1000, async || {
                let buffer = a.write(to_b, alloc(64), remote.at(0)).await.unwrap();
                drop(a.read(to_b, buffer, remote.at(0)).await.unwrap());
            })
            .await;
            // The connection has room for four of them at a time.
            allocates_nothing("writes that wait for room in the connection", 300, async || {
                let write = || narrow.write(from_narrow_to_b, alloc(64), remote.at(0));
                let five = || join5(write(), write(), write(), write(), write());
                let (one, two, three) = join3(five(), five(), five()).await;
                for written in [one, two, three] {
                    drop(written.0.unwrap());
                }
            })
            .await;
            allocates_nothing("atomics", 1000, async || {
                a.fetch_add(to_b, remote.at(0), 1).await.unwrap();
            })
            .await;
            allocates_nothing("writes with notifications", 100, async || {
                drop(a.write_notify(to_b, alloc(64), remote.at(0), 7).await.unwrap());
                assert_eq!(b.notified().await.unwrap().immediate, 7);
            })
            .await;
            allocates_nothing("operations to oneself", 1000, async || {
                drop(a.write_notify(to_a_itself, alloc(64), remote.at(0), 7).await.unwrap());
                assert_eq!(a.notified().await.unwrap().immediate, 7);
                drop(a.read(to_a_itself, alloc(64), remote.at(0)).await.unwrap());
                a.fetch_add(to_a_itself, remote.at(0), 1).await.unwrap();
            })
            .await;
        });
    }
}

/// Operations of the endpoint below that are kept since the connection has no room for them: futures make progress between
/// posts, so of theirs hardly any is.
async fn kept(node: &Node) {
    const AT_ONCE: usize = 12;
    let mut attr = RdmAttr::default();
    attr.connection_depth = 8;
    let (a, b) = (endpoint(node, &attr), endpoint(node, &attr));
    let (to_b, _) = (a.insert(b.address()).unwrap(), b.insert(a.address()).unwrap());
    let to_itself = a.insert(a.address()).unwrap();
    let (region, remote) = exposed(node, 4096);
    let parts: [Slice<'_>; 4] = std::array::from_fn(|n| region.slice(16 * n..16 * n + 8));
    let long = vec![1; a.max_inject().unwrap()];
    assert!(long.len() > 64, "more than what waits has in itself");
    let write = Op::write(&parts, remote.at(1024));
    let injected = Op::inject_write(&long, remote.at(0));
    for (to, target) in [(to_b, &b), (to_itself, &a)] {
        for (what, write) in [("several slices", &write), ("injected bytes", &injected)] {
            allocates_nothing(&format!("kept writes of {what}"), 100, async || {
                (0..AT_ONCE).for_each(|_| post(a.post(to, write)));
                take(&[&a], AT_ONCE);
            })
            .await;
        }
        allocates_nothing("kept messages of injected bytes", 100, async || {
            let recv = Recv::new(Pattern::untagged(), region.slice(2048..));
            (0..AT_ONCE).for_each(|_| post(target.post_recv(&recv)));
            (0..AT_ONCE).for_each(|_| post(a.post_send(to, &Send::inject(&long))));
            take(&[&a, target], 2 * AT_ONCE);
        })
        .await;
    }
}

fn endpoint(node: &Node, attr: &RdmAttr) -> fabric_rdm::Endpoint {
    fabric_rdm::Endpoint::new(node.domain(), attr).unwrap()
}

fn post(posted: Result<OpId, PostError>) {
    posted.unwrap();
}

/// Takes so many completions.
fn take(endpoints: &[&fabric_rdm::Endpoint], count: usize) {
    let mut taken = 0;
    while taken < count {
        for endpoint in endpoints {
            let done = endpoint.poll_one().unwrap();
            assert!(done.is_none_or(|done| done.is_ok()), "{done:?}");
            taken += usize::from(done.is_some());
        }
    }
}
