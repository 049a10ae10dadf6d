//! What this process costs, as the kernel counts it. Zero where it does not.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

use super::control::Done;
use super::plan::{Limit, Plan};

/// Bytes of memory that are in use.
pub(crate) fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// How often the kernel took the processor from a thread of this process, because it slept or
/// because others were to run; threads that have ended count as well (getrusage(2), `ru_nvcsw` and
/// `ru_nivcsw`), so the figure never falls.
pub(crate) fn wakeups() -> u64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0 };
    (usage.voluntary_context_switches() + usage.involuntary_context_switches()) as u64
}

/// Seconds of processor time, the kernel's on its behalf included.
pub(crate) fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// What it costs to do nothing, for as long as the plan says.
pub(crate) fn idle(plan: &Plan) -> Done {
    // What connecting has left over gets done first.
    std::thread::sleep(Duration::from_millis(500));
    let (wakeups_before, cpu_before) = (wakeups(), cpu_s());
    if let Limit::Seconds(seconds) = plan.limit {
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
    let cpu_s = cpu_s() - cpu_before;
    // One of them is the end of this very sleep.
    let wakeups = (wakeups() - wakeups_before).saturating_sub(1);
    Done { wakeups, cpu_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        assert!(resident_bytes() > 100_000);
        let before = wakeups();
        let nap = || std::thread::sleep(std::time::Duration::from_millis(2));
        std::thread::spawn(nap).join().expect("a nap");
        assert!(wakeups() > before, "the naps of threads that have ended count");
        assert!(cpu_s() > 0.0);
    }
}
