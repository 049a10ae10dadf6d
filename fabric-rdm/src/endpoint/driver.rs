//! Progress: by the application's threads while they poll or wait, and else by the endpoint's own thread.
//!
//! One thread at a time sleeps on the descriptors of the endpoint: an application's thread that waits, or the endpoint's. While
//! the application polls, the endpoint's thread only looks now and then whether it still does.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use fabric::Armed;
use fabric_core::{Error, Result};
use fabric_util::wakeup::{Wakeup, poll_until};
use rustix::event::{PollFd, PollFlags};

use super::core::Core;
use super::lock::{lock, wait};

/// How long an application does not poll until the endpoint's thread takes over: so long at first, and up to so long of one that
/// goes on polling, as the thread of each of many endpoints looks so often.
const PATIENCE: Duration = Duration::from_millis(2);
const MAX_PATIENCE: Duration = Duration::from_millis(16);

/// The endpoint under its lock, and those that drive it.
pub(super) struct Driver {
    core: Mutex<Core>,
    /// Wakes the thread that sleeps on the descriptors.
    wakeup: Wakeup,
    /// A thread sleeps on the descriptors, or is about to.
    claimed: AtomicBool,
    /// That thread is the endpoint's own.
    is_own: AtomicBool,
    /// Until when, in nanoseconds of the endpoint's clock.
    sleeps_until: AtomicU64,
    /// Polls of the application.
    polls: AtomicU64,
    /// Threads of the application in `wait`.
    waiters: AtomicU32,
    stop: AtomicBool,
    /// Of what threads that do not sleep on the descriptors wait for: counts changes.
    changes: Mutex<u64>,
    changed: Condvar,
}

/// The right to sleep on the descriptors: of one thread at a time, until this is dropped.
struct Claim<'a>(&'a Driver);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Driver { sleeps_until, claimed, .. } = self.0;
        sleeps_until.store(u64::MAX, Ordering::SeqCst);
        claimed.store(false, Ordering::SeqCst);
        self.0.change();
    }
}

impl Driver {
    pub(super) fn new(core: Core) -> Result<Self> {
        let wakeup =
            Wakeup::new().map_err(|cause| Error::system("make rdm endpoint", "fabric", cause))?;
        Ok(Driver {
            core: Mutex::new(core),
            wakeup,
            claimed: AtomicBool::new(false),
            is_own: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(u64::MAX),
            polls: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            changes: Mutex::new(0),
            changed: Condvar::new(),
        })
    }

    /// A call on the endpoint, and what follows for threads that sleep.
    pub(super) fn call<T>(&self, call: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = lock(&self.core);
        let result = call(&mut core);
        let has_ended = core.shared.has_ended() && self.waiters.load(Ordering::SeqCst) > 0;
        // A thread that is about to sleep looks at the deadline under this lock.
        let is_early = core.deadline().is_some_and(|deadline| {
            self.claimed.load(Ordering::SeqCst)
                && (deadline.as_nanos() as u64) < self.sleeps_until.load(Ordering::SeqCst)
        });
        drop(core);
        if has_ended || is_early {
            self.kick();
        }
        result
    }

    /// The same, of an application that polls.
    pub(super) fn poll<T>(&self, call: impl FnOnce(&mut Core) -> T) -> T {
        // One that is lost among threads that poll changes nothing: others are counted.
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.call(|core| {
            if !core.progress() {
                // What this processor shares with the one that sends goes there.
                std::hint::spin_loop();
            }
            call(core)
        })
    }

    /// Wakes all that sleep.
    fn kick(&self) {
        if self.claimed.load(Ordering::SeqCst) {
            self.wakeup.set();
        }
        self.change();
    }

    fn change(&self) {
        *lock(&self.changes) += 1;
        self.changed.notify_all();
    }

    fn seen(&self) -> u64 {
        *lock(&self.changes)
    }

    /// Sleeps until something has changed since `seen`, or `deadline`.
    fn wait_change(&self, seen: u64, deadline: Option<Instant>) {
        let mut changes = lock(&self.changes);
        while *changes == seen {
            changes = match wait(&self.changed, changes, deadline) {
                Some(changes) => changes,
                None => return,
            };
        }
    }

    fn claim(&self) -> Option<Claim<'_>> {
        (!self.claimed.swap(true, Ordering::SeqCst)).then(|| Claim(self))
    }

    /// Sleeps on the descriptors until one is readable, or `deadline`. The caller has the claim, and looks again.
    fn sleep(&self, deadline: Option<Instant>, is_application: bool) -> Result<()> {
        let core = lock(&self.core);
        let (queue, events) = (core.shared.queue.clone(), core.shared.events.clone());
        let timer = core.deadline();
        let until = timer.map_or(u64::MAX, |timer| timer.as_nanos() as u64);
        self.sleeps_until.store(until, Ordering::SeqCst);
        let timer = timer.and_then(|timer| core.shared.start.checked_add(timer));
        let has_more = core.more_requests || is_application && core.shared.has_ended();
        drop(core);
        let armed = if is_application { queue.arm_manual() } else { queue.arm() };
        if has_more || armed? == Armed::Ready {
            return Ok(());
        }
        let deadline = deadline.into_iter().chain(timer).min();
        let fds = [queue.as_fd(), events.as_fd(), self.wakeup.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll_until(&mut fds, deadline).map_err(|cause| Error::system("wait", "fabric", cause))?;
        self.wakeup.clear();
        Ok(())
    }

    /// Has `look` look after each turn until it finds something; `None` when the time has passed.
    pub(super) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<Option<T>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let found = self.wait_until(deadline, &mut look);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        // The endpoint's thread may have to go on.
        self.change();
        found
    }

    fn wait_until<T>(
        &self,
        deadline: Option<Instant>,
        look: &mut impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<Option<T>> {
        loop {
            let seen = self.seen();
            if let Some(found) = self.poll(&mut *look) {
                return Ok(Some(found));
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return Ok(None);
            }
            if let Some(claim) = self.claim() {
                let slept = self.sleep(deadline, true);
                drop(claim);
                slept?;
            } else {
                // The endpoint's own thread gives way; another one of the application drives for both.
                if self.is_own.load(Ordering::SeqCst) {
                    self.wakeup.set();
                }
                self.wait_change(seen, deadline);
            }
        }
    }

    /// The endpoint's thread: until [`stop`](Self::stop).
    pub(super) fn run(&self) {
        let mut patience = PATIENCE;
        while !self.stop.load(Ordering::SeqCst) {
            let seen = self.seen();
            let polls = self.polls.load(Ordering::Relaxed);
            if self.waiters.load(Ordering::SeqCst) > 0 {
                // They drive.
                self.wait_change(seen, None);
                continue;
            }
            self.wait_change(seen, Instant::now().checked_add(patience));
            let is_driven = || {
                self.polls.load(Ordering::Relaxed) != polls
                    || self.waiters.load(Ordering::SeqCst) > 0
                    || self.stop.load(Ordering::SeqCst)
            };
            if is_driven() {
                patience = (2 * patience).min(MAX_PATIENCE);
                continue;
            }
            patience = PATIENCE;
            let Some(claim) = self.claim() else { continue };
            self.is_own.store(true, Ordering::SeqCst);
            loop {
                self.call(|core| core.progress());
                if is_driven() || self.sleep(None, false).is_err() {
                    break;
                }
            }
            self.is_own.store(false, Ordering::SeqCst);
            drop(claim);
        }
    }

    /// Ends [`run`](Self::run).
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wakeup.set();
        self.change();
    }
}
