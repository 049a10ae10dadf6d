//! A child made by `fork` has none of its parent's connections: what it begins there is refused, and the parent goes on.

#![cfg(not(miri))] // Miri has no fork(2)
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "../../tests/child/mod.rs"]
mod child;
mod common;

use std::fmt::{Debug, Display};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use child::in_child;
use common::{address, node, pair};
use fabric::{Capabilities, DatagramAttr, Hints};
use fabric_async::datagram::DatagramEndpoint;
use fabric_async::{WaitStrategy, block_on};

#[track_caller]
fn refused<T: Debug, E: Debug + Display>(result: Result<T, E>) {
    let error = result.unwrap_err();
    assert!(error.to_string().contains("fork"), "{error:?}");
}

#[test]
fn what_a_child_awaits_is_refused() {
    for wait in [WaitStrategy::Busy, WaitStrategy::Blocking, WaitStrategy::Adaptive] {
        let node = node(|b| b.wait(wait).receives(1));
        block_on(async {
            let (a, b) = pair(&node).await;
            let buffer = a.alloc(64).unwrap();
            let listener = node.listen(address()).await.unwrap();
            a.send(a.alloc(5).unwrap()).await.unwrap();
            // Under way at the fork, as the only receive is taken.
            let mut second = pin!(a.send(a.alloc(6).unwrap()));
            let begin = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending()));
            assert!(begin.await);
            in_child(|| {
                refused(block_on(b.recv()));
                refused(block_on(b.notified()));
                refused(block_on(listener.accept()));
                refused(block_on(a.send(buffer)));
                let given_back = block_on(second.as_mut()).unwrap_err();
                assert!(given_back.to_string().contains("fork"), "{given_back:?}");
                assert_eq!(given_back.buffer.len(), 6);
            });
            assert_eq!(b.recv().await.unwrap().len(), 5);
            assert_eq!(b.recv().await.unwrap().len(), 6);
            assert_eq!(second.await.unwrap().len(), 6);
        });
    }
}

#[test]
fn datagrams_of_a_child_are_refused() {
    let hints = Hints { capabilities: Capabilities::DATAGRAMS, ..Hints::default() };
    for wait in [WaitStrategy::Busy, WaitStrategy::Blocking, WaitStrategy::Adaptive] {
        let node = node(|b| b.hints(hints.clone()).wait(wait));
        let it = DatagramEndpoint::new(&node, &DatagramAttr::default()).unwrap();
        block_on(async {
            let to_itself = it.resolve(&it.address()).await.unwrap();
            let buffer = node.pool().alloc(6).unwrap();
            in_child(|| {
                refused(block_on(it.recv_from()));
                refused(it.drops());
                refused(block_on(it.resolve(&it.address())));
                refused(block_on(it.inject_to(&to_itself, b"hello")));
                let given_back = block_on(it.send_to(&to_itself, buffer)).unwrap_err();
                assert!(given_back.to_string().contains("fork"), "{given_back:?}");
                assert_eq!(given_back.buffer.len(), 6);
            });
            it.inject_to(&to_itself, b"hello").await.unwrap();
            assert_eq!(*it.recv_from().await.unwrap(), *b"hello");
        });
    }
}
