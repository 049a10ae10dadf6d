//! What the parts that threads share are made of: the standard library's pieces, or loom's, which then tries every
//! interleaving that the memory model allows (`scripts/loom`).
//!
//! loom takes sequentially consistent loads and stores for weaker ones than they are. Where one thread's store must
//! not pass its next load, a `fence` stands between the two, which loom knows, and which says so to the reader as well.

#[cfg(loom)]
pub(crate) use self::modelled::{Condvar, Wakeup};
#[cfg(not(loom))]
pub(crate) use fabric_core::wakeup::Wakeup;
#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, fence},
};

use std::sync::PoisonError;

/// Locks, whatever a panic elsewhere left: every structure here is whole between statements.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What loom lacks.
#[cfg(loom)]
mod modelled {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::LockResult;
    use std::time::Duration;

    use super::{Mutex, MutexGuard, lock};

    /// A condition whose waits time out at once, if no time was given, or never.
    #[derive(Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn wait_timeout_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            time: Duration,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<(MutexGuard<'a, T>, bool)> {
            while condition(&mut guard) {
                if time.is_zero() {
                    return Ok((guard, true));
                }
                guard = self.0.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            Ok((guard, false))
        }
    }

    /// The descriptor, and what it tells, as loom sees it.
    pub(crate) struct Wakeup {
        descriptor: fabric_core::wakeup::Wakeup,
        readable: Mutex<bool>,
        changed: loom::sync::Condvar,
    }

    impl Wakeup {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Wakeup {
                descriptor: fabric_core::wakeup::Wakeup::new()?,
                readable: Mutex::new(false),
                changed: loom::sync::Condvar::new(),
            })
        }

        pub(crate) fn set(&self) {
            *lock(&self.readable) = true;
            self.changed.notify_all();
        }

        pub(crate) fn clear(&self) {
            *lock(&self.readable) = false;
        }

        /// Sleeps until it is readable.
        #[cfg(test)]
        pub(crate) fn wait(&self) {
            let mut readable = lock(&self.readable);
            while !*readable {
                readable = self.changed.wait(readable).unwrap();
            }
        }
    }

    impl AsFd for Wakeup {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.descriptor.as_fd()
        }
    }
}
