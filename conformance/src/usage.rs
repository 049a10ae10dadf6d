//! What this process holds of the system, to notice leaks.

use std::fs;
use std::io;

use crate::sys::page_size;

/// A snapshot of what this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Open descriptors.
    pub(crate) descriptors: usize,
    /// Threads.
    pub(crate) threads: usize,
    /// Bytes of memory that are resident.
    pub(crate) resident_bytes: usize,
}

impl Usage {
    /// What it holds now; see proc(5).
    pub(crate) fn now() -> io::Result<Self> {
        let statm = fs::read_to_string("/proc/self/statm")?;
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        let pages =
            pages.ok_or_else(|| io::Error::other(format!("/proc/self/statm says {statm:?}")))?;
        Ok(Usage {
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            threads: fs::read_dir("/proc/self/task")?.count(),
            resident_bytes: pages * page_size(),
        })
    }
}
