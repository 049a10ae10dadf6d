//! A descriptor that can be made readable: how a sleeping thread or an outside event loop learns that
//! something waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// An `eventfd(2)`: readable from a `set` to the next `clear`.
#[derive(Debug)]
pub struct Wakeup(OwnedFd);

impl Wakeup {
    /// A descriptor that is not readable.
    ///
    /// # Errors
    /// As `eventfd(2)`: out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Wakeup(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn set(&self) {
        // It fails only with EAGAIN, when the counter is full: then it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it not readable.
    pub fn clear(&self) {
        // It fails only with EAGAIN, when it is not readable already.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until `fd` is readable or `deadline` has come (`None`: for ever); says which.
///
/// # Errors
/// As `ppoll(2)`; interruptions by signals are waited through.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        if poll_until(&mut fds, deadline)? > 0 {
            return Ok(true);
        }
        if deadline.is_some_and(|at| at <= Instant::now()) {
            return Ok(false);
        }
    }
}

/// One `ppoll(2)`: sleeps until something has happened to one of `fds` or `deadline` has come (`None`: for ever). Gives to
/// how many something has happened, which may be none early, as after a signal.
///
/// # Errors
/// As `ppoll(2)`, without interruptions.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let timeout = left.map(|left| {
        // Rounded up, so that the deadline has really come when this returns.
        let left = left.min(Duration::from_secs(1 << 30)) + Duration::from_nanos(999);
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready),
        Err(Errno::INTR) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no poll(2)")]
    fn readable_from_set_to_clear() {
        let wakeup = Wakeup::new().unwrap();
        let now = || Some(Instant::now());
        assert!(!wait_readable(wakeup.as_fd(), now()).unwrap());
        wakeup.set();
        wakeup.set();
        assert!(wait_readable(wakeup.as_fd(), now()).unwrap());
        wakeup.clear();
        assert!(!wait_readable(wakeup.as_fd(), now()).unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no poll(2)")]
    fn waits_until_the_deadline() {
        let wakeup = Wakeup::new().unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        assert!(!wait_readable(wakeup.as_fd(), Some(deadline)).unwrap());
        assert!(Instant::now() >= deadline);
    }
}
