//! Mutants against the suite.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use conformance::{Report, Status};

use crate::link;
use crate::mutant::{Mutant, Runs};
use crate::plant::VARIABLE;

/// A suite that takes longer hangs, which is a way of noticing.
const CASES_LIMIT: Duration = Duration::from_secs(300);
const SUITE_LIMIT: Duration = Duration::from_secs(1500);

/// A mutant, and what it is planted in.
struct Trial<'a> {
    program: &'a Path,
    number: usize,
    mutant: &'static Mutant,
}

/// How the trial of a mutant ended.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) provider: String,
    /// What killed it: cases that failed, or what became of the program.
    pub(crate) killers: Vec<String>,
    /// Whether its own cases saw nothing, so that the whole suite ran.
    pub(crate) unexpected: bool,
    pub(crate) seconds: f64,
}

impl Verdict {
    pub(crate) fn new(
        mutant: &Mutant,
        killers: Vec<String>,
        unexpected: bool,
        start: Instant,
    ) -> Self {
        Verdict {
            name: mutant.name.to_owned(),
            about: mutant.about.to_owned(),
            provider: mutant.runs.provider().to_owned(),
            killers,
            unexpected,
            seconds: start.elapsed().as_secs_f64(),
        }
    }

    pub(crate) fn is_killed(&self) -> bool {
        !self.killers.is_empty()
    }
}

impl Trial<'_> {
    fn run(&self) -> Verdict {
        let start = Instant::now();
        let mut killers = self.failures(self.mutant.cases, CASES_LIMIT);
        let unexpected = killers.is_empty();
        if unexpected {
            killers = self.failures(&[], SUITE_LIMIT);
        }
        Verdict::new(self.mutant, killers, unexpected, start)
    }

    /// What of these cases, or of all, fails while the mutant is enabled.
    fn failures(&self, cases: &[&str], limit: Duration) -> Vec<String> {
        match suite(self.program, self.number, self.mutant.runs, cases, limit) {
            Ok(failed) => failed.into_iter().collect(),
            Err(end) => vec![end],
        }
    }
}

/// Tries mutants, several at a time, after a look at the program with none enabled.
pub(crate) fn try_all(
    program: &Path,
    mutants: &[(usize, &'static Mutant)],
    jobs: usize,
    report: impl FnMut(Verdict) + Send,
) -> Result<(), String> {
    if mutants.is_empty() {
        return Ok(());
    }
    check_healthy(program, mutants)?;
    each(mutants, jobs, |number, mutant| Trial { program, number, mutant }.run(), report);
    Ok(())
}

/// Tries mutants, so many at a time, and reports each when its verdict is known.
pub(crate) fn each(
    mutants: &[(usize, &'static Mutant)],
    jobs: usize,
    attempt: impl Fn(usize, &'static Mutant) -> Verdict + Sync,
    report: impl FnMut(Verdict) + Send,
) {
    let (next, report) = (AtomicUsize::new(0), Mutex::new(report));
    let job = || {
        while let Some(&(number, mutant)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let verdict = attempt(number, mutant);
            if let Ok(mut report) = report.lock() {
                report(verdict);
            }
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| _ = scope.spawn(job)));
}

/// With no mutant enabled, the cases pass that are to kill one.
fn check_healthy(program: &Path, mutants: &[(usize, &'static Mutant)]) -> Result<(), String> {
    let cases: BTreeSet<_> = mutants.iter().flat_map(|m| m.1.cases).copied().collect();
    let cases: Vec<_> = cases.into_iter().collect();
    let runs = mutants.first().map_or(Runs::Tcp, |m| m.1.runs);
    let failed = suite(program, 0, runs, &cases, SUITE_LIMIT)?;
    if failed.is_empty() {
        return Ok(());
    }
    let failed: Vec<_> = failed.into_iter().collect();
    Err(format!("with no mutant enabled these fail: {}", failed.join(", ")))
}

/// Runs cases; the error is a program that came to no report.
fn suite(
    program: &Path,
    mutant: usize,
    runs: Runs,
    cases: &[&str],
    limit: Duration,
) -> Result<BTreeSet<String>, String> {
    let mut command = Command::new(program);
    match runs {
        Runs::TcpLink => command = link::between_namespaces(program),
        Runs::Tcp | Runs::Shm | Runs::Verbs | Runs::Tests => {
            _ = command.args(["--provider", runs.provider()])
        }
    }
    command
        .args(["--format", "json", "--seed", "1", "--jobs", "4"])
        .args(cases)
        .env(VARIABLE, mutant.to_string());
    let (status, text) = run(command, limit)?;
    let report: Report =
        serde_json::from_str(&text).map_err(|_| format!("(the suite crashed: {status})"))?;
    if report.cases.iter().all(|case| case.status == Status::Unsupported) {
        return Err("no case ran".to_owned());
    }
    let failed = report.cases.into_iter().filter(|case| case.status == Status::Fail);
    Ok(failed.map(|case| case.id).collect())
}

/// Runs a program to its end, and gives what it said; the error is one that came to none.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<(ExitStatus, String), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let mut stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        // What a program that dies has written is no report, which is for the caller to see.
        let _ = stdout.as_mut().map(|stdout| stdout.read_to_string(&mut text));
        text
    });
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok((status, reader.join().unwrap_or_default())),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => {
                // It fails only if it has ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("(no end within {limit:?})"));
            }
        }
    }
}
