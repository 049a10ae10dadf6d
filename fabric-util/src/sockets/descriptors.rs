//! The descriptors that connections from peers take of this process: a quarter of all stays for the application's own files.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};
use socket2::SockRef;

/// Connections of this process that came in and whose sockets are open.
static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

/// One of them: a transport of a connection that came in has this as long as its socket is open.
pub struct Accepted(());

impl Accepted {
    /// One more.
    #[expect(clippy::new_without_default, reason = "each one counts")]
    pub fn new() -> Self {
        ACCEPTED.fetch_add(1, Ordering::Relaxed);
        Accepted(())
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        ACCEPTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes a socket that listens. A forked child may have copies of its descriptor: nothing more comes to it by these either, and
/// what has come and was not taken is closed.
pub(super) fn stop_listening(socket: impl AsFd) {
    let socket = SockRef::from(&socket);
    // It fails only for what does not listen.
    let _ = socket.shutdown(Shutdown::Read);
    while socket.accept().is_ok() {}
}

/// How many descriptors a process may have (RLIMIT_NOFILE, getrlimit(2)), and how many of these peers may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors {
    pub(super) limit: usize,
}

impl Descriptors {
    /// As the limit is now.
    pub(super) fn of_process() -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        Descriptors {
            limit: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
        }
    }

    /// Half-open connections of one listener, of at most `max`.
    pub(super) fn half_open(self, max: usize) -> usize {
        (self.limit / 8).clamp(16, max)
    }

    /// Whether peers have so many that no other may have one for long.
    pub(super) fn are_short(self) -> bool {
        ACCEPTED.load(Ordering::Relaxed) > self.limit - self.limit / 4
    }
}
