//! What a few cases need of the operating system: memory that is not the heap's, and a child process.
//!
//! Its functions are safe to call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use fabric::core::memory;
use fabric::{Access, Domain, Error, Memory, Region};

use crate::check::Failed;

/// How a page may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Not at all.
    Nothing,
    /// By reading.
    Read,
    /// By reading and writing.
    ReadWrite,
}

impl Protection {
    fn flags(self) -> libc::c_int {
        match self {
            Protection::Nothing => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Zeroed private pages of this process. They are never unmapped: a region, and operations in flight on it, can
/// then outlive any handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    start: *mut u8,
    len: usize,
}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages.
    pub(crate) fn map(len: usize, protection: Protection) -> io::Result<Self> {
        let len = len.next_multiple_of(page_size());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection.flags(), flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Pages { start: start.cast(), len })
    }

    /// Changes the protection of part of the pages; offset and length are multiples of the page size.
    pub(crate) fn protect(
        &self,
        offset: usize,
        len: usize,
        protection: Protection,
    ) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: the range is part of this mapping, to which no references exist.
        match unsafe { libc::mprotect(self.start.add(offset).cast(), len, protection.flags()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Registers all pages, whatever their protection: a provider has to find out itself.
    pub(crate) fn register(&self, domain: &Domain, access: Access) -> fabric::Result<Region> {
        // SAFETY: the pages stay mapped for ever, and this process reaches them through the region only. Pages
        // that do not allow what `access` says are what the caller wants to see refused.
        unsafe { domain.register_raw(self.start, self.len, access) }
    }
}

/// Registers addresses at which nothing is mapped, which must fail.
///
/// They lie below the lowest address that the kernel hands out (`vm.mmap_min_addr`), so that no other thread's
/// mapping can come to be there meanwhile.
pub(crate) fn register_unmapped(domain: &Domain, access: Access) -> fabric::Result<Region> {
    register_nowhere(domain, 8192, 4096, access)
}

/// Registers `len` bytes at `start`, which are no memory of this process, at least not all of them: so it must fail.
pub(crate) fn register_nowhere(
    domain: &Domain,
    start: usize,
    len: usize,
    access: Access,
) -> fabric::Result<Region> {
    // SAFETY: nothing accesses the range: no provider may accept it, and no case uses the region if one does.
    unsafe { domain.register_raw(std::ptr::without_provenance_mut(start), len, access) }
}

/// Copies bytes into memory that regions may be part of.
pub(crate) fn store(into: &Memory, at: usize, bytes: &[u8]) -> fabric::Result<()> {
    let to = within(into, at, bytes.len())?;
    // SAFETY: the range was checked, and `into` keeps it allocated; nobody makes references to such memory.
    unsafe { memory::store(to, bytes) };
    Ok(())
}

/// Copies bytes out of memory that regions may be part of.
pub(crate) fn load(from: &Memory, at: usize, bytes: &mut [u8]) -> fabric::Result<()> {
    let from = within(from, at, bytes.len())?;
    // SAFETY: as in `store`; the memory was zeroed when it was made.
    unsafe { memory::load(from, bytes) };
    Ok(())
}

fn within(memory: &Memory, at: usize, len: usize) -> fabric::Result<*mut u8> {
    if at.checked_add(len).is_none_or(|end| end > memory.len()) {
        let text = format!("{len} bytes at {at} do not fit a memory of {}", memory.len());
        return Err(Error::invalid("copy", text));
    }
    Ok(memory.as_ptr().wrapping_add(at))
}

/// The system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: `sysconf` has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// The limits of open descriptors, the one in force and the one it may be raised to.
fn descriptor_limits() -> io::Result<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limits` is alive.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) } {
        0 => Ok(limits),
        _ => Err(io::Error::last_os_error()),
    }
}

fn limit_descriptors(limits: &libc::rlimit) -> io::Result<()> {
    // SAFETY: `limits` is alive.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this process open so many descriptors, if its hard limit does.
pub(crate) fn allow_descriptors(count: usize) -> io::Result<()> {
    let mut limits = descriptor_limits()?;
    let count = count as libc::rlim_t;
    if limits.rlim_cur >= count {
        return Ok(());
    }
    if limits.rlim_max < count {
        let text = format!("{count} descriptors needed, `ulimit -Hn` allows {}", limits.rlim_max);
        return Err(io::Error::other(text));
    }
    limits.rlim_cur = count;
    limit_descriptors(&limits)
}

/// As long as it lives, this process can open only a few descriptors more.
#[derive(Debug)]
pub(crate) struct FewDescriptors(libc::rlimit);

impl FewDescriptors {
    /// Leaves `free` of them. No other thread may open or close any meanwhile.
    pub(crate) fn leave(free: usize) -> io::Result<Self> {
        let before = descriptor_limits()?;
        let is_open = |fd: &libc::rlim_t| {
            // SAFETY: F_GETFD looks at a number, whatever it is.
            unsafe { libc::fcntl(*fd as libc::c_int, libc::F_GETFD) != -1 }
        };
        // The limit is not of a count but of the numbers, of which the lowest free one is always taken.
        let limit = (0..before.rlim_cur).filter(|fd| !is_open(fd)).nth(free);
        let rlim_cur = limit.unwrap_or(before.rlim_cur);
        limit_descriptors(&libc::rlimit { rlim_cur, ..before })?;
        Ok(FewDescriptors(before))
    }
}

impl Drop for FewDescriptors {
    fn drop(&mut self) {
        // It was in force before, so it is allowed.
        let _ = limit_descriptors(&self.0);
    }
}

/// Lets the allocator give back what it keeps of freed memory, if it is one that can be told.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that the program has from its allocator at present, if that one tells.
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
        // SAFETY: a new descriptor that nobody else owns.
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
    // SAFETY: new descriptors that nobody else owns.
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
    // SAFETY: `child` is ours and was not waited for, so the number is still its own.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    match text? {
        Some(text) => Ok(text),
        None => Err(Failed::new(format!("the child to end within {time:?}"), "it hangs")),
    }
}

/// A forked child of this process. It is killed when this is dropped, stopped or not.
#[derive(Debug)]
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Runs `body` in a child, which has no threads but its own and ends without running destructors or exit
    /// handlers. It closes the descriptors it inherits, so that it keeps nobody's connection open; what `body` uses
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

/// Lets this process lock at most `bytes` of memory, whoever it runs as: sets `RLIMIT_MEMLOCK` and gives up
/// `CAP_IPC_LOCK`. There is no way back, so this is for children.
pub(crate) fn limit_locked_memory(bytes: u64) -> io::Result<()> {
    /// Both as capget(2) describes them.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: `limit` is alive.
    let mut done = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } == 0;
    // SAFETY: version 3 of the header goes with two elements of sets.
    done &= unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } == 0;
    for set in [&mut sets[0].effective, &mut sets[0].permitted, &mut sets[0].inheritable] {
        *set &= !(1 << CAP_IPC_LOCK);
    }
    // SAFETY: as above; giving up a capability is always allowed.
    done &= unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) } == 0;
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
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
        let text = in_child(Duration::from_secs(10), || std::process::id().to_string()).unwrap();
        assert_ne!(text.parse::<u32>().unwrap(), parent);
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

    #[test]
    fn locked_memory_is_limited() {
        let text = in_child(Duration::from_secs(10), || {
            let pages = Pages::map(1 << 20, Protection::ReadWrite).unwrap();
            limit_locked_memory(64 << 10).unwrap();
            // SAFETY: locking pages of this mapping changes none of its contents.
            let locked = unsafe { libc::mlock(pages.start.cast(), pages.len) };
            format!("{locked} {:?}", io::Error::last_os_error().kind())
        });
        assert_eq!(text.unwrap(), "-1 OutOfMemory");
    }

    #[test]
    fn descriptors_run_out() {
        // In a child, or tests beside this one run out of them.
        let text = in_child(Duration::from_secs(10), || {
            let few = FewDescriptors::leave(2).unwrap();
            let open = || std::fs::File::open("/dev/null");
            let _held = [open().unwrap(), open().unwrap()];
            let third = open().map_err(|error| error.raw_os_error());
            drop(few);
            format!("{:?}, {}", third.err(), open().is_ok())
        });
        assert_eq!(text.unwrap(), format!("Some(Some({})), true", libc::EMFILE));
    }

    #[test]
    fn pages_are_whole() {
        let pages = Pages::map(1, Protection::ReadWrite).unwrap();
        assert_eq!(pages.len, page_size());
        pages.protect(0, page_size(), Protection::Read).unwrap();
        assert!(pages.protect(page_size(), 1, Protection::Nothing).is_err());
    }
}
