//! What operations do, each once, by every way of waiting and on every kind of executor.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::time::Duration;

use common::{eventually, exposed, node, pair};
use fabric::DisconnectReason;
use fabric_async::{Buffer, Connection, Error, Node, WaitStrategy, block_on};
use futures_util::future::join;

/// Runs a test by every executor and every way of waiting.
fn everywhere<F: Future<Output = ()>>(test: impl Fn(Node) -> F) {
    for wait in [WaitStrategy::Adaptive, WaitStrategy::Blocking, WaitStrategy::Busy] {
        let make = || node(|b| b.wait(wait).pool_bytes(64 << 20));
        block_on(test(make()));
        let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        current.block_on(test(make()));
        let multi = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        multi.block_on(test(make()));
    }
}

fn filled(conn: &Connection, bytes: &[u8]) -> Buffer {
    conn.node().pool().alloc_from(bytes).unwrap()
}

#[test]
fn messages_arrive_in_order_and_whole() {
    everywhere(async |node| {
        let (a, b) = pair(&node).await;
        let send = async {
            for round in 0..100u32 {
                let len = (round * 97 % 4000) as usize;
                let message = filled(&a, &vec![round as u8; len]);
                let back = a.send_with(message, round).await.unwrap();
                assert_eq!(back.len(), len);
            }
        };
        let receive = async {
            for round in 0..100u32 {
                let message = b.recv().await.unwrap();
                assert_eq!(message.immediate, Some(round));
                assert_eq!(message.len(), (round * 97 % 4000) as usize);
                assert!(message.iter().all(|byte| *byte == round as u8));
            }
        };
        join(send, receive).await;
    });
}

#[test]
fn writes_reads_and_atomics_reach_memory() {
    everywhere(async |node| {
        let (a, b) = pair(&node).await;
        let (region, remote) = exposed(&node, 4096);
        let buffer = a.write(filled(&a, b"from afar"), remote.at(64)).delivered().await.unwrap();
        assert_eq!(&*buffer, b"from afar");
        assert_eq!(region.to_vec(64..73).unwrap(), b"from afar");

        let read = a.read(a.alloc(9).unwrap(), remote.at(64)).await.unwrap();
        assert_eq!(&*read, b"from afar");
        let mut buffer = a.alloc(16).unwrap();
        buffer.fill(b'.');
        let read = a.read(buffer.slice(4..8), remote.at(64)).await.unwrap();
        assert_eq!(&*read, b"....from........");

        assert_eq!(a.fetch_add(remote.at(8), 5).await.unwrap(), 0);
        assert_eq!(a.swap(remote.at(8), 7).await.unwrap(), 5);
        assert_eq!(a.compare_swap(remote.at(8), 7, 9).await.unwrap(), 7);
        assert_eq!(a.compare_swap(remote.at(8), 7, 10).await.unwrap(), 9);
        assert_eq!(a.fetch(fabric::AtomicOp::Max, remote.at(16), 2.5f32).await.unwrap(), 0.0);
        assert_eq!(a.fetch(fabric::AtomicOp::Add, remote.at(20), -3i16).await.unwrap(), 0);
        assert_eq!(region.get::<u64>(8).unwrap(), 9);
        assert_eq!(region.get::<f32>(16).unwrap(), 2.5);
        assert_eq!(region.get::<i16>(20).unwrap(), -3);

        let parts = vec![filled(&a, b"in "), filled(&a, b""), filled(&a, b"pieces")];
        let parts = a.write(parts, remote.at(100)).delivered().await.unwrap();
        assert_eq!(parts.len(), 3);
        assert_eq!(region.to_vec(100..109).unwrap(), b"in pieces");

        let shared = filled(&a, b"to many").share();
        let (x, y) =
            join(a.send(shared.clone()), b.write(shared.clone(), remote.at(200)).delivered()).await;
        drop((x.unwrap(), y.unwrap()));
        assert_eq!(&*b.recv().await.unwrap(), b"to many");
        assert_eq!(region.to_vec(200..207).unwrap(), b"to many");
        assert_eq!(&*shared.try_into_buffer().unwrap(), b"to many");
    });
}

#[test]
fn notifications_are_not_messages() {
    everywhere(async |node| {
        let (a, b) = pair(&node).await;
        let (region, remote) = exposed(&node, 4096);
        let write = async {
            for round in 0..200u32 {
                let buffer = filled(&a, &round.to_ne_bytes());
                a.write_notify(buffer, remote.at(0), round).await.unwrap();
                if round % 50 == 7 {
                    a.send(filled(&a, b"between")).await.unwrap();
                }
            }
            a.send(filled(&a, b"last")).await.unwrap();
        };
        let receive = async {
            // Notifications do not hold up a task that receives messages only.
            for _ in 0..4 {
                assert_eq!(&*b.recv().await.unwrap(), b"between");
            }
            assert_eq!(&*b.recv().await.unwrap(), b"last");
        };
        join(write, receive).await;
        for round in 0..200 {
            let notification = b.notified().await.unwrap();
            assert_eq!((notification.immediate, notification.len), (round, 4));
        }
        assert_eq!(region.get::<u32>(0).unwrap(), 199);
    });
}

