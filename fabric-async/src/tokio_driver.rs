//! The completion queue watched by a tokio runtime: a task of it looks when nothing else is to be done there, and sleeps
//! on the descriptor.
//!
//! Each runtime in which futures of the node sleep has one such task, and each does the whole job, so it does not matter
//! whose runs first. When a runtime is shut down its task is dropped; then sleeping futures are woken, and start
//! another watcher.
//!
//! A runtime that is there need not run: a thread may be in its context without driving it. So the node's thread checks
//! whether a woken watcher runs soon; if not, it does the job itself until the task has run. And a runtime may have
//! no I/O driver, which tokio reports by a panic only: where that would end the process, or the application says so, the node's thread
//! watches from the beginning. It also does for a runtime that could not watch once, as without a descriptor left.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fabric_util::log_line;
use fabric_util::sync::RwLock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use crate::driver::WatchedDriver;
use crate::reactor::{Driven, DriverWatch, ReactorHandle};
use crate::timers::Overseen;
use crate::wakers::Wakers;

/// A task that was roused and has not run for so long does not watch.
const LAG: Duration = Duration::from_millis(5);

/// What a watcher needs of its node.
pub(crate) trait WatchedNode: Driven {
    fn driver_watch(&self) -> &DriverWatch;

    fn reactor(&self) -> &ReactorHandle;

    fn watchers(&self) -> &Watchers;

    /// Wakes all that sleep: the watcher that they rely on is gone.
    fn watcher_gone(&self);
}

/// The runtimes that watch a node's queue.
pub(crate) struct Watchers {
    all: RwLock<Vec<Watcher>>,
    /// Whether runtimes may be asked to.
    enabled: bool,
}

struct Watcher {
    runtime: Id,
    sleep: Arc<Sleep>,
    /// `None`: it is about to be spawned.
    task: Option<AbortHandle>,
}

impl Watcher {
    /// Whether sleeping futures can rely on it.
    #[inline]
    fn is_able(&self) -> bool {
        self.task.is_some() && self.sleep.is_able()
    }
}

impl Watchers {
    pub(crate) fn new(enabled: bool) -> Self {
        Watchers { all: RwLock::default(), enabled }
    }

    pub(crate) fn stop(&self) {
        // Not under the lock: a task that is aborted may be dropped at once, and looks here.
        let all = std::mem::take(&mut *self.all.write());
        for watcher in all {
            watcher.task.into_iter().for_each(|task| task.abort());
        }
    }
}

/// Whether a watcher sleeps, and how it is roused.
struct Sleep {
    node: Weak<dyn WatchedNode>,
    /// It polls the queue once more before it sleeps. A future that is about to sleep counts itself as a sleeper, then reads
    /// this; the watcher clears this, then reads the number of sleepers: one of them sees the other.
    awake: AtomicBool,
    /// The runtime has no I/O driver, or could not watch: the node's thread does for it.
    unable: AtomicBool,
    /// The task was roused and did not run: the node's thread watches until it does.
    lags: AtomicBool,
    /// Rounds of the task, and how many there were when the node's thread last looked.
    rounds: AtomicU64,
    seen: AtomicU64,
    /// The node's thread will look. One that rouses sets `awake`, then reads this; the thread clears this, then reads `awake`: one
    /// of them sees the other.
    overseen: AtomicBool,
    /// The task's, from when it first slept.
    waker: OnceLock<Waker>,
}

impl Sleep {
    fn new(node: Weak<dyn WatchedNode>) -> Arc<Self> {
        let (awake, unable, lags, rounds, seen, overseen, waker) = Default::default();
        Arc::new(Sleep { node, awake, unable, lags, rounds, seen, overseen, waker })
    }

    #[inline]
    fn is_able(&self) -> bool {
        !self.unable.load(Ordering::Acquire) && !self.lags.load(Ordering::Acquire)
    }

    /// Says that it is awake; whether it slept.
    #[inline]
    fn end(&self, driver: &dyn WatchedDriver) -> bool {
        let slept = !self.awake.load(Ordering::SeqCst) && !self.awake.swap(true, Ordering::SeqCst);
        if slept {
            driver.watching().fetch_add(1, Ordering::Relaxed);
        }
        slept
    }

