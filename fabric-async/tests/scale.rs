//! Thousands of operations in flight, over many connections, with one queue and one driver at each end.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use common::{between, eventually, exposed, node};
use fabric_async::{Connection, Node, WaitStrategy, block_on};

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

/// The ends at one node, and their peers at another: the queue of a software device holds 16,000 completions.
fn pairs(from: &Node, to: &Node) -> Vec<(Connection, Connection)> {
    (0..CONNECTIONS).map(|_| block_on(between(from, to))).collect()
}

#[test]
fn ten_thousand_sends_wait_for_their_receivers() {
    for wait in [WaitStrategy::Adaptive, WaitStrategy::Blocking, WaitStrategy::Busy] {
        // Few receives are posted, so almost everything stays in flight until somebody reads.
        let make = || node(|b| b.wait(wait).send_depth(EACH).receives(2).max_message(64));
        let (from, to) = (make(), make());
        let pairs = pairs(&from, &to);
        let mut sends: Vec<Sending<'_>> = Vec::new();
        for (connection, (end, _)) in pairs.iter().enumerate() {
            sends.extend((0..EACH).map(|number| send(end, connection, number)));
        }
        let mut cx = Context::from_waker(Waker::noop());
        let all = sends.len();
        sends.retain_mut(|one| one.as_mut().poll(&mut cx).is_pending());
        let early = all - sends.len();
        // At most two of each connection were taken by a receive.
        assert!(early <= 2 * CONNECTIONS, "{early}");
        let flying = from.operations() - 2 * CONNECTIONS; // less the receives
        assert!(flying >= 10_000, "{flying}");

        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (connection, (_, end)) in pairs.iter().enumerate() {
                    for number in 0..EACH {
                        let message = block_on(end.recv()).unwrap();
                        assert_eq!(*message, stamp(connection, number), "in order, and whole");
                    }
                }
            });
            for one in sends {
                block_on(one);
            }
        });
        drop(pairs);
        for node in [from, to] {
            eventually("all memory is back", || node.pool().metrics().in_use == 0);
            eventually("no operation is left", || node.operations() == 0);
        }
    }
}

#[test]
fn ten_thousand_atomics_are_each_executed_once() {
    let make = || node(|b| b.send_depth(EACH).receives(2));
    let (from, to) = (make(), make());
    let (region, remote) = exposed(&to, 64);
    let pairs = pairs(&from, &to);
    let mut adds: Vec<_> = Vec::new();
    for (end, _) in &pairs {
        adds.extend((0..EACH).map(|_| end.fetch_add(remote.at(0), 1u64)));
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
