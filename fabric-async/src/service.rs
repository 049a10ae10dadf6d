//! The node's thread: connection events, leases, timers, and the completion queue for executors without a descriptor
//! loop of their own.
//!
//! All that is not the data path happens here, so it does not depend on the application's runtime: connections come and
//! go, leases are granted and end, though every task computes. It sleeps until something happens.

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who is to be woken when. Few: time-outs of connections that shut down.
    timers: Vec<(Instant, Waker)>,
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
        let (stop, watching, state) = Default::default();
        let shared = Arc::new(Shared { kick, stop, watching, state });
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

    /// Wakes `waker` at `at`, or earlier.
    pub(crate) fn wake_at(&self, at: Instant, waker: &Waker) {
        let mut state = self.shared.state();
        if !state.timers.iter().any(|(time, known)| *time == at && known.will_wake(waker)) {
            state.timers.push((at, waker.clone()));
            drop(state);
            self.shared.kick();
        }
    }

    /// Something changed that it is to see.
    pub(crate) fn look_again(&self) {
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
        let mut queue_readable = false;
        while !self.shared.stop.load(Ordering::Acquire) {
            self.shared.kick.clear();
            let Some(node) = self.node.upgrade() else { return };
            node.take_events();
            let next_lease = node.serve_leases();
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
                Ok(Armed::Waiting) => {}
                Ok(_) => continue,
                // A child made by fork: this thread is not there, so this cannot be; and if it can, it ends.
                Err(_) => return,
            }
            queue_readable = self.sleep(until);
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
        let now = Instant::now();
        let mut state = self.shared.state();
        let mut due = Vec::new();
        let mut index = 0;
        while index < state.timers.len() {
            if state.timers[index].0 <= now {
                due.push(state.timers.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
        let next = state.timers.iter().map(|timer| timer.0).min();
        drop(state);
        due.into_iter().for_each(Waker::wake);
        next
    }
}
