//! Progress: by the application's threads while they poll or wait, and else by the thread of the [service](super::service).
//!
//! One thread at a time sleeps on the descriptors of the endpoint: an application's thread that waits, or the service's. While
//! the application polls, the service only looks now and then whether it still does. While an event loop watches the
//! endpoint's descriptor, the service sleeps on it as well, and takes over if it has been readable for long without a poll.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use fabric::{Armed, CompletionQueue, EventQueue};
use fabric_core::{Error, Result, unlikely};
use fabric_util::wakeup::{Wakeup, poll_until};
use rustix::event::{PollFd, PollFlags};

use super::calls::Caller;
use super::completion::Completion;
use super::core::Core;
use super::lock::{lock, wait};
use super::watch::Watch;

/// What sleeps on the descriptors, or is about to.
const NOBODY: u8 = 0;
const APPLICATION: u8 = 1;
const SERVICE: u8 = 2;

/// The endpoint under its lock, and those that drive it.
pub(super) struct Driver {
    core: Mutex<Core>,
    /// Wakes a thread of the application that sleeps on the descriptors.
    wakeup: Wakeup,
    /// Wakes the service's.
    service: Caller,
    /// The one that sleeps on the descriptors.
    claimed: AtomicU8,
    /// Until when, in nanoseconds of the endpoint's clock.
    sleeps_until: AtomicU64,
    /// Polls of the application.
    polls: AtomicU64,
    /// Threads of the application in `wait`.
    waiters: AtomicU32,
    /// The service is to be called when the last of them leaves.
    awaits_waiters: AtomicBool,
    /// Of what threads that do not sleep on the descriptors wait for: counts changes.
    changes: Mutex<u64>,
    changed: Condvar,
    watch: OnceLock<Watch>,
    /// The descriptor was armed, and an event loop watches it.
    armed: AtomicBool,
    /// As of the last call: whether events of peers wait, writes that are taken apart, and what arrived without a receive.
    has_event: AtomicBool,
    has_written: AtomicBool,
    /// Something has changed since completions were last taken. Changes under the lock.
    changed_unseen: AtomicBool,
    arrived: AtomicU64,
}

/// The right of a thread of the application to sleep on the descriptors, until this is dropped.
struct Claim<'a>(&'a Driver);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.give_way();
    }
}

impl Driver {
    pub(super) fn new(core: Core, service: Caller) -> Result<Self> {
        let wakeup =
            Wakeup::new().map_err(|cause| Error::system("make rdm endpoint", "fabric", cause))?;
        Ok(Driver {
            core: Mutex::new(core),
            wakeup,
            service,
            claimed: AtomicU8::new(NOBODY),
            sleeps_until: AtomicU64::new(u64::MAX),
            polls: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            awaits_waiters: AtomicBool::new(false),
            changes: Mutex::new(0),
            changed: Condvar::new(),
            watch: OnceLock::new(),
            armed: AtomicBool::new(false),
            has_event: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
            changed_unseen: AtomicBool::new(false),
            arrived: AtomicU64::new(0),
        })
    }

    /// A call on the endpoint that changes something, and what follows for threads that sleep.
    pub(super) fn call<T>(&self, call: impl FnOnce(&mut Core) -> T) -> T {
        self.call_if(|core| (call(core), true))
    }

    /// The same of one that says whether it did.
    pub(super) fn call_if<T>(&self, call: impl FnOnce(&mut Core) -> (T, bool)) -> T {
        self.enter(|core| {
            let (result, changes) = call(core);
            if changes {
                self.changed_unseen.store(true, Ordering::Relaxed);
            }
            result
        })
    }

