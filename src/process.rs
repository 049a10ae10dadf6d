//! Handles belong to the process that made them.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use fabric_core::{Error, Result};
use fabric_util::fork::ForkEpoch;

/// Something of the provider's that only the process that made it drops. A child that `fork` made lacks the
/// provider's threads, may have copied held locks, and shares its sockets with the parent: there it is
/// left alone.
pub(crate) struct ForkChecked<T> {
    value: ManuallyDrop<T>,
    fork_epoch: ForkEpoch,
}

impl<T> ForkChecked<T> {
    pub(crate) fn new(value: T) -> Self {
        ForkChecked { value: ManuallyDrop::new(value), fork_epoch: ForkEpoch::current() }
    }

    pub(crate) fn is_current_process(&self) -> bool {
        self.fork_epoch.is_current()
    }

    /// Refuses a call in a child.
    #[inline]
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.fork_epoch.is_current() { Ok(()) } else { Err(forked_error(operation)) }
    }
}

#[cold]
pub(crate) fn forked_error(operation: &'static str) -> Error {
    Error::state(
        operation,
        "this process is a fork of the one that made the handle; open a domain of its own",
    )
}

impl<T> Deref for ForkChecked<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ForkChecked<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for ForkChecked<T> {
    fn drop(&mut self) {
        if self.fork_epoch.is_current() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
