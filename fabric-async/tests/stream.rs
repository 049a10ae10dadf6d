//! Streams: every byte, in order, whatever the sizes and the settings; and how they end.

#![cfg(all(feature = "tokio", not(miri)))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{between, eventually, node, pair};
use fabric_async::{Node, NodeBuilder, Stream, block_on};
use futures_util::future::{join, join_all};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

async fn streams(from: &Node, to: &Node) -> (Stream, Stream) {
    let (a, b) = between(from, to).await;
    (a.into(), b.into())
}

/// Numbers without an end, the same for a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn up_to(&mut self, max: usize) -> usize {
        1 + (self.next() % max as u64) as usize
    }
}

/// The bytes of a direction.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    (0..len).map(|_| dice.next() as u8).collect()
}

/// Writes and reads at once, in pieces of random sizes; then ends its direction, and sees the other one end.
async fn talk(stream: Stream, say: Vec<u8>, hear: Vec<u8>, seed: u64) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        let (mut dice, mut rest) = (Dice(seed), &say[..]);
        while !rest.is_empty() {
            let max = dice.up_to(150_000);
            let count = dice.up_to(max).min(rest.len());
            let (one, other) = rest[..count].split_at(dice.up_to(count + 1) - 1);
            let parts = [one, &[], other].map(IoSlice::new);
            let written = match dice.up_to(2) {
                1 => writer.write(one).await.unwrap(),
                _ => writer.write_vectored(&parts).await.unwrap(),
            };
            if dice.up_to(4) == 1 {
                writer.flush().await.unwrap();
            }
            rest = &rest[written..];
        }
        writer.shutdown().await.unwrap();
        assert_eq!(writer.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    };
    let read = async {
        let (mut dice, mut got) = (Dice(seed + 1), Vec::new());
        loop {
            let mut piece = vec![0; dice.up_to(100_000)];
            let count = reader.read(&mut piece).await.unwrap();
            if count == 0 {
                break;
            }
            got.extend_from_slice(&piece[..count]);
        }
        assert!(got == hear, "{} bytes of {}, or others", got.len(), hear.len());
    };
    join(write, read).await;
}

async fn talk_both_ways(settings: impl FnOnce(NodeBuilder) -> NodeBuilder, len: usize) {
    let node = node(settings);
    let (a, b) = streams(&node, &node).await;
    let (from_a, from_b) = (bytes(1, len), bytes(2, len / 2 + 1));
    join(talk(a, from_a.clone(), from_b.clone(), 3), talk(b, from_b, from_a, 5)).await;
    eventually("all memory is back", || node.pool().metrics().in_use == 0);
}

#[test]
fn every_byte_arrives_in_order() {
    let small = |builder: NodeBuilder| builder.send_depth(2).receives(1).max_message(1000);
    let smallest = |builder: NodeBuilder| builder.send_depth(1).receives(1).max_message(100);
    block_on(talk_both_ways(|builder| builder, 4 << 20));
    block_on(talk_both_ways(small, 300_000));
    block_on(talk_both_ways(smallest, 20_000));
    let runtimes = [
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    ];
    for runtime in runtimes {
        runtime.block_on(talk_both_ways(|builder| builder, 4 << 20));
        runtime.block_on(talk_both_ways(small, 300_000));
    }
}

#[test]
fn many_at_once_on_a_small_pool() {
    // Less than all of them would like to have under way.
    let node = node(|builder| builder.pool_bytes(4 << 20).receives(2).max_message(64 << 10));
    block_on(async {
        let pairs = join_all((0..8).map(|_| streams(&node, &node))).await;
        let talks = pairs.into_iter().enumerate().map(|(i, (a, b))| {
            let (seed, say) = (i as u64 + 1, bytes(i as u64 + 1, 200_000));
            join(talk(a, say.clone(), say.clone(), seed), talk(b, say.clone(), say, seed + 100))
        });
        join_all(talks).await;
    });
    eventually("all memory is back", || node.pool().metrics().in_use == 0);
}

