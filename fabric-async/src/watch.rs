//! The completion queue watched by a tokio runtime: a task of it looks when nothing else is to be done there, and sleeps
//! on the descriptor.
//!
//! Each runtime in which futures of the node sleep has one such task, and each does the whole job, so it does not matter
//! whose runs first. When a runtime is shut down its task is dropped, and says so: whoever sleeps then is woken, and
//! finds another watcher.

use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::task::{Context, Poll, Waker};

use fabric::CompletionQueue;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use crate::driver::Driver;
use crate::node::NodeInner;

/// The runtimes that watch a node's queue.
#[derive(Default)]
pub(crate) struct Watchers(RwLock<Vec<Watcher>>);

struct Watcher {
    runtime: Id,
    sleep: Arc<Sleep>,
    /// `None`: it is about to be spawned.
    task: Option<AbortHandle>,
}

impl Watcher {
    /// Whether whoever sleeps can rely on it.
    #[inline]
    fn is_able(&self) -> bool {
        self.task.is_some() && !self.sleep.unable.load(Ordering::Acquire)
    }
}

impl Watchers {
    /// Every sleeper reads, so readers do not keep each other out.
    fn read(&self) -> RwLockReadGuard<'_, Vec<Watcher>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Watcher>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(&self) {
        for watcher in self.write().drain(..) {
            watcher.task.into_iter().for_each(|task| task.abort());
        }
    }
}

/// Whether a watcher sleeps, and how it is roused.
#[derive(Default)]
struct Sleep {
    /// It looks at the queue once more before it sleeps. Who is about to sleep counts itself as a sleeper and looks here;
    /// the watcher clears this and looks for sleepers: so one of them sees the other.
    awake: AtomicBool,
    /// The runtime has no I/O driver: the node's thread watches for it.
    unable: AtomicBool,
    /// The task's, from when it first slept.
    waker: OnceLock<Waker>,
}

impl Sleep {
    /// Says that it is awake; whether it slept.
    #[inline]
    fn end(&self, driver: &Driver) -> bool {
        let slept = !self.awake.load(Ordering::SeqCst) && !self.awake.swap(true, Ordering::SeqCst);
        if slept {
            driver.watching.fetch_add(1, Ordering::Relaxed);
        }
        slept
    }

    fn begin(&self, driver: &Driver) {
        if self.awake.swap(false, Ordering::SeqCst) {
            driver.watching.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn rouse(&self, driver: &Driver) {
        if self.end(driver)
            && let Some(waker) = self.waker.get()
        {
            waker.wake_by_ref();
        }
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

/// Has the runtime that polls this future watch the queue; false if there is none that can.
#[inline]
pub(crate) fn by_tokio(node: &Arc<NodeInner>) -> bool {
    let Ok(handle) = Handle::try_current() else { return false };
    let runtime = handle.id();
    let known = |watchers: &[Watcher]| {
        let watcher = watchers.iter().find(|watcher| watcher.runtime == runtime)?;
        watcher.sleep.rouse(&node.driver);
        Some(watcher.is_able())
    };
    if let Some(watches) = known(&node.watchers.read()) {
        return watches;
    }
    begin(node, &handle)
}

#[cold]
fn begin(node: &Arc<NodeInner>, handle: &Handle) -> bool {
    let (runtime, sleep) = (handle.id(), Arc::<Sleep>::default());
    let mut watchers = node.watchers.write();
    if let Some(watcher) = watchers.iter().find(|watcher| watcher.runtime == runtime) {
        return watcher.is_able();
    }
    watchers.push(Watcher { runtime, sleep: sleep.clone(), task: None });
    // Not under the lock: a runtime that is shutting down drops the task at once.
    drop(watchers);
    sleep.end(&node.driver);
    let own = Own { node: Arc::downgrade(node), runtime, sleep };
    let task = handle.spawn(watch(node.driver.queue.clone(), own)).abort_handle();
    let mut watchers = node.watchers.write();
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
    node: Weak<NodeInner>,
    runtime: Id,
    sleep: Arc<Sleep>,
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(node) = self.node.upgrade() else { return };
        if std::thread::panicking() {
            self.sleep.unable.store(true, Ordering::Release);
        } else {
            node.watchers.write().retain(|watcher| watcher.runtime != self.runtime);
        }
        self.sleep.begin(&node.driver);
        node.unwatched();
    }
}

/// The runtime knows the descriptor by a duplicate of its own, which stays open as long as it does.
#[allow(deprecated)] // for descriptors that lie, which an `OwnedFd` does not; the successor is `unsafe`
fn register(queue: &CompletionQueue) -> std::io::Result<AsyncFd<OwnedFd>> {
    let own = queue.as_fd().try_clone_to_owned()?;
    AsyncFd::with_interest(own, Interest::READABLE)
}

async fn watch(queue: CompletionQueue, own: Own) {
    let fd = match register(&queue) {
        Ok(fd) => fd,
        Err(error) => {
            log::error!("fabric-async: the runtime cannot watch the completion queue: {error}");
            return;
        }
    };
    drop(queue);
    let mut until = None;
    loop {
        let Some(node) = own.node.upgrade() else { return };
        own.sleep.end(&node.driver);
        if node.driver.look_for_all(&mut until) {
            drop(node);
            // The runtime comes back when it has nothing else to do.
            tokio::task::yield_now().await;
            continue;
        }
        until = None;
        own.sleep.begin(&node.driver);
        node.driver.rest();
        drop(node);
        if !poll_fn(|cx| own.sleep.poll(cx, &fd)).await {
            return;
        }
    }
}
