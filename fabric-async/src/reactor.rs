//! The node's thread: connection events, leases, timers, and the descriptors of drivers for executors without a descriptor
//! loop of their own.
//!
//! All that is not the data path happens here, so it does not depend on the application's runtime: connections come and
//! go, leases are granted and end, though every task computes. It sleeps until something happens.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use fabric::{Armed, CompletionQueue, EndpointId, EventQueue};
use fabric_util::log_line;
use fabric_util::service_thread::{ServiceThread, run_rounds};
use fabric_util::sync::Mutex;
#[cfg(not(miri))]
use smallvec::SmallVec;

use crate::agenda::{Agenda, LeaseName};
use crate::driver::WatchedDriver;
use crate::error::Result;
use crate::relay::Relay;
use crate::timers::{Timer, Timers};
use crate::wakers::Wakers;

/// What has a driver, whose descriptor the thread watches when it is asked to.
pub(crate) trait Driven: Send + Sync {
    fn driver(&self) -> &dyn WatchedDriver;
}

/// What the thread does for its node.
pub(crate) trait ReactorClient: Driven {
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
    /// The descriptors that it may have to watch.
    watches: Mutex<Vec<Arc<DriverWatch>>>,
    /// What is due about leases.
    pub(crate) agenda: Agenda,
}

/// A descriptor that the thread may have to watch, and whose driver's it is, which it does not keep alive.
pub(crate) struct DriverWatch {
    of: Weak<dyn Driven>,
    #[cfg_attr(miri, allow(dead_code))] // it sleeps on no descriptor there
    descriptor: Descriptor,
    /// The thread watches it.
    watching: AtomicBool,
}

/// Something with a descriptor, which stays open as long as it is there.
pub(crate) type Descriptor = Box<dyn AsFd + Send + Sync>;

impl DriverWatch {
    /// The descriptor was readable.
    fn on_readable(&self) {
        let Some(of) = self.of.upgrade() else { return };
        let driver = of.driver();
        if !driver.on_readable() {
            // Ordered before the look at who sleeps, as a future that goes to sleep counts itself before it looks at this.
            self.watching.swap(false, Ordering::SeqCst);
            // Somebody may have gone to sleep in between and thought that it is watched.
            if driver.sleepers().load(Ordering::SeqCst) > 0 {
                self.watching.store(true, Ordering::Release);
            }
        }
    }
}

impl ReactorHandle {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let (timers, relay) = (Timers::new()?, Relay::new());
        let (stop, watches, agenda) = Default::default();
        Ok(Arc::new(ReactorHandle { timers, relay, stop, watches, agenda }))
    }

    /// Adds a driver's descriptor to those that the thread may have to watch, as long as the driver is there.
    pub(crate) fn add_watch(
        &self,
        of: Weak<dyn Driven>,
        descriptor: Descriptor,
    ) -> Arc<DriverWatch> {
        let watching = AtomicBool::new(false);
        let watch = Arc::new(DriverWatch { of, descriptor, watching });
        self.watches.lock().push(watch.clone());
        watch
    }

    /// The driver of this is no more.
    #[cfg(feature = "rdm")]
    pub(crate) fn remove_watch(&self, watch: &Arc<DriverWatch>) {
        self.watches.lock().retain(|known| !Arc::ptr_eq(known, watch));
        // The thread closes the descriptor.
        self.timers.kick();
    }

    /// Has the thread watch a descriptor, which is armed.
    #[inline]
    pub(crate) fn watch(&self, watch: &DriverWatch) {
        if !watch.watching.swap(true, Ordering::SeqCst) {
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
    ) -> Result<()> {
        let shared = self.handle.clone();
        let run = Run { shared, node, events, control, watched: Vec::new() };
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
    /// Drivers whose descriptors it watches, and those that were readable. Empty but for their memory between sleeps.
    watched: Vec<(Arc<DriverWatch>, bool)>,
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
        drop(node);
        for (watch, is_readable) in self.watched.drain(..) {
            if is_readable {
                watch.on_readable();
            }
        }
        let next_wake = self.shared.relay.supervise(Instant::now());
        let until = [next_lease, next_timer, next_wake].into_iter().flatten().min();
        match self.control.arm() {
            Ok(Armed::Waiting) => self.sleep(until),
            // There is more to hear about leases; the drivers are looked at all the same.
            Ok(_) => self.sleep(Some(Instant::now())),
            // A child made by fork: this thread is not there, so this cannot be; and if it can, it ends.
            Err(_) => return false,
        }
        true
    }

    /// Sleeps until something happens; notes which drivers it concerns.
    fn sleep(&mut self, until: Option<Instant>) {
        let watches = self.shared.watches.lock();
        let is_watching = |watch: &&Arc<DriverWatch>| watch.watching.load(Ordering::Acquire);
        self.watched.extend(watches.iter().filter(is_watching).map(|watch| (watch.clone(), false)));
        drop(watches);
        self.sleep_on_descriptors(until);
    }

    #[cfg(not(miri))]
    fn sleep_on_descriptors(&mut self, until: Option<Instant>) {
        use rustix::event::{PollFd, PollFlags};
        let fd = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let own = [self.shared.timers.as_fd(), self.events.as_fd(), self.control.as_fd()];
        let watched = self.watched.iter().map(|(watch, _)| watch.descriptor.as_fd());
        let mut fds: SmallVec<[PollFd<'_>; 8]> = own.into_iter().chain(watched).map(fd).collect();
        if let Err(error) = fabric_util::wakeup::poll_until(&mut fds, until) {
            log_line!(Error, "fabric-async: poll(2) failed: {error}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let readable: SmallVec<[bool; 8]> =
            fds[own.len()..].iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for ((_, is_readable), now) in self.watched.iter_mut().zip(readable) {
            *is_readable = now;
        }
    }

    /// Miri has no poll(2). It counts 5 us for each of its steps, so shorter sleeps are most of what it would run.
    #[cfg(miri)]
    fn sleep_on_descriptors(&mut self, _until: Option<Instant>) {
        std::thread::sleep(std::time::Duration::from_millis(20));
        self.watched.iter_mut().for_each(|(_, is_readable)| *is_readable = true);
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
