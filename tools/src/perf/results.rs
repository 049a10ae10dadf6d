//! Results, for people and for programs. Fields of the JSON may be added; those that are there keep their meaning.

use serde::Serialize;

use super::plan::{Mode, Plan};
use super::tally::Tally;
use crate::table::{self, Cell};

/// Of these the JSON has the latency, for plots.
const PERCENTILES: [f64; 14] =
    [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];

/// What one plan came to.
pub(crate) struct Measured {
    plan: Plan,
    provider: String,
    device: String,
    pub(crate) debug_build: bool,
    pub(crate) tally: Option<Tally>,
    pub(crate) idle_bytes: Option<f64>,
    pub(crate) wakeups: Option<u64>,
    pub(crate) idle_cpu_s: Option<f64>,
}

#[derive(Serialize)]
pub(crate) struct Line {
    op: &'static str,
    mode: &'static str,
    provider: String,
    device: String,
    size: usize,
    depth: usize,
    batch: usize,
    endpoints: usize,
    threads: usize,
    idle: usize,
    signal: usize,
    inject: bool,
    /// One of the two ends is a debug build.
    debug_build: bool,
    wait: &'static str,
    target: &'static str,
    verified: bool,
    /// Operations that were measured, of all endpoints.
    iterations: u64,
    seconds: f64,
    /// Latency of one operation: half a round trip of send, write and write-imm, a whole one of the others. In
    /// bandwidth and rate: the time of one operation on the average of 64 in a row.
    min_us: f64,
    mean_us: f64,
    median_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// Pairs of a percentile and its latency.
    percentiles_us: Vec<(f64, f64)>,
    bytes_per_s: f64,
    rate_per_s: f64,
    /// What an idle connection takes of the memory of a process, at the end where it takes more.
    idle_bytes: Option<f64>,
    /// With mode idle: how often the kernel let a thread run, at both ends together, in `seconds`.
    wakeups: Option<u64>,
    idle_cpu_s: Option<f64>,
}

impl Measured {
    pub(crate) fn new(plan: &Plan, provider: &str, device: &str) -> Self {
        Measured {
            plan: plan.clone(),
            provider: provider.to_owned(),
            device: device.to_owned(),
            debug_build: cfg!(debug_assertions),
            tally: None,
            idle_bytes: None,
            wakeups: None,
            idle_cpu_s: None,
        }
    }

    pub(crate) fn line(&self) -> Line {
        let Measured { plan, tally, .. } = self;
        let half = plan.mode == Mode::Latency && plan.op.is_one_way();
        let us = |ns: f64| if half { ns / 2000.0 } else { ns / 1000.0 };
        let of = |f: &dyn Fn(&Tally) -> f64| tally.as_ref().map_or(0.0, f);
        let at = |percent: f64| of(&|tally| us(tally.times.value_at_percentile(percent) as f64));
        let seconds = match plan.limit {
            super::plan::Limit::Seconds(seconds) if tally.is_none() => seconds,
            _ => of(&Tally::seconds),
        };
        let rate = of(&|tally| tally.operations as f64 / tally.seconds());
        Line {
            op: plan.op.name(),
            mode: plan.mode.name(),
            provider: self.provider.clone(),
            device: self.device.clone(),
            size: plan.size,
            depth: plan.depth,
            batch: plan.batch,
            endpoints: plan.endpoints,
            threads: plan.threads,
            idle: plan.idle,
            signal: plan.signal,
            inject: plan.inject,
            debug_build: self.debug_build,
            wait: plan.wait.name(),
            target: plan.target.name(),
            verified: plan.verify,
            iterations: tally.as_ref().map_or(0, |tally| tally.operations),
            seconds,
            min_us: of(&|tally| us(tally.times.min() as f64)),
            mean_us: of(&|tally| us(tally.times.mean())),
            median_us: at(50.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            max_us: of(&|tally| us(tally.times.max() as f64)),
            percentiles_us: PERCENTILES.map(|percent| (percent, at(percent))).into(),
            bytes_per_s: rate * plan.size as f64,
            rate_per_s: rate,
            idle_bytes: self.idle_bytes,
            wakeups: self.wakeups,
            idle_cpu_s: self.idle_cpu_s,
        }
    }
}

/// The results as JSON: an array.
pub(crate) fn json(lines: &[Line]) -> String {
    // Plain values always serialize.
    serde_json::to_string_pretty(lines).unwrap_or_default() + "\n"
}

/// The results as a table, under a line that says what they are of.
pub(crate) fn text(lines: &[Line]) -> String {
    let mut out = String::new();
    let Some(first) = lines.first() else { return out };
    let title = Cell::styled(title(first), crate::report::HEAD);
    table::rows(&mut out, 0, usize::MAX, &[vec![title]]);
    if first.debug_build {
        let text = "A debug build: only the figures of `--release` builds show how fast it is.";
        let warning = Cell::styled(text.to_owned(), crate::report::ERROR);
        table::rows(&mut out, 0, usize::MAX, &[vec![warning]]);
    }
    if first.mode == "idle" {
        return out + &idle_text(first);
    }
    let names: &[&str] = match first.mode {
        "latency" => &["BYTES", "OPERATIONS", "MEDIAN us", "99 %", "99.9 %", "MAX", "MEAN"],
        _ => &["BYTES", "OPERATIONS", "GB/s", "M/s", "us EACH", "99 %"],
    };
    let mut rows: Vec<Vec<String>> = vec![names.iter().map(ToString::to_string).collect()];
    for line in lines {
        let mut row = vec![line.size.to_string(), line.iterations.to_string()];
        let us = |us: f64| format!("{us:.2}");
        row.extend(match first.mode {
            "latency" => [line.median_us, line.p99_us, line.p999_us, line.max_us, line.mean_us]
                .map(us)
                .to_vec(),
            _ => vec![
                format!("{:.3}", line.bytes_per_s / 1e9),
                format!("{:.4}", line.rate_per_s / 1e6),
                us(line.seconds * 1e6 / line.iterations.max(1) as f64),
                us(line.p99_us),
            ],
        });
        rows.push(row);
    }
    table::rows(&mut out, 0, usize::MAX, &right_aligned(&rows));
    out
}

/// What the figures below are of.
fn title(line: &Line) -> String {
    let Line { op, mode, provider, device, depth, batch, endpoints, threads, idle, .. } = line;
    let colon = if device.is_empty() { "" } else { ":" };
    let at = format!("{provider}{colon}{device}");
    if *mode == "idle" {
        return format!("idle, {at}: {}", count(*idle, "connection"));
    }
    format!(
        "{op} {mode}, {at}: depth {depth}, batch {batch}, {}, {}, {idle} idle, target {}{}",
        count(*endpoints, "endpoint"),
        count(*threads, "thread"),
        if line.target == "poll" { "polling" } else { "asleep" },
        if line.verified { ", data verified" } else { "" }
    )
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn idle_text(line: &Line) -> String {
    format!(
        "{:.0} bytes each; in {} s both ends woke up {} times and worked {:.6} s\n",
        line.idle_bytes.unwrap_or_default(),
        line.seconds,
        line.wakeups.unwrap_or_default(),
        line.idle_cpu_s.unwrap_or_default()
    )
}

fn right_aligned(rows: &[Vec<String>]) -> Vec<Vec<Cell>> {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let cell = |(column, text): (usize, &String)| format!("{text:>0$}", width(column)).into();
    rows.iter().map(|row| row.iter().enumerate().map(cell).collect()).collect()
}
