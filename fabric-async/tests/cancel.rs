//! Futures of operations dropped at random moments: nothing is lost, nothing leaks, and no byte changes that should not.
//!
//! `FABRIC_ASYNC_CANCELS` says how many are to be dropped while they wait, `FABRIC_ASYNC_SEED` repeats a run.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::drops::{Counted, Counts, Dice, wanted};
use common::{eventually, exposed, node, pair};
use fabric::{Access, Region, RemoteRegion};
use fabric_async::{Buffer, Connection, Error, Node, WaitStrategy, block_on};

/// A buffer that only this test may write to, until it is dropped.
struct Canary {
    buffer: Buffer,
    stamp: u8,
}

impl Canary {
    fn new(conn: &Connection, len: usize, stamp: u8) -> Option<Self> {
        let mut buffer = conn.alloc(len).ok()?;
        buffer.fill(stamp);
        Some(Canary { buffer, stamp })
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        assert!(self.buffer.iter().all(|byte| *byte == self.stamp), "a stray write");
    }
}

/// The last few canaries; their stamps are bytes that no operation brings.
#[derive(Default)]
struct Canaries(VecDeque<Canary>);

impl Canaries {
    fn next(&mut self, dice: &mut Dice, conn: &Connection) {
        self.0.extend(Canary::new(conn, 1 + dice.below(LEN), dice.below(0x80) as u8));
        while self.0.len() > 24 {
            self.0.pop_front();
        }
    }
}

type Job = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

const LEN: usize = 4096;
/// What reads bring; no canary has it.
const FILL: u8 = 0xEE;
const LONG: Duration = Duration::from_secs(60);

fn filled(conn: &Connection, len: usize) -> Result<Buffer, Error> {
    let mut buffer = conn.alloc(len)?;
    buffer.fill(FILL);
    Ok(buffer)
}

/// One of all that can be awaited of a connection. Each end receives what the other sends; a dropped receive must not lose
/// the message, or notification.
fn job(dice: &mut Dice, conn: &Connection, peer: &Connection, at: RemoteRegion) -> Job {
    let (conn, peer) = (conn.clone(), peer.clone());
    let (len, kind) = (1 + dice.below(LEN), dice.below(32));
    match kind {
        0..6 => Box::pin(async move {
            drop(conn.send(filled(&conn, len)?).await?);
            Ok(())
        }),
        6..12 => Box::pin(async move {
            let message = peer.recv().await?;
            assert!(message.iter().all(|byte| *byte == FILL));
            Ok(())
        }),
        12..15 => Box::pin(async move {
            drop(conn.write(filled(&conn, len)?.slice(len / 2..), at.at(64)).await?);
            Ok(())
        }),
        15..18 => Box::pin(async move {
            let buffer = conn.read(conn.alloc_wait(len).await?, at.at(64)).await?;
            assert!(buffer.iter().all(|byte| *byte == FILL));
            Ok(())
        }),
        18..21 => Box::pin(async move {
            let parts = vec![conn.alloc(len)?, conn.alloc(1)?];
            drop(conn.read(parts, at.at(64)).fence().await?);
            Ok(())
        }),
        21 | 22 => Box::pin(async move {
            conn.fetch_add(at.at(0), 1).await?;
            Ok(())
        }),
        23 | 24 => Box::pin(async move {
            conn.compare_swap(at.at(8), 0, 1).await?;
            Ok(())
        }),
        25 | 26 => Box::pin(async move {
            drop(conn.write_notify(filled(&conn, len)?, at.at(64), len as u32).await?);
            Ok(())
        }),
        27 | 28 => Box::pin(async move {
            let notification = peer.notified().await?;
            assert_eq!(notification.immediate, notification.len as u32);
            Ok(())
        }),
        29 => Box::pin(async move {
            drop(conn.write(filled(&conn, len)?, at.at(64)).delivered().await?);
            Ok(())
        }),
        30 => Box::pin(async move {
            let remote = conn.request_lease(LEN, LONG).await?;
            let buffer = conn.write(filled(&conn, len)?, remote.at(0)).await?;
            remote.renew(LONG).await?;
            let buffer = conn.read(buffer, remote.at(0)).await?;
            assert!(buffer.iter().all(|byte| *byte == FILL));
            Ok(())
        }),
        _ => Box::pin(async move {
            // Which of those lent comes, and whether it is still lent then, is chance.
            let lent = conn.lend(filled(&conn, LEN)?, LONG, Access::REMOTE)?;
            let remote = peer.next_lease().await?;
            drop((lent, remote));
            Ok(())
        }),
    }
}

