//! A progress bar on stderr, if that is a terminal.

use conformance::{Case, CaseResult, Progress, Status};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::Style;

/// Shows how far the run is, and each failure as it comes.
pub(super) struct Bar {
    bar: ProgressBar,
    style: Style,
    seed: u64,
}

impl Bar {
    pub(super) fn new(seed: u64) -> Self {
        // Hidden unless stderr is a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Bar { bar, style: Style::of(&std::io::stderr()), seed }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn begin(&mut self, total: usize) {
        self.bar.set_length(total as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
            self.bar.set_style(style);
        }
        self.bar.println(self.style.faint(&format!("seed {}", self.seed)));
        self.bar.enable_steady_tick(std::time::Duration::from_millis(200));
    }

    fn started(&mut self, provider: &str, case: &Case) {
        self.bar.set_message(format!("{provider} {}", case.id()));
    }

    fn ended(&mut self, result: &CaseResult) {
        if result.status == Status::Fail {
            let line = format!("fail {} {}", result.provider, result.id);
            self.bar.println(self.style.bad(&line));
        }
        self.bar.inc(1);
    }
}
