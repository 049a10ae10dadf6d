//! The completion queue watched by a tokio runtime: a task of it sleeps on the descriptor.
//!
//! Each runtime in which futures of the node sleep has one such task, and each does the whole job, so it does not matter
//! whose runs first. When a runtime is shut down its task is dropped, and says so: whoever sleeps then is woken, and
//! finds another watcher.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use fabric::CompletionQueue;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use crate::lock;
use crate::node::NodeInner;

/// The runtimes that watch a node's queue.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Watcher>>);

struct Watcher {
    runtime: Id,
    /// `None`: this runtime cannot, having no I/O driver.
    task: Option<AbortHandle>,
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Vec<Watcher>> {
        lock(&self.0)
    }

    pub(crate) fn stop(&self) {
        for watcher in self.lock().drain(..) {
            watcher.task.into_iter().for_each(|task| task.abort());
        }
    }
}

/// Has the runtime that polls this future watch the queue; false if there is none that can.
#[inline]
pub(crate) fn by_tokio(node: &Arc<NodeInner>) -> bool {
    let Ok(handle) = Handle::try_current() else { return false };
    let runtime = handle.id();
    let mut watchers = node.watchers.lock();
    if let Some(watcher) = watchers.iter().find(|watcher| watcher.runtime == runtime) {
        return watcher.task.is_some();
    }
    watchers.push(Watcher { runtime, task: None });
    // Not under the lock: a runtime that is shutting down drops the task at once.
    drop(watchers);
    let gone = Gone { node: Arc::downgrade(node), runtime };
    let task = handle.spawn(watch(node.driver.queue.clone(), gone)).abort_handle();
    let mut watchers = node.watchers.lock();
    match watchers.iter_mut().find(|watcher| watcher.runtime == runtime) {
        Some(watcher) => {
            watcher.task = Some(task);
            true
        }
        None => false,
    }
}

/// Says that the task is no more, however it ended.
struct Gone {
    node: Weak<NodeInner>,
    runtime: Id,
}

impl Drop for Gone {
    fn drop(&mut self) {
        let Some(node) = self.node.upgrade() else { return };
        let mut watchers = node.watchers.lock();
        if std::thread::panicking() {
            // The runtime has no I/O driver: the node's thread watches for it.
            let own = watchers.iter_mut().filter(|watcher| watcher.runtime == self.runtime);
            own.for_each(|watcher| watcher.task = None);
        } else {
            watchers.retain(|watcher| watcher.runtime != self.runtime);
        }
        drop(watchers);
        node.unwatched();
    }
}

/// The runtime knows the descriptor by a duplicate of its own, which stays open as long as it does.
#[allow(deprecated)] // for descriptors that lie, which an `OwnedFd` does not; the successor is `unsafe`
fn register(queue: &CompletionQueue) -> std::io::Result<AsyncFd<OwnedFd>> {
    let own = queue.as_fd().try_clone_to_owned()?;
    AsyncFd::with_interest(own, Interest::READABLE)
}

async fn watch(queue: CompletionQueue, gone: Gone) {
    let fd = match register(&queue) {
        Ok(fd) => fd,
        Err(error) => {
            log::error!("fabric-async: the runtime cannot watch the completion queue: {error}");
            return;
        }
    };
    drop(queue);
    loop {
        let Ok(mut ready) = fd.readable().await else { return };
        // First: what becomes readable from now on is seen by the next round.
        ready.clear_ready();
        drop(ready);
        let Some(node) = gone.node.upgrade() else { return };
        node.driver.woken();
    }
}
