//! Counters of operations that ended: never lost, and independent of completions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fabric_core::{Error, Result, unlikely};
use fabric_util::fork::ForkEpoch;

use super::completion::Kind;
use super::lock::{lock, wait};

/// Counts operations of one kind that ended, successes and errors apart. It goes on without polls, and can be waited
/// for. Clones are the same counter; any thread may use it.
#[derive(Clone, Debug)]
pub struct Counter {
    state: Arc<CounterState>,
}

#[derive(Debug)]
struct CounterState {
    successes: AtomicU64,
    errors: AtomicU64,
    waiters: AtomicU64,
    /// Nothing counts any more.
    is_over: AtomicBool,
    epoch: ForkEpoch,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Counter {
    fn new() -> Self {
        let state = CounterState {
            successes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            waiters: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            epoch: ForkEpoch::current(),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        };
        Counter { state: Arc::new(state) }
    }

    /// Operations that ended well.
    pub fn successes(&self) -> u64 {
        self.state.successes.load(Ordering::Acquire)
    }

    /// Operations that ended otherwise, those that were canceled among them.
    pub fn errors(&self) -> u64 {
        self.state.errors.load(Ordering::Acquire)
    }

    pub(super) fn add(&self, ok: bool) {
        let count = if ok { &self.state.successes } else { &self.state.errors };
        count.fetch_add(1, Ordering::SeqCst);
        self.notify();
    }

    fn notify(&self) {
        if unlikely(self.state.waiters.load(Ordering::SeqCst) > 0) {
            drop(lock(&self.state.lock));
            self.state.changed.notify_all();
        }
    }

    /// Waits until `look` finds something, at each change again; `None` when the time has passed.
    fn wait<T>(&self, timeout: Option<Duration>, look: impl Fn(&Self) -> Option<T>) -> Option<T> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let state = &*self.state;
        state.waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = lock(&state.lock);
        let found = loop {
            if let Some(found) = look(self) {
                break Some(found);
            }
            guard = match wait(&state.changed, guard, deadline) {
                Some(guard) => guard,
                None => break None,
            };
        };
        state.waiters.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Waits until so many operations have ended well, or more than `known_errors` have not: those that the caller knows of.
    ///
    /// # Errors
    /// `TimedOut`. `InvalidState`: there are more errors, so that number may never be reached; the endpoint is gone; in a forked
    /// child.
    pub fn wait_for(
        &self,
        successes: u64,
        known_errors: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        const OP: &str = "wait for counter";
        if !self.state.epoch.is_current() {
            return Err(Error::state(OP, "the endpoint is of the parent process"));
        }
        let look = |counter: &Self| match (counter.successes(), counter.errors()) {
            (now, _) if now >= successes => Some(Ok(())),
            (now, errors) if errors > known_errors => Some(Err(Error::state(
                OP,
                format!(
                    "{now} of {successes} operations have ended well, and {} have not",
                    errors - known_errors
                ),
            ))),
            _ if counter.state.is_over.load(Ordering::SeqCst) => {
                Some(Err(Error::state(OP, "the endpoint is gone")))
            }
            _ => None,
        };
        self.wait(timeout, look).unwrap_or(Err(Error::TimedOut(None)))
    }
}

/// Those of an endpoint. Clones are the same counters.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    by_kind: [Counter; KINDS],
}

const KINDS: usize = 6;

impl Counters {
    pub(super) fn new() -> Self {
        Counters { by_kind: std::array::from_fn(|_| Counter::new()) }
    }

    /// The endpoint is gone: none of them changes any more.
    pub(super) fn end(&self) {
        for counter in &self.by_kind {
            counter.state.is_over.store(true, Ordering::SeqCst);
            counter.notify();
        }
    }

    /// Released buffers count as receives, with the receives of the messages in them.
    pub(super) fn of(&self, kind: Kind) -> &Counter {
        let at = match kind {
            Kind::Send => 0,
            Kind::Recv | Kind::Released => 1,
            Kind::Write => 2,
            Kind::Read => 3,
            Kind::Atomic => 4,
            Kind::RecvWrite => 5,
        };
        &self.by_kind[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_number_an_error_or_its_time() {
        let counter = Counter::new();
        assert!(matches!(counter.wait_for(1, 0, Some(Duration::ZERO)), Err(Error::TimedOut(_))));
        counter.add(true);
        counter.wait_for(1, 0, Some(Duration::ZERO)).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| counter.wait_for(3, 0, None));
            counter.add(true);
            counter.add(true);
            waiter.join().unwrap().unwrap();
            let waiter = scope.spawn(|| counter.wait_for(9, 0, None));
            while counter.state.waiters.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            counter.add(false);
            let text = waiter.join().unwrap().unwrap_err().to_string();
            assert!(text.contains("3 of 9 operations have ended well, and 1 have not"), "{text}");
        });
        assert_eq!((counter.successes(), counter.errors()), (3, 1));
    }

    #[test]
    fn a_wait_ends_with_the_endpoint() {
        let counters = Counters::new();
        let counter = counters.of(Kind::Send);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| counter.wait_for(1, 0, None));
            while counter.state.waiters.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            counters.end();
            assert!(matches!(waiter.join().unwrap(), Err(Error::InvalidState(_))));
        });
        assert!(matches!(counter.wait_for(1, 0, None), Err(Error::InvalidState(_))));
    }
}
