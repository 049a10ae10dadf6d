//! Futures that make, end, or stream over a connection, dropped at random moments: the next connection works as if they had never been.
//!
//! `FABRIC_ASYNC_SEED` repeats a run, as far as the two sides' threads let it.

#![cfg(all(not(miri), feature = "tokio"))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::drops::{Counted, Counts, Dice, wanted};
use common::{address, eventually, node, pair};
use fabric_async::{Error, Node, Stream, block_on};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LONG: Duration = Duration::from_secs(60);

/// Times as much of everything: 10, but 1 where little is wanted, as on a slow device.
fn times() -> u64 {
    (wanted() / 6000).clamp(1, 10)
}

/// Polls a future so many times, or until it is ready; then it is dropped.
fn poll_some<F: Future>(times: usize, counts: &Arc<Counts>, future: F) -> Option<F::Output> {
    let mut future = pin!(Counted::new(future, counts));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    None
}

fn is_clean(node: &Node) {
    eventually("all memory is back", || node.pool().metrics().in_use == 0);
    eventually("no operation is left", || node.operations() == 0);
}

#[test]
fn connecting_and_accepting() {
    let mut dice = Dice::new("connecting");
    let (client, server) = (node(|b| b), node(|b| b));
    let counts = [(); 3].map(|()| Arc::<Counts>::default());
    let [connects, accepts, requests] = &counts;
    let listener = block_on(server.listen(address())).unwrap();
    let to = listener.local_addr();
    let mut made = 0;
    while counts.iter().any(|counts| counts.dropped() < 5 * times()) {
        std::thread::scope(|scope| {
            let (times, late) = (dice.below(40), dice.below(2) == 0);
            let connecting = scope.spawn({
                let client = client.clone();
                move || poll_some(times, connects, client.connect(to))
            });
            if dice.below(2) == 0 {
                drop(poll_some(dice.below(40), accepts, listener.accept()));
            } else if let Some(request) = poll_some(dice.below(40), requests, listener.request()) {
                let request = request.unwrap();
                drop(poll_some(dice.below(20), accepts, request.accept()));
            }
            if late {
                drop(poll_some(dice.below(40), accepts, listener.accept()));
            }
            made += u32::from(connecting.join().unwrap().is_some_and(|made| made.is_ok()));
        });
    }
    let [connects, accepts, requests] = counts.each_ref().map(|counts| counts.dropped());
    println!(
        "{made} connected; dropped: {connects} connects, {accepts} accepts, {requests} requests"
    );
    // A new connection is served. Requests of dropped futures may come first.
    let begun = std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            block_on(async {
                let conn = client.connect(to).await.unwrap();
                conn.send(client.pool().alloc_from(b"still there?").unwrap()).await.unwrap();
                conn.recv().await.unwrap().len()
            })
        });
        block_on(async {
            loop {
                let Ok(conn) = listener.accept().await else { continue };
                match conn.recv().await {
                    Ok(message) => {
                        assert_eq!(*message, *b"still there?");
                        // The other end leaves as soon as it has this, perhaps before that is acknowledged.
                        let sent = conn.send(server.pool().alloc_from(b"yes").unwrap()).await;
                        let is_gone = |error: &Error| matches!(error, Error::Disconnected(_));
                        assert!(sent.as_ref().err().is_none_or(|failed| is_gone(&failed.error)));
                        break;
                    }
                    Err(error) => assert!(matches!(error, Error::Disconnected(_)), "{error}"),
                }
            }
        });
        user.join().unwrap()
    });
    assert_eq!(begun, 3);
    drop(listener);
    is_clean(&client);
    is_clean(&server);
}

#[test]
fn shutting_down_and_awaiting_the_end() {
    let mut dice = Dice::new("shutting down");
    let node = node(|b| b);
    let counts = Arc::<Counts>::default();
    while counts.dropped() < 10 * times() {
        let (a, b) = block_on(pair(&node));
        let message = node.pool().alloc_from(b"before the end").unwrap();
        let mut sending = a.send(message);
        let _ = Pin::new(&mut sending).poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll_some(1 + dice.below(2), &counts, b.closed()).is_none());
        if poll_some(1 + dice.below(5), &counts, a.shutdown(LONG)).is_none() {
            // Begun or not, it can be done again.
            block_on(async {
                let (end, got) = tokio::join!(a.shutdown(LONG), b.recv());
                end.unwrap();
                assert_eq!(*got.unwrap(), *b"before the end");
            });
        }
    }
    is_clean(&node);
}

#[test]
fn streams() {
    let mut dice = Dice::new("streams");
    let node = node(|b| b.pool_bytes(4 << 20));
    let counts = Arc::<Counts>::default();
    // How often one side is ahead is a matter of the device's speed.
    let mut round = 0;
    while round < 2 * times() || counts.dropped() <= 10 * times() {
        assert!(round < 50 * times(), "only {} waited", counts.dropped());
        round += 1;
        let (a, b) = block_on(pair(&node));
        let (mut from, mut to) = (Stream::from(a), Stream::from(b));
        let (mut written, mut read) = (0u64, 0u64);
        let byte = |at: u64| (at / 3 + round) as u8;
        let mut into = [0; 20_000];
        while read < 2_000_000 {
            // So that each side is now and then ahead of the other one.
            for _ in 0..dice.below(6) {
                let bytes: Vec<_> = (written..).take(1 + dice.below(30_000)).map(byte).collect();
                if let Some(wrote) = poll_some(1, &counts, from.write(&bytes)) {
                    written += wrote.unwrap() as u64;
                }
            }
            for _ in 0..dice.below(12) {
                let room = 1 + dice.below(into.len());
                if let Some(got) = poll_some(1, &counts, to.read(&mut into[..room])) {
                    let got = &into[..got.unwrap()];
                    assert!((read..).zip(got).all(|(at, had)| *had == byte(at)), "at {read}");
                    read += got.len() as u64;
                }
            }
        }
        assert!(read <= written);
        // And dropped as they are.
        drop((from, to));
        is_clean(&node);
    }
    println!("{} reads and writes dropped while they waited", counts.dropped());
}
