//! The driver: takes completions, and wakes whom they concern.
//!
//! There is no task or thread that everything goes through. Whoever waits alone looks at the completion queue while it is
//! polled: with busy polling, or one request at a time, nothing else ever runs. Where several wait, each looking while
//! others could run would cost them all, so then one looks for everybody, and when nothing else is to be done: a task of
//! the tokio runtime, the watcher, which sleepers rouse. It takes what there is, lets those run whom that woke, and looks
//! again; only when there is nothing more does it arm the queue's descriptor and sleep on that. So the more there is to
//! do, the more is taken at a time, and the less often anybody falls asleep and is woken. Outside a tokio runtime a future
//! that is about to sleep arms the descriptor itself, and the node's thread watches that.
//!
//! `sleepers` counts futures that sleep, or were woken and not polled yet, so it is never too low. Locks: the poller's,
//! then a slot's, then a connection state's. Wakers run, and what has ended is dropped, outside all of them (`deferred`).

mod taking;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fabric::{Armed, Completion, CompletionQueue};
use fabric_util::fork::Origin;
use fabric_util::log_line;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::conn_state::ConnState;
use crate::deferred::Deferred;
use crate::error::Error;
use crate::op_buffers::OpBuffers;
use crate::op_slab::{OpSlab, OpSlot, Phase};
use crate::options::WaitStrategy;
use crate::wakers::discard;

/// Completions that are taken at once.
const BATCH: usize = 64;

/// How long one poll of a future looks before it lets others run, or sleeps.
const SPIN_TIME: Duration = Duration::from_micros(20);

/// Upper bound of the spin score: a wait that ended while spinning raises the score, one that had to sleep lowers it.
const MAX_SPIN_SCORE: i32 = 64;

pub(crate) struct Driver {
    pub(crate) queue: CompletionQueue,
    pub(crate) slab: OpSlab,
    wait: WaitStrategy,
    poller: Mutex<Poller>,
    pub(crate) sleepers: AtomicUsize,
    /// Watchers that are awake.
    pub(crate) watching: AtomicUsize,
    spin_score: AtomicI32,
    origin: Origin,
}

struct Poller {
    out: Box<[Completion]>,
    /// The descriptor will be readable no later than the next completion, or is already, and nobody has polled since.
    armed: bool,
}

/// What a look at the queue brought.
#[derive(Clone, Copy, Default)]
struct Found {
    completions: usize,
    woken: usize,
}

impl Driver {
    pub(crate) fn new(queue: CompletionQueue, wait: WaitStrategy) -> Self {
        let poller = Poller { out: vec![Completion::default(); BATCH].into(), armed: false };
        Driver {
            queue,
            slab: OpSlab::new(),
            wait,
            poller: Mutex::new(poller),
            sleepers: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            spin_score: AtomicI32::new(MAX_SPIN_SCORE / 2),
            origin: Origin::here(),
        }
    }

