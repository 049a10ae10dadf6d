//! Wakers that block, panic, or call back: they hold up neither leases nor other wakers, and find no lock held.

#![cfg(not(miri))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use common::{between, eventually, exposed, node};
use fabric::Access;
use fabric_async::{Connection, block_on};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls what it has when it is woken.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn calls(what: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(Calls(what)).into()
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>, waker: &Waker) {
    assert!(future.poll(&mut Context::from_waker(waker)).is_pending());
}

/// The owner's lease of 50 ms ends in time, by what the owner sees.
fn a_lease_ends_in_time(owner: &Connection) {
    let time = Duration::from_millis(50);
    let (start, lent) =
        (Instant::now(), owner.lend(owner.alloc(64).unwrap(), time, Access::REMOTE).unwrap());
    eventually("the lease ends", || !lent.is_active());
    assert!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
}

#[test]
fn one_that_blocks_delays_neither_leases_nor_other_wakers() {
    let (near, far) = (node(|b| b), node(|b| b));
    let (a, b) = block_on(between(&near, &far));
    let (c, d) = block_on(between(&near, &far));
    let go = Arc::new(AtomicBool::new(false));
    let wait = go.clone();
    let blocks = calls(move || {
        while !wait.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let count = Arc::<Count>::default();
    // Some that block, and behind them one that does not; the node's thread wakes them when the peer leaves.
    let mut closed: Vec<_> = (0..3).map(|_| Box::pin(a.closed())).collect();
    closed.iter_mut().for_each(|one| poll_once(one.as_mut(), &blocks));
    let mut other = pin!(a.closed());
    poll_once(other.as_mut(), &Arc::clone(&count).into());
    b.close();
    a_lease_ends_in_time(&c);
    eventually("the other one is woken", || count.0.load(Ordering::Relaxed) == 1);
    // And the nodes go on.
    assert_eq!(
        block_on(async { (c.send(c.alloc(8).unwrap()).await, d.recv().await) }).1.unwrap().len(),
        8
    );
    go.store(true, Ordering::Relaxed);
}

#[test]
fn one_that_panics_loses_no_other_and_ends_no_thread() {
    let (near, far) = (node(|b| b), node(|b| b));
    let (a, b) = block_on(between(&near, &far));
    let (c, _d) = block_on(between(&near, &far));
    let panics = calls(|| panic!("a waker's, which is part of this test"));
    let count = Arc::<Count>::default();
    let mut first = pin!(a.closed());
    poll_once(first.as_mut(), &panics);
    let mut second = pin!(a.closed());
    poll_once(second.as_mut(), &Arc::clone(&count).into());
    b.close();
    eventually("the other one is woken", || count.0.load(Ordering::Relaxed) == 1);
    a_lease_ends_in_time(&c);
    let remote = block_on(c.request_lease(64, Duration::from_secs(5))).unwrap();
    assert_eq!(remote.len(), 64);
}

/// What a dropped operation had goes back to the pool while others poll; a future that waits for it is woken
/// where every call is allowed.
#[test]
fn one_may_use_the_connection_while_others_poll() {
    const BIG: usize = 32 << 20;
    let near = node(|b| b.pool_bytes(BIG + (1 << 20)).max_message(4096).receives(4));
    let far = node(|b| b.receives(1));
    let (a, b) = block_on(between(&near, &far));
    let (region, at) = exposed(&far, BIG);
    let big = a.alloc(BIG).unwrap();
    // Whatever comes behind these two waits until the peer receives, also where a write takes no time.
    block_on(a.send(a.alloc(8).unwrap())).unwrap();
    let mut waits = Box::pin(a.send(a.alloc(8).unwrap()));
    poll_once(waits.as_mut(), Waker::noop());
    let done = Arc::new(AtomicUsize::new(0));
    let (conn, small) = (a.clone(), done.clone());
    let sends = calls(move || {
        let buffer = conn.alloc(8).unwrap();
        block_on(conn.send(buffer)).unwrap();
        small.fetch_add(1, Ordering::Relaxed);
    });
    let mut waiting = Box::pin(near.pool().alloc_wait(BIG));
    poll_once(waiting.as_mut(), &sends);
    let mut write = Box::pin(a.write(big, at.at(0)));
    poll_once(write.as_mut(), Waker::noop());
    drop(write);
    let receiving = std::thread::spawn(move || {
        (0..4).for_each(|_| drop(block_on(b.recv()).unwrap()));
        b
    });
    block_on(waits).unwrap();
    // It takes the completion of the write, and so wakes the one that waits for memory.
    let buffer = a.alloc(16).unwrap();
    block_on(a.send(buffer)).unwrap();
    eventually("it has sent", || done.load(Ordering::Relaxed) == 1);
    drop((receiving.join().unwrap(), region));
}

/// A wait for the end that is dropped leaves no waker behind: a task for each request on one connection would, for as long as that
/// lives.
#[test]
fn a_wait_for_the_end_that_is_dropped_leaves_nothing() {
    let node = node(|b| b);
    let (a, b) = block_on(between(&node, &node));
    let stays = Arc::<Count>::default();
    let mut other = pin!(a.closed());
    poll_once(other.as_mut(), &Arc::clone(&stays).into());
    for _ in 0..100 {
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let mut closed = Box::pin(a.closed());
        poll_once(closed.as_mut(), &waker);
        poll_once(closed.as_mut(), &waker);
        drop((closed, waker));
        assert_eq!(Arc::strong_count(&count), 1, "what still has the waker");
    }
    b.close();
    eventually("the one that stayed is woken", || stays.0.load(Ordering::Relaxed) == 1);
}
