//! A want of what the whole process shares: descriptors, ports, memory. No peer is at fault, and asking again at once is in vain.
//!
//! So many connections as there were when an attempt failed for that are taken for all that there can be, until there are more.
//! Attempts leave room for as many that come in: their peers may be in this process, and be accepted by what is left. An
//! endpoint whose attempt has to wait makes it when connections of the process have gone; and now and then one endpoint of
//! all tries whether there is more. Endpoints that sleep are looked at when the first one has to wait.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

use fabric_core::Error;

use super::calls::{Call, Calls};
use super::lock::lock;

/// Between looks of one endpoint.
const LOOK: Duration = Duration::from_millis(100);
/// Between trials of the process.
const TRIAL: Duration = Duration::from_millis(500);

/// What the endpoints of a process know together.
struct Process {
    /// Connections, and attempts at one.
    used: AtomicUsize,
    /// Attempts of this side.
    attempts: AtomicUsize,
    /// So many connections there can be, as far as is known.
    enough_for: AtomicUsize,
    /// Endpoints whose attempts wait.
    waiting: AtomicUsize,
    /// When one of them may try again, in nanoseconds.
    next_trial: AtomicU64,
    /// How the others are called.
    calls: Mutex<Weak<Calls>>,
}

static PROCESS: Process = Process {
    used: AtomicUsize::new(0),
    attempts: AtomicUsize::new(0),
    enough_for: AtomicUsize::new(usize::MAX),
    waiting: AtomicUsize::new(0),
    next_trial: AtomicU64::new(0),
    calls: Mutex::new(Weak::new()),
};

/// All endpoints of the process are called by these, from now on.
pub(super) fn call_by(calls: &Arc<Calls>) {
    *lock(&PROCESS.calls) = Arc::downgrade(calls);
}

/// Whether the call failed for such a want, and not because of its peer.
pub(super) fn is_of_process(error: &Error) -> bool {
    match error {
        Error::NoMemory(_) => true,
        // All ports are in use. (Where connect(2) says that, and not bind(2), it may be the way there that is missing.)
        Error::AddrInUse(failure) => failure.operation == "connect",
        _ => false,
    }
}

impl Process {
    /// Whether there is enough for one more attempt, and for all that are under way to be accepted.
    fn has_enough(&self) -> bool {
        let enough_for = self.enough_for.load(Ordering::Relaxed);
        let (used, attempts) = (&self.used, &self.attempts);
        enough_for == usize::MAX
            || used.load(Ordering::Relaxed) + attempts.load(Ordering::Relaxed) + 2 <= enough_for
    }

    /// Whether it is this caller's turn to try whether there is more.
    fn may_try(&self) -> bool {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let now = START.elapsed().as_nanos() as u64;
        let next = now + TRIAL.as_nanos() as u64;
        let take = |at: u64| (at <= now).then_some(next);
        self.next_trial.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// What a connection takes of the process, or an attempt.
pub(super) struct Taken<'a> {
    process: &'a Process,
    is_attempt: bool,
}

impl Taken<'static> {
    pub(super) fn new(is_attempt: bool) -> Self {
        Taken::of(&PROCESS, is_attempt)
    }
}

impl<'a> Taken<'a> {
    fn of(process: &'a Process, is_attempt: bool) -> Self {
        process.used.fetch_add(1, Ordering::Relaxed);
        process.attempts.fetch_add(is_attempt.into(), Ordering::Relaxed);
        Taken { process, is_attempt }
    }

