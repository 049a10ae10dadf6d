//! What the asynchronous layer costs over the poll API, side by side in one run.
//!
//! `cargo bench -p anyfabric-async --bench layer`. The ping-pong has a thread for each end, and wants a processor for each. In the
//! other lines both ends are on one queue, and one thread, of this process: so they hold on a busy machine too, and
//! show all that a message costs at both ends. `FABRIC_PROVIDER` chooses the provider; set `FABRIC_BENCH_ADDRESS` if that is not reached by 127.0.0.1. Each line is the median of
//! many short rounds in which the two take turns, since machines have moods; what is more or less is the median of what it is
//! in each round, with its 95 % interval.

#![allow(clippy::unwrap_used)] // what fails here ends the benchmark

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use fabric::{Access, Completion, CompletionQueue, Domain, Endpoint, Hints, Region, RemoteRegion};
use fabric_async::{Connection, Node, WaitStrategy, block_on};

const ROUNDS: usize = 301;
const PINGS: usize = 100;
/// Messages of a round before the clock runs: the other had its turn, and a background thread took over.
const WARM_UP: usize = 20;
const WRITE: usize = 1 << 20;
const WRITES: usize = 24;
const WRITE_ROUNDS: usize = 61;
/// Writes under way at a time.
const WINDOW: usize = 8;

fn address() -> SocketAddr {
    let ip = std::env::var("FABRIC_BENCH_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
    format!("{ip}:0").parse().unwrap()
}

/// The median, and the 95 % interval of it, by order statistics.
fn median(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    let (middle, off) = (all.len() / 2, (all.len() as f64).sqrt().round() as usize);
    (all[middle], all[middle - off], all[middle + off])
}

/// Both take turns; gives the medians of each, and of what `compare` makes of them in each round.
fn turns(
    rounds: usize,
    mut one: impl FnMut() -> f64,
    mut other: impl FnMut() -> f64,
    compare: fn(f64, f64) -> f64,
) -> (f64, f64, (f64, f64, f64)) {
    let pairs: Vec<_> = (0..rounds).map(|_| (one(), other())).collect();
    let compared = pairs.iter().map(|(one, other)| compare(*one, *other)).collect();
    let (ones, others) = pairs.into_iter().unzip();
    (median(ones).0, median(others).0, median(compared))
}

// ------------------------------------------------------------------------------------------ poll API

/// Both ends, on one domain and one queue.
struct Ends {
    ends: [Endpoint; 2],
    queue: CompletionQueue,
    region: Region,
    remote: RemoteRegion,
}

impl Ends {
    fn new() -> Self {
        let domain = Domain::open(&Hints::default()).unwrap();
        let queue = domain.completion_queue(1024).unwrap();
        let end = || domain.endpoint().build(&queue).unwrap();
        let ends = [end(), end()];
        let listener = domain.listen(address()).unwrap();
        ends[0].connect(listener.local_addr(), b"").unwrap();
        listener.accept(None).unwrap().accept(&ends[1], b"").unwrap();
        ends.iter().for_each(|end| drop(end.wait_connected(None).unwrap()));
        let region = domain.alloc((WINDOW + 1) * WRITE, Access::ALL).unwrap();
        region.fill(1).unwrap();
        let remote = region.remote();
        for end in &ends {
            (0..8).for_each(|_| end.recv(region.slice(64..128), 2).unwrap());
        }
        Ends { ends, queue, region, remote }
    }

    /// Microseconds of one way.
    fn pings(&self) -> f64 {
        let mut out = [Completion::default(); 64];
        let mut start = Instant::now();
        for way in 0..WARM_UP + 2 * PINGS {
            if way == WARM_UP {
                start = Instant::now();
            }
            let (from, to) = (&self.ends[way % 2], &self.ends[(way + 1) % 2]);
            from.send(self.region.slice(..64), 1).unwrap();
            let mut left = 2;
            while left > 0 {
                let count = self.queue.poll(&mut out).unwrap();
                assert!(out[..count].iter().all(Completion::is_ok));
                left -= count;
            }
            to.recv(self.region.slice(64..128), 2).unwrap();
        }
        start.elapsed().as_secs_f64() * 1e6 / PINGS as f64 / 2.0
    }
}

fn poll_writes(a: &Ends) -> f64 {
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    let mut out = [Completion::default(); 16];
    while done < WRITES {
        while posted < WRITES && posted - done < WINDOW {
            // From as many buffers as the layer has under way.
            let from = (posted % WINDOW + 1) * WRITE;
            let slice = a.region.slice(from..from + WRITE);
            a.ends[0].write(slice, a.remote.at(0), 1).unwrap();
            posted += 1;
        }
        done += a.queue.poll(&mut out).unwrap();
    }
    (WRITES * WRITE) as f64 / start.elapsed().as_secs_f64() / 1e9
}

// ----------------------------------------------------------------------------------------- the layer

/// Both ends, on one node.
fn async_pair(wait: WaitStrategy) -> (Connection, Connection) {
    let node = Node::builder().wait(wait).leases(false).build().unwrap();
    connect(&node, &node)
}

fn connect(from: &Node, to: &Node) -> (Connection, Connection) {
    let listener = block_on(to.listen(address())).unwrap();
    let to = listener.local_addr();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| block_on(listener.accept()).unwrap());
        (block_on(from.connect(to)).unwrap(), accepting.join().unwrap())
    })
}

