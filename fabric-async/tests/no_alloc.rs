//! Operations allocate nothing, once they are warm: no thread of the process does, the node's and the provider's included.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use allocations::{allocates_nothing, check_counters};
use common::{exposed, node, pair};
use fabric::{Access, Capabilities};
#[cfg(feature = "tokio")]
use fabric_async::Stream;
use fabric_async::{WaitStrategy, block_on};
#[cfg(feature = "tokio")]
use tokio::io::{AsyncReadExt, AsyncWriteExt};

// The only test of this program, as all threads are counted.
#[test]
fn operations() {
    check_counters();
    for wait in [WaitStrategy::Busy, WaitStrategy::Blocking, WaitStrategy::Adaptive] {
        let node = node(|b| b.wait(wait));
        block_on(async {
            let (a, b) = pair(&node).await;
            let (region, remote) = exposed(&node, 4096);
            allocates_nothing("messages", 1000, async || {
                drop(a.send(a.alloc(100).unwrap()).await.unwrap());
                drop(b.recv().await.unwrap());
            })
            .await;
            allocates_nothing("writes and reads", 1000, async || {
                let buffer = a.write(a.alloc(64).unwrap(), remote.at(0)).await.unwrap();
                drop(a.read(buffer, remote.at(0)).await.unwrap());
            })
            .await;
            allocates_nothing("atomics", 1000, async || {
                a.fetch_add(remote.at(0), 1).await.unwrap();
            })
            .await;
            if node.domain().info().capabilities.contains(Capabilities::GRANTS) {
                let grant = b.grant(&region, 64..128, Access::REMOTE).await.unwrap();
                let part = grant.remote();
                allocates_nothing("a grant", 1000, async || {
                    let buffer = a.write(a.alloc(64).unwrap(), part.at(0)).await.unwrap();
                    drop(a.read(buffer, part.at(0)).await.unwrap());
                    a.fetch_add(part.at(0), 1).await.unwrap();
                })
                .await;
            }
            allocates_nothing("notifications", 1000, async || {
                drop(a.write_notify(a.alloc(8).unwrap(), remote.at(8), 7).await.unwrap());
                b.notified().await.unwrap();
            })
            .await;
            let mut parts = Some(vec![a.alloc(100).unwrap(), a.alloc(28).unwrap()]);
            allocates_nothing("several buffers at once", 1000, async || {
                let written = a.write(parts.take().unwrap(), remote.at(0)).await.unwrap();
                parts = Some(a.read(written, remote.at(0)).await.unwrap());
            })
            .await;
            let shared = a.alloc(64).unwrap().share();
            allocates_nothing("shared memory", 1000, async || {
                drop(a.write(shared.clone(), remote.at(0)).await.unwrap());
            })
            .await;
            // How many are under way at once depends on the moment, up to the burst: so the pool and the queues first grow to
            // more than the measured steps can ever need.
            let dropped = async |burst| {
                for _ in 0..burst {
                    let mut dropped = pin!(async {
                        drop(a.write(a.alloc(64).unwrap(), remote.at(0)).await);
                    });
                    poll_fn(|cx| {
                        let _ = dropped.as_mut().poll(cx);
                        Poll::Ready(())
                    })
                    .await;
                }
                // It ends after those before it.
                drop(a.write(a.alloc(64).unwrap(), remote.at(0)).await.unwrap());
            };
            for _ in 0..100 {
                let held: Vec<_> = (0..100).map(|_| a.alloc(64).unwrap()).collect();
                drop(held);
                dropped(64).await;
            }
            allocates_nothing("dropped futures", 1000, async || dropped(8).await).await;
            #[cfg(feature = "tokio")]
            {
                let (mut from, mut to) = (Stream::from(a), Stream::from(b));
                let mut bytes = [1; 5000];
                allocates_nothing("streams", 1000, async || {
                    from.write_all(&bytes).await.unwrap();
                    to.read_exact(&mut bytes).await.unwrap();
                })
                .await;
            }
        });
    }
}