/// What is no failure: many at once may have all memory, lend all they may, or offer faster than the node's thread can send.
fn check(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::PoolExhausted { .. } | Error::NotGranted(_)) => {}
        Err(Error::Fabric(fabric::Error::Again)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Two connected ends, and memory that their operations change: a counter, a flag, and bytes that stay as they are.
fn scene(wait: WaitStrategy) -> (Node, Connection, Connection, Region, RemoteRegion) {
    let node = node(|b| b.wait(wait).pool_bytes(8 << 20).send_depth(16).max_message(LEN));
    let (a, b) = block_on(pair(&node));
    let (region, remote) = exposed(&node, 64 + 2 * LEN);
    region.fill(FILL).unwrap();
    region.put(0, &[0u64; 2]).unwrap();
    (node, a, b, region, remote)
}

/// Both ends are still alive, what was sent before and not canceled still arrives, and nothing is left of the rest.
fn settle(node: &Node, a: Connection, b: Connection, region: &Region) {
    let mut cx = Context::from_waker(Waker::noop());
    let deadline = Instant::now() + LONG;
    for (from, to) in [(&a, &b), (&b, &a)] {
        let mut last = Box::pin(from.send(node.pool().alloc_from(b"last").unwrap()));
        let mut sent = false;
        loop {
            assert!(Instant::now() < deadline, "the last message does not come");
            sent = sent || last.as_mut().poll(&mut cx).is_ready();
            let mut recv = Box::pin(to.recv());
            if let Poll::Ready(message) = recv.as_mut().poll(&mut cx)
                && *message.unwrap() == *b"last"
            {
                break;
            }
            // Notifications use the same receives.
            let _ = Pin::new(&mut to.notified()).poll(&mut cx);
        }
    }
    drop((a, b));
    // The node's thread may be serving one of them still.
    eventually("all memory is back", || node.pool().metrics().in_use == 0);
    eventually("no operation is left", || node.operations() == 0);
    assert!(region.to_vec(64..).unwrap().iter().all(|byte| *byte == FILL));
}

/// One thread polls, and drops, whichever it likes.
fn run(wait: WaitStrategy, wanted: u64) {
    let mut dice = Dice::new(&format!("{wait:?}"));
    let (node, a, b, region, remote) = scene(wait);
    let mut cx = Context::from_waker(Waker::noop());
    let counts = Arc::<Counts>::default();
    let (mut jobs, mut canaries) = (VecDeque::new(), Canaries::default());
    while counts.dropped() < wanted {
        let both = if dice.below(2) == 0 { (&a, &b) } else { (&b, &a) };
        jobs.push_back(Counted::new(job(&mut dice, both.0, both.1, remote), &counts));
        canaries.next(&mut dice, &a);
        for _ in 0..dice.below(8) {
            let index = dice.below(jobs.len());
            if let Poll::Ready(outcome) = Pin::new(&mut jobs[index]).poll(&mut cx) {
                check(outcome);
                drop(jobs.swap_remove_back(index));
                if jobs.is_empty() {
                    break;
                }
            }
        }
        // However fast they are, some are dropped.
        while jobs.len() > 48 || (!jobs.is_empty() && dice.below(5) == 0) {
            drop(jobs.swap_remove_back(dice.below(jobs.len())));
        }
    }
    println!("{} done, {} dropped while they waited", counts.done(), counts.dropped());
    assert!(counts.done() > wanted / 20);
    drop((jobs, canaries));
    settle(&node, a, b, &region);
}

#[test]
fn random_cancellation() {
    // Where each poll looks for 20 us there are fewer in a second.
    for (wait, share) in
        [(WaitStrategy::Busy, 2), (WaitStrategy::Blocking, 17), (WaitStrategy::Adaptive, 17)]
    {
        run(wait, wanted() * share / 40);
    }
}

/// The threads of a runtime run tasks that are aborted: on any thread, and while another one is about to wake them.
#[test]
#[cfg(feature = "tokio")]
fn random_abortion() {
    let wanted = wanted() / 10;
    let mut dice = Dice::new("tasks");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(3).enable_all().build().unwrap();
    let (node, a, b, region, remote) = scene(WaitStrategy::Adaptive);
    let counts = Arc::<Counts>::default();
    let (mut tasks, mut canaries) = (VecDeque::new(), Canaries::default());
    let deadline = Instant::now() + LONG + Duration::from_millis(wanted);
    while counts.dropped() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted}", counts.dropped());
        let both = if dice.below(2) == 0 { (&a, &b) } else { (&b, &a) };
        let job = job(&mut dice, both.0, both.1, remote);
        tasks.push_back(runtime.spawn(Counted::new(job, &counts)));
        canaries.next(&mut dice, &a);
        while tasks.len() > 48 || (!tasks.is_empty() && dice.below(2) == 0) {
            let task = tasks.swap_remove_back(dice.below(tasks.len())).unwrap();
            task.abort();
            match runtime.block_on(task) {
                Ok(outcome) => check(outcome),
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
    }
    println!("{} done, {} aborted while they waited", counts.done(), counts.dropped());
    assert!(counts.done() > wanted / 20);
    drop(canaries);
    for task in tasks {
        task.abort();
        let _ = runtime.block_on(task);
    }
    settle(&node, a, b, &region);
}
