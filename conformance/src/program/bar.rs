//! How far the run is, on stderr: a progress bar on a terminal; elsewhere failures as they come, and a line a minute, which
//! names what takes long.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::prelude::Case;
use crate::{CaseResult, Progress, Status};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::{bad, faint};

/// How often a log gets a line of a long run.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Shows how far the run is, and each failure as it comes.
pub(super) struct Bar {
    bar: ProgressBar,
    seed: u64,
    failed: usize,
    start: Instant,
    lines: u32,
    /// What runs, and since when.
    running: Vec<(String, Instant)>,
}

impl Bar {
    pub(super) fn new(seed: u64) -> Self {
        // Hidden unless stderr is a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Bar { bar, seed, failed: 0, start: Instant::now(), lines: 0, running: Vec::new() }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn print(&self, line: &str) {
        // A closed stderr is no failure of the run.
        self.bar.suspend(|| _ = writeln!(anstream::stderr(), "{line}"));
    }

    /// For a log, a line a minute.
    fn print_how_far(&mut self) {
        let elapsed = self.start.elapsed();
        if !self.bar.is_hidden() || elapsed < LINE_EVERY * (self.lines + 1) {
            return;
        }
        self.lines = (elapsed.as_secs() / LINE_EVERY.as_secs()) as u32;
        let (at, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let (minutes, failed) = (self.lines, self.failed);
        let long = self.running.iter().filter(|(_, since)| since.elapsed() >= LINE_EVERY);
        let long: Vec<&str> = long.map(|(name, _)| name.as_str()).collect();
        let (still, long) = (if long.is_empty() { "" } else { "; still " }, long.join(", "));
        self.print(&format!(
            "after {minutes} min: {at} of {all} cases, {failed} failed{still}{long}"
        ));
    }
}

impl Progress for Bar {
    fn begin(&mut self, total: usize) {
        self.bar.set_length(total as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
            self.bar.set_style(style);
        }
        if !self.bar.is_hidden() {
            self.print(&faint(&format!("seed {}", self.seed)));
        }
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn started(&mut self, provider: &str, case: &Case) {
        let name = format!("{provider} {}", case.id());
        self.bar.set_message(name.clone());
        self.running.push((name, Instant::now()));
    }

    fn ended(&mut self, result: &CaseResult) {
        self.bar.inc(1);
        if result.status == Status::Fail {
            self.failed += 1;
            let failure = bad(&format!("fail {} {}", result.provider, result.id));
            // A log that ends early has no report.
            let detail = if self.bar.is_hidden() { &*result.detail } else { "" };
            self.print(format!("{failure} {detail}").trim_end());
        }
        let ended = format!("{} {}", result.provider, result.id);
        self.running.retain(|(name, _)| *name != ended);
        self.print_how_far();
    }

    fn waiting(&mut self) {
        self.print_how_far();
    }
}
