//! What connections, completion queues and the domain's thread know of a shared receive queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use fabric_core::{EndpointId, RawCompletion, Status, Token};

use crate::cq::{Queue, Sharer};
use crate::handle::Srq;
use crate::tokens::NO_TOKEN;

/// A shared receive queue.
pub(crate) struct SharedQueue {
    pub(crate) srq: Arc<Srq>,
    /// Where its completions go.
    pub(crate) queue: Arc<Queue>,
    /// The last token posted, or [`NO_TOKEN`].
    last: AtomicU64,
    /// All that was in flight has been reported, since the device is gone; set under the lock of the completion queue.
    canceled: Arc<AtomicBool>,
    /// A queue pair that was to be destroyed is still there, and may take receives.
    stays: AtomicBool,
}

impl SharedQueue {
    pub(crate) fn new(srq: Srq, queue: &Arc<Queue>) -> Arc<Self> {
        Arc::new(SharedQueue {
            srq: Arc::new(srq),
            queue: queue.clone(),
            last: AtomicU64::new(NO_TOKEN),
            canceled: Arc::default(),
            stays: AtomicBool::new(false),
        })
    }

    /// An endpoint that takes its receives from this queue, for the completion queue.
    pub(crate) fn sharer(&self, endpoint: EndpointId) -> Sharer {
        Sharer { endpoint, canceled: self.canceled.clone() }
    }

    /// A queue pair could not be destroyed, and may take receives until the device is gone.
    pub(crate) fn keep(&self) {
        self.stays.store(true, Ordering::Release);
    }

    /// Whether there is such a queue pair.
    pub(crate) fn stays(&self) -> bool {
        self.stays.load(Ordering::Acquire)
    }

    /// Whether what the device still says of it has been reported.
    #[inline]
    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Relaxed)
    }

    /// Reports all that is in flight, which the device will not complete: no queue pair takes a message any more.
    pub(crate) fn cancel(&self) {
        self.queue.append(|| {
            self.canceled.store(true, Ordering::Relaxed);
            // Orders the flag before the look at the last post: see `note`.
            fence(Ordering::SeqCst);
            let last = self.last.swap(NO_TOKEN, Ordering::Relaxed);
            (last != NO_TOKEN).then(|| {
                let mut canceled = RawCompletion::new(Token::from_bits(last), Status::Canceled);
                canceled.flushes_earlier = true;
                canceled
            })
        });
    }

    /// Notes the last post, which the device has taken. Either this sees that all was canceled, or the cancellation, which
    /// comes after its flag, sees the post.
    #[inline]
    pub(crate) fn note(&self, last: Token) {
        self.last.store(last.to_bits(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_canceled() {
            self.cancel();
        }
    }
}
