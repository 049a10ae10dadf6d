//! Futures that wait until there is room for their post: for each peer those that send to it, and those that receive.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use fabric_rdm::Peer;
use fabric_util::sync::Mutex;

use crate::timers::Timers;
use crate::wait_queue::{WaitQueue, Waiter};
use crate::wakers::Wakers;

/// What there is to be room for: messages to a peer, or receives.
pub(super) type RoomKey = Option<Peer>;

/// So many empty queues are kept for other keys.
const SPARE_QUEUES: usize = 16;

/// The queues in which futures wait.
pub(crate) struct Rooms {
    queues: Mutex<Queues>,
    /// How many there are, so that none cost no lock.
    count: AtomicUsize,
    timers: Arc<Timers>,
}

#[derive(Default)]
struct Queues {
    by_key: HashMap<RoomKey, Arc<WaitQueue>>,
    spare: Vec<Arc<WaitQueue>>,
}

/// A place in one of the queues; none at first.
#[derive(Default)]
pub(crate) struct RoomPlace {
    queue: Option<Arc<WaitQueue>>,
    waiter: Waiter,
}

impl Rooms {
    pub(super) fn new(timers: &Arc<Timers>) -> Self {
        let (queues, count) = Default::default();
        Rooms { queues, count, timers: timers.clone() }
    }

    /// Whether it is this one's turn. With a waker it waits from then on, until it leaves. The caller holds no lock.
    pub(super) fn is_turn(
        &self,
        key: RoomKey,
        place: &mut RoomPlace,
        waker: Option<&Waker>,
    ) -> bool {
        let RoomPlace { queue, waiter } = place;
        match (queue, waker) {
            (Some(queue), waker) => queue.is_turn(waiter, waker),
            (none, Some(waker)) => none.insert(self.queue(key)).is_turn(waiter, Some(waker)),
            (None, None) => {
                self.count.load(Ordering::Relaxed) == 0
                    || self.queues.lock().by_key.get(&key).is_none_or(|queue| queue.is_empty())
            }
        }
    }

    fn queue(&self, key: RoomKey) -> Arc<WaitQueue> {
        let mut queues = self.queues.lock();
        let Queues { by_key, spare } = &mut *queues;
        let fresh = || spare.pop().unwrap_or_else(|| WaitQueue::new(&self.timers));
        let queue = by_key.entry(key).or_insert_with(fresh).clone();
        self.count.store(by_key.len(), Ordering::SeqCst);
        queue
    }

    /// Gives up the place; the next one then tries. The caller holds no lock.
    pub(super) fn leave(&self, key: RoomKey, place: &mut RoomPlace) {
        let Some(queue) = place.queue.take() else { return };
        queue.leave(&mut place.waiter);
        let mut queues = self.queues.lock();
        // A future that joins has its own reference, which it got under this lock.
        if queue.is_empty() && Arc::strong_count(&queue) == 2 {
            queues.by_key.remove(&key);
            if queues.spare.len() < SPARE_QUEUES {
                queues.spare.push(queue);
            }
            self.count.store(queues.by_key.len(), Ordering::SeqCst);
        }
    }

    /// Whether any waits.
    pub(super) fn are_awaited(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Adds the wakers of those that have room now.
    #[inline]
    pub(super) fn wake(&self, has_room: impl Fn(RoomKey) -> bool, wakers: &mut Wakers) {
        if self.are_awaited() {
            for (key, queue) in &self.queues.lock().by_key {
                if has_room(*key) {
                    queue.wake_first(wakers);
                }
            }
        }
    }

    /// Adds the wakers of all.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_all(&self, wakers: &mut Wakers) {
        self.queues.lock().by_key.values().for_each(|queue| queue.wake_all(wakers));
    }
}
