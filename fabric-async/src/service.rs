//! The node's thread: connection events, leases, timers, and the completion queue for executors without a descriptor
//! loop of their own.
//!
//! All that is not the data path happens here, so it does not depend on the application's runtime: connections come and
//! go, leases are granted and end, though every task computes. It sleeps until something happens.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fabric::core::wakeup::Wakeup;
use fabric::{Armed, CompletionQueue, EventQueue, ListenerId};

use crate::error::Result;
use crate::listener::ListenerInner;
use crate::lock;
use crate::node::NodeInner;

pub(crate) struct Service {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    kick: Wakeup,
    stop: AtomicBool,
    /// Whether it watches the completion queue.
    watching: AtomicBool,
    /// A lease began or ended, or the connection of one.
    leases: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who is to be woken when.
    timers: BTreeMap<Moment, Waker>,
    /// Timers that there ever were.
    named: u64,
    listeners: Vec<(ListenerId, Weak<ListenerInner>)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn kick(&self) {
        self.kick.set();
    }
}

impl Service {
    pub(crate) fn new() -> Result<Self> {
        let kick = Wakeup::new()
            .map_err(|cause| fabric::Error::system("make node", "fabric-async", cause))?;
        let (stop, watching, leases, state) = Default::default();
        let shared = Arc::new(Shared { kick, stop, watching, leases, state });
        Ok(Service { shared, thread: Mutex::default() })
    }

    /// Starts the thread, which does not keep the node alive.
    pub(crate) fn start(node: &Arc<NodeInner>) -> Result<()> {
        let shared = node.service.shared.clone();
        let run = Run {
            shared,
            node: Arc::downgrade(node),
            events: node.domain.events(),
            control: node.control.clone(),
            queue: node.driver.queue.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("fabric-async".to_owned())
            .spawn(move || run.run())
            .map_err(|cause| fabric::Error::system("make node", "fabric-async", cause))?;
        *lock(&node.service.thread) = Some(thread);
        Ok(())
    }

    /// Ends the thread, and waits for that unless this is it.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.kick();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            // It ends by itself; that it panicked was told by the panic.
            let _ = thread.join();
        }
    }

    /// It is to watch the completion queue, which is armed.
    #[inline]
    pub(crate) fn watch_queue(&self) {
        if !self.shared.watching.swap(true, Ordering::AcqRel) {
            self.shared.kick();
        }
    }

    /// A timer, which is not set.
    pub(crate) fn timer(&self) -> Timer {
        Timer { shared: self.shared.clone(), moment: None }
    }

    /// A lease began or ended, or the connection of one: it is to see to that.
    pub(crate) fn look_at_leases(&self) {
        self.shared.leases.store(true, Ordering::Release);
        self.shared.kick();
    }

    pub(crate) fn enroll(&self, id: ListenerId, listener: &Arc<ListenerInner>) {
        self.shared.state().listeners.push((id, Arc::downgrade(listener)));
    }

    pub(crate) fn listeners(&self) -> Vec<Arc<ListenerInner>> {
        let state = self.shared.state();
        state.listeners.iter().filter_map(|(_, listener)| listener.upgrade()).collect()
    }

    pub(crate) fn listener(&self, id: ListenerId) -> Option<Arc<ListenerInner>> {
        let state = self.shared.state();
        state.listeners.iter().find(|(known, _)| *known == id)?.1.upgrade()
    }

    pub(crate) fn strike(&self, id: ListenerId) {
        self.shared.state().listeners.retain(|(known, _)| *known != id);
    }
}

/// A time, and which of those who wait for it.
type Moment = (Instant, u64);

/// Wakes a future at a time. Dropped, it is forgotten.
pub(crate) struct Timer {
    shared: Arc<Shared>,
    moment: Option<Moment>,
}