    fn begin(&self, driver: &dyn WatchedDriver) {
        if self.awake.swap(false, Ordering::SeqCst) {
            driver.watching().fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn rouse(self: &Arc<Self>, node: &dyn WatchedNode) {
        if self.end(node.driver())
            && let Some(waker) = self.waker.get()
        {
            waker.wake_by_ref();
        }
        // One that is awake may run no more as well: its runtime was left in the middle of a round.
        self.see_to_it(node);
    }

    /// The node's thread is to see whether the task runs.
    #[inline]
    fn see_to_it(self: &Arc<Self>, node: &dyn WatchedNode) {
        if !self.overseen.load(Ordering::SeqCst) && !self.overseen.swap(true, Ordering::SeqCst) {
            self.seen.store(self.rounds.load(Ordering::Acquire), Ordering::Relaxed);
            let me: Weak<Sleep> = Arc::downgrade(self);
            node.reactor().timers.oversee(Instant::now() + LAG, me);
        }
    }

    /// The task runs.
    fn round(&self, driver: &dyn WatchedDriver) {
        self.rounds.fetch_add(1, Ordering::Release);
        self.lags.store(false, Ordering::Release);
        self.end(driver);
    }

    /// Sleeps until the descriptor is readable, or it is roused; says whether the runtime still has an I/O driver.
    fn poll(&self, cx: &mut Context<'_>, fd: &AsyncFd<OwnedFd>) -> Poll<bool> {
        self.waker.get_or_init(|| cx.waker().clone());
        match fd.poll_read_ready(cx) {
            Poll::Ready(Ok(mut ready)) => {
                // First: what becomes readable from now on is seen by the next round.
                ready.clear_ready();
                Poll::Ready(true)
            }
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Pending if self.awake.load(Ordering::SeqCst) => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Overseen for Sleep {
    fn oversee(&self, now: Instant, _: &mut Wakers) -> Option<Instant> {
        let node = self.node.upgrade()?;
        let rounds = self.rounds.load(Ordering::Acquire);
        if self.seen.swap(rounds, Ordering::Relaxed) != rounds {
            return Some(now + LAG);
        }
        self.overseen.swap(false, Ordering::SeqCst);
        if self.awake.load(Ordering::SeqCst) {
            // Roused, and it has not run: this thread takes over.
            self.lags.store(true, Ordering::Release);
            self.begin(node.driver());
            node.reactor().watch(node.driver_watch());
            node.driver().on_readable();
        }
        None
    }
}

/// Has the runtime that polls this future watch the queue; false if there is none that can.
#[inline]
pub(crate) fn by_tokio<N: WatchedNode + 'static>(node: &Arc<N>) -> bool {
    let Ok(handle) = Handle::try_current() else { return false };
    // The thread sleeps in `block_on`, where it drives no runtime.
    if crate::block_on::is_here() {
        return false;
    }
    let runtime = handle.id();
    let watchers = node.watchers().all.read();
    let Some(watcher) = watchers.iter().find(|watcher| watcher.runtime == runtime) else {
        drop(watchers);
        let weak: Weak<N> = Arc::downgrade(node);
        return begin(&**node, weak, &handle);
    };
    let able = watcher.is_able();
    let sleep = able.then(|| watcher.sleep.clone());
    drop(watchers);
    if let Some(sleep) = sleep {
        sleep.rouse(&**node);
    }
    able
}

#[cold]
fn begin(node: &dyn WatchedNode, weak: Weak<dyn WatchedNode>, handle: &Handle) -> bool {
    // A panic could not be caught: tokio is not asked.
    if cfg!(panic = "abort") || !node.watchers().enabled {
        return false;
    }
    let (runtime, sleep) = (handle.id(), Sleep::new(weak.clone()));
    let mut watchers = node.watchers().all.write();
    if let Some(watcher) = watchers.iter().find(|watcher| watcher.runtime == runtime) {
        return watcher.is_able();
    }
    watchers.push(Watcher { runtime, sleep: sleep.clone(), task: None });
    // Not under the lock: a runtime that is shutting down drops the task at once.
    drop(watchers);
    sleep.end(node.driver());
    sleep.see_to_it(node);
    let own = Own { node: weak, runtime, sleep };
    let descriptor = node.driver().descriptor().try_clone_to_owned();
    let task = handle.spawn(watch(descriptor, own)).abort_handle();
    let mut watchers = node.watchers().all.write();
    match watchers.iter_mut().find(|watcher| watcher.runtime == runtime) {
        Some(watcher) => {
            watcher.task = Some(task);
            watcher.is_able()
        }
        None => false,
    }
}

/// What the task has. Dropped, it says that the task is no more, however it ended.
struct Own {
    node: Weak<dyn WatchedNode>,
    runtime: Id,
    sleep: Arc<Sleep>,
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(node) = self.node.upgrade() else { return };
        if std::thread::panicking() {
            self.sleep.unable.store(true, Ordering::Release);
        }
        if !self.sleep.unable.load(Ordering::Acquire) {
            node.watchers().all.write().retain(|watcher| watcher.runtime != self.runtime);
        }
        self.sleep.begin(node.driver());
        node.watcher_gone();
    }
}

/// The runtime knows the descriptor by a duplicate of its own, which stays open as long as it does.
#[allow(deprecated)] // for descriptors that lie, which an `OwnedFd` does not; the successor is `unsafe`
fn register(descriptor: std::io::Result<OwnedFd>) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor?, Interest::READABLE)
}

async fn watch(descriptor: std::io::Result<OwnedFd>, own: Own) {
    let fd = match register(descriptor) {
        Ok(fd) => fd,
        Err(error) => {
            // Futures that are woken do not ask it again.
            own.sleep.unable.store(true, Ordering::Release);
            log_line!(
                Error,
                "fabric-async: the runtime cannot watch the completion queue, so the node's thread does: {error}"
            );
            return;
        }
    };
    let mut until = None;
    loop {
        let Some(node) = own.node.upgrade() else { return };
        own.sleep.round(node.driver());
        if node.driver().poll_for_all(&mut until) {
            drop(node);
            // The runtime comes back when it has nothing else to do.
            tokio::task::yield_now().await;
            continue;
        }
        until = None;
        own.sleep.begin(node.driver());
        node.driver().arm_if_needed();
        drop(node);
        if !poll_fn(|cx| own.sleep.poll(cx, &fd)).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeInner;

    /// A runtime may be left while the task is awake, in the middle of a round: then it runs no more.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn a_task_that_is_awake_and_does_not_run_is_taken_over() {
        let node = crate::Node::builder().build().unwrap();
        let weak: Weak<NodeInner> = Arc::downgrade(&node.inner);
        let sleep = Sleep::new(weak);
        sleep.round(Driven::driver(&*node.inner));
        sleep.rouse(&*node.inner);
        let until = Instant::now() + Duration::from_secs(30);
        while sleep.is_able() {
            assert!(Instant::now() < until, "the node's thread takes over");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
