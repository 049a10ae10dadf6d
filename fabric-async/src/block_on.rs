//! An executor of one future, for programs without a runtime.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, RawWakerVTable, Wake, Waker};
use std::thread::Thread;

struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    /// How many calls of [`block_on`] are polling on this thread.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread polls for [`block_on`].
#[cfg(feature = "tokio")]
pub(crate) fn is_here() -> bool {
    HERE.get() > 0
}

/// Counts one poll, until it is dropped.
struct Polling;

impl Polling {
    fn begin() -> Self {
        HERE.set(HERE.get() + 1);
        Polling
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        HERE.set(HERE.get() - 1);
    }
}

/// What all wakers of [`block_on`] have in common.
static VTABLE: OnceLock<&'static RawWakerVTable> = OnceLock::new();

/// Whether it is a waker of [`block_on`], which does not block: any thread may call it.
pub(crate) fn is_own(waker: &Waker) -> bool {
    VTABLE.get().is_some_and(|own| *own == waker.vtable())
}

/// Runs a future on this thread until it is done, sleeping whenever it waits.
///
/// ```
/// use fabric_async::{Listener, block_on};
///
/// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
/// assert!(listener.local_addr().ip().is_loopback());
/// assert_eq!(block_on(async { 3 + 4 }), 7);
/// # Ok::<(), fabric_async::Error>(())
/// ```
///
/// Any executor will do: the futures of this crate need none of a particular kind.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let parked = Arc::new(Parked { thread: std::thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(parked.clone());
    VTABLE.get_or_init(|| waker.vtable());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        while !parked.woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
        let polling = Polling::begin();
        let polled = future.as_mut().poll(&mut cx);
        drop(polling);
        if let Poll::Ready(done) = polled {
            return done;
        }
    }
}