#[test]
fn errors_bring_the_buffer_back() {
    everywhere(async |node| {
        let (a, b) = pair(&node).await;
        let (_region, remote) = exposed(&node, 64);
        let max = a.max_message();
        let failed = a.send(a.alloc(max + 1).unwrap()).await.unwrap_err();
        assert!(matches!(failed.error, Error::TooLong { len, .. } if len == max + 1));
        assert_eq!(failed.buffer.len(), max + 1);
        let failed = a.write(filled(&a, b"beyond"), remote.at(60)).await.unwrap_err();
        assert!(matches!(failed.error, Error::Fabric(fabric::Error::InvalidArgument(_))));
        assert_eq!(&*failed.buffer, b"beyond");
        let failed = a.send(filled(&a, b"short").slice(3..9)).await.unwrap_err();
        assert_eq!(&*failed.buffer, b"short");
        assert!(a.send(filled(&a, b"x")).delivered().await.is_err());
        assert!(a.fetch_add(remote.at(4), 1).await.is_err());
        // None of that harmed the connection.
        a.send(filled(&a, b"alive")).await.unwrap();
        assert_eq!(&*b.recv().await.unwrap(), b"alive");

        a.send(filled(&a, b"last words")).await.unwrap();
        b.node();
        a.close();
        let failed = a.write(filled(&a, b"late"), remote.at(0)).await.unwrap_err();
        assert!(matches!(failed.error, Error::Disconnected(DisconnectReason::Local)), "{failed}");
        assert_eq!(&*failed.buffer, b"late");
        assert_eq!(&*b.recv().await.unwrap(), b"last words");
        let error = b.recv().await.unwrap_err();
        assert!(matches!(error, Error::Disconnected(DisconnectReason::Remote)), "{error}");
        assert_eq!(b.closed().await, DisconnectReason::Remote);
        assert!(b.notified().await.is_err());
    });
}

#[test]
fn a_refused_access_ends_the_connection_and_says_so() {
    everywhere(async |node| {
        let (a, b) = pair(&node).await;
        let (region, remote) = exposed(&node, 64);
        region.close().unwrap();
        let failed = a.write(filled(&a, b"stale"), remote.at(0)).await.unwrap_err();
        assert!(matches!(failed.error, Error::RemoteAccess), "{failed}");
        let failed = a.send(failed.buffer).await.unwrap_err();
        assert!(
            matches!(failed.error, Error::Disconnected(DisconnectReason::OperationFailed)),
            "{failed}"
        );
        assert_eq!(b.closed().await, DisconnectReason::OperationFailed);
    });
}

#[test]
fn more_operations_than_the_queue_holds_wait_their_turn() {
    everywhere(async |node| {
        let (a, _b) = pair(&node).await;
        let (region, remote) = exposed(&node, 8);
        let mut sum = 0;
        let mut all: Vec<_> =
            (1..=500u64).map(|n| Box::pin(a.fetch_add(remote.at(0), n))).collect();
        std::future::poll_fn(|cx| {
            all.retain_mut(|one| match one.as_mut().poll(cx) {
                std::task::Poll::Ready(old) => {
                    old.unwrap();
                    sum += 1;
                    false
                }
                std::task::Poll::Pending => true,
            });
            if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        assert_eq!(sum, 500);
        assert_eq!(region.get::<u64>(0).unwrap(), 500 * 501 / 2);
    });
}

#[test]
fn shutdown_waits_for_what_was_posted() {
    everywhere(async |node| {
        let (a, b) = pair(&node).await;
        let slow = async {
            for _ in 0..64 {
                a.send(filled(&a, b"kept")).await.unwrap();
            }
            a.shutdown(Duration::from_secs(60)).await.unwrap();
        };
        let receive = async {
            let mut count = 0;
            while let Ok(message) = b.recv().await {
                assert_eq!(&*message, b"kept");
                count += 1;
            }
            count
        };
        assert_eq!(join(slow, receive).await.1, 64);
        assert!(a.shutdown(Duration::from_secs(1)).await.is_err());
    });
}

#[test]
fn however_long_the_time_given_is() {
    let node = node(|b| b);
    block_on(async {
        let (a, b) = pair(&node).await;
        let lent = a.lend(filled(&a, &[1; 8]), Duration::MAX, fabric::Access::REMOTE).unwrap();
        let remote = b.next_lease().await.unwrap();
        assert!(remote.time_left() > Duration::from_secs(1 << 30));
        assert_eq!(*lent.take().unwrap(), [1; 8]);
        a.shutdown(Duration::MAX).await.unwrap();
        assert_eq!(b.closed().await, DisconnectReason::Remote);
    });
}

#[test]
fn nothing_is_left_behind() {
    everywhere(async |node| {
        for _ in 0..3 {
            let (a, b) = pair(&node).await;
            a.send(filled(&a, b"hello")).await.unwrap();
            drop(b.recv().await.unwrap());
        }
        // The node's thread may be serving one of them still.
        eventually("all memory is back", || node.pool().metrics().in_use == 0);
        eventually("no operation is left", || node.operations() == 0);
    });
}
