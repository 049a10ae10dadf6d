//! Errors of the provider: its name in them, and what helps where memory cannot be locked.

use std::io;

use fabric_core::{Error, Failure};
use rustix::process::{Resource, getrlimit};

use crate::ffi;

/// The provider's name.
pub const NAME: &str = "verbs";

/// Limits on registered memory below this are warned of: the usual defaults, 64 KiB and 8 MiB, do not reach
/// far.
const LITTLE_MEMLOCK: u64 = 16 << 20;

/// A verb failed that makes the device keep memory of this process: queues are locked like regions. Says what would
/// help if there was no room.
pub(crate) fn failed(operation: &'static str, what: &str, cause: io::Error) -> Error {
    match ffi::code(&cause) {
        Some(libc::ENOMEM) => {
            let text = format!("no room to lock {what}; {}", memlock_remedy());
            Error::NoMemory(Failure::new(operation, text).of(NAME).because(cause))
        }
        _ => Error::system(operation, NAME, cause),
    }
}

/// What to do when memory cannot be locked, with the limit there is now.
fn memlock_remedy() -> String {
    remedy(memlock().filter(|_| !locks_freely()))
}

/// The soft limit on locked memory in bytes; `None`: there is none.
pub(crate) fn memlock() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Whether the process has `CAP_IPC_LOCK`, which lifts the limit: capabilities(7), proc(5).
pub(crate) fn locks_freely() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << CAP_IPC_LOCK) != 0)
}

pub(crate) fn memlock_warning(limit: Option<u64>, locks_freely: bool) -> Option<String> {
    let little = !locks_freely && limit.is_some_and(|limit| limit < LITTLE_MEMLOCK);
    little.then(|| format!("little memory can be registered: {}", remedy(limit)))
}

fn remedy(limit: Option<u64>) -> String {
    let Some(limit) = limit else {
        return "locked memory has no limit here (RLIMIT_MEMLOCK, CAP_IPC_LOCK): the device or the machine lacks memory"
            .to_owned();
    };
    format!(
        "RLIMIT_MEMLOCK is {} KiB; raise it by `ulimit -l unlimited`, `LimitMEMLOCK=infinity` in the systemd \
         unit, or `docker run --ulimit memlock=-1`",
        limit / 1024
    )
}

/// A failed registration, with what would help.
pub(crate) fn register_failed(
    operation: &'static str,
    addr: *mut u8,
    len: usize,
    cause: io::Error,
) -> Error {
    let invalid = |text: String| Error::InvalidArgument(Failure::new(operation, text).of(NAME));
    match ffi::code(&cause) {
        Some(libc::EFAULT) => {
            invalid(format!("{len} bytes at {addr:p} are not all mapped, or not all writable"))
        }
        Some(libc::EINVAL) => invalid(format!("{len} bytes at {addr:p} cannot be registered")),
        _ => failed(operation, &format!("{len} bytes"), cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_to_lock_is_warned_of() {
        assert_eq!(memlock_warning(None, false), None);
        assert_eq!(memlock_warning(Some(64 << 10), true), None);
        assert_eq!(memlock_warning(Some(1 << 30), false), None);
        let warning = memlock_warning(Some(8 << 20), false).unwrap();
        for words in
            ["8192 KiB", "ulimit -l unlimited", "LimitMEMLOCK=infinity", "--ulimit memlock=-1"]
        {
            assert!(warning.contains(words), "{warning}");
        }
        assert!(memlock_remedy().contains("RLIMIT_MEMLOCK"));
    }

    #[test]
    fn lack_of_room_comes_with_a_remedy() {
        let cause = |code| ffi::errno("ibv_create_cq", code).unwrap_err();
        let error = failed("make completion queue", "the queue", cause(libc::ENOMEM));
        assert!(matches!(error, Error::NoMemory(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("the queue; ") && text.contains("RLIMIT_MEMLOCK"), "{text}");
        let error = failed("make completion queue", "the queue", cause(libc::EINVAL));
        assert!(!error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
    }
}
