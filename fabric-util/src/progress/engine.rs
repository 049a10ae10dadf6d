//! Which thread serves the connections: the polling application's, or the domain's own.
//!
//! A step reads what came, executes it, and writes what is due. An application that polls a completion queue runs steps
//! inline; the domain's thread runs them when no application polls. `polled` is the signal between the two:
//!
//! - a poll sets it, `stop_polling` clears it and wakes the thread;
//! - the thread looks once a tick and clears it. Found set: an application polls, so the thread stays away. Found clear twice:
//!   there was no poll for a tick, nor for one more (`grace`: it may have been in a long step, or have lost its processor), so the
//!   thread takes over, and then it blocks in the selector and costs nothing.
//!
//! While the thread looks once a tick (`ticking`), an acknowledgement or credit that is due may wait for a frame that carries
//! it, and a post for others to go with: the next poll sends them, or the thread when it takes over, or, posts, after a much
//! shorter time (`batch_timer`). While the thread blocks in the selector everything goes out at once, as no poll follows.
//! Before the thread blocks there it may look for a while (`adaptive_spin`).
//!
//! With manual progress (`arm_manual`) the application sleeps on the selector's descriptor and polls on wake-up. No connection
//! may be ready when it goes to sleep, nor when the thread gives way to it. The thread looks once a tick here as well, and
//! takes over if the application does not come.
//!
//! Connections where something happened are ready: a step reads them directly. The selector is edge-triggered; a connection
//! leaves the list only after a read that found it dry, so that the next byte is a new edge. One that pollers have had many turns
//! of is disarmed: what arrives for it costs no event until it leaves the list. The thread must therefore never
//! sleep in the selector while a connection is ready, unless it has been woken: it takes over with a step that leaves none;
//! from then on, until it ticks again, marking one ready wakes it, and pollers keep away from the selector, whose edges are
//! the thread's.
//!
//! Locks, in order: `stepper`, a connection, then leaves (the selector's, which pollers only try because the thread sleeps
//! with it; the ready list's).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric_core::{cold_path, unlikely};

use super::adaptive_spin::AdaptiveSpin;
use super::batch_timer::BatchTimer;
use super::contention::Contention;
use super::event_loop::{EventLoop, Mode};
use super::flush::{Flush, may_defer};
use super::ready_list::{ReadyList, Source};
use super::schedule::Schedule;
use super::stepper::Stepper;
use crate::completion_ring::Outbox;
use crate::stream::Pending;
use crate::sync::{AtomicBool, Mutex, fence};

/// Steps after which `arm_manual` leaves what is ready to the thread.
const MAX_ROUNDS: u32 = if cfg!(loom) { 2 } else { 16 };

/// The progress engine of a domain.
pub struct ProgressEngine<L: EventLoop> {
    stepper: Mutex<Stepper<L::Source>>,
    ready: ReadyList<L::Source>,
    selector: Mutex<L::Selector>,
    /// The thread's alone.
    spin: Mutex<AdaptiveSpin>,
    waker: L::Waker,
    polled: AtomicBool,
    grace: AtomicBool,
    ticking: AtomicBool,
    batch: BatchTimer,
    contention: Contention,
    stop: AtomicBool,
    schedule: Option<Box<dyn Schedule>>,
}

impl<L: EventLoop> ProgressEngine<L> {
    /// `hold`: how long posts may be held back, if at all.
    pub fn new(
        selector: L::Selector,
        waker: L::Waker,
        hold: Option<Duration>,
        schedule: Option<Box<dyn Schedule>>,
    ) -> Self {
        ProgressEngine {
            stepper: Mutex::new(Stepper::new()),
            ready: ReadyList::new(),
            selector: Mutex::new(selector),
            spin: Mutex::new(AdaptiveSpin::new()),
            waker,
            polled: AtomicBool::new(false),
            grace: AtomicBool::new(false),
            ticking: AtomicBool::new(false),
            batch: BatchTimer::new(hold),
            contention: Contention::default(),
            stop: AtomicBool::new(false),
            schedule,
        }
    }

    #[inline]
    fn schedule_seam(&self) -> Option<&dyn Schedule> {
        self.schedule.as_deref()
    }

