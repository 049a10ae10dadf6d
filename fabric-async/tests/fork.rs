//! A child made by `fork` has none of its parent's connections: what it begins there is refused, and the parent goes on.

#![cfg(not(miri))] // Miri has no fork(2)
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{address, eventually, node, pair};
use fabric_async::{Wait, block_on};

/// Runs `child` in a child; the test fails if it panics, or hangs.
fn in_child(child: impl FnOnce()) {
    // SAFETY: the child runs on this one thread, takes no lock that the node's thread could hold (glibc makes malloc
    // usable after a fork), and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let ok = catch_unwind(AssertUnwindSafe(child)).is_ok();
        // SAFETY: it ends the process, without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: `pid` is this process's child, and `status` is a place to write to.
    let ended = || unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid;
    if catch_unwind(AssertUnwindSafe(|| eventually("the child ends", ended))).is_err() {
        // SAFETY: the child has not been waited for, so the id is still its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        panic!("the child hangs");
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
}

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
