//! The threads that call wakers for the node's thread.
//!
//! The node's thread serves leases, which have to end in time, so it calls no user code: it leaves wakers here, to
//! [`Workers`]. One thread calls them; while it is held up in a call, others go on with the rest. These threads are never joined.
//!
//! What waits here is bounded by what waits elsewhere: each place where a future waits has one waker, which is taken out
//! when it is to be woken, and comes back only when the future is polled again.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use fabric_util::callback;
use fabric_util::workers::{Supervision, Workers};
use smallvec::SmallVec;

/// A call that takes longer holds up its thread.
const HELD_UP: Duration = Duration::from_millis(5);
/// Threads at most. More wakers that block for ever are a mistake that this does not make up for.
const MAX_THREADS: usize = 64;

/// What is to be done with a waker.
pub(crate) enum Call {
    Wake(Waker),
    Drop(Waker),
}

impl Call {
    /// Does it if that cannot block; gives it back otherwise.
    pub(crate) fn run_if_own(self) -> Option<Self> {
        match &self {
            Call::Wake(waker) | Call::Drop(waker) if crate::block_on::is_own(waker) => {
                self.run();
                None
            }
            _ => Some(self),
        }
    }

    pub(crate) fn run(self) {
        callback::run(|| match self {
            Call::Wake(waker) => waker.wake(),
            Call::Drop(waker) => drop(waker),
        });
    }
}

pub(crate) struct Relay(Workers<Call>);

thread_local! {
    static RELAY: RefCell<Option<Arc<Relay>>> = const { RefCell::new(None) };
}

/// Where this thread leaves its wakers, if it calls none itself.
#[inline]
pub(crate) fn of_this_thread() -> Option<Arc<Relay>> {
    RELAY.try_with(|relay| relay.borrow().clone()).ok().flatten()
}

impl Relay {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Relay(Workers::new(HELD_UP, MAX_THREADS)))
    }

    /// From now on this thread leaves its wakers here.
    pub(crate) fn adopt_this_thread(self: &Arc<Self>) {
        RELAY.set(Some(self.clone()));
    }

    pub(crate) fn push(self: &Arc<Self>, calls: impl Iterator<Item = Call>) {
        // Not under the lock: what gives the calls may do some of them.
        let calls: SmallVec<[Call; 16]> = calls.collect();
        if !calls.is_empty() && self.0.push(calls) {
            self.start();
        }
    }

    /// Sees whether calls are held up, and has another thread go on then; says when to look again.
    pub(crate) fn supervise(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        match self.0.supervise(now) {
            Supervision::Healthy => None,
            Supervision::CheckAt(at) => Some(at),
            Supervision::StartThread(at) => {
                self.start();
                Some(at)
            }
        }
    }

    /// No more calls come; threads end when those that are left are done.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    fn start(self: &Arc<Self>) {
        let relay = self.clone();
        let thread = std::thread::Builder::new().name("fabric-async-wake".to_owned());
        if let Err(error) = thread.spawn(move || relay.0.run(Call::run)) {
            // The node's thread tries again.
            self.0.not_started();
            fabric_util::log_line!(Error, "fabric-async: no thread to call wakers: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::wakers::tests::Count;

    /// Blocks until it may go on.
    #[derive(Default)]
    struct Stuck(AtomicBool);

    impl Wake for Stuck {
        fn wake(self: Arc<Self>) {
            while !self.0.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn wakers_that_block_hold_up_no_others_and_their_threads_end() {
        let (relay, stuck, count) =
            (Relay::new(), Arc::<Stuck>::default(), Arc::<Count>::default());
        for _ in 0..3 {
            relay.push((0..2).map(|_| Call::Wake(Waker::from(stuck.clone()))));
            relay.push([Call::Wake(Waker::from(count.clone()))].into_iter());
        }
        until("the others are woken", || {
            relay.supervise(Instant::now());
            count.get() == 3
        });
        stuck.0.store(true, Ordering::Relaxed);
        until("one thread is left", || relay.0.threads() == (1, 1));
        assert_eq!(relay.supervise(Instant::now()), None);
        relay.close();
        until("and then none", || relay.0.threads() == (0, 0));
        assert_eq!(Arc::strong_count(&stuck), 1);
    }
    /// However many wakers block, the process has threads left for other things.
    #[test]
    #[cfg_attr(miri, ignore = "so many threads take Miri minutes")]
    fn threads_are_bounded() {
        let (relay, stuck) = (Relay::new(), Arc::<Stuck>::default());
        relay.push((0..2 * MAX_THREADS).map(|_| Call::Wake(Waker::from(stuck.clone()))));
        let mut now = Instant::now();
        until("no more threads are started", || {
            // Later than it is: what was begun by now has been held up.
            now = now.max(Instant::now()) + 2 * HELD_UP;
            relay.supervise(now);
            relay.0.threads() == (MAX_THREADS, 0)
        });
        for _ in 0..10 {
            now += 2 * HELD_UP;
            assert_eq!(relay.supervise(now), None);
            assert_eq!(relay.0.threads(), (MAX_THREADS, 0));
        }
        stuck.0.store(true, Ordering::Relaxed);
        relay.close();
        until("all are woken", || relay.0.threads() == (0, 0));
        assert_eq!(Arc::strong_count(&stuck), 1);
    }
}
