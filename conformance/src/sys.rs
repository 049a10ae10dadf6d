//! What a few cases need of the operating system. Its functions are safe to call.

mod child;
mod limits;
mod pages;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

pub(crate) use child::{Child, in_child};
pub(crate) use limits::{
    FewDescriptors, allow_descriptors, limit_locked_memory, max_descriptors, physical_memory,
};
pub(crate) use pages::{
    Pages, Protection, load, page_size, register_nowhere, register_unmapped, store,
};

/// Lets the allocator give back what it keeps of freed memory, if it is one that can be asked to.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that the program has from its allocator at present, if that one knows.
pub(crate) fn allocated_memory() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2(3) may be called at any time; it looks at every arena.
        let info = unsafe { libc::mallinfo2() };
        Some(info.uordblks + info.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// An epoll instance: how an event loop sleeps.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// Watches nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call has no preconditions.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that has no other owner.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches whether a descriptor is readable, level-triggered, as long as it is open.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and `event` is alive.
        let result = unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sleeps until a descriptor is readable; false if none is within `time`.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            let left = libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX);
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: there is room for the one event asked for.
            match unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, left) } {
                0 => return Ok(false),
                1.. => return Ok(true),
                _ => {}
            }
            let cause = io::Error::last_os_error();
            if cause.kind() != io::ErrorKind::Interrupted {
                return Err(cause);
            }
        }
    }
}

/// What the processors have worked for this process so far, for all of its threads.
pub(crate) fn cpu_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is alive.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Neither is negative.
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoll_tells_readable_from_not() {
        use std::io::Write;
        use std::os::fd::AsFd;
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(near.as_fd()).unwrap();
        assert!(!epoll.wait(Duration::from_millis(1)).unwrap());
        far.write_all(&[1]).unwrap();
        assert!(epoll.wait(Duration::from_secs(10)).unwrap());
    }

    #[test]
    fn work_costs_cpu_time() {
        let (before, start) = (cpu_time().unwrap(), Instant::now());
        while start.elapsed() < Duration::from_secs(10) {
            if cpu_time().unwrap() - before >= Duration::from_millis(5) {
                return;
            }
        }
        panic!("10 s of work cost nothing");
    }
}