async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(|cx| {
        if left.is_none()
            && let Poll::Ready(done) = a.as_mut().poll(cx)
        {
            left = Some(done);
        }
        if right.is_none()
            && let Poll::Ready(done) = b.as_mut().poll(cx)
        {
            right = Some(done);
        }
        match (left.take(), right.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (left, right) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// Microseconds of one way: until the receiver has the message, and the sender knows.
fn async_pings(a: &Connection, b: &Connection) -> f64 {
    block_on(async {
        let mut buffer = a.alloc(64).unwrap();
        let mut start = Instant::now();
        for way in 0..WARM_UP + 2 * PINGS {
            if way == WARM_UP {
                start = Instant::now();
            }
            let (from, to) = if way % 2 == 0 { (a, b) } else { (b, a) };
            let (sent, received) = both(from.send(buffer), to.recv()).await;
            received.unwrap();
            buffer = sent.unwrap();
        }
        start.elapsed().as_secs_f64() * 1e6 / PINGS as f64 / 2.0
    })
}

fn async_writes(a: &Connection, to: RemoteRegion) -> f64 {
    block_on(async {
        let start = Instant::now();
        let mut flying = std::collections::VecDeque::new();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..WRITES {
            if flying.len() == WINDOW {
                let oldest: std::pin::Pin<Box<fabric_async::Operation<_>>> =
                    flying.pop_front().unwrap();
                drop(oldest.await.unwrap());
            }
            let mut write = Box::pin(a.write(a.alloc(WRITE).unwrap(), to.at(0)));
            if write.as_mut().poll(&mut cx).is_pending() {
                flying.push_back(write);
            }
        }
        for write in flying {
            drop(write.await.unwrap());
        }
        (WRITES * WRITE) as f64 / start.elapsed().as_secs_f64() / 1e9
    })
}

// ----------------------------------------------------------------------------------------- ping-pong

/// One side of a ping-pong by the poll API, with as many receives posted ahead as the layer has.
struct Side {
    end: Endpoint,
    queue: CompletionQueue,
    region: Region,
}

impl Side {
    fn pair() -> (Side, Side) {
        let side = || {
            let domain = Domain::open(&Hints::default()).unwrap();
            let queue = domain.completion_queue(1024).unwrap();
            let end = domain.endpoint().build(&queue).unwrap();
            let region = domain.alloc(128, Access::LOCAL_WRITE).unwrap();
            (0..16).for_each(|_| end.recv(region.slice(64..128), 2).unwrap());
            (domain, Side { end, queue, region })
        };
        let ((_, a), (domain, b)) = (side(), side());
        let listener = domain.listen(address()).unwrap();
        a.end.connect(listener.local_addr(), b"").unwrap();
        listener.accept(None).unwrap().accept(&b.end, b"").unwrap();
        for side in [&a, &b] {
            side.end.wait_connected(None).unwrap();
        }
        (a, b)
    }

    /// Answers or asks, so many times; gives microseconds of half a round trip.
    fn play(&self, asks: bool) -> f64 {
        let mut out = [Completion::default(); 64];
        let mut start = Instant::now();
        let (mut sent, mut received) = (0, 0);
        for way in 0..WARM_UP + PINGS {
            if way == WARM_UP {
                start = Instant::now();
            }
            if asks {
                self.end.send(self.region.slice(..64), 1).unwrap();
            }
            while received <= way || (asks && sent < way) {
                let count = self.queue.poll(&mut out).unwrap();
                for completion in &out[..count] {
                    assert!(completion.is_ok());
                    if completion.context == 1 { sent += 1 } else { received += 1 }
                }
            }
            self.end.recv(self.region.slice(64..128), 2).unwrap();
            if !asks {
                self.end.send(self.region.slice(..64), 1).unwrap();
            }
        }
        let took = start.elapsed().as_secs_f64() * 1e6 / PINGS as f64 / 2.0;
        while sent < WARM_UP + PINGS {
            sent += self.queue.poll(&mut out).unwrap();
        }
        took
    }
}

/// The same through the layer.
fn async_play(conn: &Connection, asks: bool) -> f64 {
    block_on(async {
        let mut start = Instant::now();
        let mut buffer = Some(conn.alloc(64).unwrap());
        for way in 0..WARM_UP + PINGS {
            if way == WARM_UP {
                start = Instant::now();
            }
            if asks {
                let (sent, received) = both(conn.send(buffer.take().unwrap()), conn.recv()).await;
                received.unwrap();
                buffer = Some(sent.unwrap());
            } else {
                let message = conn.recv().await.unwrap();
                buffer = Some(conn.send(message.buffer).await.unwrap());
            }
        }
        start.elapsed().as_secs_f64() * 1e6 / PINGS as f64 / 2.0
    })
}

/// Both ends, on a node each.
fn two_nodes() -> (Connection, Connection) {
    let node = || Node::builder().wait(WaitStrategy::Busy).leases(false).build().unwrap();
    let (a, b) = (node(), node());
    connect(&a, &b)
}

/// The two take turns in asking; another thread answers both.
fn ping_pong() {
    let ((ask, answer), (near, far)) = (Side::pair(), two_nodes());
    let (polls, asyncs, (more, from, to)) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                answer.play(false);
                async_play(&far, false);
            }
        });
        turns(ROUNDS, || ask.play(true), || async_play(&near, true), |polls, asyncs| asyncs - polls)
    });
    println!(
        "64 B ping-pong, half a round trip: poll API {polls:.2} us, Busy {asyncs:.2} us ({more:+.2}; {from:+.2} to {to:+.2})"
    );
}

