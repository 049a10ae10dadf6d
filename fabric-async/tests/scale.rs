//! Thousands of operations in flight, over many connections, with one queue and one driver.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use common::{eventually, exposed, node, pair};
use fabric_async::{Connection, Wait, block_on};

const CONNECTIONS: usize = 64;
const EACH: usize = 162;

type Sending<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The bytes of a message that nothing else has.
fn stamp(connection: usize, number: usize) -> [u8; 8] {
    ((connection << 32 | number) as u64).to_le_bytes()
}

fn send(conn: &Connection, connection: usize, number: usize) -> Sending<'_> {
    Box::pin(async move {
        let buffer = conn.node().pool().alloc_from(&stamp(connection, number)).unwrap();
        assert_eq!(*conn.send(buffer).await.unwrap(), stamp(connection, number));
    })
}

#[test]
fn ten_thousand_sends_wait_for_their_receivers() {
    for wait in [Wait::Adaptive, Wait::Blocking, Wait::Busy] {
        // Few receives are posted, so almost everything stays in flight until somebody reads.
        let node = node(|b| b.wait(wait).send_depth(EACH).receives(2).max_message(64));
        let pairs: Vec<_> = (0..CONNECTIONS).map(|_| block_on(pair(&node))).collect();
        let before = node.operations();
        let mut sends: Vec<Sending<'_>> = Vec::new();
        for (connection, (from, _)) in pairs.iter().enumerate() {
            sends.extend((0..EACH).map(|number| send(from, connection, number)));
        }
        let mut cx = Context::from_waker(Waker::noop());
        let all = sends.len();
        sends.retain_mut(|one| one.as_mut().poll(&mut cx).is_pending());
        let early = all - sends.len();
        // At most two of each connection were taken by a receive.
        assert!(early <= 2 * CONNECTIONS, "{early}");
        // Receives that were taken do not count any more, of those that were posted before.
        let flying = node.operations() - before;
        assert!(flying >= 10_000, "{flying}");

        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (connection, (_, to)) in pairs.iter().enumerate() {
                    for number in 0..EACH {
                        let message = block_on(to.recv()).unwrap();
                        assert_eq!(*message, stamp(connection, number), "in order, and whole");
                    }
                }
            });
            for one in sends {
                block_on(one);
            }
        });
        drop(pairs);
        eventually("all memory is back", || node.pool().metrics().in_use == 0);
        eventually("no operation is left", || node.operations() == 0);
    }
}

#[test]
fn ten_thousand_atomics_are_each_executed_once() {
    let node = node(|b| b.send_depth(EACH).receives(2));
    let (region, remote) = exposed(&node, 64);
    let pairs: Vec<_> = (0..CONNECTIONS).map(|_| block_on(pair(&node))).collect();
    let mut adds: Vec<_> = Vec::new();
    for (from, _) in &pairs {
        adds.extend((0..EACH).map(|_| from.fetch_add(remote.at(0), 1u64)));
    }
    let mut olds: Vec<u64> = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    adds.retain_mut(|one| match Pin::new(one).poll(&mut cx) {
        Poll::Ready(old) => {
            olds.push(old.unwrap());
            false
        }
        Poll::Pending => true,
    });
    olds.extend(adds.into_iter().map(|one| block_on(one).unwrap()));
    olds.sort_unstable();
    assert!(olds.iter().copied().eq(0..(CONNECTIONS * EACH) as u64), "each old value once");
    assert_eq!(region.get::<u64>(0).unwrap(), (CONNECTIONS * EACH) as u64);
}
