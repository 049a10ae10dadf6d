//! The driver: takes completions, and wakes the futures that wait for them.
//!
//! No task or thread is involved in everything. A future that waits alone polls the completion queue itself: with busy
//! polling, or one request at a time, nothing else ever runs. If several futures wait, polling in each would keep the
//! others from running. Then the watcher, a task of the tokio runtime that sleeping futures wake, polls for all of them when
//! no other task is ready. It takes the completions, yields to the woken tasks, and polls again; only when it finds nothing
//! does it arm the queue's descriptor and sleep. So with more load the batches grow, and tasks sleep and wake less often.
//! Outside a tokio runtime a future that is about to sleep arms the descriptor itself, and the node's thread watches it.
//!
//! `sleepers` counts futures that sleep, or were woken and not polled yet, so it is never too low. Locks: the poller's,
//! then a slot's, then a connection state's. Wakers run, and finished operations are dropped, outside all of them (`deferred`).

mod taking;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fabric::Armed;
use fabric_util::fork::ForkEpoch;
use fabric_util::log_line;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::deferred::Deferred;
use crate::error::Error;
use crate::op_buffers::OpBuffers;
use crate::op_slab::{OpSlab, OpSlot, Phase};
use crate::options::WaitStrategy;
use crate::source::{SlotGuard, Source};
use crate::wakers::{Wakers, discard};

/// Completions that are taken at a time.
const BATCH: usize = 64;

/// How long one poll of a future spins before it yields or sleeps.
const SPIN_TIME: Duration = Duration::from_micros(20);

/// Upper bound of the spin score: a wait that ended while spinning raises the score, one that had to sleep lowers it.
const MAX_SPIN_SCORE: i32 = 64;

pub(crate) struct Driver<S: Source> {
    pub(crate) queue: S,
    pub(crate) slab: OpSlab<S::Completion, S::Keeps>,
    wait: WaitStrategy,
    poller: Mutex<Poller<S::Completion>>,
    pub(crate) sleepers: AtomicUsize,
    /// Watchers that are awake.
    pub(crate) watching: AtomicUsize,
    spin_score: AtomicI32,
    fork_epoch: ForkEpoch,
}

struct Poller<C> {
    out: Box<[C]>,
    /// The descriptor will be readable no later than the next completion, or is already, and there was no poll since.
    armed: bool,
}

/// A driver as those see it that watch its descriptor.
#[cfg_attr(not(feature = "tokio"), allow(dead_code))] // who watches otherwise needs less
pub(crate) trait WatchedDriver: Send + Sync {
    /// Futures that sleep, or were woken and not polled yet.
    fn sleepers(&self) -> &AtomicUsize;

    /// Watchers that are awake.
    fn watching(&self) -> &AtomicUsize;

    fn descriptor(&self) -> BorrowedFd<'_>;

    /// For a watcher: takes all completions. Returns whether to yield and call again; otherwise the watcher must
    /// [arm](WatchedDriver::arm_if_needed). `until`: how long to spin without completions; `None` at first.
    fn poll_for_all(&self, until: &mut Option<Instant>) -> bool;

    /// For a watcher that has marked itself as asleep: makes sure that the descriptor wakes it if any future sleeps.
    fn arm_if_needed(&self);

    /// The descriptor was readable: takes all completions; arms again if any future sleeps. Returns whether it did.
    fn on_readable(&self) -> bool;

    /// The watcher of the descriptor is gone: wakes all waiting futures, so that they start another.
    fn on_watcher_gone(&self, wakers: &mut Wakers);
}

/// What a poll of the queue found.
#[derive(Clone, Copy, Default)]
struct PollResult {
    completions: usize,
    woken: usize,
}

impl<S: Source> Driver<S> {
    pub(crate) fn new(queue: S, wait: WaitStrategy) -> Self {
        let poller = Poller { out: vec![S::Completion::default(); BATCH].into(), armed: false };
        Driver {
            queue,
            slab: OpSlab::new(),
            wait,
            poller: Mutex::new(poller),
            sleepers: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            spin_score: AtomicI32::new(MAX_SPIN_SCORE / 2),
            fork_epoch: ForkEpoch::current(),
        }
    }

