//! What this process costs, as the kernel tells it. Zero where it tells nothing.

use std::fs;

/// Bytes of memory that are in use.
pub(crate) fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// How often the kernel let a thread of this process run, all threads together.
pub(crate) fn wakeups() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    let switches = |status: &str| -> u64 {
        let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
    };
    let status = tasks.flatten().map(|task| fs::read_to_string(task.path().join("status")));
    status.flatten().map(|status| switches(&status)).sum()
}

/// Seconds of processor time, the kernel's on its behalf included.
pub(crate) fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        assert!(resident_bytes() > 100_000);
        let before = wakeups();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(wakeups() > before);
        assert!(cpu_s() > 0.0);
    }
}
