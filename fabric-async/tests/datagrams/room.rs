//! Sends that wait for room.

use futures_util::future::join_all;

use crate::rig::{everywhere, pair_with};

#[test]
fn sends_wait_for_room_in_the_send_queue() {
    everywhere(|provider| async move {
        let it = pair_with(provider, |node| node, |attr| attr.send_depth = 4).await;
        let sends = (0..200).map(|_| it.a.send_to(&it.to_b, it.buffer(b"deep")));
        assert!(join_all(sends).await.iter().all(|sent| sent.is_ok()));
        // Of injected ones no future waits for the end.
        for _ in 0..200 {
            it.a.inject_to(&it.to_b, b"deep").await.unwrap();
        }
        let injects = (0..200).map(|_| it.a.inject_to(&it.to_b, b"deep"));
        assert!(join_all(injects).await.iter().all(|sent| sent.is_ok()));
    });
}

/// A future that waits for room and is dropped lets the next one pass; so does one that is held and not polled.
#[test]
fn one_that_gives_up_lets_others_pass() {
    everywhere(|provider| async move {
        let it = pair_with(provider, |node| node, |attr| attr.send_depth = 1).await;
        for _ in 0..50 {
            let mut waiting: Vec<_> =
                (0..4).map(|_| Box::pin(it.a.send_to(&it.to_b, it.buffer(b"x")))).collect();
            for one in &mut waiting {
                crate::rig::polled_once(one.as_mut()).await;
            }
            drop(waiting.remove(1));
            drop(it.a.send_to(&it.to_b, it.buffer(b"y")).await.unwrap());
        }
    });
}