    /// The error in a child made by `fork`, which has none of its parent's connections.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.fork_epoch.is_current() {
            return None;
        }
        self.queue.poll(&mut []).err().map(Error::from)
    }

    /// Takes one batch, unless another thread is doing so.
    #[inline]
    fn drive(&self) -> PollResult {
        let mut deferred = Deferred::new();
        self.queue.progress();
        match self.poller.try_lock() {
            Some(mut poller) => self.take_batch(&mut poller, &mut deferred),
            None => PollResult::default(),
        }
    }

    /// Takes all completions; batches that other threads had begun are finished too when it returns.
    pub(crate) fn drain(&self) {
        while self.drive_blocking().completions == BATCH {}
    }

    /// Takes one batch; waits while another thread is doing so.
    fn drive_blocking(&self) -> PollResult {
        let mut deferred = Deferred::new();
        self.queue.progress();
        let mut poller = self.poller.lock();
        self.take_batch(&mut poller, &mut deferred)
    }

    /// Takes one batch.
    #[inline]
    fn take_batch(
        &self,
        poller: &mut MutexGuard<'_, Poller<S::Completion>>,
        deferred: &mut Deferred,
    ) -> PollResult {
        // A poll makes progress by itself; only arming declares that no further poll is to be expected.
        poller.armed = false;
        let before = deferred.wakers.len();
        let count = self.queue.poll(&mut poller.out).unwrap_or(0); // in a forked child
        for completion in &poller.out[..count] {
            self.complete(completion, deferred);
        }
        self.queue.polled(&mut deferred.wakers);
        PollResult { completions: count, woken: deferred.wakers.len() - before }
    }

    /// Ends the operation of a completion.
    #[inline]
    fn complete(&self, completion: &S::Completion, deferred: &mut Deferred) {
        let number = S::slot_of(completion);
        let Some(slot) = self.slab.lock(number) else { return };
        let Some(mut slot) = S::absorb(slot, number, completion, deferred) else { return };
        if !self.queue.is_proof(completion) {
            std::mem::take(&mut slot.buffers).leak();
        }
        match slot.phase {
            Phase::Vacant | Phase::Done => {} // a provider's mistake
            Phase::InFlight | Phase::Detached => {
                if slot.phase == Phase::Detached {
                    deferred.reclaim(std::mem::take(&mut slot.buffers));
                }
                slot.phase = Phase::Done;
                slot.completion = *completion;
                deferred.wakers.wake(slot.waker.take());
                let kept = S::part_with(&mut slot.keeps);
                drop(slot);
                S::ended(kept, deferred);
            }
            Phase::Abandoned => {
                let kept = S::part_with(&mut slot.keeps);
                deferred.reclaim(self.take_out(number, slot).1);
                S::ended(kept, deferred);
            }
        }
    }

    /// Waits until `look` finds something. `look` gets a waker when it must register one; without one it must not rely on
    /// an earlier one. `watch` starts a watcher of the queue, and returns whether that also arms it.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        asleep: &mut bool,
        cx: &mut Context<'_>,
        look: impl FnMut(Option<&Waker>) -> Option<T>,
        watch: impl FnOnce() -> bool,
    ) -> Poll<T> {
        // A task that always finds something must yield from time to time (tokio's cooperative budget).
        #[cfg(feature = "tokio")]
        let turn = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        let found = self.wait_on(asleep, cx, look, watch);
        #[cfg(feature = "tokio")]
        if found.is_ready() {
            turn.made_progress();
        }
        found
    }

    #[inline]
    fn wait_on<T>(
        &self,
        asleep: &mut bool,
        cx: &mut Context<'_>,
        mut look: impl FnMut(Option<&Waker>) -> Option<T>,
        watch: impl FnOnce() -> bool,
    ) -> Poll<T> {
        let again = self.awake(asleep);
        if let Some(found) = look(None) {
            return Poll::Ready(found);
        }
        // A future that slept and was polled again polls the queue itself: the watcher may be starved.
        if (again || !self.has_active_watcher())
            && let Some(done) = self.spin_for(cx, &mut look)
        {
            return done;
        }
        if let Some(found) = look(Some(cx.waker())) {
            return Poll::Ready(found);
        }
        if !self.fork_epoch.is_current() {
            // In a forked child: the operation is the parent's.
            return Poll::Pending;
        }
        if self.wait == WaitStrategy::Busy {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *asleep = true;
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if !watch() {
            self.arm(S::arm);
        }
        Poll::Pending
    }

    /// Whether a watcher is about to poll, for all sleeping futures.
    #[inline]
    fn has_active_watcher(&self) -> bool {
        self.wait != WaitStrategy::Busy
            && self.watching.load(Ordering::Relaxed) > 0
            && self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Takes completions for as long as the wait strategy allows.
    #[inline]
    fn spin_for<T>(
        &self,
        cx: &mut Context<'_>,
        look: &mut impl FnMut(Option<&Waker>) -> Option<T>,
    ) -> Option<Poll<T>> {
        let budget = self.budget();
        let mut until = None;
        loop {
            for _ in 0..8 {
                let PollResult { completions, woken } = self.drive();
                if completions > 0 || woken > 0 {
                    if let Some(found) = look(None) {
                        if budget > Duration::ZERO {
                            self.add_spin_score(2);
                        }
                        return Some(Poll::Ready(found));
                    }
                    if woken > 0 {
                        // Yields to the woken tasks, which may be on this thread.
                        if let Some(found) = look(Some(cx.waker())) {
                            return Some(Poll::Ready(found));
                        }
                        cx.waker().wake_by_ref();
                        return Some(Poll::Pending);
                    }
                }
                if budget.is_zero() {
                    return None;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now >= *until.get_or_insert(now + budget) {
                break;
            }
        }
        self.add_spin_score(-4);
        None
    }

    #[inline]
    fn budget(&self) -> Duration {
        match self.wait {
            WaitStrategy::Busy => SPIN_TIME,
            WaitStrategy::Blocking => Duration::ZERO,
            // With a low score it spins again from time to time.
            WaitStrategy::Adaptive => match self.spin_score.load(Ordering::Relaxed) {
                score if score > 0 => SPIN_TIME,
                _ => {
                    self.add_spin_score(1);
                    Duration::ZERO
                }
            },
        }
    }

    #[inline]
    fn add_spin_score(&self, by: i32) {
        if self.wait != WaitStrategy::Adaptive {
            return;
        }
        // Approximate under races. Below zero: the number of waits until the next try.
        let score = self.spin_score.load(Ordering::Relaxed).saturating_add(by);
        let score = if by < 0 && score <= 0 { -32 } else { score.min(MAX_SPIN_SCORE) };
        self.spin_score.store(score, Ordering::Relaxed);
    }

    /// A future is polled or dropped. Returns whether it slept.
    #[inline]
    pub(crate) fn awake(&self, asleep: &mut bool) -> bool {
        let slept = std::mem::take(asleep);
        if slept {
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        slept
    }

    /// Makes sure that the descriptor becomes readable at the next completion.
    fn arm(&self, arm: impl Fn(&S) -> fabric::Result<Armed>) {
        loop {
            // Wakers of the completions found so far run before the next poll.
            let mut deferred = Deferred::new();
            let mut poller = self.poller.lock();
            if poller.armed {
                return;
            }
            match arm(&self.queue) {
                Ok(Armed::Waiting) => {
                    poller.armed = true;
                    return;
                }
                Ok(_) => drop(self.take_batch(&mut poller, &mut deferred)),
                Err(_) => return,
            }
            drop(poller);
            self.queue.progress();
        }
    }
}

impl<S: Source> WatchedDriver for Driver<S> {
    fn sleepers(&self) -> &AtomicUsize {
        &self.sleepers
    }

    fn watching(&self) -> &AtomicUsize {
        &self.watching
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }

    fn poll_for_all(&self, until: &mut Option<Instant>) -> bool {
        let mut any = false;
        loop {
            let PollResult { completions, woken } = self.drive();
            any |= completions > 0 || woken > 0;
            if completions < BATCH {
                break;
            }
        }
        if any {
            if until.take().is_some() {
                self.add_spin_score(2);
            }
            return true;
        }
        // A future that waits alone has polled the queue itself.
        if self.sleepers.load(Ordering::Relaxed) < 2 {
            return false;
        }
        let now = Instant::now();
        match *until {
            None => {
                let budget = self.budget();
                *until = Some(now + budget);
                !budget.is_zero()
            }
            Some(end) if now < end => true,
            Some(_) => {
                self.add_spin_score(-4);
                false
            }
        }
    }

    fn arm_if_needed(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.arm(S::arm_manual);
        }
    }

    fn on_readable(&self) -> bool {
        self.drain();
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.arm(S::arm);
        true
    }

    fn on_watcher_gone(&self, wakers: &mut Wakers) {
        self.poller.lock().armed = false;
        self.slab.for_each(|slot| wakers.wake(slot.waker.take()));
    }
}

impl<S: Source> Drop for Driver<S> {
    fn drop(&mut self) {
        // Every endpoint is closed, and has left a completion for each operation that it had in flight.
        self.drain();
        let is_quiet = self.queue.close();
        let leaked = self.leak(is_quiet);
        if leaked > 0 && self.fork_epoch.is_current() {
            log_line!(
                Error,
                "fabric-async: the memory of {leaked} operations leaks: they were not completed, so it may still be in use"
            );
        }
    }
}
