//! What this process holds of the system, to notice leaks.

use std::fs;
use std::io;

use crate::check;
use crate::check::Outcome;
use crate::sys::{allocated_memory, give_back_memory};

/// A snapshot of what this process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// What the open descriptors are, as `ls -l /proc/self/fd` shows.
    pub(crate) descriptors: Vec<String>,
    /// Threads.
    pub(crate) threads: usize,
    /// Bytes of memory that are resident.
    pub(crate) resident_bytes: usize,
    /// Bytes that the program has from its allocator, without what that keeps for later; where the allocator does not
    /// know, those that are resident.
    pub(crate) allocated_bytes: usize,
    /// Bytes of memory that cannot be moved or paged out, those that devices may reach among them.
    pub(crate) locked_bytes: usize,
}

impl Usage {
    /// What it holds now; see proc(5).
    pub(crate) fn now() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let bytes = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            let kib =
                value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<usize>().ok());
            kib.map(|kib| kib << 10)
                .ok_or_else(|| io::Error::other(format!("/proc/self/status has no {name}")))
        };
        let resident_bytes = bytes("VmRSS:")?;
        Ok(Usage {
            descriptors: descriptors()?,
            threads: fs::read_dir("/proc/self/task")?.count(),
            resident_bytes,
            allocated_bytes: allocated_memory().unwrap_or(resident_bytes),
            locked_bytes: bytes("VmLck:")? + bytes("VmPin:")?,
        })
    }

    /// As [`now`](Usage::now), without the memory that the allocator keeps for later.
    pub(crate) fn at_rest() -> io::Result<Self> {
        give_back_memory();
        Self::now()
    }

    /// Checks that no more is held than before: not one descriptor, thread or locked byte, and less than `max_growth`
    /// bytes of `memory`. Less is no leak: a thread that was joined is to be seen for a moment longer, and another thread of
    /// the process may have ended.
    pub(crate) fn check_no_more(
        &self,
        before: &Usage,
        memory: fn(&Usage) -> usize,
        max_growth: usize,
    ) -> Outcome {
        let (had, has) = (before.descriptors.len(), self.descriptors.len());
        check!(
            has <= had,
            "at most {had} open descriptors, as before, not {has}; new are {}",
            self.new_since(before)
        );
        let pairs = [
            ("threads", before.threads, self.threads),
            ("bytes of locked memory", before.locked_bytes, self.locked_bytes),
        ];
        for (what, had, has) in pairs {
            check!(has <= had, "at most {had} {what}, as before, not {has}");
        }
        let grown = memory(self).saturating_sub(memory(before));
        check!(grown < max_growth, "less than {max_growth} bytes more in memory, not {grown}");
        Ok(())
    }

    /// The descriptors that were not there before.
    fn new_since(&self, before: &Usage) -> String {
        let new = self.descriptors.iter().filter(|one| !before.descriptors.contains(one));
        new.map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

fn descriptors() -> io::Result<Vec<String>> {
    let one = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        // That of the reading itself is gone before it can be asked.
        let target = fs::read_link(entry.path()).unwrap_or_default();
        Ok(format!("{} -> {}", entry.file_name().display(), target.display()))
    };
    fs::read_dir("/proc/self/fd")?.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_shows() {
        let before = Usage::now().unwrap();
        let (file, memory) = (fs::File::open("/proc/self/status").unwrap(), vec![1u8; 64 << 20]);
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv().is_err());
        let now = Usage::now().unwrap();
        // Tests beside this one come and go; what it holds itself is there for certain.
        let expected = |before: usize| before.saturating_sub(16 << 20) + memory.len();
        assert!(now.resident_bytes >= expected(before.resident_bytes), "{now:?}");
        assert!(now.allocated_bytes >= expected(before.allocated_bytes), "{now:?}");
        assert!(now.descriptors.len() > 3 && now.threads > 1, "{now:?}");
        drop((file, send));
        assert!(thread.join().unwrap());
    }
}
