//! Accesses that begin anew when their thread was stopped meanwhile, and find out then whether they still may.
//!
//! The kernel takes a thread that it has stopped, for others or for a signal, out of a *restartable sequence* when the thread
//! goes on (`linux/rseq.h`; glibc registers each thread, from 2.35 on). So an access that looks at a window and copies in one
//! sequence changes nothing after the window has closed, unless its thread was running all the time: and then it is over soon.
//! [`visit_processors`] shows that no thread was.
//!
//! Where there are no such sequences, accesses are made as any others.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fabric_core::AtomicCall;
use rustix::thread::CpuSet;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(loom, miri))))]
mod x86_64;

mod condition;
mod plain;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(loom, miri)))))]
use plain as arch;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(loom, miri))))]
use x86_64 as arch;

pub(crate) use condition::Condition;

/// Whether accesses of this process begin anew.
pub(crate) fn is_there() -> bool {
    arch::is_there()
}

/// Copies bytes, if the condition holds. False: it does not, and only a part was copied, or none.
///
/// # Safety
/// As [`memory::load`](fabric_core::memory::load) of the one and [`memory::store`](fabric_core::memory::store) of the other.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, only: Condition<'_>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { arch::copy(dst, src, len, only) }
}

/// As [`memory::atomic`](fabric_core::memory::atomic), if the condition holds.
///
/// # Safety
/// As there.
#[inline]
pub(crate) unsafe fn atomic(at: *mut u8, call: &AtomicCall, only: Condition<'_>) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { arch::atomic(at, call, only) }
}

/// Runs on each processor once: a thread that ran there before was stopped. An error: not on all of them, or not soon.
pub(crate) fn visit_processors(within: Duration) -> io::Result<()> {
    let (done, end) = mpsc::sync_channel(1);
    // Its own thread: one that others keep from a processor waits there.
    let visitor = thread::Builder::new().name("fabric-visit".to_owned());
    visitor.spawn(move || {
        let _ = done.send(visit_all());
    })?;
    end.recv_timeout(within).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn visit_all() -> io::Result<()> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    for processor in processors(&online)? {
        let mut only = CpuSet::new();
        if processor >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::Unsupported.into());
        }
        only.set(processor);
        rustix::thread::sched_setaffinity(None, &only)?;
    }
    Ok(())
}

/// Reads a list such as `0-3,8` (sysfs).
fn processors(list: &str) -> io::Result<Vec<usize>> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let mut all = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().map_err(|_| bad());
        let (first, last) = (number(first)?, number(last)?);
        all.extend(first..=last);
    }
    Ok(all)
}

#[cfg(all(test, not(loom)))]
mod tests;
