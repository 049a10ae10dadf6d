//! The node's thread: connection events, leases, timers, and the completion queue for executors without a descriptor
//! loop of their own.
//!
//! All that is not the data path happens here, so it does not depend on the application's runtime: connections come and
//! go, leases are granted and end, though every task computes. It sleeps until something happens.

#[cfg(not(miri))]
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fabric::provider::sync::{Mutex, MutexGuard};
use fabric::provider::{callback, log_line};
use fabric::{Armed, CompletionQueue, EventQueue, ListenerId};

use crate::error::Result;
use crate::listener::ListenerInner;
use crate::node::NodeInner;
use crate::relay::Relay;
use crate::timers::{Timer, Timers};
use crate::wakers::Wakers;

/// So long the thread rests after a round that panicked, and twice as long after each further one in a row.
const REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_secs(1);

pub(crate) struct Service {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    timers: Arc<Timers>,
    relay: Arc<Relay>,
    stop: AtomicBool,
    /// Whether it watches the completion queue.
    watching: AtomicBool,
    /// A lease began or ended, or the connection of one.
    leases: AtomicBool,
    listeners: Mutex<Vec<(ListenerId, Weak<ListenerInner>)>>,
}

impl Shared {
    fn listeners(&self) -> MutexGuard<'_, Vec<(ListenerId, Weak<ListenerInner>)>> {
        self.listeners.lock()
    }
}

impl Service {
    pub(crate) fn new(timers: &Arc<Timers>) -> Self {
        let (stop, watching, leases, listeners) = Default::default();
        let (timers, relay) = (timers.clone(), Relay::new());
        let shared = Arc::new(Shared { timers, relay, stop, watching, leases, listeners });
        Service { shared, thread: Mutex::default() }
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
            queue_readable: false,
            next_lease: None,
        };
        let thread = std::thread::Builder::new()
            .name("fabric-async".to_owned())
            .spawn(move || run.run())
            .map_err(|cause| fabric::Error::system("make node", "fabric-async", cause))?;
        *node.service.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread, and waits for that unless this is it.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.timers.kick();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            // It ends by itself; that it panicked was told by the panic.
            let _ = thread.join();
        }
    }

    /// It is to watch the completion queue, which is armed.
    #[inline]
    pub(crate) fn watch_queue(&self) {
        if !self.shared.watching.swap(true, Ordering::AcqRel) {
            self.shared.timers.kick();
        }
    }

    /// A timer, which is not set.
    pub(crate) fn timer(&self) -> Timer {
        self.shared.timers.timer()
    }

    /// A lease began or ended, or the connection of one: it is to see to that.
    pub(crate) fn look_at_leases(&self) {
        self.shared.leases.store(true, Ordering::Release);
        self.shared.timers.kick();
    }

    pub(crate) fn enroll(&self, id: ListenerId, listener: &Arc<ListenerInner>) {
        self.shared.listeners().push((id, Arc::downgrade(listener)));
    }

    pub(crate) fn listeners(&self) -> Vec<Arc<ListenerInner>> {
        let listeners = self.shared.listeners();
        listeners.iter().filter_map(|(_, listener)| listener.upgrade()).collect()
    }

    pub(crate) fn listener(&self, id: ListenerId) -> Option<Arc<ListenerInner>> {
        let listeners = self.shared.listeners();
        listeners.iter().find(|(known, _)| *known == id)?.1.upgrade()
    }

    pub(crate) fn strike(&self, id: ListenerId) {
        self.shared.listeners().retain(|(known, _)| *known != id);
    }
}

/// What the thread has: nothing that keeps the node alive.
#[cfg_attr(miri, allow(dead_code))] // it sleeps on no descriptor there
struct Run {
    shared: Arc<Shared>,
    node: Weak<NodeInner>,
    events: EventQueue,
    control: CompletionQueue,
    queue: CompletionQueue,
    queue_readable: bool,
    next_lease: Option<Instant>,
}

