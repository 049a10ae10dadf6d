//! Wakers to call, and wakers to drop, once no lock is held.
//!
//! A waker is user code: waking, dropping or cloning it may block, panic, or call back into this crate. So code that finds
//! a future to wake adds its waker to a [`Wakers`], and replaced wakers too; the creator of the `Wakers` flushes it where
//! no lock is held. A panic in one waker loses no other. A `Wakers` that is dropped flushes what is left, also on
//! unwinding; so it is declared before the guards of locks.
//!
//! Wakers are called on the thread that found them, but for the node's thread, which hands them to
//! [another](crate::relay): leases do not wait for a waker. It calls those of [`block_on`](crate::block_on()) itself.

use std::task::Waker;

use smallvec::SmallVec;

use crate::relay::Call;

/// Wakers of one batch that need no allocation.
const INLINE: usize = 64;

/// Collects wakers while locks are held. See the module.
#[must_use = "whom it collects is woken when it is flushed"]
pub(crate) struct Wakers {
    wake: SmallVec<[Waker; INLINE]>,
    old: SmallVec<[Waker; 4]>,
}

impl Wakers {
    #[inline]
    pub(crate) fn new() -> Self {
        Wakers { wake: SmallVec::new(), old: SmallVec::new() }
    }

    /// To be woken.
    #[inline]
    pub(crate) fn wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.wake.extend(wakers);
    }

    /// Of no use any more.
    #[inline]
    pub(crate) fn discard(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.old.extend(wakers);
    }

    /// How many are to be woken.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.wake.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.wake.is_empty() && self.old.is_empty()
    }

    /// Wakes and drops them all. The thread holds no lock.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.is_empty() {
            self.call();
        }
    }

    fn call(&mut self) {
        let calls = self.wake.drain(..).map(Call::Wake).chain(self.old.drain(..).map(Call::Drop));
        match crate::relay::of_this_thread() {
            Some(relay) => relay.push(calls.filter_map(Call::run_if_own)),
            None => calls.for_each(Call::run),
        }
    }
}

impl Drop for Wakers {
    #[inline]
    fn drop(&mut self) {
        self.flush();
    }
}

/// Drops a waker. The thread holds no lock.
#[inline]
pub(crate) fn discard(waker: Option<Waker>) {
    if let Some(waker) = waker {
        Call::Drop(waker).run();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    pub(crate) struct Count(pub(crate) AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        pub(crate) fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Panics when it is woken, and when it is dropped.
    struct Wild;

    impl Wake for Wild {
        fn wake(self: Arc<Self>) {
            panic!("a waker's");
        }
    }

    impl Drop for Wild {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("a waker's drop");
            }
        }
    }

    fn wild() -> Waker {
        Waker::from(Arc::new(Wild))
    }

    #[test]
    fn a_panic_in_one_loses_no_other() {
        let count = Arc::<Count>::default();
        let mut wakers = Wakers::new();
        for _ in 0..3 {
            wakers.wake([wild(), count.clone().into()]);
            wakers.discard([wild()]);
        }
        assert_eq!((wakers.len(), wakers.is_empty()), (6, false));
        wakers.flush();
        assert_eq!((count.get(), wakers.is_empty()), (3, true));
        wakers.flush();
        assert_eq!(count.get(), 3);
    }

    #[test]
    fn what_is_left_is_woken_on_unwinding() {
        let count = Arc::<Count>::default();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut wakers = Wakers::new();
            wakers.wake([wild(), count.clone().into()]);
            panic!("of the code that collects");
        }));
        assert!(unwound.is_err());
        assert_eq!(count.get(), 1);
    }
}
