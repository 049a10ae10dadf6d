//! Waits with a deadline.
//!
//! Locks here are those of parking_lot, which are never poisoned. Those of `fabric_util::sync` are not for what holds a
//! lock while it calls handles of `fabric`.

use std::time::Instant;

use parking_lot::{Condvar, MutexGuard};

/// Sleeps until `changed` is notified, or earlier; false: the deadline has come.
pub(super) fn wait<T>(
    changed: &Condvar,
    guard: &mut MutexGuard<'_, T>,
    deadline: Option<Instant>,
) -> bool {
    match deadline {
        None => changed.wait(guard),
        Some(deadline) if deadline <= Instant::now() => return false,
        Some(deadline) => _ = changed.wait_until(guard, deadline),
    }
    true
}
