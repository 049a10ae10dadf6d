//! One endpoint, as the [service's](super::service) thread sees it: whether its application drives it, an event loop does, or
//! the thread has to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fabric::{Armed, CompletionQueue, EventQueue};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::driver::Driver;

/// How long an application does not poll until the thread takes over: so long at first, and up to so long of one that goes on
/// polling.
const PATIENCE: Duration = Duration::from_millis(2);
const MAX_PATIENCE: Duration = Duration::from_millis(16);
/// Looks at many endpoints are made together.
const TICK: Duration = PATIENCE;

/// What makes its progress.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DrivenBy {
    /// The application, which polls, or did: with so many polls so far.
    Polls(u64),
    /// Threads of the application that wait.
    Waiters,
    /// An event loop, which watches the descriptor, and has nothing to poll for.
    EventLoop,
    /// The service. The application had polled so often.
    Service(u64),
}

pub(super) struct Seat {
    pub(super) id: u64,
    driver: Arc<Driver>,
    queue: CompletionQueue,
    events: EventQueue,
    driven_by: DrivenBy,
    patience: Duration,
    /// When it has to be looked at again.
    pub(super) timer: Option<Instant>,
    /// The descriptors are in the thread's set; those of the endpoint itself are on.
    is_listed: bool,
    watch_listed: bool,
}

impl Seat {
    pub(super) fn new(driver: Arc<Driver>, id: u64) -> Self {
        let (queue, events) = driver.queues();
        let driven_by = DrivenBy::Polls(driver.polls());
        Seat {
            id,
            driver,
            queue,
            events,
            driven_by,
            patience: PATIENCE,
            timer: Some(Instant::now() + PATIENCE),
            is_listed: false,
            watch_listed: false,
        }
    }

    /// One look. Whether there is more to do at once.
    pub(super) fn step(&mut self, epoll: &OwnedFd) -> bool {
        match self.driven_by {
            DrivenBy::Service(polls) => return self.drive(epoll, polls),
            // The descriptor is readable, or the event loop watches no more; the last thread that waited has left.
            DrivenBy::EventLoop | DrivenBy::Waiters => self.look_later(),
            // Called early, it looks at its time.
            DrivenBy::Polls(_) if !self.is_due() => {}
            DrivenBy::Polls(polls) => return self.look(epoll, polls),
        }
        false
    }

    /// Wakes what sleeps on it, if that is to look sooner now.
    pub(super) fn look_at_deadline(&self) {
        self.driver.look(|_| ());
    }

    fn is_due(&self) -> bool {
        self.timer.is_some_and(|at| at <= Instant::now())
    }

    /// Looks again whether the application polls.
    fn look_later(&mut self) {
        self.driven_by = DrivenBy::Polls(self.driver.polls());
        self.timer = Some(round_up(Instant::now() + self.patience));
    }

    /// Whether the application still polls, and who drives if not.
    fn look(&mut self, epoll: &OwnedFd, polls: u64) -> bool {
        if self.driver.await_waiters() {
            (self.driven_by, self.timer) = (DrivenBy::Waiters, None);
            return false;
        }
        if self.driver.is_driven(polls) {
            self.patience = (2 * self.patience).min(MAX_PATIENCE);
            self.look_later();
            return false;
        }
        self.patience = PATIENCE;
        if let Some(watch) = self.driver.watched_by()
            && !watch.is_readable()
        {
            match self.watch(epoll) {
                true => (self.driven_by, self.timer) = (DrivenBy::EventLoop, None),
                false => self.look_later(),
            }
            return false;
        }
        if !self.driver.take_over() {
            // A thread of the application is there.
            self.look_later();
            return false;
        }
        self.driven_by = DrivenBy::Service(polls);
        self.drive(epoll, polls)
    }

    /// Has the thread woken when the descriptor becomes readable that an event loop watches: then that loop is to come. False: it
    /// watches no more.
    fn watch(&mut self, epoll: &OwnedFd) -> bool {
        let Some(watch) = self.driver.watch_if_any() else { return false };
        // Once: it is off when it was found.
        let (data, flags) = (EventData::new_u64(self.id), EventFlags::IN | EventFlags::ONESHOT);
        let listed = match self.watch_listed {
            true => epoll::modify(epoll, watch, data, flags),
            false => epoll::add(epoll, watch, data, flags),
        };
        self.watch_listed |= listed.is_ok();
        listed.is_ok() && self.driver.await_watch()
    }

    /// A turn in place of the application, and what the thread sleeps on until the next one.
    fn drive(&mut self, epoll: &OwnedFd, polls: u64) -> bool {
        self.driver.turn();
        if !self.driver.is_driven(polls)
            && let Ok((armed, timer)) = self.driver.prepare_sleep(false)
            && self.list(epoll, EventFlags::IN)
        {
            self.timer = timer;
            return armed == Armed::Ready;
        }
        // The application drives, or there is nothing to sleep on: then it is looked at now and then.
        self.list(epoll, EventFlags::empty());
        self.driver.give_way();
        self.look_later();
        false
    }

    /// Has the thread woken by the endpoint's descriptors, or not. Whether that could be done.
    fn list(&mut self, epoll: &OwnedFd, flags: EventFlags) -> bool {
        let is_on = !flags.is_empty();
        if self.is_listed == is_on {
            return true;
        }
        let data = EventData::new_u64(self.id);
        let all = self.fds().into_iter().all(|fd| match is_on {
            true => epoll::add(epoll, fd, data, flags).is_ok(),
            false => epoll::delete(epoll, fd).is_ok(),
        });
        self.is_listed = is_on;
        all
    }

    fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.queue.as_fd(), self.events.as_fd()]
    }

    /// The endpoint is being dropped: the thread lets go of it.
    pub(super) fn leave(mut self, epoll: &OwnedFd) {
        self.list(epoll, EventFlags::empty());
        if let (true, Some(watch)) = (self.watch_listed, self.driver.watch_if_any()) {
            let _ = epoll::delete(epoll, watch);
        }
        if let DrivenBy::Service(_) = self.driven_by {
            self.driver.give_way();
        }
    }
}

/// The next moment at which endpoints are looked at.
fn round_up(at: Instant) -> Instant {
    /// What they are counted from.
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = at.saturating_duration_since(*START).as_nanos() as u64;
    *START + Duration::from_nanos(since.next_multiple_of(TICK.as_nanos() as u64))
}