// ------------------------------------------------------------------------------------------- buffers

fn nanos(times: usize, mut step: impl FnMut()) -> f64 {
    (0..times / 10).for_each(|_| step());
    let start = Instant::now();
    (0..times).for_each(|_| step());
    start.elapsed().as_nanos() as f64 / times as f64
}

fn main() {
    let ends = Ends::new();
    println!("over {}", Node::shared().unwrap().domain().provider());
    ping_pong();
    for wait in [WaitStrategy::Busy, WaitStrategy::Adaptive, WaitStrategy::Blocking] {
        let (a, b) = async_pair(wait);
        let (polls, asyncs, (more, from, to)) =
            turns(ROUNDS, || ends.pings(), || async_pings(&a, &b), |polls, asyncs| asyncs - polls);
        println!(
            "64 B one way, both ends on one thread: poll API {polls:.2} us, {wait:?} {asyncs:.2} us ({more:+.2}; {from:+.2} to {to:+.2})"
        );
    }
    let (a, b) = async_pair(WaitStrategy::Busy);
    let region = b.node().domain().alloc(WRITE, Access::ALL).unwrap();
    let (polls, asyncs, (part, from, to)) = turns(
        WRITE_ROUNDS,
        || poll_writes(&ends),
        || async_writes(&a, region.remote()),
        |polls, asyncs| asyncs / polls,
    );
    println!(
        "1 MiB writes: poll API {polls:.2} GB/s, layer {asyncs:.2} GB/s ({part:.3} of it; {from:.3} to {to:.3})"
    );
    let pool = a.node().pool().clone();
    let domain = a.node().domain().clone();
    for len in [64, 4096, 65536, 1 << 20] {
        let cached = nanos(100_000, || drop(pool.alloc_dirty(len).unwrap()));
        let registered = nanos(300, || drop(domain.alloc(len, Access::LOCAL_WRITE).unwrap()));
        println!(
            "a buffer of {len} B: {cached:.0} ns from the pool, {registered:.0} ns registered"
        );
    }
}
