//! A value that another task or thread sends once, and a future receives.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fabric_util::sync::Mutex;

use crate::wakers::{Wakers, discard};

/// A value that somebody else brings.
pub(crate) struct Promise<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Promise<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Promise(Mutex::new((None, None))))
    }

    /// Adds whom to wake.
    pub(crate) fn keep(&self, value: T, wakers: &mut Wakers) {
        let mut state = self.0.lock();
        state.0 = Some(value);
        wakers.wake(state.1.take());
    }

    /// Nobody waits any more: adds the waker that is left.
    pub(crate) fn forget(&self, wakers: &mut Wakers) {
        wakers.discard(self.0.lock().1.take());
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let fresh = cx.waker().clone();
        let mut state = self.0.lock();
        if let Some(value) = state.0.take() {
            return Poll::Ready(value);
        }
        let old = state.1.replace(fresh);
        drop(state);
        discard(old);
        Poll::Pending
    }

    pub(crate) async fn value(&self) -> T {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}
