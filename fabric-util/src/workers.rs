//! Work for threads that it may block.
//!
//! There is one thread, started with the first piece of work. While that one is held up, another goes on with the rest, and
//! so on up to a bound; those that are no longer needed end. Their owner calls `supervise` from time to time, as the
//! answer of the last call says: so this has no clock of its own, and starts no thread itself.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex};

/// Pieces of work that wait, and the threads at them.
pub struct Workers<T> {
    state: Mutex<WorkState<T>>,
    more: Condvar,
    /// A piece of work that takes longer holds up its thread.
    held_up: Duration,
    max: usize,
}

struct WorkState<T> {
    work: VecDeque<T>,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
    /// When work was last begun, or a thread was started.
    last: Instant,
    over: bool,
}

/// What a check finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// All is well until more work is added, or a piece of work ends.
    Healthy,
    /// To be checked again then.
    CheckAt(Instant),
    /// Work is held up: a thread is to be started, and the check is due again at that time.
    StartThread(Instant),
}

impl<T> Workers<T> {
    /// No work, and no threads. A piece of work that takes longer than `held_up` gets another thread started for what is
    /// behind it, as long as there are fewer than `max`.
    #[track_caller]
    pub fn new(held_up: Duration, max: usize) -> Self {
        let (work, last) = (VecDeque::new(), Instant::now());
        let state = WorkState { work, threads: 0, idle: 0, last, over: false };
        Workers { state: Mutex::new(state), more: Condvar::new(), held_up, max }
    }

    /// Adds work. Says whether a thread is to be started, which [`run`](Workers::run)s.
    #[must_use = "without a thread nothing is done"]
    pub fn push(&self, work: impl IntoIterator<Item = T>) -> bool {
        let mut state = self.state.lock();
        state.work.extend(work);
        let is_first = state.threads == 0 && !state.work.is_empty();
        state.threads += usize::from(is_first);
        drop(state);
        self.more.notify_one();
        is_first
    }

    /// Sees whether work is held up.
    #[must_use = "without a thread what is held up stays so"]
    pub fn supervise(&self, now: Instant) -> Supervision {
        let mut state = self.state.lock();
        if state.work.is_empty() || state.threads >= self.max {
            return Supervision::Healthy;
        }
        // A thread that has been woken may take one piece of work, and be held up in it with the rest still here.
        if state.idle > 0 {
            return Supervision::CheckAt(now + self.held_up);
        }
        let next = state.last + self.held_up;
        if now < next {
            return Supervision::CheckAt(next);
        }
        state.last = now;
        state.threads += 1;
        Supervision::StartThread(now + self.held_up)
    }

    /// The thread that was to be started could not be. The next check asks for it again.
    pub fn not_started(&self) {
        self.state.lock().threads -= 1;
    }

    /// No more work comes; threads end when what is left is done.
    pub fn close(&self) {
        self.state.lock().over = true;
        self.more.notify_all();
    }

    /// Does work until it is over, or another thread suffices. `work` must not panic.
    pub fn run(&self, mut work: impl FnMut(T)) {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = state.work.pop_front() {
                state.last = Instant::now();
                drop(state);
                work(next);
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

    /// Threads, and how many of them wait for work.
    pub fn threads(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.threads, state.idle)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    // So long that what the test itself takes does not count, however slow.
    const HELD_UP: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_at_a_time_as_work_is_held_up_and_no_more_than_the_bound() {
        let workers = Workers::new(HELD_UP, 3);
        assert!(!workers.push([]));
        assert!(workers.push(0..2));
        assert!(!workers.push(2..10));
        let mut now = Instant::now();
        let first = workers.supervise(now);
        assert!(matches!(first, Supervision::CheckAt(at) if at > now && at <= now + HELD_UP));
        for threads in 2..=3 {
            now += 2 * HELD_UP;
            assert_eq!(workers.supervise(now), Supervision::StartThread(now + HELD_UP));
            assert_eq!(
                workers.supervise(now),
                if threads < 3 {
                    Supervision::CheckAt(now + HELD_UP)
                } else {
                    Supervision::Healthy
                }
            );
        }
        assert_eq!(workers.supervise(now + 2 * HELD_UP), Supervision::Healthy);
        // What could not be started is asked for again.
        workers.not_started();
        assert!(matches!(workers.supervise(now + 2 * HELD_UP), Supervision::StartThread(_)));
        assert_eq!(workers.threads(), (3, 0));
    }

    #[test]
    fn work_left_behind_at_the_end_is_done() {
        let workers = Workers::new(HELD_UP, 3);
        assert!(workers.push(0..3));
        workers.close();
        let mut done = Vec::new();
        workers.run(|work| done.push(work));
        assert_eq!((done, workers.threads()), (vec![0, 1, 2], (0, 0)));
    }
}
