//! Forked children: that report and end, or run until they are stopped and killed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::check::Failed;

/// Runs `body` in a forked child and gives back its text. The child has no threads but its own, and ends without
/// running destructors or exit handlers.
///
/// `body` must be brief: what other threads of this process had locked at the fork stays locked in the child. A
/// child that does not end in `time` is killed, and that is a failure.
#[track_caller]
pub(crate) fn in_child(time: Duration, body: impl FnOnce() -> String) -> Result<String, Failed> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: new descriptors that have no other owner.
    let [from, to] = unsafe { ends.map(|end| OwnedFd::from_raw_fd(end)) };
    // SAFETY: the child runs `body`, writes and exits; glibc keeps its allocator usable in the child of a process
    // with threads, and what else may be locked there only costs the deadline below.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error().into()),
        0 => {
            let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
                .unwrap_or_else(|_| "panic".to_owned());
            // SAFETY: `text` is alive; a failed write shows as a missing text. `_exit` runs no handlers, and does
            // not return.
            unsafe {
                libc::write(to.as_raw_fd(), text.as_ptr().cast(), text.len());
                libc::_exit(0);
            }
        }
        _ => {}
    }
    drop(to);
    let text = read_until_closed(&from, time);
    let mut status = 0;
    // SAFETY: `child` is ours and was not waited for, so the number is still its own. One that has closed its end of the
    // pipe is ending, and a signal changes nothing about how.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
    }
    match text? {
        Some(_) if libc::WIFSIGNALED(status) => {
            let seen = format!("signal {} ended it", libc::WTERMSIG(status));
            Err(Failed::new("the child to end by itself", seen))
        }
        Some(text) => Ok(text),
        None => Err(Failed::new(format!("the child to end within {time:?}"), "it hangs")),
    }
}

/// A forked child of this process. It is killed when this is dropped, stopped or not.
#[derive(Debug)]
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Runs `body` in a child, which has no threads but its own and ends without running destructors or exit
    /// handlers. It closes the descriptors it inherits, so that it keeps no connection open; what `body` uses
    /// it opens itself.
    pub(crate) fn run(body: impl FnOnce()) -> io::Result<Self> {
        // SAFETY: as in `in_child`; the child closes only copies, and does not return from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: closes this process's descriptors from 3 on (close_range(2)); no code of the child runs
                // that uses an inherited one.
                unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
                // What becomes of it the parent sees from outside.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                // SAFETY: it runs no handlers and does not return.
                unsafe { libc::_exit(0) }
            }
            child => Ok(Child(child)),
        }
    }

    /// Stops it as `SIGSTOP` does; when this returns, no thread of it runs any more.
    pub(crate) fn stop(&self) -> io::Result<()> {
        // SAFETY: siginfo_t is plain data.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let how = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the child is reaped by the drop alone, so the number is its own; `info` has room for the answer.
        let failed = unsafe {
            libc::kill(self.0, libc::SIGSTOP);
            libc::waitid(libc::P_PID, self.0 as libc::id_t, &raw mut info, how)
        } != 0;
        match info.si_code {
            _ if failed => Err(io::Error::last_os_error()),
            libc::CLD_STOPPED => Ok(()),
            _ => Err(io::Error::other("the child ended before it could be stopped")),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the child is not reaped yet, so the number is its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// What comes from a pipe until all its writers are gone; `None` if that takes too long.
fn read_until_closed(pipe: &OwnedFd, time: Duration) -> io::Result<Option<String>> {
    let until = Instant::now() + time;
    let mut text = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&mut poll, 1, left.as_millis().min(1000) as libc::c_int) };
        if ready == 0 && left.is_zero() {
            return Ok(None);
        }
        if ready <= 0 {
            continue;
        }
        let mut block = [0u8; 4096];
        // SAFETY: `block` has room for as many bytes.
        let got = unsafe { libc::read(pipe.as_raw_fd(), block.as_mut_ptr().cast(), block.len()) };
        match usize::try_from(got) {
            Ok(0) => return Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Ok(got) => text.extend_from_slice(&block[..got]),
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_reports() {
        let parent = std::process::id();
        let text = in_child(Duration::from_secs(60), || std::process::id().to_string()).unwrap();
        assert_ne!(text.parse::<u32>().unwrap(), parent);
    }

    #[test]
    fn child_that_crashes_is_no_success() {
        let failed = in_child(Duration::from_secs(60), || std::process::abort()).unwrap_err();
        assert_eq!(failed.seen(), format!("signal {} ended it", libc::SIGABRT));
    }

    #[test]
    fn child_that_hangs_is_killed() {
        let hang = || loop {
            std::thread::sleep(Duration::from_secs(1));
        };
        let failed = in_child(Duration::from_millis(100), hang).unwrap_err();
        assert_eq!(failed.seen(), "it hangs");
    }

    #[test]
    fn child_stops_and_is_killed() {
        let child = Child::run(|| {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        })
        .unwrap();
        let stat = format!("/proc/{}/stat", child.0);
        child.stop().unwrap();
        let text = std::fs::read_to_string(&stat).unwrap();
        assert!(text.contains(") T "), "{text}");
        drop(child);
        assert!(std::fs::read_to_string(&stat).is_err());
    }
}
