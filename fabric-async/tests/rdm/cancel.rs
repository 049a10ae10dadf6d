//! Futures that are dropped, at each stage.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use fabric_async::{Buffer, Error};
use fabric_rdm::matching::Pattern;
use futures_util::StreamExt;

use crate::rig::{Pair, eventually, everywhere, pair};

const ANY: Pattern = Pattern::untagged();

/// Polls a future once, and drops it.
async fn polled_once<T>(future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

async fn exchange(it: &Pair, text: &[u8]) {
    drop(it.a.send(it.to_b, it.buffer(text)).await.unwrap());
    let (buffer, info) = it.b.recv(ANY, it.inbox(64)).await.unwrap();
    assert_eq!(buffer[..info.len], *text);
}

#[test]
fn a_receive_that_is_dropped_before_its_message_takes_none() {
    everywhere(|provider| async move {
        let it = pair(provider);
        drop(it.b.recv(ANY, it.inbox(64))); // never polled
        for _ in 0..20 {
            assert!(!polled_once(it.b.recv(ANY, it.inbox(64))).await);
            // At once, but for a thread that has just taken its completion.
            let given_back = || (it.b.operations(), it.b.pool().metrics().in_use) == (0, 0);
            eventually("it is given back without a poll", given_back).await;
        }
        exchange(&it, b"for the next one").await;
        // Of many, too.
        let mut many = it.b.recv_many(ANY, it.inbox(64), 8);
        many.posted().await;
        drop(many);
        exchange(&it, b"nor for that").await;
        eventually("all is given back", || it.is_clean()).await;
    });
}

#[test]
fn a_receive_that_is_dropped_after_it_met_its_message_loses_that_alone() {
    everywhere(|provider| async move {
        let it = pair(provider);
        for len in [10, 20_000, 200_000] {
            let mut received = it.b.recv(ANY, it.inbox(len));
            received.posted().await;
            let lost = it.a.send(it.to_b, it.buffer(&vec![1; len])).matched();
            drop(lost.await.unwrap());
            drop(received);
            exchange(&it, b"the next one").await;
        }
        eventually("all is given back", || {
            it.b.pool().trim();
            // A poll takes what has ended since.
            drop(futures_util::FutureExt::now_or_never(it.b.next_event()));
            it.is_clean()
        })
        .await;
    });
}

#[test]
fn a_receive_that_is_canceled_loses_nothing() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let (buffer, none) = it.b.recv(ANY, it.inbox(64)).cancel().await.unwrap(); // never posted
        assert!(none.is_none());
        let mut received = it.b.recv(ANY, buffer);
        received.posted().await;
        let (buffer, none) = received.cancel().await.unwrap();
        assert!(none.is_none());
        for len in [10, 200_000] {
            let mut received = it.b.recv(ANY, it.inbox(len));
            received.posted().await;
            drop(it.a.send(it.to_b, it.buffer(&vec![7; len])).matched().await.unwrap());
            let (bytes, info) = received.cancel().await.unwrap();
            assert_eq!((info.unwrap().len, &*bytes), (len, &vec![7; len][..]));
        }
        drop(buffer);
        it.gives_all_back().await;
    });
}

#[test]
fn a_send_that_is_dropped_goes_its_way() {
    everywhere(|provider| async move {
        let it = pair(provider);
        drop(it.a.send(it.to_b, it.buffer(b"never polled")));
        for len in [10, 20_000, 300_000] {
            polled_once(it.a.send(it.to_b, it.buffer(&vec![3; len]))).await;
            let (buffer, info) = it.b.recv(ANY, it.inbox(len)).await.unwrap();
            assert_eq!((info.len, &*buffer), (len, &vec![3; len][..]));
        }
        it.a.flush().await.unwrap();
        eventually("all is given back", || it.is_clean()).await;
    });
}

/// The memory of a receive that is dropped while its payload comes is not used for something else before that has ended.
#[test]
fn no_stray_bytes_come_into_buffers_of_others() {
    everywhere(|provider| async move {
        let it = pair(provider);
        const LEN: usize = 1 << 20;
        let fresh = || {
            let mut buffer: Buffer = it.inbox(LEN);
            buffer.fill(0x11);
            buffer
        };
        for _ in 0..10 {
            let mut received = it.b.recv(ANY, it.inbox(LEN));
            received.posted().await;
            polled_once(it.a.send(it.to_b, it.buffer(&vec![0xEE; LEN]))).await;
            polled_once(it.b.next_event()).await; // it may have met it, or not
            drop(received);
            let others: Vec<Buffer> = (0..4).map(|_| fresh()).collect();
            // If it was not met, it is there.
            exchange_or_skip(&it).await;
            assert!(others.iter().all(|one| one.iter().all(|byte| *byte == 0x11)));
        }
    });
}

/// Sends a marker, and takes all up to it.
async fn exchange_or_skip(it: &Pair) {
    drop(it.a.send(it.to_b, it.buffer(b"marker")).await.unwrap());
    while it.b.recv_alloc(ANY).await.unwrap().0.len() != 6 {}
}

#[test]
fn waits_that_are_dropped_lose_nothing() {
    everywhere(|provider| async move {
        let it = pair(provider);
        for _ in 0..20 {
            assert!(!polled_once(it.b.claim(ANY)).await);
            assert!(!polled_once(it.b.next_event()).await);
            assert!(!polled_once(it.b.reached(fabric_rdm::Kind::Recv, 1 << 40, 0)).await);
        }
        exchange(&it, b"there").await;
        // A stream may be left and taken up again.
        let mut many = it.b.recv_many(ANY, it.inbox(256), 32);
        assert!(!polled_once(many.next()).await);
        drop(it.a.send(it.to_b, it.buffer(b"one")).matched().await.unwrap());
        assert_eq!(many.next().await.unwrap().unwrap().len, 3);
        drop(many.release().await.unwrap());
        // An endpoint that goes takes its futures' operations with it.
        let left = it.b.recv(ANY.from(it.to_a), it.inbox(64));
        let Pair { a, b, to_b, .. } = it;
        drop(b);
        let mut left = left;
        left.posted().await;
        drop(left); // the last of it
        let down = a.send(to_b, a.pool().alloc(8).unwrap());
        let error = down.await.err().map(|failed| failed.error);
        assert!(!matches!(error, Some(Error::Fabric(_))), "{error:?}");
        assert_eq!(a.pool().metrics().leaks, 0);
    });
}
