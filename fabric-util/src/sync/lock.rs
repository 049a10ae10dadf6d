//! The locks: those of the standard library or of loom, which know in checked builds that a thread holds them.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use super::held::{Class, Held};

/// A mutual exclusion lock. Locks made at one place in the source are of one class; their order is checked by class.
pub struct Mutex<T: ?Sized> {
    class: Class,
    inner: imp::Mutex<T>,
}

/// A [`Mutex`] that is held.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    // Released before the thread forgets that it held it.
    inner: imp::MutexGuard<'a, T>,
    held: Held,
}

impl<T> Mutex<T> {
    /// A free lock.
    #[cfg(not(loom))]
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Mutex { class: Class::here(), inner: imp::Mutex::new(value) }
    }

    /// A free lock.
    #[cfg(loom)]
    #[track_caller]
    pub fn new(value: T) -> Self {
        Mutex { class: Class::here(), inner: imp::Mutex::new(value) }
    }

    /// The value, of a lock that no thread can hold any more.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.class.enter();
        MutexGuard { inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { inner, held: self.class.enter_at_once() })
    }

    /// The value, without locking: the borrow is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    #[track_caller]
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex(..)")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition to wait for under a [`Mutex`].
#[derive(Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// A condition without waiters.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Condvar(imp::Condvar::new())
    }

    /// A condition without waiters.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits to be woken; wakes without a cause are possible.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        MutexGuard { inner: self.0.wait(inner).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// As [`wait`](Condvar::wait), for `time` at most.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        let waited = self.0.wait_timeout(inner, time);
        MutexGuard { inner: waited.unwrap_or_else(PoisonError::into_inner).0, held }
    }

    /// Waits as long as `condition` is true, for `time` at most. Under loom a wait ends at once if there is no time, or
    /// never.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        MutexGuard { inner: wait_while(&self.0, inner, time, condition), held }
    }
}

#[cfg(not(loom))]
fn wait_while<'a, T>(
    condvar: &imp::Condvar,
    guard: imp::MutexGuard<'a, T>,
    time: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> imp::MutexGuard<'a, T> {
    let waited = condvar.wait_timeout_while(guard, time, condition);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(loom)]
fn wait_while<'a, T>(
    condvar: &imp::Condvar,
    mut guard: imp::MutexGuard<'a, T>,
    time: Duration,
    mut condition: impl FnMut(&mut T) -> bool,
) -> imp::MutexGuard<'a, T> {
    while condition(&mut guard) && !time.is_zero() {
        guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    guard
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

/// A lock that many readers, or one writer, hold.
pub struct RwLock<T: ?Sized> {
    class: Class,
    inner: std::sync::RwLock<T>,
}

/// A [`RwLock`] that is held for reading.
#[must_use]
pub struct ReadGuard<'a, T: ?Sized> {
    inner: std::sync::RwLockReadGuard<'a, T>,
    #[allow(dead_code)] // for its drop
    held: Held,
}

/// A [`RwLock`] that is held for writing.
#[must_use]
pub struct WriteGuard<'a, T: ?Sized> {
    inner: std::sync::RwLockWriteGuard<'a, T>,
    #[allow(dead_code)] // for its drop
    held: Held,
}

impl<T> RwLock<T> {
    /// A free lock.
    #[track_caller]
    pub const fn new(value: T) -> Self {
        RwLock { class: Class::here(), inner: std::sync::RwLock::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for writers to finish, and takes it for reading.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let held = self.class.enter();
        ReadGuard { inner: self.inner.read().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Takes it for reading if no thread writes or waits to.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let inner = match self.inner.try_read() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(ReadGuard { inner, held: self.class.enter_at_once() })
    }

    /// Waits until no thread holds it, and takes it for writing.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let held = self.class.enter();
        WriteGuard { inner: self.inner.write().unwrap_or_else(PoisonError::into_inner), held }
    }
}

impl<T: Default> Default for RwLock<T> {
    #[track_caller]
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock(..)")
    }
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
