//! Moments at which the node's thread does something: wakes a future, or looks after something that others may have left.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fabric_util::sync::Mutex;
use fabric_util::wakeup::Wakeup;

use crate::error::{Error, Result};
use crate::wakers::Wakers;

/// A time, and which of those that wait for it.
type Moment = (Instant, u64);

/// Something to look after at a time.
pub(crate) trait Overseen: Send + Sync {
    /// Looks; says when to do so again.
    fn oversee(&self, now: Instant, wakers: &mut Wakers) -> Option<Instant>;
}

enum Alarm {
    Wake(Waker),
    Oversee(Weak<dyn Overseen>),
}

/// What is to be done when, and how the thread that does it is woken.
pub(crate) struct Timers {
    kick: Wakeup,
    state: Mutex<TimersState>,
}

#[derive(Default)]
struct TimersState {
    alarms: BTreeMap<Moment, Alarm>,
    /// Alarms that there ever were.
    named: u64,
}

impl TimersState {
    /// Adds an alarm; says which, and whether it is the next one.
    fn add(&mut self, at: Instant, alarm: Alarm) -> (Moment, bool) {
        self.named += 1;
        let moment = (at, self.named);
        let is_next = self.alarms.keys().next().is_none_or(|next| moment < *next);
        self.alarms.insert(moment, alarm);
        (moment, is_next)
    }
}

impl Timers {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let kick = Wakeup::new()
            .map_err(|cause| fabric::Error::system("make node", "fabric-async", cause))?;
        Ok(Arc::new(Timers { kick, state: Mutex::default() }))
    }

    /// Has the thread look what is to be done.
    pub(crate) fn kick(&self) {
        self.kick.set();
    }

    /// The thread looks.
    pub(crate) fn clear(&self) {
        self.kick.clear();
    }

    /// Has something looked after at `at`.
    pub(crate) fn oversee(&self, at: Instant, what: Weak<dyn Overseen>) {
        let (_, is_next) = self.state.lock().add(at, Alarm::Oversee(what));
        if is_next {
            self.kick();
        }
    }

    /// A timer, which is not set.
    pub(crate) fn timer(self: &Arc<Self>) -> Timer {
        Timer { timers: self.clone(), moment: None }
    }

    /// Does what is due; says when the next one is.
    pub(crate) fn run(&self, now: Instant, wakers: &mut Wakers) -> Option<Instant> {
        let mut state = self.state.lock();
        let later = state.alarms.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.alarms, later);
        drop(state);
        for alarm in due.into_values() {
            match alarm {
                Alarm::Wake(waker) => wakers.wake([waker]),
                Alarm::Oversee(what) => {
                    let Some(overseen) = what.upgrade() else { continue };
                    if let Some(again) = overseen.oversee(now, wakers) {
                        self.state.lock().add(again, Alarm::Oversee(what));
                    }
                }
            }
        }
        self.state.lock().alarms.keys().next().map(|moment| moment.0)
    }
}

impl AsFd for Timers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }
}

/// Wakes a future at a time. Dropped, it is forgotten.
pub(crate) struct Timer {
    timers: Arc<Timers>,
    moment: Option<Moment>,
}

impl Timer {
    /// Wakes `waker` at `at`, or earlier, and no earlier waker any more.
    pub(crate) fn wake_at(&mut self, at: Instant, waker: &Waker) {
        let alarm = Alarm::Wake(waker.clone());
        let mut old = Wakers::new();
        let mut state = self.timers.state.lock();
        if let Some(moment) = self.moment.filter(|moment| moment.0 == at)
            && let Some(known) = state.alarms.get_mut(&moment)
        {
            if let Alarm::Wake(waker) = std::mem::replace(known, alarm) {
                old.discard([waker]);
            }
            return;
        }
        let known = self.moment.take().and_then(|moment| state.alarms.remove(&moment));
        if let Some(Alarm::Wake(waker)) = known {
            old.discard([waker]);
        }
        let (moment, is_next) = state.add(at, alarm);
        self.moment = Some(moment);
        drop(state);
        if is_next {
            self.timers.kick();
        }
    }
}

/// What `poll` gives, if that is within this time.
///
/// # Errors
/// Those of `poll`; `TimedOut`.
pub(crate) async fn within<T>(
    mut timer: Timer,
    time: Duration,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<T>>,
) -> Result<T> {
    let deadline = Instant::now() + time;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = poll(cx) {
            return Poll::Ready(outcome);
        }
        if Instant::now() >= deadline {
            return Poll::Ready(Err(Error::TimedOut(time)));
        }
        timer.wake_at(deadline, cx.waker());
        Poll::Pending
    })
    .await
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(moment) = self.moment {
            let alarm = self.timers.state.lock().alarms.remove(&moment);
            if let Some(Alarm::Wake(waker)) = alarm {
                crate::wakers::discard(Some(waker));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wakers::tests::Count;

    #[test]
    fn a_timer_wakes_the_last_one_that_set_it_and_is_forgotten_with_it() {
        let timers = Timers::new().unwrap();
        let waiting = || timers.state.lock().alarms.len();
        let counts: [Arc<Count>; 3] = Default::default();
        let woken = || counts.each_ref().map(|count| count.get());
        let wakers = counts.each_ref().map(|count| Waker::from(count.clone()));
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let [mut one, mut other] = [timers.timer(), timers.timer()];
        one.wake_at(future, &wakers[0]);
        one.wake_at(past, &wakers[1]);
        one.wake_at(past, &wakers[0]);
        other.wake_at(future, &wakers[2]);
        assert_eq!(waiting(), 2);
        let due = || timers.run(Instant::now(), &mut Wakers::new());
        assert_eq!(due(), Some(future));
        assert_eq!(woken(), [1, 0, 0]);
        drop(other);
        assert_eq!((waiting(), due()), (0, None));
        one.wake_at(past, &wakers[1]);
        assert_eq!((due(), woken()), (None, [1, 1, 0]));
    }

    #[test]
    fn what_is_looked_after_is_looked_after_again_when_it_says_so() {
        struct Twice(std::sync::atomic::AtomicUsize);
        impl Overseen for Twice {
            fn oversee(&self, now: Instant, _: &mut Wakers) -> Option<Instant> {
                let before = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                (before == 0).then(|| now + Duration::from_secs(1))
            }
        }
        let (timers, now) = (Timers::new().unwrap(), Instant::now());
        let twice = Arc::new(Twice(0.into()));
        let weak = Arc::downgrade(&twice);
        timers.oversee(now, weak);
        let mut wakers = Wakers::new();
        assert_eq!(timers.run(now, &mut wakers), Some(now + Duration::from_secs(1)));
        assert_eq!(timers.run(now + Duration::from_secs(1), &mut wakers), None);
        assert_eq!(twice.0.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