impl Timer {
    /// Wakes `waker` at `at`, or earlier, and nobody else any more.
    pub(crate) fn wake_at(&mut self, at: Instant, waker: &Waker) {
        let mut state = self.shared.state();
        if let Some(moment) = self.moment.filter(|moment| moment.0 == at)
            && let Some(known) = state.timers.get_mut(&moment)
        {
            let old = std::mem::replace(known, waker.clone());
            drop(state);
            drop(old);
            return;
        }
        let old = self.moment.take().and_then(|moment| state.timers.remove(&moment));
        state.named += 1;
        let moment = (at, state.named);
        let is_next = state.timers.keys().next().is_none_or(|next| moment < *next);
        state.timers.insert(moment, waker.clone());
        self.moment = Some(moment);
        drop(state);
        drop(old);
        if is_next {
            self.shared.kick();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(moment) = self.moment {
            let waker = self.shared.state().timers.remove(&moment);
            drop(waker); // not under the lock
        }
    }
}

/// What the thread has: nothing that keeps the node alive.
struct Run {
    shared: Arc<Shared>,
    node: Weak<NodeInner>,
    events: EventQueue,
    control: CompletionQueue,
    queue: CompletionQueue,
}

impl Run {
    fn run(self) {
        let (mut queue_readable, mut next_lease) = (false, None);
        while !self.shared.stop.load(Ordering::Acquire) {
            self.shared.kick.clear();
            let Some(node) = self.node.upgrade() else { return };
            node.take_events();
            let changed = self.shared.leases.swap(false, Ordering::AcqRel);
            next_lease = node.serve_leases(changed, next_lease);
            let next_timer = self.timers();
            if queue_readable && !node.driver.woken() {
                self.shared.watching.store(false, Ordering::Release);
                // Somebody may have gone to sleep in between and thought that the queue is watched.
                if node.driver.sleepers.load(Ordering::SeqCst) > 0 {
                    self.shared.watching.store(true, Ordering::Release);
                }
            }
            drop(node);
            let until = [next_lease, next_timer].into_iter().flatten().min();
            match self.control.arm() {
                Ok(Armed::Waiting) => queue_readable = self.sleep(until),
                // There is more to hear about leases; the completion queue is looked at all the same.
                Ok(_) => queue_readable = self.sleep(Some(Instant::now())),
                // A child made by fork: this thread is not there, so this cannot be; and if it can, it ends.
                Err(_) => return,
            }
        }
    }

    /// Sleeps until something happens; says whether it was the completion queue.
    #[cfg(not(miri))]
    fn sleep(&self, until: Option<Instant>) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        // Rounded up, so that the time has come when this returns.
        let left =
            left.map(|left| left.min(Duration::from_secs(1 << 30)) + Duration::from_nanos(999));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let fd = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [
            fd(self.shared.kick.as_fd()),
            fd(self.events.as_fd()),
            fd(self.control.as_fd()),
            fd(self.queue.as_fd()),
        ];
        let watching = self.shared.watching.load(Ordering::Acquire);
        let count = if watching { 4 } else { 3 };
        if let Err(error) = poll(&mut fds[..count], timeout.as_ref())
            && error != rustix::io::Errno::INTR
        {
            log::error!("fabric-async: poll(2) failed: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        watching && !fds[3].revents().is_empty()
    }

    /// Miri has no poll(2).
    #[cfg(miri)]
    fn sleep(&self, _until: Option<Instant>) -> bool {
        std::thread::sleep(Duration::from_millis(1));
        self.shared.watching.load(Ordering::Acquire)
    }

    /// Wakes whose time has come; says when the next one's does.
    fn timers(&self) -> Option<Instant> {
        let mut state = self.shared.state();
        let (due, next) = take_due(&mut state.timers, Instant::now());
        drop(state);
        due.into_values().for_each(Waker::wake);
        next
    }
}

/// Those whose time has come, and when the next one's does.
fn take_due(
    timers: &mut BTreeMap<Moment, Waker>,
    now: Instant,
) -> (BTreeMap<Moment, Waker>, Option<Instant>) {
    let later = timers.split_off(&(now, u64::MAX));
    let next = later.keys().next().map(|moment| moment.0);
    (std::mem::replace(timers, later), next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Count;

    #[test]
    fn a_timer_wakes_the_last_one_who_set_it_and_is_forgotten_with_it() {
        let service = Service::new().unwrap();
        let waiting = || service.shared.state().timers.len();
        let counts: [Arc<Count>; 3] = Default::default();
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        let wakers = counts.each_ref().map(|count| Waker::from(count.clone()));
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let [mut one, mut other] = [service.timer(), service.timer()];
        one.wake_at(future, &wakers[0]);
        one.wake_at(past, &wakers[1]);
        one.wake_at(past, &wakers[0]);
        other.wake_at(future, &wakers[2]);
        assert_eq!(waiting(), 2);
        let due = || {
            let mut state = service.shared.state();
            let (due, next) = take_due(&mut state.timers, Instant::now());
            drop(state);
            due.into_values().for_each(Waker::wake);
            next
        };
        assert_eq!(due(), Some(future));
        assert_eq!(woken(), [1, 0, 0]);
        drop(other);
        assert_eq!((waiting(), due()), (0, None));
        one.wake_at(past, &wakers[1]);
        assert_eq!((due(), woken()), (None, [1, 1, 0]));
    }
}
