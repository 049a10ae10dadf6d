//! What this process may have: descriptors, memory and locked memory.

use std::io;

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

/// Bytes of memory that the machine has.
pub(crate) fn physical_memory() -> u64 {
    // SAFETY: it only asks (sysconf(3)).
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or_default() * super::page_size() as u64
}

/// How many descriptors this process may have at most.
pub(crate) fn max_descriptors() -> io::Result<usize> {
    Ok(usize::try_from(descriptor_limits()?.rlim_max).unwrap_or(usize::MAX))
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
        // The limit is not of a count but of the numbers, and the lowest free one is always taken.
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

/// Lets this process lock at most `bytes` of memory, whatever user it runs as: sets `RLIMIT_MEMLOCK` and gives up
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::in_child;

    #[test]
    fn locked_memory_is_limited() {
        let text = in_child(Duration::from_secs(10), || {
            let memory = vec![0u8; 1 << 20];
            limit_locked_memory(64 << 10).unwrap();
            // SAFETY: locking pages of this memory changes none of its contents.
            let locked = unsafe { libc::mlock(memory.as_ptr().cast(), memory.len()) };
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
}
