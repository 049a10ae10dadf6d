//! Many tasks at once, and executors of every kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fabric_async::block_on;
use fabric_rdm::Kind;
use fabric_rdm::matching::Pattern;

use crate::everywhere::patience;
use crate::rig::{pair, providers};

/// Each task has its tag, and echoes.
async fn rounds(it: Arc<crate::rig::Pair>, tag: u64, rounds: usize) {
    for round in 0..rounds {
        let len = 1 + (tag as usize * 37 + round * 911) % 12_000;
        let bytes = vec![tag as u8; len];
        let there = async {
            let (buffer, info) = it.b.recv(Pattern::tagged(tag), it.inbox(12_000)).await.unwrap();
            let mut buffer = buffer;
            buffer.truncate(info.len);
            it.b.send_tagged(it.to_a, tag, buffer).await.unwrap()
        };
        let here = async {
            drop(it.a.send_tagged(it.to_b, tag, it.buffer(&bytes)).await.unwrap());
            it.a.recv(Pattern::tagged(tag), it.inbox(12_000)).await.unwrap()
        };
        let (_, (buffer, info)) = futures_util::future::join(there, here).await;
        assert_eq!(buffer[..info.len], *bytes);
    }
}

#[test]
fn many_tasks_with_tags_on_tokio() {
    for threads in [1, 3] {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).enable_all().build().unwrap();
        for provider in providers() {
            eprintln!("{provider}");
            let it = Arc::new(pair(provider));
            let tasks: Vec<_> =
                (0..40).map(|tag| runtime.spawn(rounds(it.clone(), tag, 10))).collect();
            runtime.block_on(async {
                for task in tasks {
                    tokio::time::timeout(patience(), task).await.unwrap().unwrap();
                }
            });
            block_on(it.gives_all_back());
        }
    }
}

#[test]
fn many_threads_with_block_on() {
    for provider in providers() {
        eprintln!("{provider}");
        let it = Arc::new(pair(provider));
        let threads: Vec<_> = (0..8)
            .map(|tag| {
                let it = it.clone();
                std::thread::spawn(move || block_on(rounds(it, tag, 20)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        block_on(it.gives_all_back());
    }
}

/// A runtime without its descriptors, and one that is shut down while futures of it sleep: others go on.
#[test]
fn runtimes_come_and_go() {
    for provider in providers() {
        eprintln!("{provider}");
        let it = Arc::new(pair(provider));
        let poor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        poor.block_on(rounds(it.clone(), 1, 3));
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let first = builder.worker_threads(1).enable_all().build().unwrap();
        let sleeps = it.clone();
        first.spawn(async move { drop(sleeps.b.recv(Pattern::tagged(99), sleeps.inbox(8)).await) });
        first.block_on(rounds(it.clone(), 2, 3));
        let other = it.clone();
        let waits = std::thread::spawn(move || {
            block_on(other.b.recv(Pattern::tagged(7), other.inbox(8))).unwrap().1.len
        });
        std::thread::sleep(Duration::from_millis(10));
        first.shutdown_background();
        drop(block_on(it.a.send_tagged(it.to_b, 7, it.buffer(b"still"))).unwrap());
        assert_eq!(waits.join().unwrap(), 5);
    }
}

/// Where no future is polled, receives that were posted get their messages, and senders of long ones their end.
#[test]
fn receives_meet_messages_without_polls() {
    for provider in providers() {
        eprintln!("{provider}");
        let it = pair(provider);
        let polled = AtomicUsize::new(0);
        block_on(async {
            let mut received = it.b.recv(Pattern::untagged(), it.inbox(300_000));
            received.posted().await;
            // The endpoint of the receive is not polled from here on.
            drop(it.a.send(it.to_b, it.buffer(&[5; 300_000])).matched().await.unwrap());
            while it.b.counter(Kind::Recv).unwrap().successes() == 0 {
                polled.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(received.await.unwrap().1.len, 300_000);
        });
    }
}
