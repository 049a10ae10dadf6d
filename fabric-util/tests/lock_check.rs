//! The lock check ends the process at each mistake it is for, and at nothing else.
#![cfg(all(debug_assertions, not(loom)))]
#![cfg_attr(miri, allow(unused))]

use std::process::{Command, Output};

use fabric_util::callback;
use fabric_util::sync::{Mutex, RwLock, assert_none_held};

/// Runs one test of this program again, as a process of its own that makes the mistake.
fn child(test: &str) -> Output {
    let program = std::env::current_exe().expect("the way to this program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env("LOCK_CHECK_CHILD", "1");
    command.output().expect("this program runs again")
}

fn ends_the_process(test: &str, mistake: impl FnOnce(), message: &str) {
    if std::env::var_os("LOCK_CHECK_CHILD").is_some() {
        mistake();
        return;
    }
    let output = child(test);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the mistake went unnoticed");
    assert!(text.contains(message) && text.contains("lock_check.rs:"), "{text}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no processes")]
fn user_code_under_a_lock() {
    let mistake = || {
        let lock = Mutex::new(0);
        let _held = lock.lock();
        callback::run(|| {});
    };
    ends_the_process("user_code_under_a_lock", mistake, "user code is called under the lock made");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no processes")]
fn user_code_under_a_lock_for_reading_that_was_free() {
    let mistake = || {
        let lock = RwLock::new(0);
        let _held = lock.try_read();
        callback::run(|| {});
    };
    let test = "user_code_under_a_lock_for_reading_that_was_free";
    ends_the_process(test, mistake, "user code is called under the lock made");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no processes")]
fn an_order_that_is_a_circle() {
    let mistake = || {
        let a = Mutex::new(());
        let b = Mutex::new(());
        let c = Mutex::new(());
        drop((a.lock(), b.lock()));
        drop((b.lock(), c.lock()));
        drop((c.lock(), a.lock()));
    };
    ends_the_process("an_order_that_is_a_circle", mistake, "elsewhere the order was");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no processes")]
fn two_locks_of_one_class() {
    let mistake = || {
        let [a, b] = [(); 2].map(Mutex::new);
        drop((a.lock(), b.lock()));
    };
    ends_the_process("two_locks_of_one_class", mistake, "is taken under the one made");
}

#[test]
fn what_is_right_goes_by() {
    let a = Mutex::new(());
    let b = RwLock::new(());
    for _ in 0..3 {
        let (first, second) = (a.lock(), b.write());
        // Out of order, but without waiting.
        drop(first);
        let again = a.try_lock();
        assert!(again.is_some() && a.try_lock().is_none());
        drop((second, again));
        drop((a.lock(), b.read()));
    }
    assert_none_held("a look");
    assert_eq!(callback::run(|| a.try_lock().is_some()), Some(true));
}
