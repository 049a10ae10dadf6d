//! The selector: which sockets changed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use mio::{Events, Poll, Registry, Token};

use crate::log_line;

/// Events taken at a time.
const CAPACITY: usize = 256;

/// A mio poll and its events.
pub(crate) struct Selector {
    poll: Poll,
    events: Events,
}

impl Selector {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Selector { poll: Poll::new()?, events: Events::with_capacity(CAPACITY) })
    }

    /// Readable while a socket has a change that was not taken yet.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the descriptor is open as long as the poll lives, and is borrowed for this call.
        let own = unsafe { BorrowedFd::borrow_raw(self.poll.as_raw_fd()) };
        own.try_clone_to_owned()
    }

    pub(super) fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone()
    }

    /// Waits until a socket changes, at most as long as `timeout`; gives each that did, and whether its stream
    /// has ended.
    pub(super) fn select(
        &mut self,
        timeout: Option<Duration>,
    ) -> impl Iterator<Item = (Token, bool)> {
        if let Err(error) = self.poll.poll(&mut self.events, timeout) {
            self.events.clear();
            if error.kind() != io::ErrorKind::Interrupted {
                log_line!(Error, "the selector failed: {error}");
                // Not to spin on an error that stays.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.events
            .iter()
            .map(|e| (e.token(), e.is_read_closed() || e.is_write_closed() || e.is_error()))
    }
}
