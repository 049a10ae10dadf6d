//! A child made by `fork` has none of its parent's connections: what it begins there is refused, and the parent goes on.

#![cfg(not(miri))] // Miri has no fork(2)
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "../../tests/child/mod.rs"]
mod child;
mod common;

use std::fmt::{Debug, Display};

use child::in_child;
use common::{address, node, pair};
use fabric_async::{Wait, block_on};

#[track_caller]
fn refused<T: Debug, E: Debug + Display>(result: Result<T, E>) {
    let error = result.unwrap_err();
    assert!(error.to_string().contains("fork"), "{error:?}");
}

#[test]
fn what_a_child_awaits_is_refused() {
    for wait in [Wait::Busy, Wait::Blocking, Wait::Adaptive] {
        let node = node(|b| b.wait(wait));
        block_on(async {
            let (a, b) = pair(&node).await;
            let buffer = a.alloc(64).unwrap();
            let listener = node.listen(address()).await.unwrap();
            in_child(|| {
                refused(block_on(b.recv()));
                refused(block_on(b.notified()));
                refused(block_on(listener.accept()));
                refused(block_on(a.send(buffer)));
            });
            a.send(a.alloc(5).unwrap()).await.unwrap();
            assert_eq!(b.recv().await.unwrap().len(), 5);
        });
    }
}