    /// The connection is there: so there was enough for it.
    pub(super) fn is_connected(&mut self) {
        let process = self.process;
        let was_attempt = std::mem::replace(&mut self.is_attempt, false);
        process.attempts.fetch_sub(was_attempt.into(), Ordering::Relaxed);
        let used = process.used.load(Ordering::Relaxed);
        if used > process.enough_for.load(Ordering::Relaxed) {
            process.enough_for.store(used + used / 8, Ordering::Relaxed);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.process.attempts.fetch_sub(self.is_attempt.into(), Ordering::Relaxed);
        self.process.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The shortage as one endpoint knows it.
pub(super) struct Shortage {
    process: &'static Process,
    /// When it looks again, while its attempts wait.
    look: Option<Duration>,
    /// The next attempt is made to see whether there is more.
    is_trial: bool,
}

impl Shortage {
    pub(super) fn new() -> Self {
        Shortage::of(&PROCESS)
    }

    fn of(process: &'static Process) -> Self {
        Shortage { process, look: None, is_trial: false }
    }

    /// Whether there is enough for one more attempt; otherwise it waits.
    pub(super) fn has_enough(&mut self, now: Duration) -> bool {
        let is_trial = std::mem::take(&mut self.is_trial);
        let has_enough = self.look.is_none() && (is_trial || self.process.has_enough());
        if !has_enough && self.look.is_none() {
            self.wait(now);
        }
        has_enough
    }

    /// An attempt failed for it. Whether that is news.
    pub(super) fn begin(&mut self, now: Duration) -> bool {
        let (used, enough_for) = (&self.process.used, &self.process.enough_for);
        let was_enough = enough_for.swap(used.load(Ordering::Relaxed), Ordering::Relaxed);
        self.wait(now);
        was_enough == usize::MAX
    }

    fn wait(&mut self, now: Duration) {
        if self.look.replace(now.saturating_add(LOOK)).is_none()
            && self.process.waiting.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(calls) = lock(&self.process.calls).upgrade()
        {
            calls.call(Call::LookAtAll);
        }
    }

    /// Whether attempts wait.
    pub(super) fn lasts(&self) -> bool {
        self.look.is_some()
    }

    /// Whether attempts of another endpoint of the process wait.
    pub(super) fn is_of_others(&self) -> bool {
        self.process.waiting.load(Ordering::Relaxed) > usize::from(self.lasts())
    }

    /// Whether an attempt that had to wait may be made now.
    pub(super) fn may_try(&mut self, now: Duration) -> bool {
        let Some(look) = self.look else { return false };
        if !self.process.has_enough() {
            if now < look {
                return false;
            }
            if !self.process.may_try() {
                self.look = Some(now.saturating_add(LOOK));
                return false;
            }
            self.is_trial = true;
        }
        self.leave();
        true
    }

    fn leave(&mut self) {
        if self.look.take().is_some() {
            self.process.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// When it looks again.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.look
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> &'static Process {
        let zero = || AtomicUsize::new(0);
        Box::leak(Box::new(Process {
            used: zero(),
            attempts: zero(),
            enough_for: AtomicUsize::new(usize::MAX),
            waiting: zero(),
            next_trial: AtomicU64::new(0),
            calls: Mutex::default(),
        }))
    }

    #[test]
    fn attempts_leave_room_for_those_that_come_in() {
        let (process, now) = (process(), Duration::from_secs(1));
        let mut a = Shortage::of(process);
        let mut b = Shortage::of(process);
        let mut all: Vec<_> = (0..8).map(|_| Taken::of(process, true)).collect();
        assert!(a.has_enough(now) && a.begin(now), "it is news");
        assert!(a.lasts() && !a.is_of_others() && b.is_of_others());
        assert!(!b.has_enough(now) && b.lasts());
        // Eight may be connected: with three there is room for two attempts and what they are accepted by.
        all.truncate(3);
        all.iter_mut().for_each(Taken::is_connected);
        assert!(a.may_try(now) && !a.lasts());
        all.extend([Taken::of(process, true), Taken::of(process, true)]);
        assert!(!b.may_try(now));
        drop((a, b));
        assert_eq!(process.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_tries_now_and_then_and_more_is_learned() {
        let (process, now) = (process(), Duration::from_secs(1));
        let all: Vec<_> = (0..8).map(|_| Taken::of(process, false)).collect();
        let mut a = Shortage::of(process);
        let mut b = Shortage::of(process);
        assert!(a.begin(now) && !b.begin(now));
        assert!(!a.may_try(now), "too early");
        let later = now + LOOK;
        assert!(a.may_try(later) && !b.may_try(later), "one of them");
        Taken::of(process, true).is_connected();
        assert_eq!(process.enough_for.load(Ordering::Relaxed), 10);
        drop(all);
        assert_eq!(process.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_of_the_process() {
        let of = |operation, errno| {
            is_of_process(&Error::system(
                operation,
                "tcp",
                std::io::Error::from_raw_os_error(errno),
            ))
        };
        for errno in [24, 23, 12, 105, 98] {
            assert!(of("connect", errno), "{errno}");
        }
        for errno in [111, 113, 101, 110, 99] {
            assert!(!of("connect", errno), "{errno}");
        }
    }
}
