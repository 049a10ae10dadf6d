//! The closing of what a peer can have close(2) sleep for: a file that it sent, whose file system answers when the peer likes (FUSE) or
//! whose bytes wait for an acknowledgement (SO_LINGER), and a socket in which such files wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fabric_util::sockets::Accepted;
use fabric_util::sync::Mutex;
use socket2::Socket;

use crate::user::is_same_user;

/// With more than this to close, no file of another user's is taken.
const BEHIND: usize = 64;
/// With more than this, no connection is.
const FULL: usize = 256;

/// Closes one after the other, in a thread that is there while there is something to close.
#[derive(Default)]
pub(crate) struct Closer {
    queue: Mutex<Queue>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Box<dyn Send>>,
    /// The thread is there.
    runs: bool,
}

impl Closer {
    /// Has it dropped, soon.
    #[cold]
    pub(crate) fn close(self: &Arc<Self>, item: impl Send + 'static) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        queue.items.push_back(Box::new(item));
        if !queue.runs {
            let closer = self.clone();
            let thread = thread::Builder::new().name("fabric-close".to_owned());
            // Where there is none to be had, the next one tries again.
            queue.runs = thread.spawn(move || closer.run()).is_ok();
        }
    }

    fn run(&self) {
        while let Some(item) = self.next() {
            drop(item);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn next(&self) -> Option<Box<dyn Send>> {
        let mut queue = self.queue.lock();
        let next = queue.items.pop_front();
        queue.runs = next.is_some();
        next
    }

    /// Whether files of other users should wait where they are.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > BEHIND
    }

    /// Whether connections should.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > FULL
    }

    /// As [`close`](Closer::close), of a socket; at once where its peer is of the same user, who has other ways to stop this process.
    pub(crate) fn close_socket(self: &Arc<Self>, socket: Arc<Socket>, accepted: Option<Accepted>) {
        if !is_same_user(&socket) {
            self.close((socket, accepted));
        }
    }
}

/// The last that holds a connection's socket.
pub(crate) struct SocketEnd {
    pub(crate) socket: Option<Arc<Socket>>,
    pub(crate) accepted: Option<Accepted>,
    pub(crate) closer: Arc<Closer>,
}

impl Drop for SocketEnd {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.closer.close_socket(socket, self.accepted.take());
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Sleeps as it is dropped, until the other end is gone.
    pub(crate) struct Sleeps(pub(crate) mpsc::Receiver<()>);

    impl Drop for Sleeps {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_sleeps_keeps_its_own_thread_only_and_is_counted() {
        let closer = Arc::new(Closer::default());
        let (wakes, sleeps) = mpsc::channel();
        closer.close(Sleeps(sleeps));
        for _ in 0..FULL {
            assert!(!closer.is_full());
            closer.close(());
        }
        assert!(closer.is_behind() && closer.is_full());
        drop(wakes);
        while closer.waiting.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        // A thread that ended is followed by another.
        let (done, is_done) = mpsc::channel::<()>();
        closer.close(done);
        is_done.recv().unwrap_err();
    }
}
