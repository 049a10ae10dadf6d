//! What the process holds; for test programs that declare it.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::fs;
use std::time::{Duration, Instant};

/// Descriptors, threads, and locked memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    descriptors: usize,
    threads: usize,
    locked: String,
    pinned: String,
}

impl Held {
    /// What it holds now.
    pub(crate) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_default().trim().to_owned()
        };
        Held {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: fs::read_dir("/proc/self/task").unwrap().count(),
            locked: line("VmLck:"),
            pinned: line("VmPin:"),
        }
    }

    /// What it holds once that has stayed the same for a second, or after a minute.
    pub(crate) fn settled() -> Self {
        let begun = Instant::now();
        let (mut held, mut since) = (Held::now(), begun);
        while since.elapsed() < Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(20));
            let now = Held::now();
            if now != held {
                (held, since) = (now, Instant::now());
            }
        }
        held
    }

    /// Waits until it holds this again: the kernel lets go of some things a little later.
    pub(crate) fn is_all(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while Held::now() != *self && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(Held::now(), *self, "now and before; descriptors: {:?}", descriptors());
    }
}

fn descriptors() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries.filter_map(|e| Some(fs::read_link(e.path()).ok()?.display().to_string())).collect()
}
