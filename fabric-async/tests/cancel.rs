//! Futures dropped at random moments: nothing is lost, nothing leaks, and no byte changes that should not.
//!
//! `FABRIC_ASYNC_CANCELS` says how many operations (default 20000), `FABRIC_ASYNC_SEED` repeats a run.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{eventually, exposed, node, pair};
use fabric_async::{Buffer, Connection, Error, Wait, block_on};

/// A generator of numbers, good enough for dice (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// A buffer that nobody but this test may write to, until it is dropped.
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

type Job = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

const LEN: usize = 4096;
/// What reads bring; no canary has it.
const FILL: u8 = 0xEE;

fn job(dice: &mut Dice, a: &Connection, b: &Connection, at: fabric::RemoteRegion) -> Job {
    let len = 1 + dice.below(LEN);
    let (conn, kind) = (a.clone(), dice.below(8));
    let peer = b.clone();
    match kind {
        // Each receives what the other sends; a dropped receive must not lose the message.
        0 | 1 => Box::pin(async move {
            let mut buffer = conn.alloc(len)?;
            buffer.fill(FILL);
            drop(conn.send(buffer).await?);
            Ok(())
        }),
        2 | 3 => Box::pin(async move {
            let message = peer.recv().await?;
            assert!(message.iter().all(|byte| *byte == FILL));
            Ok(())
        }),
        4 => Box::pin(async move {
            let mut buffer = conn.alloc(len)?;
            buffer.fill(FILL);
            drop(conn.write(buffer.slice(len / 2..), at.at(64)).await?);
            Ok(())
        }),
        5 => Box::pin(async move {
            let buffer = conn.read(conn.alloc_wait(len).await?, at.at(64)).await?;
            assert!(buffer.iter().all(|byte| *byte == FILL));
            Ok(())
        }),
        6 => Box::pin(async move {
            let parts = vec![conn.alloc(len)?, conn.alloc(1)?];
            drop(conn.read(parts, at.at(64)).fence().await?);
            Ok(())
        }),
        _ => Box::pin(async move {
            conn.fetch_add(at.at(0), 1).await?;
            Ok(())
        }),
    }
}

fn run(wait: Wait, operations: u64, seed: u64) {
    println!("{wait:?}: FABRIC_ASYNC_CANCELS={operations} FABRIC_ASYNC_SEED={seed}");
    let node = node(|b| b.wait(wait).pool_bytes(8 << 20).send_depth(16).max_message(LEN));
    let (a, b) = block_on(pair(&node));
    let (region, remote) = exposed(&node, 64 + 2 * LEN);
    region.fill(FILL).unwrap();
    region.put(0, &0u64).unwrap();
    let mut dice = Dice(seed | 1);
    let mut cx = Context::from_waker(Waker::noop());
    let mut jobs: VecDeque<Job> = VecDeque::new();
    let mut canaries = VecDeque::new();
    let (mut done, mut dropped) = (0u64, 0u64);
    for round in 0..operations {
        let both = if dice.below(2) == 0 { (&a, &b) } else { (&b, &a) };
        jobs.push_back(job(&mut dice, both.0, both.1, remote));
        canaries.extend(Canary::new(&a, 1 + dice.below(LEN), round as u8 & 0x7F));
        while canaries.len() > 24 {
            canaries.pop_front();
        }
        for _ in 0..dice.below(8) {
            let index = dice.below(jobs.len());
            if let Poll::Ready(outcome) = jobs[index].as_mut().poll(&mut cx) {
                outcome.unwrap_or_else(|error| {
                    assert!(matches!(error, Error::PoolExhausted { .. }), "{error}");
                });
                drop(jobs.swap_remove_back(index));
                done += 1;
                if jobs.is_empty() {
                    break;
                }
            }
        }
        // However fast they are, some are dropped.
        while jobs.len() > 48 || (!jobs.is_empty() && dice.below(5) == 0) {
            let index = dice.below(jobs.len());
            drop(jobs.swap_remove_back(index));
            dropped += 1;
        }
    }
    println!("{done} done, {dropped} dropped");
    assert!(dropped > operations / 20 && done > operations / 20);
    jobs.clear();
    // Still alive, and what was sent before and not canceled still arrives.
    let deadline = Instant::now() + Duration::from_secs(60);
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
        }
    }
    drop(canaries);
    drop((a, b));
    // The node's thread may be serving one of them still.
    eventually("all memory is back", || node.pool().metrics().in_use == 0);
    eventually("no operation is left", || node.operations() == 0);
    assert!(region.to_vec(64..).unwrap().iter().all(|byte| *byte == FILL));
}

#[test]
fn random_cancellation() {
    let operations = setting("FABRIC_ASYNC_CANCELS").unwrap_or(20_000);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = setting("FABRIC_ASYNC_SEED").unwrap_or(clock.as_nanos() as u64);
    for wait in [Wait::Busy, Wait::Blocking, Wait::Adaptive] {
        run(wait, operations, seed);
    }
}