impl Run {
    fn run(mut self) {
        self.shared.relay.adopt_this_thread();
        let mut rest = REST;
        while !self.shared.stop.load(Ordering::Acquire) {
            // No user code runs here, so a panic is a mistake of this library. Leases end in time all the same.
            match callback::caught(|| self.round()) {
                Some(true) => rest = REST,
                Some(false) => break,
                None => {
                    log_line!(Error, "fabric-async: the node's thread panicked; it goes on");
                    std::thread::sleep(rest);
                    rest = (rest * 2).min(LONGEST_REST);
                }
            }
        }
        self.shared.relay.close();
    }

    /// Does what there is to do, and sleeps; false at the end of the node.
    fn round(&mut self) -> bool {
        self.shared.timers.clear();
        let Some(node) = self.node.upgrade() else { return false };
        node.take_events();
        let changed = self.shared.leases.swap(false, Ordering::AcqRel);
        self.next_lease = node.serve_leases(changed, self.next_lease);
        let next_timer = self.shared.timers.run(Instant::now(), &mut Wakers::new());
        if self.queue_readable && !node.driver.woken() {
            self.shared.watching.store(false, Ordering::Release);
            // Somebody may have gone to sleep in between and thought that the queue is watched.
            if node.driver.sleepers.load(Ordering::SeqCst) > 0 {
                self.shared.watching.store(true, Ordering::Release);
            }
        }
        drop(node);
        let next_wake = self.shared.relay.look_after(Instant::now());
        let until = [self.next_lease, next_timer, next_wake].into_iter().flatten().min();
        match self.control.arm() {
            Ok(Armed::Waiting) => self.queue_readable = self.sleep(until),
            // There is more to hear about leases; the completion queue is looked at all the same.
            Ok(_) => self.queue_readable = self.sleep(Some(Instant::now())),
            // A child made by fork: this thread is not there, so this cannot be; and if it can, it ends.
            Err(_) => return false,
        }
        true
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
            fd(self.shared.timers.as_fd()),
            fd(self.events.as_fd()),
            fd(self.control.as_fd()),
            fd(self.queue.as_fd()),
        ];
        let watching = self.shared.watching.load(Ordering::Acquire);
        let count = if watching { 4 } else { 3 };
        if let Err(error) = poll(&mut fds[..count], timeout.as_ref())
            && error != rustix::io::Errno::INTR
        {
            log_line!(Error, "fabric-async: poll(2) failed: {error}");
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
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::timers::Overseen;

    /// Has the next round panic, so often; then none.
    struct Wild {
        timers: Arc<Timers>,
        me: Weak<Wild>,
        panics: usize,
        calls: AtomicUsize,
    }

    impl Overseen for Wild {
        fn oversee(&self, now: Instant, _: &mut Wakers) -> Option<Instant> {
            if self.calls.fetch_add(1, Ordering::Relaxed) < self.panics {
                self.timers.oversee(now, self.me.clone());
                panic!("as a mistake of this library's might");
            }
            None
        }
    }

    /// The thread survives rounds that panic, and rests longer after each further one: so many in a row take that time.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn a_round_that_panics_ends_no_thread_and_makes_none_spin() {
        const PANICS: usize = 6;
        let node = crate::Node::builder().build().unwrap();
        let timers = node.inner.timers.clone();
        let wild = Arc::new_cyclic(|me: &Weak<Wild>| Wild {
            timers: timers.clone(),
            me: me.clone(),
            panics: PANICS,
            calls: AtomicUsize::new(0),
        });
        let begun = Instant::now();
        let me: Weak<Wild> = Arc::downgrade(&wild);
        timers.oversee(begun, me);
        while wild.calls.load(Ordering::Relaxed) <= PANICS {
            assert!(begun.elapsed() < Duration::from_secs(30), "the thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(begun.elapsed() >= REST * ((1 << PANICS) - 1));
    }
}
