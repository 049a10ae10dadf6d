//! A place that is written by one thread and then read by another, checked for that under loom.

#[cfg(not(loom))]
pub(crate) struct Cell<T>(std::cell::UnsafeCell<std::mem::MaybeUninit<T>>);
#[cfg(loom)]
pub(crate) struct Cell<T>(loom::cell::UnsafeCell<std::mem::MaybeUninit<T>>);

// SAFETY: threads that share it reach what is in it by its unsafe methods alone, one at a time as their callers promise: so it
// only moves `T`s from one thread to another.
unsafe impl<T: Send> Sync for Cell<T> {}

#[cfg(not(loom))]
impl<T> Cell<T> {
    pub(crate) fn empty() -> Self {
        Cell(std::cell::UnsafeCell::new(std::mem::MaybeUninit::uninit()))
    }

    /// # Safety
    /// No other thread reaches the cell meanwhile. What it holds is forgotten.
    #[inline]
    pub(crate) unsafe fn write(&self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { (*self.0.get()).write(value) };
    }

    /// # Safety
    /// It was written, and has not been read since; no thread writes meanwhile.
    #[inline]
    pub(crate) unsafe fn read(&self) -> T {
        // SAFETY: the caller's promise.
        unsafe { (*self.0.get()).assume_init_read() }
    }
}

#[cfg(loom)]
impl<T> Cell<T> {
    pub(crate) fn empty() -> Self {
        Cell(loom::cell::UnsafeCell::new(std::mem::MaybeUninit::uninit()))
    }

    /// # Safety
    /// As above, which loom checks.
    pub(crate) unsafe fn write(&self, value: T) {
        // SAFETY: the caller's promise.
        self.0.with_mut(|place| unsafe { (*place).write(value) });
    }

    /// # Safety
    /// As above, which loom checks.
    pub(crate) unsafe fn read(&self) -> T {
        // SAFETY: the caller's promise.
        self.0.with_mut(|place| unsafe { (*place).assume_init_read() })
    }
}
