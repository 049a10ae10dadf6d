//! What is dropped at the target, and counted: datagrams without a receive, and too long ones.

use std::time::Duration;

use fabric_async::{Error, block_on};
use futures_util::future::join;

use crate::rig::{eventually, everywhere, pair_with, within};

/// So many receives.
const DEPTH: u32 = 8;

/// Of a program that takes nothing the inbox has as many as there are receives. What comes then is dropped, and later ones come.
#[test]
fn the_inbox_is_bounded() {
    everywhere(|provider| async move {
        let it = pair_with(provider, |node| node, |attr| attr.recv_depth = DEPTH as usize).await;
        // Until all of them have met a receive, or none, as far as the device says so.
        let flood = async |first, all_dropped: u32| {
            for number in first..first + 3 * DEPTH {
                drop(it.a.send_to(&it.to_b, it.buffer(b"x")).immediate(number).await.unwrap());
            }
            let dropped = || it.b.drops().unwrap().no_receive;
            match dropped() {
                Some(_) => {
                    let all = || dropped().unwrap() >= u64::from(all_dropped);
                    eventually("what finds no receive is counted", all).await;
                }
                None => _ = within(Duration::from_millis(100), std::future::pending::<()>()).await,
            }
        };
        flood(0, 2 * DEPTH).await;
        let (mut taken, soon) = (Vec::new(), Duration::from_millis(500));
        while let Some(came) = within(soon, it.b.recv_from()).await {
            taken.push(came.unwrap().immediate.unwrap());
            if taken.len() == 1 {
                // The one that was taken makes room for one.
                flood(3 * DEPTH, 5 * DEPTH - 1).await;
            }
        }
        // In the order of their arrival, which on one host is that of the sends.
        assert!(taken.is_sorted() && taken[0] < DEPTH, "{taken:?}");
        assert!(taken.len() as u32 <= DEPTH + 1, "{taken:?} of {DEPTH} receives");
        it.deliver(1000, || it.buffer(b"later")).await;
    });
}

#[test]
fn one_that_is_too_long_is_counted_and_no_other_is_lost() {
    everywhere(|provider| async move {
        let settings = |attr: &mut fabric_async::datagram::DatagramAttr| attr.recv_depth = 8;
        let it = pair_with(provider, |node| node.max_message(64), settings).await;
        // More of them than there are receives, while a future waits.
        let send = async {
            for _ in 0..4 * DEPTH {
                drop(it.a.send_to(&it.to_b, it.buffer(&[1; 65])).await.unwrap());
            }
            // Behind those.
            for _ in 0..20 {
                drop(it.a.send_to(&it.to_b, it.buffer(&[2; 64])).await.unwrap());
                let _ = within(Duration::from_millis(100), std::future::pending::<()>()).await;
                if it.b.counters().received > 0 {
                    break;
                }
            }
        };
        let (came, ()) = join(it.b.recv_from(), send).await;
        assert_eq!(*came.unwrap(), [2; 64]);
        assert!(it.b.too_long() >= u64::from(DEPTH), "{}", it.b.too_long());
        assert_eq!(it.a.too_long(), 0);
    });
}

/// Receives that too long ones took are replaced while a future waits, and not only when the last one is gone.
#[test]
fn receives_of_too_long_ones_are_replaced() {
    everywhere(|provider| async move {
        let settings = |attr: &mut fabric_async::datagram::DatagramAttr| attr.recv_depth = 8;
        let it = pair_with(provider, |node| node.max_message(64), settings).await;
        let posted = || it.b.counters().posted_recvs;
        assert_eq!(posted(), u64::from(DEPTH));
        // It sleeps, and is polled when something wakes it alone.
        let b = it.b.clone();
        let sleeps = std::thread::spawn(move || block_on(b.recv_from()).unwrap());
        for _ in 0..DEPTH - 2 {
            drop(it.a.send_to(&it.to_b, it.buffer(&[1; 65])).await.unwrap());
        }
        eventually("there are receives again", || posted() > u64::from(DEPTH)).await;
        for _ in 0..20 {
            drop(it.a.send_to(&it.to_b, it.buffer(&[2; 64])).await.unwrap());
            let _ = within(Duration::from_millis(50), std::future::pending::<()>()).await;
            if sleeps.is_finished() {
                break;
            }
        }
        assert_eq!(*sleeps.join().unwrap(), [2; 64]);
    });
}

/// Without memory for receives a future waits for some, and then goes on.
#[test]
fn a_receiver_without_memory_waits_for_some() {
    everywhere(|provider| async move {
        let node = |node: fabric_async::NodeBuilder| node.pool_bytes(1 << 20).max_message(256);
        let it = pair_with(provider, node, |attr| attr.recv_depth = 8).await;
        let small = it.buffer(b"x");
        let mut taken = Vec::new();
        // Every block of the pool is somebody's, and then every receive has become a datagram that is held.
        let mut held = Vec::new();
        while let Ok(one) = it.a.pool().alloc(256) {
            held.push(one);
        }
        let mut buffer = Some(small);
        for number in 0..8 {
            let send = it.a.send_to(&it.to_b, buffer.take().unwrap()).immediate(number);
            buffer = Some(send.await.unwrap());
            taken.extend(it.next(number).await);
        }
        let waits = within(Duration::from_millis(100), it.b.recv_from()).await;
        assert!(matches!(waits, None | Some(Err(Error::PoolExhausted { .. }))), "{waits:?}");
        drop((held, taken));
        it.deliver(100, || it.buffer(b"again")).await;
    });
}
