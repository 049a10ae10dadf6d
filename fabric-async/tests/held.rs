//! Futures that are held and not polled, or forgotten: their connection goes on, as if they were not there.

#![cfg(not(miri))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{address, between, exposed, node};
use fabric::{Access, RemoteRegion};
use fabric_async::{Connection, Node, block_on};
use futures_util::future::{Either, join, select};

/// Far more than it takes, and less than anything else that ends by itself.
const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(60);

type Held<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What happens to futures that are not polled to their end.
#[derive(Clone, Copy, Debug)]
enum Fate {
    NeverPolled,
    HeldAfterOnePoll,
    ForgottenAfterOnePoll,
}

const FATES: [Fate; 3] = [Fate::NeverPolled, Fate::HeldAfterOnePoll, Fate::ForgottenAfterOnePoll];

/// Has futures meet their fate; those that are held are given back, to be held on to.
fn meet<'a>(fate: Fate, futures: Vec<Held<'a>>) -> Vec<Held<'a>> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut held = Vec::new();
    for mut future in futures {
        if !matches!(fate, Fate::NeverPolled) && future.as_mut().poll(&mut cx).is_ready() {
            continue;
        }
        match fate {
            Fate::ForgottenAfterOnePoll => std::mem::forget(future),
            _ => held.push(future),
        }
    }
    held
}

/// What the future gives, which must come soon.
fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let (start, mut future) = (Instant::now(), std::pin::pin!(future));
    let mut clock = None;
    let done = block_on(std::future::poll_fn(|cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if start.elapsed() >= SOON {
            return Poll::Ready(None);
        }
        // The time passes on a thread of its own, whatever the library's do.
        clock.get_or_insert_with(|| {
            let waker = cx.waker().clone();
            std::thread::spawn(move || {
                std::thread::park_timeout(SOON);
                waker.wake();
            })
        });
        Poll::Pending
    }));
    clock.inspect(|clock| clock.thread().unpark());
    done.unwrap_or_else(|| panic!("{what} hangs"))
}

fn text(conn: &Connection, bytes: &[u8]) -> fabric_async::Buffer {
    conn.node().pool().alloc_from(bytes).unwrap()
}

/// Messages go both ways, memory is reached, and the connection ends in order.
fn goes_on(fate: Fate, a: &Connection, b: &Connection, at: RemoteRegion) {
    for round in 0..20u8 {
        for (from, to) in [(a, b), (b, a)] {
            let both = join(from.send(text(from, &[round; 9])), async {
                // What was sent by those that are held may come before.
                while *to.recv().await.unwrap() != [round; 9] {}
            });
            soon(&format!("{fate:?}: a message"), both).0.unwrap();
        }
        let write = a.write(text(a, &[round; 8]), at.at(0));
        soon(&format!("{fate:?}: a write"), write).unwrap();
        let read = a.read(a.alloc(8).unwrap(), at.at(0));
        assert_eq!(*soon(&format!("{fate:?}: a read"), read).unwrap(), [round; 8]);
        soon(&format!("{fate:?}: an atomic"), a.fetch_add(at.at(8), 1)).unwrap();
        let notified = join(a.write_notify(text(a, &[0; 8]), at.at(16), 7), async {
            while b.notified().await.unwrap().immediate != 7 {}
        });
        soon(&format!("{fate:?}: a notification"), notified).0.unwrap();
    }
    let remote = soon(&format!("{fate:?}: a lease"), a.request_lease(64, LONG)).unwrap();
    soon(&format!("{fate:?}: its renewal"), remote.renew(LONG)).unwrap();
    let lent = a.lend(a.alloc(72).unwrap(), LONG, Access::REMOTE).unwrap();
    let borrowed = soon(&format!("{fate:?}: a lease unasked"), async {
        loop {
            let borrowed = b.next_lease().await.unwrap();
            if borrowed.len() == 72 {
                return borrowed;
            }
        }
    });
    drop((remote, lent, borrowed));
    let (one, other) = (a.shutdown(SOON), async { b.closed().await });
    soon(&format!("{fate:?}: the shutdown"), join(one, other)).0.unwrap();
}

/// Runs once for each fate: `futures` makes those that meet it.
fn whatever_the_fate<F>(settings: fn(&str) -> Node, futures: F)
where
    F: for<'a> Fn(&'a Connection, &'a Connection, RemoteRegion) -> Vec<Held<'a>>,
{
    for fate in FATES {
        let (near, far) = (settings("near"), settings("far"));
        let (a, b) = block_on(between(&near, &far));
        let (_region, at) = exposed(&far, 4096);
        let held = meet(fate, futures(&a, &b, at));
        goes_on(fate, &a, &b, at);
        drop(held);
    }
}

fn small(_: &str) -> Node {
    node(|b| b.send_depth(8).receives(8).connect_timeout(LONG).liveness(Some(LONG)))
}

#[test]
fn sends() {
    // More than the send queue, and the peer's receives, have room for.
    whatever_the_fate(small, |a, _, _| {
        let send = |_| -> Held<'_> { Box::pin(async { drop(a.send(text(a, b"held")).await) }) };
        (0..20).map(send).collect()
    });
}

#[test]
fn receives() {
    whatever_the_fate(small, |a, b, _| {
        let receive = |conn| -> Held<'_> {
            Box::pin(async move {
                let conn: &Connection = conn;
                drop(conn.recv().await);
            })
        };
        (0..3).flat_map(|_| [receive(a), receive(b)]).collect()
    });
}

