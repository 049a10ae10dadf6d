//! A runtime that cannot watch a descriptor: the node's thread does.

#![cfg(all(feature = "tokio", not(miri)))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::fs::File;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use common::{node, pair};
use fabric_async::{WaitStrategy, block_on};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Takes all descriptors that this process may have.
fn all_descriptors() -> Vec<File> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(limit.current.unwrap_or(256).min(256));
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files
}

#[test]
fn one_without_a_descriptor_left_is_asked_once() {
    let node = node(|b| b.wait(WaitStrategy::Blocking));
    let (a, b) = block_on(pair(&node));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let files = all_descriptors();
    let mut polls = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            block_on(a.send(a.node().pool().alloc_from(b"hello").unwrap())).unwrap();
        });
        let mut received = pin!(b.recv());
        let counted = poll_fn(|cx| {
            polls += 1;
            received.as_mut().poll(cx)
        });
        assert_eq!(*runtime.block_on(counted).unwrap(), *b"hello");
    });
    assert!(polls < 100, "{polls} polls for one message");
    drop(files);
}
