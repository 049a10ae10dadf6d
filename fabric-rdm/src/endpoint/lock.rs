//! Locks of the standard library, with what they lack: never poisoned, and waits with a deadline.
//!
//! Those of `fabric_util::sync` are not for what holds a lock while it calls handles of `fabric`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Locks a mutex whose state is whole between statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until `changed` is notified, or earlier; `None`: the deadline has come.
pub(super) fn wait<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> Option<MutexGuard<'a, T>> {
    let Some(deadline) = deadline else {
        return Some(changed.wait(guard).unwrap_or_else(PoisonError::into_inner));
    };
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => None,
        left => {
            let waited = changed.wait_timeout(guard, left);
            Some(waited.unwrap_or_else(PoisonError::into_inner).0)
        }
    }
}
