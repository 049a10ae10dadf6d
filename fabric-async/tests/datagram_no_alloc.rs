//! Operations of unreliable datagram endpoints allocate nothing, once they are warm: no thread of the process does, the node's and
//! the provider's included.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "common/allocations.rs"]
mod allocations;

use std::sync::atomic::{AtomicU32, Ordering};

use allocations::{allocates_nothing, check_counters};
use fabric::{Capabilities, Hints};
use fabric_async::datagram::{DatagramAttr, DatagramEndpoint};
use fabric_async::{Node, WaitStrategy, block_on};
use futures_util::future::join5;

// The only test of this program, as all threads are counted.
#[test]
fn operations() {
    check_counters();
    for wait in [WaitStrategy::Busy, WaitStrategy::Blocking, WaitStrategy::Adaptive] {
        let hints = Hints { capabilities: Capabilities::DATAGRAMS, ..Hints::default() };
        let node = Node::builder().hints(hints).wait(wait).build().unwrap();
        let mut attr = DatagramAttr::default();
        attr.send_depth = 4;
        let a = DatagramEndpoint::new(&node, &attr).unwrap();
        let b = DatagramEndpoint::new(&node, &attr).unwrap();
        let alloc = |len| node.pool().alloc(len).unwrap();
        block_on(async {
            let to_b = a.resolve(&b.address()).await.unwrap();
            let sent = AtomicU32::new(0);
            // On one host, with a receive for each, none is lost.
            let take = async |count: u32| {
                for _ in 0..count {
                    let came = b.recv_from().await.unwrap();
                    assert_eq!(came.immediate, Some(sent.fetch_add(1, Ordering::Relaxed)));
                }
            };
            let next = |ahead: u32| sent.load(Ordering::Relaxed) + ahead;
            allocates_nothing("datagrams", 1000, async || {
                drop(a.send_to(&to_b, alloc(100)).immediate(next(0)).await.unwrap());
                take(1).await;
            })
            .await;
            let mut parts = Some((0..4).map(|_| alloc(50)).collect::<Vec<_>>());
            allocates_nothing("datagrams of several buffers", 1000, async || {
                let send = a.send_to(&to_b, parts.take().unwrap()).immediate(next(0));
                parts = Some(send.await.unwrap());
                take(1).await;
            })
            .await;
            allocates_nothing("injected datagrams", 1000, async || {
                a.inject_to(&to_b, &[1; 64]).immediate(next(0)).await.unwrap();
                take(1).await;
            })
            .await;
            allocates_nothing("datagrams that wait for room", 300, async || {
                let one = |ahead| a.send_to(&to_b, alloc(64)).immediate(next(ahead));
                let five = |at| join5(one(at), one(at + 1), one(at + 2), one(at + 3), one(at + 4));
                let (first, second) = futures_util::future::join(five(0), five(5)).await;
                drop((first.0.unwrap(), second.4.unwrap()));
                take(10).await;
            })
            .await;
        });
    }
}
