//! Regions that the application has let go while operations still used them.
//!
//! An unsignaled operation that succeeded has no completion, so nothing says when its region is free. Without polls
//! or further posts, the library has to find out by itself: closing a region asks at once
//! ([`EndpointRegistry::settle`]), and after a drop a thread asks until the region is gone, or until no unsignaled operation
//! can hold it any more.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fabric_util::fork::ForkEpoch;
use fabric_util::service_thread::ServiceThread;
use fabric_util::sync::{Condvar, Mutex};
use fabric_util::{callback, log_line};

use crate::registry::EndpointRegistry;

/// How long the thread waits between two looks: at first, and at most.
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(64);

/// What a domain's thread waits for, and the thread.
pub(crate) struct Reclaim {
    fork_epoch: ForkEpoch,
    state: Arc<ReclaimState>,
    /// Unsignaled operations were posted: without any, completions say all there is to know.
    pub(crate) needed: AtomicBool,
}

struct ReclaimState {
    endpoints: Arc<EndpointRegistry>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// What operations hold on to of each region.
    regions: Vec<Weak<dyn Any + Send + Sync>>,
    /// Regions were added since the last look.
    more: bool,
    /// The thread looks.
    runs: bool,
    thread: Option<ServiceThread>,
    /// The domain is closed.
    stop: bool,
}

impl Waiting {
    /// Forgets the regions that are gone; false: there is none left, and the thread ends.
    fn prune(&mut self) -> bool {
        self.regions.retain(|region| region.strong_count() > 0);
        self.runs = !self.regions.is_empty();
        self.runs
    }
}

impl Reclaim {
    pub(crate) fn new(endpoints: Arc<EndpointRegistry>) -> Self {
        let (waiting, changed) = (Mutex::default(), Condvar::new());
        let state = Arc::new(ReclaimState { endpoints, waiting, changed });
        Reclaim { fork_epoch: ForkEpoch::current(), state, needed: AtomicBool::new(false) }
    }

    /// Frees a dropped region as soon as the operations that still use it have ended.
    pub(crate) fn add<R: Any + Send + Sync>(&self, region: &Arc<R>) {
        if !self.needed.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.state.waiting.lock();
        waiting.regions.push(Arc::<R>::downgrade(region));
        waiting.more = true;
        if waiting.runs {
            return;
        }
        let state = self.state.clone();
        match ServiceThread::start("fabric-reclaim", move || state.run()) {
            Ok(thread) => {
                waiting.runs = true;
                let before = waiting.thread.replace(thread);
                drop(waiting);
                // It has ended, or is about to.
                drop(before);
            }
            Err(error) => {
                waiting.regions.clear();
                drop(waiting);
                log_line!(
                    Warn,
                    "a dropped region stays open until completions are polled: {error}"
                );
            }
        }
    }
}

impl ReclaimState {
    fn run(&self) {
        let mut pause = MIN_PAUSE;
        loop {
            // A panic of a provider must not end this thread while others believe that it runs.
            let goes_on = callback::caught(|| self.look()).unwrap_or(true);
            let _ = callback::caught(|| self.endpoints.hand_over());
            if !goes_on {
                return;
            }
            let waiting = self.waiting.lock();
            let waiting = self.changed.wait_timeout_while(waiting, pause, |waiting| !waiting.stop);
            if waiting.stop {
                return;
            }
            drop(waiting);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// One look; false: there is nothing left to wait for.
    fn look(&self) -> bool {
        // To settle takes a place in send queues: not for regions that are gone.
        if !self.waiting.lock().prune() {
            return false;
        }
        let settled = self.endpoints.settle();
        let mut waiting = self.waiting.lock();
        if !waiting.prune() {
            return false;
        }
        // Where nothing is in flight, only completions that the application has not taken hold a region.
        let more = std::mem::take(&mut waiting.more);
        waiting.runs = !settled || more;
        if !waiting.runs {
            waiting.regions.clear();
        }
        waiting.runs
    }
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        if !self.fork_epoch.is_current() {
            return;
        }
        let mut waiting = self.state.waiting.lock();
        waiting.stop = true;
        let thread = waiting.thread.take();
        drop(waiting);
        self.state.changed.notify_all();
        // Waits for it, unless this is that thread.
        drop(thread);
    }
}
