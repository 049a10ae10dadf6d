//! The descriptor by which an event loop waits for an endpoint: readable when there may be something to poll for.
//!
//! It is an `epoll(7)` descriptor of what the endpoint itself sleeps on, a timer, and a wake-up of its own: the event loop that
//! watches it does the endpoint's work, without a second thread in between. The service's thread only looks whether it does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fabric::{CompletionQueue, EventQueue};
use fabric_core::{Error, Result};
use fabric_util::wakeup::{Wakeup, poll_until};
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

const OP: &str = "watch rdm endpoint";

/// What is made when an endpoint is watched for the first time.
pub(super) struct Watch {
    all: OwnedFd,
    timer: OwnedFd,
    /// What it is set to, in nanoseconds of the endpoint's clock; `u64::MAX`: to nothing.
    timer_at: AtomicU64,
    /// Set where something has ended that no descriptor of the endpoint announces.
    ready: Wakeup,
    is_ready: AtomicBool,
    /// The service's thread sleeps on it beside the event loop.
    is_guarded: AtomicBool,
}

impl Watch {
    pub(super) fn new(queue: &CompletionQueue, events: &EventQueue) -> Result<Self> {
        let system = |cause| Error::system(OP, "fabric", cause);
        let ready = Wakeup::new().map_err(system)?;
        let system = |errno: Errno| system(errno.into());
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system)?;
        let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        for fd in [queue.as_fd(), events.as_fd(), timer.as_fd(), ready.as_fd()] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&all, fd, data, epoll::EventFlags::IN).map_err(system)?;
        }
        let (is_ready, is_guarded) = Default::default();
        let timer_at = AtomicU64::new(u64::MAX);
        Ok(Watch { all, timer, timer_at, ready, is_ready, is_guarded })
    }

    /// Makes the descriptor readable. The caller has the endpoint's lock.
    pub(super) fn set(&self) {
        if !self.is_ready.swap(true, Ordering::Relaxed) {
            self.ready.set();
        }
    }

    /// Takes that back. The caller has the endpoint's lock, and looks what there is.
    pub(super) fn clear(&self) {
        if self.is_ready.swap(false, Ordering::Relaxed) {
            self.ready.clear();
        }
    }

    /// Makes the descriptor readable at `at` of the clock that began at `start`.
    pub(super) fn set_timer(&self, start: Instant, at: Option<Duration>) -> Result<()> {
        let nanos = at.map_or(u64::MAX, |at| at.as_nanos() as u64);
        if self.timer_at.load(Ordering::Relaxed) == nanos {
            return Ok(());
        }
        // A time beyond all clocks never comes.
        let at = at.and_then(|at| start.checked_add(at));
        let left = at.map(|at| at.saturating_duration_since(Instant::now()));
        // Zero would turn it off.
        let left = left.map_or(Duration::ZERO, |left| left.max(Duration::from_nanos(1)));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        // It is not readable any more by that, whatever it was set to.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)
            .map_err(|errno| Error::system(OP, "fabric", errno.into()))?;
        self.timer_at.store(nanos, Ordering::Relaxed);
        Ok(())
    }

    /// When the timer makes it readable, as the endpoint's clock counts it.
    pub(super) fn timer_at(&self) -> u64 {
        self.timer_at.load(Ordering::Relaxed)
    }

    /// Whether it is readable: the event loop has not polled yet.
    pub(super) fn is_readable(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.all.as_fd(), PollFlags::IN)];
        poll_until(&mut fds, Some(Instant::now())).is_ok_and(|ready| ready > 0)
    }

    /// Has the service's thread called when the event loop watches no more.
    pub(super) fn guard(&self) {
        self.is_guarded.store(true, Ordering::SeqCst);
    }

    /// Whether it is to be called for that now.
    pub(super) fn take_guard(&self) -> bool {
        self.is_guarded.swap(false, Ordering::SeqCst)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }
}
