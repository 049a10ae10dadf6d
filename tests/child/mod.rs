//! A child made by `fork`, for the tests of every crate that has handles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Runs `child` in a child and waits for it; fails the test if it panicked or did not end.
pub(crate) fn in_child(child: impl FnOnce()) {
    // SAFETY: the child runs on this one thread; it takes no lock that another thread of the parent could hold
    // (glibc makes malloc usable after a fork), and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let ok = catch_unwind(AssertUnwindSafe(child)).is_ok();
        // SAFETY: it ends the process, without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut status = 0;
    // Until it is this child: without its verdict nothing is proven.
    // SAFETY: `pid` is this process's child, and `status` is a place to write to.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } != pid {
        if Instant::now() > deadline {
            // SAFETY: the child has not been waited for, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "the child failed: {status:#x}"
    );
}
