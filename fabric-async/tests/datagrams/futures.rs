//! Futures that are dropped, and that sleep; endpoints that end.

use std::time::Duration;

use fabric_async::block_on;
use fabric_async::datagram::DatagramEndpoint;

use crate::rig::{
    eventually, everywhere, node_with, pair, pair_with, polled_once, providers, within,
};

#[test]
fn a_receive_that_is_dropped_loses_nothing() {
    everywhere(|provider| async move {
        let it = pair(provider).await;
        for number in 0..20 {
            // One that was sent again since it came late is no part of this.
            while polled_once(it.b.recv_from()).await {}
            drop(it.b.recv_from());
            drop(it.b.datagrams());
            it.deliver(number, || it.buffer(b"for the next one")).await;
        }
        // One that came while no future waited is there.
        for _ in 0..20 {
            drop(it.a.send_to(&it.to_b, it.buffer(b"early")).immediate(99).await.unwrap());
            if let Some(came) = it.next(99).await {
                assert_eq!(*came, *b"early");
                return;
            }
        }
        panic!("none came");
    });
}

#[test]
fn a_send_that_is_dropped_goes_its_way_and_its_buffer_comes_back() {
    everywhere(|provider| async move {
        let it = pair(provider).await;
        let receives = it.b.pool().metrics().in_use;
        drop(it.a.send_to(&it.to_b, it.buffer(b"never polled")).immediate(1));
        assert!(within(Duration::from_millis(50), it.next(1)).await.is_none());
        let mut arrived = 0;
        for _ in 0..50 {
            polled_once(it.a.send_to(&it.to_b, it.buffer(b"polled once")).immediate(2)).await;
            polled_once(it.a.inject_to(&it.to_b, b"injected").immediate(2)).await;
            arrived += usize::from(it.next(2).await.is_some());
        }
        assert!(arrived > 0);
        let given_back = || {
            drop(futures_util::FutureExt::now_or_never(it.b.recv_from()));
            it.b.pool().metrics().in_use == receives
        };
        eventually("all is given back", given_back).await;
    });
}

/// The last handle or future ends it, and gives back memory and room.
#[test]
fn an_endpoint_ends_with_its_last_future() {
    everywhere(|provider| async move {
        let it = pair_with(provider, |node| node.completions(600), |_| ()).await;
        let node = it.a.node();
        let waits = it.b.recv_from();
        let (address, attr) = (it.b.address(), it.b.attr().clone());
        // There is room for two.
        assert!(DatagramEndpoint::new(&node, &attr).is_err());
        drop(it.b);
        let to_b = it.a.resolve(&address).await.unwrap();
        let mut waits = std::pin::pin!(waits);
        let mut came = None;
        for _ in 0..20 {
            it.a.inject_to(&to_b, b"still there").await.unwrap();
            came = within(Duration::from_millis(500), waits.as_mut()).await;
            if came.is_some() {
                break;
            }
        }
        assert_eq!(*came.expect("one comes").unwrap(), *b"still there");
    });
    for provider in providers() {
        let node = node_with(provider, |node| node);
        for _ in 0..20 {
            let attr = fabric::DatagramAttr::default();
            let one = DatagramEndpoint::new(&node, &attr).unwrap();
            drop(block_on(one.resolve(&one.address())).unwrap());
            drop(one);
        }
        let given_back = || (node.operations(), node.pool().metrics().in_use) == (0, 0);
        block_on(eventually("all is given back", given_back));
        assert_eq!(node.pool().metrics().leaks, 0);
    }
}

/// Tasks that ask, and one that answers: each asks again where an answer does not come.
#[test]
fn many_tasks_ask_and_are_answered() {
    for threads in [1, 3] {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).enable_all().build().unwrap();
        for provider in providers() {
            eprintln!("{provider}");
            let node = node_with(provider, |node| node.max_message(64));
            let attr = fabric::DatagramAttr::default();
            let server = DatagramEndpoint::new(&node, &attr).unwrap();
            let at = server.address();
            let serves = runtime.spawn(async move {
                loop {
                    let asked = server.recv_from().await.unwrap();
                    let to = server.resolve(&asked.source.unwrap()).await.unwrap();
                    let number = asked.immediate.unwrap();
                    server.send_to(&to, asked.buffer).immediate(number).await.unwrap();
                }
            });
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let client = DatagramEndpoint::new(&node, &attr).unwrap();
                    runtime.spawn(async move {
                        let to = client.resolve(&at).await.unwrap();
                        for number in 0..20_u32 {
                            loop {
                                client
                                    .inject_to(&to, &number.to_ne_bytes())
                                    .immediate(number)
                                    .await
                                    .unwrap();
                                let answer = tokio::time::timeout(
                                    Duration::from_secs(1),
                                    client.recv_from(),
                                )
                                .await;
                                // Late ones are of earlier questions.
                                if let Ok(answer) = answer
                                    && answer.as_ref().unwrap().immediate == Some(number)
                                {
                                    assert_eq!(*answer.unwrap(), number.to_ne_bytes());
                                    break;
                                }
                            }
                        }
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    tokio::time::timeout(crate::everywhere::patience(), task)
                        .await
                        .unwrap()
                        .unwrap();
                }
            });
            serves.abort();
        }
    }
}

/// A thread that sleeps is woken by what arrives.
#[test]
fn a_thread_that_sleeps_is_woken() {
    for provider in providers() {
        eprintln!("{provider}");
        let it = block_on(pair(provider));
        let b = it.b.clone();
        let sleeps = std::thread::spawn(move || block_on(b.recv_from()).unwrap().len());
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..20 {
            block_on(it.a.inject_to(&it.to_b, b"hello")).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            if sleeps.is_finished() {
                break;
            }
        }
        assert_eq!(sleeps.join().unwrap(), 5);
    }
}
