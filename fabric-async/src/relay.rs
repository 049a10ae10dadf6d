//! The threads that call wakers for the node's thread.
//!
//! The node's thread serves leases, which have to end in time, so it calls no user code: it leaves wakers here. There is
//! one thread that calls them, started with the first. While that one is held up in a call, another goes on with the rest, and
//! so on up to a bound; those that are no longer needed end. Nobody waits for these threads.
//!
//! What waits here is bounded by what waits elsewhere: each place where a future waits has one waker, which is taken out
//! when it is to be woken, and comes back only when the future is polled again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::core::sync::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::wakers::Call;

/// A call that takes longer holds up its thread.
const HELD_UP: Duration = Duration::from_millis(5);
/// Threads at most. More wakers that block for ever are a mistake that this does not make up for.
const MOST: usize = 64;

pub(crate) struct Relay {
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    calls: VecDeque<Call>,
    threads: usize,
    /// Threads that wait for calls.
    idle: usize,
    /// When a call was last begun, or a thread was started.
    last: Instant,
    over: bool,
}

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
        let (calls, last) = (VecDeque::new(), Instant::now());
        let state = State { calls, threads: 0, idle: 0, last, over: false };
        Arc::new(Relay { state: Mutex::new(state), more: Condvar::new() })
    }

    /// From now on this thread leaves its wakers here.
    pub(crate) fn adopt_this_thread(self: &Arc<Self>) {
        RELAY.set(Some(self.clone()));
    }

    pub(crate) fn push(self: &Arc<Self>, calls: impl Iterator<Item = Call>) {
        // Not under the lock: what gives the calls may do some of them.
        let calls: SmallVec<[Call; 16]> = calls.collect();
        if calls.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.calls.extend(calls);
        let is_first = state.threads == 0;
        drop(state);
        self.more.notify_one();
        if is_first {
            self.start();
        }
    }

    /// Sees whether calls are held up, and has another thread go on then; says when to look again.
    pub(crate) fn look_after(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        if state.calls.is_empty() || state.idle > 0 || state.threads >= MOST {
            return None;
        }
        let next = state.last + HELD_UP;
        if now < next {
            return Some(next);
        }
        state.last = now;
        drop(state);
        self.start();
        Some(now + HELD_UP)
    }

    /// No more calls come; threads end when those that are left are done.
    pub(crate) fn close(&self) {
        self.state.lock().over = true;
        self.more.notify_all();
    }

    fn start(self: &Arc<Self>) {
        self.state.lock().threads += 1;
        let relay = self.clone();
        let thread = std::thread::Builder::new().name("fabric-async-wake".to_owned());
        if let Err(error) = thread.spawn(move || relay.run()) {
            self.state.lock().threads -= 1;
            // The node's thread tries again.
            fabric::core::log_line!(Error, "fabric-async: no thread to call wakers: {error}");
        }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(call) = state.calls.pop_front() {
                state.last = Instant::now();
                drop(state);
                call.run();
                state = self.state.lock();
            } else if state.over || state.idle > 0 {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self.more.wait(state);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

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
            relay.look_after(Instant::now());
            count.get() == 3
        });
        stuck.0.store(true, Ordering::Relaxed);
        until("one thread is left", || {
            let state = relay.state.lock();
            (state.threads, state.idle) == (1, 1)
        });
        assert_eq!(relay.look_after(Instant::now()), None);
        relay.close();
        until("and then none", || relay.state.lock().threads == 0);
        assert_eq!(Arc::strong_count(&stuck), 1);
    }
}
