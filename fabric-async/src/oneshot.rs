//! A value that another task or thread sends once, and a future receives.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fabric_util::sync::Mutex;

use crate::wakers::{Wakers, discard};

/// A value that is sent once.
pub(crate) struct Oneshot<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Oneshot<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Oneshot(Mutex::new((None, None))))
    }

    /// Sends it; adds the receiver's waker.
    pub(crate) fn send(&self, value: T, wakers: &mut Wakers) {
        let mut state = self.0.lock();
        state.0 = Some(value);
        wakers.wake(state.1.take());
    }

    /// The receiver is gone: adds the waker that it left.
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
