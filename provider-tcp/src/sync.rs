//! What the parts that threads share are made of: the standard library's pieces, or loom's, which then tries every
//! interleaving that the memory model allows (`scripts/loom`).
//!
//! loom takes sequentially consistent loads and stores for weaker ones than they are. Where one thread's store must
//! not pass its next load, a `fence` stands between the two, which loom knows, and which says so to the reader as well.

#[cfg(loom)]
pub(crate) use self::modelled::Wakeup;
pub(crate) use fabric_util::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use fabric_util::wakeup::Wakeup;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, fence};

/// What loom lacks.
#[cfg(loom)]
mod modelled {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};

    use super::Mutex;

    /// The descriptor, and what it tells, as loom sees it.
    pub(crate) struct Wakeup {
        descriptor: fabric_util::wakeup::Wakeup,
        readable: Mutex<bool>,
        changed: super::Condvar,
    }

    impl Wakeup {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Wakeup {
                descriptor: fabric_util::wakeup::Wakeup::new()?,
                readable: Mutex::new(false),
                changed: super::Condvar::default(),
            })
        }

        pub(crate) fn set(&self) {
            *self.readable.lock() = true;
            self.changed.notify_all();
        }

        pub(crate) fn clear(&self) {
            *self.readable.lock() = false;
        }

        /// Sleeps until it is readable.
        #[cfg(test)]
        pub(crate) fn wait(&self) {
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
}