    /// What a child made by `fork` is told: it has none of its parent's connections.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.origin.is_here() {
            return None;
        }
        self.queue.poll(&mut []).err().map(Error::from)
    }

    /// Takes what there is, unless somebody else is doing so.
    #[inline]
    fn drive(&self) -> Found {
        let mut deferred = Deferred::new();
        match self.poller.try_lock() {
            Some(mut poller) => self.take_batch(&mut poller, &mut deferred),
            None => Found::default(),
        }
    }

    /// Takes all there is; what others were just taking is done too when it returns.
    pub(crate) fn drain(&self) {
        while self.drive_blocking().completions == BATCH {}
    }

    /// Takes what there is, when nobody else is doing so.
    fn drive_blocking(&self) -> Found {
        let mut deferred = Deferred::new();
        let mut poller = self.poller.lock();
        self.take_batch(&mut poller, &mut deferred)
    }

    /// Takes one batch.
    #[inline]
    fn take_batch(&self, poller: &mut MutexGuard<'_, Poller>, deferred: &mut Deferred) -> Found {
        // Who polls makes progress by that, and only arming says that nobody is about to go on so.
        poller.armed = false;
        let before = deferred.wakers.len();
        let count = self.queue.poll(&mut poller.out).unwrap_or(0); // in a forked child
        for completion in &poller.out[..count] {
            self.complete(completion, deferred);
        }
        Found { completions: count, woken: deferred.wakers.len() - before }
    }

    /// Ends the operation that a completion is of.
    #[inline]
    fn complete(&self, completion: &Completion, deferred: &mut Deferred) {
        let number = completion.context as u32;
        let Some(mut slot) = self.slab.lock(number) else { return };
        if let OpBuffers::Receive(_) = slot.buffers {
            return Self::received(slot, number, completion, deferred);
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
                deferred.lease(slot.lease.take());
                let conn_state = slot.conn_state.take();
                drop(slot);
                Self::on_room(conn_state, deferred);
            }
            Phase::Abandoned => {
                deferred.lease(slot.lease.take());
                let conn_state = slot.conn_state.take();
                deferred.reclaim(self.take_out(number, slot).1);
                Self::on_room(conn_state, deferred);
            }
        }
    }

    /// An operation of a connection has ended.
    #[inline]
    fn on_room(conn_state: Option<Arc<ConnState>>, deferred: &mut Deferred) {
        if let Some(conn_state) = &conn_state {
            conn_state.room.wake_first(&mut deferred.wakers);
        }
        deferred.conn_state(conn_state);
    }

    /// Ends a receive. Its slot stays the connection's, for the next one.
    #[inline]
    fn received(
        mut slot: MutexGuard<'_, OpSlot>,
        number: u32,
        completion: &Completion,
        deferred: &mut Deferred,
    ) {
        slot.phase = Phase::Vacant;
        let buffers = std::mem::take(&mut slot.buffers);
        let (OpBuffers::Receive(range), Some(conn_state)) = (buffers, &slot.conn_state) else {
            return;
        };
        let unused = conn_state.arrived(completion, number, range.reclaim(), &mut deferred.wakers);
        deferred.buffer(unused);
    }

    /// Waits until `look` finds something. `look` is given a waker when it is to be told; without one it must not rely
    /// on an earlier one. `watch` has somebody watch the queue, and says whether that one arms it, too.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        asleep: &mut bool,
        cx: &mut Context<'_>,
        look: impl FnMut(Option<&Waker>) -> Option<T>,
        watch: impl FnOnce() -> bool,
    ) -> Poll<T> {
        // A task of tokio's that always finds something lets others run from time to time.
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
        // Who is polled again without a cause relies on no watcher: perhaps that never gets to run.
        if (again || !self.has_active_watcher())
            && let Some(done) = self.spin_for(cx, &mut look)
        {
            return done;
        }
        if let Some(found) = look(Some(cx.waker())) {
            return Poll::Ready(found);
        }
        if !self.origin.is_here() {
            // Nothing of what is awaited is this process's.
            return Poll::Pending;
        }
        if self.wait == WaitStrategy::Busy {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *asleep = true;
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if !watch() {
            self.arm(CompletionQueue::arm);
        }
        Poll::Pending
    }

    /// Whether a watcher is about to look, for others as well.
    #[inline]
    fn has_active_watcher(&self) -> bool {
        self.wait != WaitStrategy::Busy
            && self.watching.load(Ordering::Relaxed) > 0
            && self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Takes completions for as long as the way of waiting allows.
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
                let Found { completions, woken } = self.drive();
                if completions > 0 {
                    if let Some(found) = look(None) {
                        if budget > Duration::ZERO {
                            self.add_spin_score(2);
                        }
                        return Some(Poll::Ready(found));
                    }
                    if woken > 0 {
                        // Others can go on now, perhaps on this thread.
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
            // With a low score it tries again from time to time.
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
        // Races only blur it. Below zero: how many waits pass until the next try.
        let score = self.spin_score.load(Ordering::Relaxed).saturating_add(by);
        let score = if by < 0 && score <= 0 { -32 } else { score.min(MAX_SPIN_SCORE) };
        self.spin_score.store(score, Ordering::Relaxed);
    }

    /// A future is polled, or gone. Says whether it slept.
    #[inline]
    pub(crate) fn awake(&self, asleep: &mut bool) -> bool {
        let slept = std::mem::take(asleep);
        if slept {
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        slept
    }

    /// For a watcher: takes what there is. Says whether to do so again when whoever can has run; if not, it is to
    /// [arm](Driver::arm_if_needed). `until`: how long it looks although there is nothing; `None` at first.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_for_all(&self, until: &mut Option<Instant>) -> bool {
        let mut any = false;
        loop {
            let Found { completions, .. } = self.drive();
            any |= completions > 0;
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
        // Who waits alone has looked for itself.
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

    /// For a watcher, which is asleep by what it says: makes sure that the descriptor wakes it if anybody sleeps.
    #[cfg(feature = "tokio")]
    pub(crate) fn arm_if_needed(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.arm(CompletionQueue::arm_to_drive);
        }
    }

    /// Makes sure that the descriptor tells of the next completion.
    fn arm(&self, arm: impl Fn(&CompletionQueue) -> fabric::Result<Armed>) {
        loop {
            let mut deferred = Deferred::new();
            let mut poller = self.poller.lock();
            // What was found is told before more is looked for.
            while deferred.is_empty() {
                if poller.armed {
                    return;
                }
                match arm(&self.queue) {
                    Ok(Armed::Waiting) => poller.armed = true,
                    Ok(_) => drop(self.take_batch(&mut poller, &mut deferred)),
                    Err(_) => return,
                }
            }
        }
    }

    /// The descriptor was readable: takes what there is; arms again if anybody sleeps. Says whether it did.
    pub(crate) fn on_readable(&self) -> bool {
        self.drain();
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.arm(CompletionQueue::arm);
        true
    }

    /// Nobody watches the descriptor any more: whoever waits for an operation is to look for another watcher.
    #[cfg(feature = "tokio")]
    pub(crate) fn on_watcher_gone(&self, wakers: &mut crate::wakers::Wakers) {
        self.poller.lock().armed = false;
        self.slab.for_each(|slot| wakers.wake(slot.waker.take()));
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Every endpoint is gone, and has left a completion for all that it had under way.
        self.drain();
        let leaked = self.leak();
        if leaked > 0 && self.origin.is_here() {
            log_line!(
                Error,
                "fabric-async: the memory of {leaked} operations leaks: they were not completed, so it may still be in use"
            );
        }
    }
}
