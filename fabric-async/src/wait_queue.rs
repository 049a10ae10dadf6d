//! A queue of futures that wait for something, first come, first served.
//!
//! The first one is woken when there may be something for it. It is polled then, and takes what there is, or stays, or
//! leaves. But a future may be held and not polled, or forgotten, and others must not wait for it: one that is not polled
//! within [`PATIENCE`] is passed over, and the next one is woken. If it is polled later, it joins the queue anew.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fabric_util::sync::{Mutex, MutexGuard};

use crate::timers::{Overseen, Timers};
use crate::wakers::Wakers;

/// So long one that was called keeps others waiting; half as long after each that did not come.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);
const MIN_PATIENCE: Duration = Duration::from_millis(1);

/// A queue. Code that makes room [wakes the first](WaitQueue::wake_first), which tries again, and leaves or stays.
pub(crate) struct WaitQueue {
    state: Mutex<QueueState>,
    /// Those that wait; so that an empty queue costs no lock.
    waiting: AtomicUsize,
    timers: Arc<Timers>,
    me: Weak<WaitQueue>,
}

struct QueueState {
    /// The number of the front of `places`.
    first: u64,
    places: VecDeque<Place>,
    patience: Duration,
    /// The node's thread will look whether the first one came.
    overseen: bool,
}

enum Place {
    Waits(Waker),
    /// It was called then.
    Called(Instant),
    Left,
}

impl QueueState {
    fn skip_left(&mut self) {
        while let Some(Place::Left) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }

    /// The place of a ticket, unless it was passed over.
    fn place(&mut self, number: u64) -> Option<&mut Place> {
        self.places.get_mut(number.checked_sub(self.first)? as usize)
    }

    /// Calls the first one, if it has not been called yet.
    fn call(&mut self, now: Instant, wakers: &mut Wakers) {
        if let Some(place @ Place::Waits(_)) = self.places.front_mut()
            && let Place::Waits(waker) = std::mem::replace(place, Place::Called(now))
        {
            wakers.wake([waker]);
        }
    }

    /// When to see whether the first one came, if others wait behind it and that is not planned yet.
    fn begin_to_oversee(&mut self) -> Option<Instant> {
        match self.places.front() {
            Some(Place::Called(at)) if !self.overseen && self.places.len() > 1 => {
                self.overseen = true;
                Some(*at + self.patience)
            }
            _ => None,
        }
    }
}

/// A place in a queue; none at first.
#[derive(Debug, Default)]
pub(crate) struct Waiter(Option<u64>);

impl Waiter {
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.0.is_some()
    }
}

