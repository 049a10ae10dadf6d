//! The locks that a checker runs, in the shape of parking_lot's: never poisoned, and a wait borrows the guard.
//!
//! They are those of loom, or under Miri, which refuses the way in which parking_lot calls futex(2), of the standard library.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

pub(super) struct CheckedMutex<T: ?Sized>(imp::Mutex<T>);

/// Without the inner one only within a wait.
pub(super) struct CheckedGuard<'a, T: ?Sized>(Option<imp::MutexGuard<'a, T>>);

#[derive(Default)]
pub(super) struct CheckedCondvar(imp::Condvar);

impl<T> CheckedMutex<T> {
    #[cfg(loom)]
    pub(super) fn new(value: T) -> Self {
        CheckedMutex(imp::Mutex::new(value))
    }

    #[cfg(not(loom))]
    pub(super) const fn new(value: T) -> Self {
        CheckedMutex(imp::Mutex::new(value))
    }

    pub(super) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> CheckedMutex<T> {
    pub(super) fn lock(&self) -> CheckedGuard<'_, T> {
        CheckedGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(super) fn try_lock(&self) -> Option<CheckedGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| CheckedGuard(Some(guard)))
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for CheckedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T: ?Sized> DerefMut for CheckedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

impl CheckedCondvar {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        CheckedCondvar(imp::Condvar::new())
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(super) fn wait<T>(&self, guard: &mut CheckedGuard<'_, T>) {
        let held = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// loom has no time.
    pub(super) fn wait_for<T>(&self, guard: &mut CheckedGuard<'_, T>, time: Duration) {
        let held = guard.0.take().unwrap();
        let waited = self.0.wait_timeout(held, time);
        guard.0 = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
    }

    /// Ends at once if there is no time, or never.
    #[cfg(loom)]
    pub(super) fn wait_while_for<T>(
        &self,
        guard: &mut CheckedGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) {
        while condition(guard) && !time.is_zero() {
            self.wait(guard);
        }
    }

    #[cfg(not(loom))]
    pub(super) fn wait_while_for<T>(
        &self,
        guard: &mut CheckedGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) {
        let held = guard.0.take().unwrap();
        let waited = self.0.wait_timeout_while(held, time, condition);
        guard.0 = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
    }
}
