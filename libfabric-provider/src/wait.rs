//! Wait objects: one descriptor that is readable when one of several is, or when it is woken.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::epoll;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::errno::Errno;

/// The descriptor behind `FI_GETWAIT`.
pub(crate) struct WaitFd {
    all: OwnedFd,
    /// Readable while there is something that no other descriptor says.
    own: OwnedFd,
}

impl WaitFd {
    pub(crate) fn new() -> Result<Self, Errno> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wait = WaitFd { all, own };
        epoll::add(&wait.all, &wait.own, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(wait)
    }

    /// From now on readable also while this one is; it leaves when it is closed.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(())
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.all.as_raw_fd()
    }

    /// Makes it readable until it is cleared.
    pub(crate) fn set(&self) {
        // It fails only if it is readable as often as it can be (eventfd(2)).
        let _ = rustix::io::write(&self.own, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // It fails only if there was nothing to clear.
        let _ = rustix::io::read(&self.own, &mut [0_u8; 8]);
    }

    /// As [`sleep_on`] it alone.
    pub(crate) fn sleep(&self, until: Option<Instant>) -> Result<bool, Errno> {
        sleep_on(&mut [PollFd::new(&self.all, PollFlags::IN)], until)
    }
}

/// Sleeps until one of these is readable, the time has come, or the thread is signaled: whether it was, and has handled that.
pub(crate) fn sleep_on(fds: &mut [PollFd<'_>], until: Option<Instant>) -> Result<bool, Errno> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    match poll(fds, left.as_ref()) {
        Ok(_) => Ok(false),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
