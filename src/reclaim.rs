//! Regions that the application has let go while operations still used them.
//!
//! An unsignaled operation that succeeded has no completion, so nothing says when its region is free. Without polls
//! or further posts, the library has to find out by itself: closing a region asks at once (`settle`), and after a
//! drop a thread asks until the region is gone, or until no unsignaled operation can hold it any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use fabric_util::fork::Origin;
use fabric_util::sync::{Condvar, Mutex};
use fabric_util::{callback, log_line};

use crate::domain::DomainInner;
use crate::region::RegionCore;

/// How long the thread waits between two looks: at first, and at most.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);

/// What a domain's thread waits for, and the thread.
pub(crate) struct Reclaim {
    origin: Origin,
    shared: Arc<Shared>,
    /// Unsignaled operations were posted: without any, completions say all there is to know.
    pub(crate) needed: AtomicBool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    regions: Vec<Weak<RegionCore>>,
    /// Regions were added since the last look.
    more: bool,
    /// It is at it.
    runs: bool,
    thread: Option<JoinHandle<()>>,
    /// The domain is closed.
    stop: bool,
}

impl Default for Reclaim {
    fn default() -> Self {
        let needed = AtomicBool::new(false);
        Reclaim { origin: Origin::here(), shared: Arc::default(), needed }
    }
}

impl DomainInner {
    /// Takes what has ended on every endpoint; true if nothing is in flight in any send queue.
    pub(crate) fn settle(&self) -> bool {
        let mut settled = true;
        for endpoint in self.endpoints() {
            settled &= endpoint.settle();
        }
        settled
    }

    /// Frees a dropped region as soon as the operations that still use it have ended.
    pub(crate) fn reclaim(self: &Arc<Self>, region: &Arc<RegionCore>) {
        if !self.reclaim.needed.load(Ordering::Relaxed) {
            return;
        }
        let shared = &self.reclaim.shared;
        let mut waiting = shared.waiting.lock();
        waiting.regions.push(Arc::downgrade(region));
        waiting.more = true;
        if waiting.runs {
            return;
        }
        let (domain, mine) = (Arc::downgrade(self), shared.clone());
        let thread = std::thread::Builder::new().name("fabric-reclaim".to_owned());
        match thread.spawn(move || run(&domain, &mine)) {
            Ok(thread) => {
                waiting.runs = true;
                // The one before has ended, or is about to.
                waiting.thread = Some(thread);
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

    /// One look; false: there is nothing left to wait for.
    fn look(&self) -> bool {
        let settled = self.settle();
        let mut waiting = self.reclaim.shared.waiting.lock();
        waiting.regions.retain(|region| region.strong_count() > 0);
        // Where nothing is in flight, only completions that the application has not taken hold a region.
        let more = std::mem::take(&mut waiting.more);
        waiting.runs = !waiting.regions.is_empty() && (!settled || more);
        if !waiting.runs {
            waiting.regions.clear();
        }
        waiting.runs
    }

    /// Leaves progress to the provider's thread again, which takes a poll for the application's.
    fn hand_over(&self) {
        for endpoint in self.endpoints() {
            let queue = &endpoint.send_cq;
            // Arming clears the descriptor, so sleepers on it look again.
            let _ = queue.arm(false);
            queue.ops().wake();
        }
    }
}

fn run(domain: &Weak<DomainInner>, shared: &Shared) {
    let mut pause = FIRST;
    loop {
        let Some(domain) = domain.upgrade() else { return };
        // What a provider does must not end this thread while others believe that it runs.
        let goes_on = callback::caught(|| domain.look()).unwrap_or(true);
        let _ = callback::caught(|| domain.hand_over());
        drop(domain);
        if !goes_on {
            return;
        }
        let waiting = shared.waiting.lock();
        let waiting = shared.changed.wait_timeout_while(waiting, pause, |waiting| !waiting.stop);
        if waiting.stop {
            return;
        }
        drop(waiting);
        pause = (pause * 2).min(LONGEST);
    }
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        let mut waiting = self.shared.waiting.lock();
        waiting.stop = true;
        let thread = waiting.thread.take();
        drop(waiting);
        self.shared.changed.notify_all();
        // The last reference to the domain may have been the thread's own.
        if let Some(thread) =
            thread.filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}
