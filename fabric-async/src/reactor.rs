//! The node's thread: connection events, leases, timers, and the completion queue for executors without a descriptor
//! loop of their own.
//!
//! All that is not the data path happens here, so it does not depend on the application's runtime: connections come and
//! go, leases are granted and end, though every task computes. It sleeps until something happens.

#[cfg(not(miri))]
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use fabric::{Armed, CompletionQueue, EndpointId, EventQueue};
use fabric_util::log_line;
use fabric_util::service_thread::{ServiceThread, run_rounds};
use fabric_util::sync::Mutex;

use crate::agenda::{Agenda, LeaseName};
use crate::driver::Driver;
use crate::error::Result;
use crate::relay::Relay;
use crate::timers::{Timer, Timers};
use crate::wakers::Wakers;

/// What the thread does for its node.
pub(crate) trait ReactorClient: Send + Sync {
    fn driver(&self) -> &Driver;

    /// Delivers the connection events that there are.
    fn take_events(&self);

    /// Does what is due about leases; returns when the next one ends.
    fn serve_leases(&self) -> Option<Instant>;
}

/// Owns the thread.
pub(crate) struct ReactorThread {
    handle: Arc<ReactorHandle>,
    thread: Mutex<Option<ServiceThread>>,
}

/// By which others ask something of the thread. It does not keep the node alive.
pub(crate) struct ReactorHandle {
    pub(crate) timers: Arc<Timers>,
    relay: Arc<Relay>,
    stop: AtomicBool,
    /// The thread watches the completion queue.
    watching: AtomicBool,
    /// What is due about leases.
    pub(crate) agenda: Agenda,
}

impl ReactorHandle {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let (timers, relay) = (Timers::new()?, Relay::new());
        let (stop, watching, agenda) = Default::default();
        Ok(Arc::new(ReactorHandle { timers, relay, stop, watching, agenda }))
    }

    /// Has the thread watch the completion queue, which is armed.
    #[inline]
    pub(crate) fn watch_queue(&self) {
        if !self.watching.swap(true, Ordering::AcqRel) {
            self.timers.kick();
        }
    }

    /// A timer, which is not set.
    pub(crate) fn timer(&self) -> Timer {
        self.timers.timer()
    }

    /// A lease of this side ends then.
    pub(crate) fn add_lease_end(&self, until: Instant, lease: LeaseName) {
        if self.agenda.add(until, lease) {
            self.timers.kick();
        }
    }

    /// The application took back what it lent.
    pub(crate) fn lease_revoked(&self, lease: LeaseName) {
        self.agenda.revoked(lease);
        self.timers.kick();
    }

    /// A connection has ended, and with it its leases.
    pub(crate) fn disconnected(&self, endpoint: EndpointId) {
        self.agenda.disconnected(endpoint);
        self.timers.kick();
    }
}

impl ReactorThread {
    pub(crate) fn new(handle: &Arc<ReactorHandle>) -> Self {
        ReactorThread { handle: handle.clone(), thread: Mutex::default() }
    }

    /// Starts the thread, which does not keep the node alive. `control`: the queue of connections for leases.
    pub(crate) fn start(
        &self,
        node: Weak<dyn ReactorClient>,
        events: EventQueue,
        control: CompletionQueue,
        queue: CompletionQueue,
    ) -> Result<()> {
        let shared = self.handle.clone();
        let run = Run { shared, node, events, control, queue, queue_readable: false };
        let thread = ServiceThread::start("fabric-async", move || run.run())
            .map_err(|cause| fabric::Error::system("make node", "fabric-async", cause))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread, and waits for that unless this is it.
    pub(crate) fn stop(&self) {
        self.handle.stop.store(true, Ordering::Release);
        self.handle.timers.kick();
        let thread = self.thread.lock().take();
        drop(thread);
    }
}

/// What the thread has: nothing that keeps the node alive.
#[cfg_attr(miri, allow(dead_code))] // it sleeps on no descriptor there
struct Run {
    shared: Arc<ReactorHandle>,
    node: Weak<dyn ReactorClient>,
    events: EventQueue,
    control: CompletionQueue,
    queue: CompletionQueue,
    queue_readable: bool,
}

impl Run {
    fn run(mut self) {
        self.shared.relay.adopt_this_thread();
        let shared = self.shared.clone();
        // No user code runs in a round, so a panic is a mistake of this library. Leases end in time all the same.
        run_rounds(
            || !shared.stop.load(Ordering::Acquire) && self.round(),
            || log_line!(Error, "fabric-async: the node's thread panicked; it goes on"),
        );
        shared.relay.close();
    }

    /// Does what there is to do, and sleeps; false at the end of the node.
    fn round(&mut self) -> bool {
        self.shared.timers.clear();
        let Some(node) = self.node.upgrade() else { return false };
        node.take_events();
        let next_lease = node.serve_leases();
        let next_timer = self.shared.timers.run(Instant::now(), &mut Wakers::new());
        if self.queue_readable && !node.driver().on_readable() {
            self.shared.watching.store(false, Ordering::Release);
            // Somebody may have gone to sleep in between and thought that the queue is watched.
            if node.driver().sleepers.load(Ordering::SeqCst) > 0 {
                self.shared.watching.store(true, Ordering::Release);
            }
        }
        drop(node);
        let next_wake = self.shared.relay.supervise(Instant::now());
        let until = [next_lease, next_timer, next_wake].into_iter().flatten().min();
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
        use rustix::event::{PollFd, PollFlags};
        let fd = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [
            fd(self.shared.timers.as_fd()),
            fd(self.events.as_fd()),
            fd(self.control.as_fd()),
            fd(self.queue.as_fd()),
        ];
        let watching = self.shared.watching.load(Ordering::Acquire);
        let count = if watching { 4 } else { 3 };
        if let Err(error) = fabric_util::wakeup::poll_until(&mut fds[..count], until) {
            log_line!(Error, "fabric-async: poll(2) failed: {error}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        watching && !fds[3].revents().is_empty()
    }

    /// Miri has no poll(2). It counts 5 us for each of its steps, so shorter sleeps are most of what it would run.
    #[cfg(miri)]
    fn sleep(&self, _until: Option<Instant>) -> bool {
        std::thread::sleep(std::time::Duration::from_millis(20));
        self.shared.watching.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use fabric_util::service_thread::MIN_PAUSE;

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
        let timers = node.inner.reactor.timers.clone();
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
        assert!(begun.elapsed() >= MIN_PAUSE * ((1 << PANICS) - 1));
    }
}
