//! The live line, on terminals only: what is under way, how far it is and how fast.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::plan::{Limit, Plan};

/// Often enough for the eye, and rare enough not to be measured.
const TICK: Duration = Duration::from_millis(200);

pub(crate) struct Live {
    bar: ProgressBar,
    limit: Limit,
    /// Operations of all endpoints, where they are counted.
    total: u64,
}

impl Live {
    /// None if it would not be seen.
    pub(crate) fn new(plan: &Plan) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let total = match plan.limit {
            Limit::Iterations(count) => count.saturating_mul(plan.endpoints as u64),
            Limit::Seconds(seconds) => (seconds * 1000.0) as u64,
        };
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("{prefix} [{bar:24}] {msg}").ok()?;
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(format!("{} {} {} B", plan.op.name(), plan.mode.name(), plan.size));
        Some(Live { bar, limit: plan.limit, total })
    }

    /// Shows how `done` grows, until it is over.
    pub(crate) fn follow(&self, done: &AtomicU64, over: impl Fn() -> bool) {
        let mut begin = None;
        let (mut last, mut at_last) = (Instant::now(), 0);
        while !over() {
            std::thread::sleep(TICK);
            let (now, count) = (Instant::now(), done.load(Ordering::Relaxed));
            let rate = (count - at_last) as f64 / (now - last).as_secs_f64();
            (last, at_last) = (now, count);
            if count == 0 {
                self.bar.set_message("warming up");
                continue;
            }
            let begin = *begin.get_or_insert(now);
            self.bar.set_position(match self.limit {
                Limit::Iterations(_) => count.min(self.total),
                Limit::Seconds(_) => ((now - begin).as_millis() as u64).min(self.total),
            });
            self.bar.set_message(format!("{count} operations, {rate:.0}/s"));
        }
        self.bar.finish_and_clear();
    }
}
