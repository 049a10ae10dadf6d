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
