//! Whose turn it is to drive the connections: the polling application's, or the thread's.
//!
//! A step reads what came, executes it, and writes what is due. Whoever polls a completion queue runs steps
//! inline; the domain's thread runs them when nobody polls. `polled` is the sign between the two:
//!
//! - a poll sets it, `arm` clears it and wakes the thread;
//! - the thread looks once a tick and clears it. Found set: somebody polls, so it stays away. Found clear:
//!   nobody has polled for a tick, so it takes over, and then it blocks in the selector and costs nothing.
//!
//! While the thread looks once a tick (`ticking`), an acknowledgement or credit that is due may wait for a
//! frame to ride on, and a post for others to go with: the next poll sends them, or the thread when it takes over, or,
//! posts, after a much shorter time (`naps`). While the thread blocks in the selector nobody would, so then everything
//! goes out at once. Before it blocks there it may look for a while (`linger`).
//!
//! An application that sleeps until a socket changes, and polls then (`rest`), drives them still: it leaves none hot when it
//! goes to sleep, nor does the thread when that gives way to it. The thread looks once a tick here as well, so if the
//! application does not come it takes over.
//!
//! Connections where something happened are `hot`: a step reads them directly. The selector is
//! edge-triggered; a connection leaves the hot list only after a read that found it dry, so that the next
//! byte is a new edge. The thread must therefore never sleep in the selector while a connection is hot, unless it
//! has been woken: it takes over with a step that leaves none; from then on, until it ticks again, who makes one hot
//! wakes it, and pollers keep away from the selector, whose edges are the thread's.
//!
//! Locks, in order: `drive`, a connection, then leaves (the selector's, which pollers only try because the thread
//! sleeps with it; the list of the heated).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::drive::Drive;
use super::flush::{Flush, may_defer};
use super::heat::Heat;
use super::linger::Linger;
use super::naps::Naps;
use super::schedule::Schedule;
use super::step::Step;
use crate::stream::{Pending, PutOff};
use crate::sync::{AtomicBool, Mutex, fence};

/// Steps until who goes to sleep leaves what is hot to the thread.
const ROUNDS: u32 = if cfg!(loom) { 2 } else { 16 };

/// What a turn is made of: the engine, or a model of one.
pub trait Work {
    /// A connection.
    type Conn;
    /// What tells which sockets changed.
    type Selector;
    /// What ends a sleep in the selector, the present one or the next.
    type Waker;

    /// A connection's heat.
    fn heat(conn: &Self::Conn) -> &Heat;
    /// A step of one connection, with a buffer for its use. `background`: everything that is due goes out, but for what is
    /// put off.
    fn step(
        &self,
        conn: &Arc<Self::Conn>,
        scratch: &mut [u8],
        background: bool,
        put_off: PutOff,
    ) -> Step;
    /// Takes what the selector reports, and heats the connections it names; `block`: sleeps until there is something.
    /// Says whether there was anything.
    fn select(&self, selector: &mut Self::Selector, block: bool) -> bool;
    /// Whether something waits for the thread alone, of which it was told by [`rouse`](Turns::rouse).
    fn is_due(&self) -> bool;
    /// Ends a sleep in the selector.
    fn wake(waker: &Self::Waker);
}

/// The signs between pollers and the thread, and what they share.
pub struct Turns<W: Work> {
    drive: Mutex<Drive<W::Conn>>,
    /// Connections that become hot with the next step.
    heated: Mutex<Vec<Arc<W::Conn>>>,
    has_heated: AtomicBool,
    selector: Mutex<W::Selector>,
    /// The thread's alone.
    linger: Mutex<Linger>,
    waker: W::Waker,
    polled: AtomicBool,
    ticking: AtomicBool,
    naps: Naps,
    stop: AtomicBool,
    schedule: Option<Box<dyn Schedule>>,
}

impl<W: Work> Turns<W> {
    /// `hold`: how long posts may be held back, if at all.
    pub fn new(
        selector: W::Selector,
        waker: W::Waker,
        hold: Option<Duration>,
        schedule: Option<Box<dyn Schedule>>,
    ) -> Self {
        Turns {
            drive: Mutex::new(Drive::new()),
            heated: Mutex::default(),
            has_heated: AtomicBool::new(false),
            selector: Mutex::new(selector),
            linger: Mutex::new(Linger::new()),
            waker,
            polled: AtomicBool::new(false),
            ticking: AtomicBool::new(false),
            naps: Naps::new(hold),
            stop: AtomicBool::new(false),
            schedule,
        }
    }