impl WaitQueue {
    pub(crate) fn new(timers: &Arc<Timers>) -> Arc<Self> {
        Arc::new_cyclic(|me| WaitQueue {
            state: Mutex::new(QueueState {
                first: 0,
                places: VecDeque::new(),
                patience: PATIENCE,
                overseen: false,
            }),
            waiting: AtomicUsize::new(0),
            timers: timers.clone(),
            me: me.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Whether no future waits, as far as this thread sees.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether it is this one's turn.
    #[inline]
    fn may_pass(&self, waiter: &Waiter) -> bool {
        match waiter.0 {
            None => self.is_empty(),
            Some(number) => match self.lock().first {
                first if number < first => self.is_empty(),
                first => first == number,
            },
        }
    }

    /// Takes a place, or renews the waker of the one there is. The caller looks for room once more afterwards. It holds no
    /// lock.
    fn join(&self, waiter: &mut Waiter, waker: &Waker) {
        let fresh = waker.clone();
        let mut wakers = Wakers::new();
        let mut state = self.lock();
        match waiter.0.and_then(|number| state.place(number)) {
            Some(place) => {
                let was_called = matches!(place, Place::Called(_));
                if let Place::Waits(old) = std::mem::replace(place, Place::Waits(fresh)) {
                    wakers.discard([old]);
                }
                if was_called {
                    state.patience = PATIENCE;
                }
            }
            None => {
                waiter.0 = Some(state.first + state.places.len() as u64);
                state.places.push_back(Place::Waits(fresh));
                self.waiting.fetch_add(1, Ordering::Relaxed);
            }
        }
        let to_oversee = state.begin_to_oversee();
        drop(state);
        self.oversee_at(to_oversee);
        fence(Ordering::SeqCst);
    }

    /// Gives up the place; the next one then tries. The caller holds no lock.
    #[inline]
    pub(crate) fn leave(&self, waiter: &mut Waiter) {
        if let Some(number) = waiter.0.take() {
            self.leave_place(number);
        }
    }

    fn leave_place(&self, number: u64) {
        let mut wakers = Wakers::new();
        let mut state = self.lock();
        let was_first = number == state.first;
        let Some(place) = state.place(number) else { return };
        if let Place::Waits(waker) = std::mem::replace(place, Place::Left) {
            wakers.discard([waker]);
        }
        state.skip_left();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if was_first {
            state.patience = PATIENCE;
            state.call(Instant::now(), &mut wakers);
        }
        let to_oversee = state.begin_to_oversee();
        drop(state);
        self.oversee_at(to_oversee);
    }

    /// Whether it is this one's turn. With a waker it waits from then on, until it [leaves](WaitQueue::leave). The caller holds
    /// no lock.
    #[inline]
    pub(crate) fn is_turn(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> bool {
        if let Some(waker) = waker {
            self.join(waiter, waker);
        }
        self.may_pass(waiter)
    }

    /// One look of a future that waits: `attempt`, with whether it is this one's turn. With a waker the future waits from
    /// then on; with an outcome it waits no more. The caller holds no lock.
    #[inline]
    pub(crate) fn look<T>(
        &self,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
        attempt: impl FnOnce(bool) -> Option<T>,
    ) -> Option<T> {
        let outcome = attempt(self.is_turn(waiter, waker));
        if outcome.is_some() {
            self.leave(waiter);
        }
        outcome
    }

    /// Looks, and waits if there is no outcome. What changes before the future is in the queue is seen by a second look.
    pub(crate) fn poll<T>(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(bool) -> Option<T>,
    ) -> Poll<T> {
        let first = self.look(waiter, None, &mut attempt);
        let outcome = first.or_else(|| self.look(waiter, Some(cx.waker()), attempt));
        outcome.map_or(Poll::Pending, Poll::Ready)
    }

    /// Tries, first come, first served, until there is an outcome. `attempt` is given whether it is this future's turn.
    pub(crate) fn wait<T, F>(self: &Arc<Self>, attempt: F) -> Turn<F>
    where
        F: FnMut(bool) -> Option<T> + Unpin,
    {
        Turn { queue: self.clone(), waiter: Waiter::default(), attempt }
    }

    /// There may be room: adds the waker of the first one.
    #[inline]
    pub(crate) fn wake_first(&self, wakers: &mut Wakers) {
        // Pairs with `join`: a waiter joins and then looks for room; this thread makes room and then looks for waiters.
        fence(Ordering::SeqCst);
        if !self.is_empty() {
            self.call_first(wakers);
        }
    }

    fn call_first(&self, wakers: &mut Wakers) {
        let mut state = self.lock();
        state.call(Instant::now(), wakers);
        let to_oversee = state.begin_to_oversee();
        drop(state);
        self.oversee_at(to_oversee);
    }

    /// Nothing will ever come: adds the wakers of all, which look again then.
    pub(crate) fn wake_all(&self, wakers: &mut Wakers) {
        let mut state = self.lock();
        let now = Instant::now();
        for place in &mut state.places {
            if let Place::Waits(_) = place
                && let Place::Waits(waker) = std::mem::replace(place, Place::Called(now))
            {
                wakers.wake([waker]);
            }
        }
        let to_oversee = state.begin_to_oversee();
        drop(state);
        self.oversee_at(to_oversee);
    }

    fn oversee_at(&self, at: Option<Instant>) {
        if let Some(at) = at {
            let me: Weak<WaitQueue> = self.me.clone();
            self.timers.oversee(at, me);
        }
    }
}

/// A future in a queue: see [`WaitQueue::wait`]. Dropped, it gives up its place.
pub(crate) struct Turn<F> {
    queue: Arc<WaitQueue>,
    waiter: Waiter,
    attempt: F,
}

impl<T, F: FnMut(bool) -> Option<T> + Unpin> Future for Turn<F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Turn { queue, waiter, attempt } = &mut *self;
        queue.poll(waiter, cx, attempt)
    }
}

impl<F> Drop for Turn<F> {
    fn drop(&mut self) {
        self.queue.leave(&mut self.waiter);
    }
}

impl Overseen for WaitQueue {
    /// Passes over those that were called and did not come.
    fn oversee(&self, now: Instant, wakers: &mut Wakers) -> Option<Instant> {
        let mut state = self.lock();
        while state.places.len() > 1
            && let Some(Place::Called(at)) = state.places.front()
        {
            let due = *at + state.patience;
            if now < due {
                return Some(due);
            }
            state.places.pop_front();
            state.first += 1;
            state.skip_left();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            state.patience = (state.patience / 2).max(MIN_PATIENCE);
            state.call(now, wakers);
        }
        state.overseen = false;
        None
    }
}

impl std::fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WaitQueue({} wait)", self.waiting.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wakers::tests::Count;

    struct Rig {
        timers: Arc<Timers>,
        queue: Arc<WaitQueue>,
        counts: Vec<Arc<Count>>,
        waiters: Vec<Waiter>,
    }

    impl Rig {
        /// A queue in which so many wait.
        fn new(waiting: usize) -> Self {
            let timers = Timers::new().unwrap();
            let queue = WaitQueue::new(&timers);
            let counts: Vec<Arc<Count>> = (0..waiting).map(|_| Arc::default()).collect();
            let mut waiters: Vec<Waiter> = (0..waiting).map(|_| Waiter::default()).collect();
            for (waiter, count) in waiters.iter_mut().zip(&counts) {
                queue.join(waiter, &count.clone().into());
            }
            Rig { timers, queue, counts, waiters }
        }

        fn call(&self) {
            self.queue.wake_first(&mut Wakers::new());
        }

        fn woken(&self) -> Vec<usize> {
            self.counts.iter().map(|count| count.get()).collect()
        }
    }

    #[test]
    fn first_come_first_served_and_who_leaves_hands_on() {
        let mut rig = Rig::new(4);
        assert!(!rig.queue.is_empty() && !rig.queue.may_pass(&Waiter::default()));
        rig.queue.leave(&mut rig.waiters[1]);
        assert_eq!(rig.woken(), [0, 0, 0, 0]);
        rig.call();
        rig.call();
        assert_eq!(rig.woken(), [1, 0, 0, 0]);
        assert!(rig.queue.may_pass(&rig.waiters[0]) && !rig.queue.may_pass(&rig.waiters[2]));
        rig.queue.leave(&mut rig.waiters[0]);
        assert_eq!(rig.woken(), [1, 0, 1, 0]);
        assert!(rig.queue.may_pass(&rig.waiters[2]));
        rig.queue.leave(&mut rig.waiters[2]);
        rig.queue.leave(&mut rig.waiters[3]);
        rig.queue.leave(&mut rig.waiters[3]);
        assert!(rig.queue.is_empty());
    }

    #[test]
    fn those_that_are_called_and_do_not_come_are_passed_over() {
        let mut rig = Rig::new(4);
        let before = Instant::now();
        rig.call();
        let start = Instant::now();
        let run_at = |at| rig.timers.run(at, &mut Wakers::new());
        let next = run_at(before + PATIENCE / 2).unwrap();
        assert_eq!(rig.woken(), [1, 0, 0, 0]);
        assert!(next <= start + PATIENCE);
        let run = |after| run_at(start + after);
        // The first one does not come, and neither does the second, in half of the time.
        assert!(run(PATIENCE).unwrap() <= start + PATIENCE + PATIENCE / 2);
        assert_eq!(rig.woken(), [1, 1, 0, 0]);
        run(2 * PATIENCE);
        assert_eq!(rig.woken(), [1, 1, 1, 0]);
        assert!(!rig.queue.may_pass(&rig.waiters[0]) && rig.queue.may_pass(&rig.waiters[2]));
        // One that stays is not passed over.
        rig.queue.join(&mut rig.waiters[2], &rig.counts[2].clone().into());
        assert_eq!(run(9 * PATIENCE), None);
        assert_eq!(rig.woken(), [1, 1, 1, 0]);
        // One that was passed over joins anew, behind the others; leaving before has no effect on others.
        rig.queue.leave(&mut rig.waiters[1]);
        rig.queue.join(&mut rig.waiters[0], &rig.counts[0].clone().into());
        rig.queue.leave(&mut rig.waiters[2]);
        rig.queue.leave(&mut rig.waiters[3]);
        assert!(rig.queue.may_pass(&rig.waiters[0]));
        assert_eq!(rig.woken(), [2, 1, 1, 1]);
        rig.queue.leave(&mut rig.waiters[0]);
        assert!(rig.queue.is_empty());
    }
}