#[test]
fn writers_that_share_too_little_memory_wait_for_each_others_each_in_its_own_task() {
    // 16 blocks of 64 KiB, where all of them would like to have 48 under way.
    let from = node(|b| b.pool_bytes(1 << 20).receives(1).max_message(64).leases(false));
    let to = node(|b| b.receives(2).leases(false));
    let sent = bytes(9, 2 << 20);
    let streams = block_on(join_all((0..6).map(|_| streams(&from, &to))));
    std::thread::scope(|scope| {
        for (mut a, mut b) in streams {
            let sent = &sent;
            scope.spawn(move || {
                block_on(async {
                    a.write_all(sent).await.unwrap();
                    a.shutdown().await.unwrap();
                });
            });
            scope.spawn(move || {
                let mut got = vec![0; sent.len()];
                for piece in got.chunks_mut(300_000) {
                    block_on(b.read_exact(piece)).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
                assert!(got == *sent);
                assert_eq!(block_on(b.read(&mut [0])).unwrap(), 0);
            });
        }
    });
    assert!(from.pool().metrics().waits > 0);
    eventually("all memory is back", || from.pool().metrics().in_use == 0);
}

#[test]
fn who_has_written_and_only_reads_keeps_no_memory() {
    let from = node(|b| b.receives(1).leases(false));
    let to = node(|b| b.receives(16).leases(false));
    let (mut a, mut b) = block_on(streams(&from, &to));
    let before = from.pool().metrics().in_use;
    let written = fill(&mut a, &[3; 64 << 10]);
    block_on(a.flush()).unwrap();
    let reader = std::thread::spawn(move || block_on(a.read(&mut [0; 8])).unwrap());
    block_on(b.read_exact(&mut vec![0; written])).unwrap();
    eventually("the memory of what was written is back", || from.pool().metrics().in_use <= before);
    block_on(b.write_all(b"answer")).unwrap();
    assert_eq!(reader.join().unwrap(), 6);
}

/// As much as a stream takes without being waited for.
fn fill(stream: &mut Stream, piece: &[u8]) -> usize {
    let mut cx = Context::from_waker(Waker::noop());
    let mut written = 0;
    while let Poll::Ready(count) = Pin::new(&mut *stream).poll_write(&mut cx, piece) {
        written += count.unwrap();
    }
    written
}

#[test]
fn who_reads_slowly_holds_the_writer_back_and_flush_waits_for_nobody() {
    let node = node(|builder| builder.receives(4));
    block_on(async {
        let (mut a, mut b) = streams(&node, &node).await;
        let piece = bytes(7, 64 << 10);
        let written = fill(&mut a, &piece);
        // 8 under way, and what the peer has posted receives for.
        assert!((8 * piece.len()..=12 * piece.len()).contains(&written), "{written}");
        a.flush().await.unwrap();
        let mut got = vec![0; written];
        b.read_exact(&mut got).await.unwrap();
        assert!(got.chunks(piece.len()).all(|chunk| chunk == piece));
        a.write_all(b"there is room again").await.unwrap();
        let mut last = [0; 19];
        b.read_exact(&mut last).await.unwrap();
        assert_eq!(&last, b"there is room again");
    });
}

#[test]
fn an_end_that_was_not_waited_for_comes_all_the_same() {
    let node = node(|builder| builder.send_depth(1).receives(1));
    block_on(async {
        let (mut a, mut b) = streams(&node, &node).await;
        let written = fill(&mut a, b"a few bytes");
        // Given up at once, and again; in the end the peer has everything, and the end.
        for _ in 0..2 {
            let mut cx = Context::from_waker(Waker::noop());
            let _ = Pin::new(&mut a).poll_shutdown(&mut cx);
        }
        let mut got = Vec::new();
        let (end, all) = join(a.shutdown(), b.read_to_end(&mut got)).await;
        end.unwrap();
        assert_eq!((all.unwrap(), got.len()), (written, written));
    });
}

#[test]
fn one_direction_ends_by_itself() {
    let node = node(|builder| builder);
    block_on(async {
        let (mut a, mut b) = streams(&node, &node).await;
        a.write_all(b"question").await.unwrap();
        let mut question = String::new();
        let (end, all) = join(a.shutdown(), b.read_to_string(&mut question)).await;
        end.unwrap();
        all.unwrap();
        assert_eq!(question, "question");
        // It stays at its end, and the other direction goes on.
        assert_eq!(b.read(&mut [0; 8]).await.unwrap(), 0);
        b.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        a.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
    });
}

#[test]
fn a_peer_that_leaves_is_told_to_reader_and_writer() {
    let node = node(|builder| builder);
    block_on(async {
        let (mut a, b) = streams(&node, &node).await;
        drop(b);
        let error = a.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        let error = a.write_all(b"hello?").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    });
}

#[test]
fn shutting_down_behind_a_peer_that_has_everything_and_left_is_no_error() {
    let node = node(|builder| builder);
    block_on(async {
        let (mut a, mut b) = streams(&node, &node).await;
        a.write_all(b"goodbye").await.unwrap();
        b.read_exact(&mut [0; 7]).await.unwrap();
        drop(b);
        assert_eq!(a.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        a.shutdown().await.unwrap();
    });
}

#[test]
fn bytes_that_were_lost_are_told_by_shutdown() {
    let node = node(|builder| builder.receives(1));
    block_on(async {
        let (mut a, b) = streams(&node, &node).await;
        // More than its peer has receives for, so that some are never accepted.
        fill(&mut a, &[1; 100]);
        drop(b);
        let error = a.shutdown().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        // And by each one that follows.
        let error = a.shutdown().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    });
}

/// What is written is on its way when the write has ended, though others had all the room when the stream began.
#[test]
fn one_that_begins_behind_other_operations_waits_for_room() {
    let node = node(|b| b.wait(fabric_async::WaitStrategy::Blocking).send_depth(8));
    let (region, remote) = common::exposed(&node, 64 << 10);
    for round in 0..100u8 {
        let (a, b) = block_on(pair(&node));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..12 {
            let write = a.write(a.alloc(64 << 10).unwrap(), remote.at(0));
            let _ = std::pin::pin!(write).poll(&mut cx);
        }
        let (mut from, mut to) = (Stream::from(a), Stream::from(b));
        let (done, outcome) = std::sync::mpsc::channel();
        let work = std::thread::spawn(move || {
            block_on(async {
                let mut got = [0; 5000];
                from.write_all(&[round; 5000]).await.unwrap();
                to.read_exact(&mut got).await.unwrap();
                assert_eq!(got, [round; 5000]);
            });
            done.send(()).unwrap();
        });
        let patience = std::time::Duration::from_secs(60);
        assert!(outcome.recv_timeout(patience).is_ok(), "round {round}: it does not arrive");
        work.join().unwrap();
    }
    drop(region);
}