    /// An application polls.
    #[inline]
    pub fn note_poll(&self) {
        if !self.is_polled() {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an application polled lately.
    pub fn is_polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// An application polls and found nothing: a step, unless somebody else is at it.
    #[inline]
    pub fn poll(&self, work: &W) {
        self.note_poll();
        if let Some(mut drive) = self.drive.try_lock() {
            drive.inline(self, work);
        }
    }

    /// An application sleeps until a socket changes, and polls then. False: there is so much to do that the thread is to.
    pub fn rest(&self, work: &W) -> bool {
        self.note_poll();
        // Else the thread sleeps in the selector as well, or is about to give way, and sees to what it takes out of there.
        !self.can_wait() || self.cool_all(work)
    }

    /// Steps until no connection is hot; false: after some there still is one.
    fn cool_all(&self, work: &W) -> bool {
        let mut drive = self.drive.lock();
        (0..ROUNDS).any(|_| !drive.background(self, work))
    }

    /// The application stops polling: the thread takes over now.
    pub fn hand_over(&self) {
        self.polled.store(false, Ordering::Release);
        self.naps.end();
    }

    /// Whether what is due can wait for a frame to ride on.
    #[inline]
    pub fn can_wait(&self) -> bool {
        self.ticking.load(Ordering::Relaxed)
    }

    /// Makes a connection part of the next step; for the thread, and for a poller that is about to take that step.
    pub fn heat(&self, conn: &Arc<W::Conn>) {
        if W::heat(conn).kindle() {
            self.heated.lock().push(conn.clone());
            self.has_heated.store(true, Ordering::Release);
        }
    }

    /// As [`heat`](Turns::heat), for who is not part of a step: if the thread has taken over meanwhile it is
    /// woken to look. (It clears `ticking` before it takes the heated; here it is the other way round.)
    pub fn heat_from_outside(&self, conn: &Arc<W::Conn>) {
        if W::heat(conn).kindle() {
            self.heated.lock().push(conn.clone());
            self.has_heated.store(true, Ordering::Release);
            fence(Ordering::SeqCst);
            if !self.can_wait() {
                self.wake();
            }
        }
    }

    /// Leaves what is due on a connection to its next step; false: nobody would take one, so it is to be done now. To
    /// be asked under the connection's lock, so that a step that is over has seen nothing of it, and notes come after.
    pub fn leave_to_step(&self, conn: &Arc<W::Conn>) -> bool {
        let leave = self.can_wait();
        if leave {
            W::heat(conn).note();
            self.heat_from_outside(conn);
        }
        leave
    }

    /// Leaves a post to the next step of its connection, which comes soon; false: it is to go now. To be asked as
    /// [`leave_to_step`](Turns::leave_to_step).
    #[inline]
    pub(super) fn hold(&self, conn: &Arc<W::Conn>) -> bool {
        let hold = self.naps.may_hold() && self.leave_to_step(conn);
        if hold {
            self.naps.hold();
        }
        hold
    }

    /// When what a connection has to transmit after a post goes; the one place that decides it. To be called under the
    /// connection's lock.
    #[inline]
    pub fn schedule_post(&self, conn: &Arc<W::Conn>, pending: &Pending) -> Flush {
        if may_defer(pending) && self.hold(conn) {
            return Flush::Deferred;
        }
        let polled = match pending.ack_wanted {
            true => self.leave_to_step(conn),
            false => self.can_wait(),
        };
        if polled { Flush::Polled } else { Flush::Alone }
    }

    /// Whether posts are held.
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.naps.is_holding()
    }

    /// A step begins over all hot connections.
    #[inline]
    pub(super) fn begin_step(&self) {
        self.naps.release();
    }

    /// Takes the connections that were heated.
    pub(super) fn take_heated(&self, to: impl FnMut(Arc<W::Conn>)) {
        if self.has_heated() && self.has_heated.swap(false, Ordering::AcqRel) {
            self.heated.lock().drain(..).for_each(to);
        }
    }

    pub(super) fn has_heated(&self) -> bool {
        self.has_heated.load(Ordering::Acquire)
    }

    /// For a poller: looks which sockets changed.
    pub(super) fn look(&self, work: &W) {
        if self.can_wait()
            && let Some(mut selector) = self.selector.try_lock()
        {
            work.select(&mut selector, false);
        }
    }

    /// One turn of the thread. Where somebody polls it naps for a `tick`.
    pub fn turn(&self, work: &W, tick: Duration) {
        let tick = self.schedule().map_or(tick, |schedule| schedule.tick(tick));
        if self.nap(work, tick) || self.drive.lock().background(self, work) {
            return;
        }
        self.await_work(work);
    }

    /// Looks for work for a while, if that seems worth it; then sleeps until there is some.
    fn await_work(&self, work: &W) {
        let (mut selector, mut linger) = (self.selector.lock(), self.linger.lock());
        let look = linger.begin();
        while look.is_some_and(|until| Instant::now() < until) {
            if self.is_stopped() || self.is_polled() || work.select(&mut selector, false) {
                linger.end();
                return;
            }
            std::hint::spin_loop();
        }
        if !self.is_stopped() {
            work.select(&mut selector, true);
            linger.end();
        }
    }

    /// Naps if somebody polls; false: nobody does, and the thread has taken over.
    fn nap(&self, work: &W, tick: Duration) -> bool {
        // The look and the nap are one step for `hand_over`, which clears the sign before it locks: either it
        // is seen clear here, or the nap is ended.
        let nap = self.naps.lock();
        if work.is_due() {
            // Added before this nap could be ended.
            return true;
        }
        if self.polled.swap(false, Ordering::AcqRel) {
            let mut gives_way = !self.ticking.swap(true, Ordering::Relaxed);
            self.naps.nap(nap, tick, gives_way, || {
                if std::mem::take(&mut gives_way) {
                    // Who polls may sleep until a socket changes: what was taken out of the selector is seen to here.
                    self.cool_all(work);
                } else {
                    self.drive.lock().inline(self, work);
                }
            });
            return true;
        }
        drop(nap);
        self.ticking.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        false
    }

    /// Ends the present or the next sleep in the selector.
    pub fn wake(&self) {
        W::wake(&self.waker);
    }

    /// Makes the thread begin a new turn, wherever it sleeps.
    pub fn rouse(&self) {
        self.naps.end();
        self.wake();
    }

    /// Asks the thread to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.hand_over();
        self.wake();
    }

    /// Whether the thread was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The order of things, if it is not the usual one.
    #[inline]
    pub(super) fn schedule(&self) -> Option<&dyn Schedule> {
        self.schedule.as_deref()
    }

    /// Lets go of every connection.
    pub fn clear(&self) {
        self.drive.lock().clear();
        self.heated.lock().clear();
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