    /// A call on the endpoint that changes nothing that others wait for.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        self.enter(look)
    }

    fn enter<T>(&self, call: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = lock(&self.core);
        let result = call(&mut core);
        self.has_event.store(!core.shared.peer_events.is_empty(), Ordering::Relaxed);
        self.has_written.store(core.shared.has_written(), Ordering::Relaxed);
        self.arrived.store(core.shared.matcher.arrived(), Ordering::Relaxed);
        let has_ended = core.shared.has_ended();
        // A thread that is about to sleep looks at the deadline under this lock, and so does one that arms: others need none.
        let sleeps = self.claimed.load(Ordering::SeqCst) != NOBODY;
        let watch = self.watched_by();
        let is_early = unlikely(sleeps | watch.is_some())
            && self.note_deadline(&core, has_ended, sleeps, watch);
        drop(core);
        let has_waiters = self.waiters.load(Ordering::SeqCst) > 0;
        if unlikely(has_ended & has_waiters | is_early) {
            self.kick();
        }
        result
    }

    /// Sets the descriptor that an event loop relies on, if it has to look; whether a thread sleeps for too long now.
    #[inline(never)]
    fn note_deadline(
        &self,
        core: &Core,
        has_ended: bool,
        sleeps: bool,
        watch: Option<&Watch>,
    ) -> bool {
        let deadline = core.deadline().map_or(u64::MAX, |deadline| deadline.as_nanos() as u64);
        if let Some(watch) = watch
            && (has_ended || deadline < watch.timer_at())
        {
            watch.set();
        }
        sleeps && (core.more_requests || deadline < self.sleeps_until.load(Ordering::SeqCst))
    }

    /// A poll of an application.
    pub(super) fn poll<T>(&self, call: impl FnOnce(&mut Core) -> T) -> T {
        self.count_poll();
        self.enter(|core| {
            self.turn_of_application(core);
            self.changed_unseen.store(false, Ordering::Relaxed);
            call(core)
        })
    }

    /// The progress of a poll. What it finds is unseen until completions are [taken](Driver::take).
    pub(super) fn progress(&self) {
        self.count_poll();
        self.call_if(|core| ((), self.turn_of_application(core)));
    }

    fn count_poll(&self) {
        // One that is lost among threads that poll changes nothing: others are counted.
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether it found anything.
    fn turn_of_application(&self, core: &mut Core) -> bool {
        let had_ended = core.shared.has_ended();
        let found = core.progress() || had_ended;
        if found {
            // Others may wait for what this one takes note of.
            self.alert();
        } else {
            // What this processor shares with the one that sends goes there.
            std::hint::spin_loop();
        }
        found
    }

    /// Takes completions, and makes no progress.
    pub(super) fn take(&self, out: &mut [Completion]) -> usize {
        self.enter(|core| {
            let (taken, frees) = core.shared.take(out);
            // Windows that this opens are known to peers after the next turn.
            self.changed_unseen.store(frees, Ordering::Relaxed);
            taken
        })
    }

    /// A turn of the service's thread.
    pub(super) fn turn(&self) {
        self.enter(|core| {
            if core.progress() {
                // An event loop that watches the descriptor, or is about to, is to see it.
                self.changed_unseen.store(true, Ordering::Relaxed);
                self.alert();
            }
        });
    }

    /// What an event loop relies on.
    pub(super) fn watched_by(&self) -> Option<&Watch> {
        self.watch.get().filter(|_| self.armed.load(Ordering::SeqCst))
    }

    fn watch(&self) -> Result<&Watch> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let core = lock(&self.core);
        let watch = Watch::new(&core.shared.queue, &core.shared.events)?;
        Ok(self.watch.get_or_init(|| watch))
    }

    /// The descriptor for event loops.
    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.watch()?.as_fd())
    }

    /// Makes sure that the descriptor becomes readable when there is something to poll for.
    pub(super) fn arm(&self) -> Result<Armed> {
        let watch = self.watch()?;
        let core = lock(&self.core);
        watch.clear();
        self.armed.store(true, Ordering::SeqCst);
        let queue = core.shared.queue.clone();
        let has_more = core.more_requests
            || core.shared.has_ended()
            || self.changed_unseen.load(Ordering::Relaxed);
        let timer = watch.set_timer(core.shared.start, core.deadline());
        drop(core);
        let armed = match timer {
            Ok(()) if has_more => Ok(Armed::Ready),
            Ok(()) => queue.arm_manual(),
            Err(error) => Err(error),
        };
        if !matches!(armed, Ok(Armed::Waiting)) {
            self.armed.store(false, Ordering::SeqCst);
            self.call_guard(watch);
        }
        armed
    }

    /// Makes the descriptor readable, if an event loop relies on it. The caller has the endpoint's lock.
    fn alert(&self) {
        if let Some(watch) = self.watched_by() {
            watch.set();
        }
    }

    /// Whether events of peers wait.
    pub(super) fn has_event(&self) -> bool {
        self.has_event.load(Ordering::Relaxed)
    }

    /// Whether writes to memory here wait that are taken apart.
    pub(super) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }

    /// Changes with each message that arrives and meets no receive.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Wakes all that sleep.
    fn kick(&self) {
        match self.claimed.load(Ordering::SeqCst) {
            APPLICATION => self.wakeup.set(),
            SERVICE => self.service.look(),
            _ => {}
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
        self.try_claim(APPLICATION).then(|| Claim(self))
    }

    fn try_claim(&self, who: u8) -> bool {
        self.claimed.compare_exchange(NOBODY, who, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Sleeps until a descriptor is readable, or `deadline`. The caller has the claim, and looks again.
    fn sleep(&self, deadline: Option<Instant>) -> Result<()> {
        let (armed, timer) = self.prepare_sleep(true)?;
        if armed == Armed::Ready {
            return Ok(());
        }
        let (queue, events) = self.queues();
        let deadline = deadline.into_iter().chain(timer).min();
        let fds = [queue.as_fd(), events.as_fd(), self.wakeup.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll_until(&mut fds, deadline).map_err(|cause| Error::system("wait", "fabric", cause))?;
        self.wakeup.clear();
        Ok(())
    }

    /// Makes sure that the descriptors become readable when there is something to do, and gives when there is at the latest.
    /// `Ready`: there is something now. The caller has the claim.
    pub(super) fn prepare_sleep(&self, is_application: bool) -> Result<(Armed, Option<Instant>)> {
        let core = lock(&self.core);
        let queue = core.shared.queue.clone();
        let timer = core.deadline();
        let until = timer.map_or(u64::MAX, |timer| timer.as_nanos() as u64);
        self.sleeps_until.store(until, Ordering::SeqCst);
        let timer = timer.and_then(|timer| core.shared.start.checked_add(timer));
        let has_more = core.more_requests || is_application && core.shared.has_ended();
        drop(core);
        let armed = if is_application { queue.arm_manual() } else { queue.arm() };
        Ok((if has_more { Armed::Ready } else { armed? }, timer))
    }

    /// What the endpoint sleeps on.
    pub(super) fn queues(&self) -> (CompletionQueue, EventQueue) {
        let core = lock(&self.core);
        (core.shared.queue.clone(), core.shared.events.clone())
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
        let is_last = self.waiters.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.awaits_waiters.swap(false, Ordering::SeqCst) {
            // It may have to go on.
            self.service.look();
        }
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
                let slept = self.sleep(deadline);
                drop(claim);
                slept?;
            } else {
                // The service gives way; another thread of the application drives for both.
                if self.claimed.load(Ordering::SeqCst) == SERVICE {
                    self.service.look();
                }
                self.wait_change(seen, deadline);
            }
        }
    }

    /// Polls of the application so far.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Whether the application drives: it has polled since so many polls, or waits.
    pub(super) fn is_driven(&self, polls: u64) -> bool {
        self.polls() != polls || self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Whether threads of the application wait: then the service is called when the last one leaves.
    pub(super) fn await_waiters(&self) -> bool {
        self.awaits_waiters.store(true, Ordering::SeqCst);
        let waits = self.waiters.load(Ordering::SeqCst) > 0;
        if !waits {
            self.awaits_waiters.store(false, Ordering::SeqCst);
        }
        waits
    }

    /// The service sleeps on the descriptors from now on, unless a thread of the application does.
    pub(super) fn take_over(&self) -> bool {
        self.try_claim(SERVICE)
    }

    /// The one that has the claim sleeps on the descriptors no more.
    pub(super) fn give_way(&self) {
        self.sleeps_until.store(u64::MAX, Ordering::SeqCst);
        self.claimed.store(NOBODY, Ordering::SeqCst);
        self.change();
    }

    /// What an event loop may rely on, now or later.
    pub(super) fn watch_if_any(&self) -> Option<&Watch> {
        self.watch.get()
    }

    /// Whether an event loop still relies on the descriptor: then the service is called when it does no more.
    pub(super) fn await_watch(&self) -> bool {
        let Some(watch) = self.watch.get() else { return false };
        watch.guard();
        self.watched_by().is_some()
    }

    fn call_guard(&self, watch: &Watch) {
        if watch.take_guard() {
            self.service.look();
        }
    }
}