#[test]
fn notifications() {
    whatever_the_fate(small, |_, b, _| {
        let one = |_| -> Held<'_> { Box::pin(async { drop(b.notified().await) }) };
        (0..3).map(one).collect()
    });
}

#[test]
fn writes_reads_and_atomics() {
    whatever_the_fate(small, |a, _, at| {
        let one = |index: usize| -> Held<'_> {
            Box::pin(async move {
                match index % 3 {
                    0 => drop(a.write(text(a, &[1; 100]), at.at(1024)).await),
                    1 => drop(a.read(a.alloc(100).unwrap(), at.at(1024)).await),
                    _ => drop(a.fetch_add(at.at(2048), 1).await),
                }
            })
        };
        (0..30).map(one).collect()
    });
}

#[test]
fn leases() {
    whatever_the_fate(small, |a, b, _| {
        let mut all: Vec<Held<'_>> = Vec::new();
        for _ in 0..5 {
            all.push(Box::pin(async { drop(a.request_lease(64, LONG).await) }));
            all.push(Box::pin(async { drop(b.next_lease().await) }));
        }
        all
    });
}

#[test]
fn everything_at_once() {
    whatever_the_fate(small, |a, b, at| {
        let mut all: Vec<Held<'_>> = Vec::new();
        for index in 0..12 {
            all.push(Box::pin(async { drop(b.recv().await) }));
            all.push(Box::pin(async { drop(a.recv().await) }));
            all.push(Box::pin(async { drop(b.notified().await) }));
            all.push(Box::pin(async { drop(a.send(text(a, b"held")).await) }));
            all.push(Box::pin(async { drop(b.send(text(b, b"held")).await) }));
            all.push(Box::pin(async move {
                drop(a.write_notify(text(a, &[2; 8]), at.at(1024 + 8 * index), 9).await);
            }));
            all.push(Box::pin(async { drop(a.request_lease(64, LONG).await) }));
            all.push(Box::pin(async { drop(b.next_lease().await) }));
        }
        all
    });
}

#[test]
fn memory() {
    for fate in FATES {
        let node = node(|b| b.pool_bytes(1 << 20));
        let pool = node.pool();
        let all = pool.alloc(1 << 20).unwrap();
        let wait = |_| -> Held<'_> { Box::pin(async { drop(pool.alloc_wait(64).await) }) };
        let held = meet(fate, (0..5).map(wait).collect());
        let mut last = Box::pin(pool.alloc_wait(100));
        assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(all);
        soon(&format!("{fate:?}: memory"), last).unwrap();
        drop(held);
    }
}

#[test]
fn accepting_and_connecting() {
    for fate in FATES {
        let (server, client) = (small("server"), small("client"));
        let listener = block_on(server.listen(address())).unwrap();
        let to = listener.local_addr();
        let mut futures: Vec<Held<'_>> = Vec::new();
        for _ in 0..3 {
            futures.push(Box::pin(async { drop(listener.accept().await) }));
            futures.push(Box::pin(async { drop(listener.request().await) }));
        }
        let held = meet(fate, futures);
        // What a held one has begun with is let in by the next.
        for _ in 0..4 {
            let both = join(client.connect(to), listener.accept());
            let (a, b) = soon(&format!("{fate:?}: a connection"), both);
            let (a, b) = (a.unwrap(), b.unwrap());
            soon("a message", join(a.send(text(&a, b"in")), b.recv())).1.unwrap();
        }
        let connecting =
            (0..3).map(|_| -> Held<'_> { Box::pin(async { drop(client.connect(to).await) }) });
        let connecting = meet(fate, connecting.collect());
        let mut honest = std::pin::pin!(client.connect(to));
        let start = Instant::now();
        let mut none = Context::from_waker(Waker::noop());
        assert!(honest.as_mut().poll(&mut none).is_pending());
        // Those that are held are let in as well, or not, as far as they go by themselves.
        let mut accepted = Vec::new();
        let conn = loop {
            match soon("the honest one", select(honest.as_mut(), Box::pin(listener.accept()))) {
                Either::Left((conn, _)) => break conn.unwrap(),
                Either::Right((one, _)) => accepted.push(one),
            }
        };
        assert!(start.elapsed() < SOON);
        drop((held, connecting, conn, accepted));
    }
}

#[cfg(feature = "tokio")]
#[test]
fn stream_reads_and_writes() {
    use fabric_async::Stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    for fate in [Fate::HeldAfterOnePoll, Fate::ForgottenAfterOnePoll, Fate::NeverPolled] {
        let (a, b) = block_on(between(&small("near"), &small("far")));
        // From before they are streams: sends that wait for room, and a receive.
        let before: Vec<Held<'_>> = (0..20)
            .map(|_| -> Held<'_> { Box::pin(async { drop(a.send(text(&a, b"held")).await) }) })
            .chain([Box::pin(async { drop(b.recv().await) }) as Held<'_>])
            .collect();
        let before = meet(fate, before);
        let (mut from, mut to) = (Stream::from(a.clone()), Stream::from(b.clone()));
        let mut bytes = [0; 10];
        // A read and a write that are polled once; the next ones go on.
        let held = meet(fate, vec![Box::pin(async { drop(to.read(&mut bytes).await) })]);
        drop(held);
        let both = join(
            async {
                from.write_all(&[7; 100_000]).await.unwrap();
                from.shutdown().await.unwrap();
            },
            async {
                let mut all = Vec::new();
                to.read_to_end(&mut all).await.unwrap();
                all
            },
        );
        let ((), all) = soon(&format!("{fate:?}: a stream"), both);
        assert!(all.ends_with(&[7; 90_000]));
        drop(before);
    }
}