    /// An application polls.
    #[inline]
    pub fn note_poll(&self) {
        if !self.is_polled() {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an application polled lately.
    #[inline]
    pub fn is_polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// An application polls and found nothing: a step, unless another thread is in one.
    #[inline]
    pub fn poll(&self, event_loop: &L, outbox: &mut Outbox<'_>) {
        self.note_poll();
        if self.step_polled(event_loop, Mode::Polled, outbox).is_none() {
            self.contention.miss();
        }
    }

    /// A step while an application polls: whether a connection was left to the thread that has it locked; `None`: another
    /// thread is in a step.
    #[inline]
    fn step_polled(&self, event_loop: &L, mode: Mode, outbox: &mut Outbox<'_>) -> Option<bool> {
        let mut stepper = self.stepper.try_lock()?;
        self.contention.clear();
        self.batch.clear_posts();
        // While the thread sleeps in the selector, the events are its own.
        if unlikely(stepper.wants_events(L::EVENTS_EVERY))
            && self.can_defer()
            && let Some(mut selector) = self.selector.try_lock()
        {
            event_loop.poll_events(&mut selector, false);
        }
        let polled = stepper.poll(&self.ready, self.schedule_seam(), event_loop, (mode, outbox));
        if polled.again {
            cold_path();
            self.wake_if_it_took_over();
        }
        Some(polled.left)
    }

    /// A step for posts that have been held for long: what the application has locked, and its steps, are left to it. False:
    /// some may be held on.
    fn step_beside(&self, event_loop: &L) -> bool {
        let left = self.step_polled(event_loop, Mode::Beside, &mut Outbox::none());
        if left == Some(true) {
            self.batch.add_post();
        }
        left == Some(false)
    }

    /// A step of the thread's kind: everything that is due goes out. Returns whether there is more to do at once.
    fn step_unattended(&self, event_loop: &L) -> bool {
        let mut stepper = self.stepper.lock();
        self.batch.clear_posts();
        stepper.run(&self.ready, self.schedule_seam(), event_loop)
    }

    /// The application sleeps until the selector has an event, and polls then. False: there is so much to do that the thread
    /// takes over.
    pub fn arm_manual(&self, event_loop: &L) -> bool {
        self.note_poll();
        // Else the thread sleeps in the selector as well, or is about to give way, and serves what it takes out of there.
        !self.can_defer() || self.serve_all(event_loop)
    }

    /// Steps until no connection is ready; false: after some there still is one.
    fn serve_all(&self, event_loop: &L) -> bool {
        (0..MAX_ROUNDS).any(|_| !self.step_unattended(event_loop))
    }

    /// The application stops polling: the thread takes over now.
    pub fn stop_polling(&self) {
        // Behind what the thread did before it cleared the signal itself.
        self.polled.swap(false, Ordering::AcqRel);
        self.grace.store(false, Ordering::Release);
        self.batch.wake();
    }

    /// Whether what is due can wait for a frame that carries it.
    #[inline]
    pub fn can_defer(&self) -> bool {
        self.ticking.load(Ordering::Relaxed)
    }

    /// Makes a connection part of the next step. For the thread, and for a poller within its step, in
    /// [`poll_events`](EventLoop::poll_events).
    pub fn mark_ready_in_poll(&self, source: &Arc<L::Source>) {
        self.ready.push(source);
    }

    /// Makes a connection part of the next step; also wakes the thread if it has taken over meanwhile.
    pub fn mark_ready(&self, source: &Arc<L::Source>) {
        if unlikely(self.ready.push(source)) {
            self.wake_if_it_took_over();
        }
    }

    /// Behind a push to the ready list. (The thread clears `ticking` before it takes the list; here it is the other way round.)
    fn wake_if_it_took_over(&self) {
        fence(Ordering::SeqCst);
        if !self.can_defer() {
            cold_path();
            self.wake();
        }
    }

    /// Leaves what is due on a connection to its next step; false: no step would come, so it is to be done now. To be called
    /// under the connection's lock, so that a step that is over has seen nothing of it, and notes come after.
    pub fn leave_to_step(&self, source: &Arc<L::Source>) -> bool {
        let leave = self.can_defer();
        if leave {
            source.ready_flag().note();
            self.mark_ready(source);
        }
        leave
    }

    /// Leaves a post to the next step of its connection, which comes soon; false: it is to go now. To be called as
    /// [`leave_to_step`](ProgressEngine::leave_to_step).
    #[inline]
    pub(super) fn defer_post(&self, source: &Arc<L::Source>) -> bool {
        let deferred = self.batch.is_worth_it() && self.leave_to_step(source);
        if deferred {
            self.batch.add_post();
        }
        deferred
    }

    /// When what a connection has to transmit after a post goes; the one place that decides it. To be called under the
    /// connection's lock.
    #[inline]
    pub fn schedule(&self, source: &Arc<L::Source>, pending: &Pending) -> Flush {
        if may_defer(pending, L::MAX_DEFERRED) && self.defer_post(source) {
            return Flush::Deferred;
        }
        let polled = match pending.ack_wanted {
            true => self.leave_to_step(source),
            false => self.can_defer(),
        };
        if polled { Flush::Polled } else { Flush::Alone }
    }

    /// Makes a connection part of the next step if that comes soon.
    #[inline]
    pub fn mark_if_polled(&self, source: &Arc<L::Source>) {
        if self.can_defer() {
            self.mark_ready(source);
        }
    }

    /// Whether posts are deferred: they wait for a poll.
    #[inline]
    pub fn has_deferred_posts(&self) -> bool {
        self.batch.has_posts()
    }

    /// One round of the thread. Where an application polls it sleeps for a `tick`.
    pub fn run_once(&self, event_loop: &L, tick: Duration) {
        let tick = self.schedule_seam().map_or(tick, |schedule| schedule.tick(tick));
        if self.sleep_if_polled(event_loop, tick) {
            return;
        }
        if self.step_unattended(event_loop) {
            // A peer that never stops keeps no others waiting.
            event_loop.poll_events(&mut self.selector.lock(), false);
            return;
        }
        self.await_work(event_loop);
    }

    /// Looks for work for a while, if that seems worth it; then sleeps until there is some.
    fn await_work(&self, event_loop: &L) {
        let (mut selector, mut spin) = (self.selector.lock(), self.spin.lock());
        let until = spin.begin();
        while !self.is_stopped() && until.is_some_and(|until| Instant::now() < until) {
            if self.is_polled() || event_loop.poll_events(&mut selector, false) {
                spin.end();
                return;
            }
            std::hint::spin_loop();
        }
        event_loop.poll_events(&mut selector, !self.is_stopped());
        spin.end();
    }

    /// Sleeps for a tick if an application polls; false: none does, and the thread has taken over.
    fn sleep_if_polled(&self, event_loop: &L, tick: Duration) -> bool {
        // The look and the sleep are one step for `stop_polling`, which clears the signal before it locks: either it
        // is seen clear here, or the sleep is ended.
        let sleep = self.batch.lock();
        if event_loop.is_due() {
            // Added before this sleep could be ended.
            return true;
        }
        if self.is_polled() {
            // Before the signal is cleared, and the other way round than in `stop_polling`.
            self.grace.store(true, Ordering::Relaxed);
        }
        if self.polled.swap(false, Ordering::AcqRel) || self.grace.swap(false, Ordering::AcqRel) {
            let mut gives_way = !self.ticking.swap(true, Ordering::Relaxed);
            self.batch.sleep(sleep, tick, gives_way, || {
                if std::mem::take(&mut gives_way) {
                    // An application with manual progress may sleep: the thread serves what it took out of the selector.
                    self.serve_all(event_loop);
                    return true;
                }
                self.step_beside(event_loop)
            });
            return true;
        }
        drop(sleep);
        self.ticking.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        false
    }

    /// Ends the present or the next sleep in the selector.
    pub fn wake(&self) {
        L::wake(&self.waker);
    }

    /// Makes the thread begin a new round, wherever it sleeps.
    pub fn interrupt(&self) {
        self.batch.wake();
        self.wake();
    }

    /// Asks the thread to end. From now on it does not sleep in the selector.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.stop_polling();
        self.wake();
    }

    /// Whether the thread was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Drops every connection.
    pub fn clear(&self) {
        self.stepper.lock().clear();
        self.ready.clear();
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
