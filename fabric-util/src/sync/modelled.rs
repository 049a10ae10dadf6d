//! What loom lacks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::lock::{Condvar, Mutex};

/// The descriptor, and its state, as loom sees it.
pub struct Wakeup {
    descriptor: crate::wakeup::Wakeup,
    readable: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    /// As the real one.
    ///
    /// # Errors
    /// As the real one.
    pub fn new() -> io::Result<Self> {
        Ok(Wakeup {
            descriptor: crate::wakeup::Wakeup::new()?,
            readable: Mutex::new(false),
            changed: Condvar::default(),
        })
    }

    /// Makes it readable.
    pub fn set(&self) {
        *self.readable.lock() = true;
        self.changed.notify_all();
    }

    /// Makes it not readable.
    pub fn clear(&self) {
        *self.readable.lock() = false;
    }

    /// Sleeps until it is readable.
    pub fn wait(&self) {
        let mut readable = self.readable.lock();
        while !*readable {
            readable = self.changed.wait(readable);
        }
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// loom's locks, in the shape of parking_lot's: never poisoned, and a wait borrows the guard.
pub(super) mod locks {
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(in super::super) struct Mutex<T: ?Sized>(loom::sync::Mutex<T>);

    /// Without the inner one only within a wait.
    pub(in super::super) struct MutexGuard<'a, T: ?Sized>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Default)]
    pub(in super::super) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(in super::super) fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T: ?Sized> Mutex<T> {
        pub(in super::super) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        pub(in super::super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }

        pub(in super::super) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T: ?Sized> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    impl Condvar {
        pub(in super::super) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(in super::super) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(in super::super) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }

        /// loom has no time.
        pub(in super::super) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
            let held = guard.0.take().unwrap();
            let waited = self.0.wait_timeout(held, time);
            guard.0 = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
        }

        /// Ends at once if there is no time, or never.
        pub(in super::super) fn wait_while_for<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            mut condition: impl FnMut(&mut T) -> bool,
            time: Duration,
        ) {
            while condition(guard) && !time.is_zero() {
                self.wait(guard);
            }
        }
    }
}
