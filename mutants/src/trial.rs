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
    provider: &'a str,
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
        provider: &str,
        killers: Vec<String>,
        unexpected: bool,
        start: Instant,
    ) -> Self {
        Verdict {
            name: mutant.name.to_owned(),
            about: mutant.about.to_owned(),
            provider: provider.to_owned(),
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
        Verdict::new(self.mutant, self.provider, killers, unexpected, start)
    }

    /// What of these cases, or of all, fails while the mutant is enabled.
    fn failures(&self, cases: &[&str], limit: Duration) -> Vec<String> {
        match suite(self.program, self.number, (self.mutant.runs, self.provider), cases, limit) {
            Ok(ran) => ran.failed.into_iter().collect(),
            Err(end) => vec![end],
        }
    }
}

/// Tries mutants, several at a time, after a look at the program with none enabled: on their provider, or on another one.
/// Gives those that were left out, as no case for them can run there.
pub(crate) fn try_all(
    program: &Path,
    mutants: &[(usize, &'static Mutant)],
    on: Option<&str>,
    jobs: usize,
    report: impl FnMut(Verdict) + Send,
) -> Result<Vec<(usize, &'static Mutant)>, String> {
    let Some((_, first)) = mutants.first() else { return Ok(Vec::new()) };
    let at = on.unwrap_or(first.runs.provider());
    let unsupported = check_healthy(program, mutants, (first.runs, at))?;
    let has_case = |mutant: &Mutant| mutant.cases.iter().any(|case| !unsupported.contains(*case));
    let (mutants, left): (Vec<_>, Vec<_>) = mutants.iter().partition(|m| has_case(m.1));
    let attempt = |number, mutant: &'static Mutant| {
        let provider = on.unwrap_or(mutant.runs.provider());
        Trial { program, number, mutant, provider }.run()
    };
    each(&mutants, jobs, attempt, report);
    Ok(left)
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

/// With no mutant enabled, the cases pass that are to kill one, but for those that the provider does not support: these.
fn check_healthy(
    program: &Path,
    mutants: &[(usize, &'static Mutant)],
    place: (Runs, &str),
) -> Result<BTreeSet<String>, String> {
    let cases: BTreeSet<_> = mutants.iter().flat_map(|m| m.1.cases).copied().collect();
    let cases: Vec<_> = cases.into_iter().collect();
    let Ran { failed, unsupported } = suite(program, 0, place, &cases, SUITE_LIMIT)?;
    if failed.is_empty() {
        return Ok(unsupported);
    }
    let failed: Vec<_> = failed.into_iter().collect();
    Err(format!("with no mutant enabled these fail: {}", failed.join(", ")))
}

/// Cases that ran, and did not pass.
struct Ran {
    failed: BTreeSet<String>,
    unsupported: BTreeSet<String>,
}

/// Runs cases; the error is a program that came to no report.
fn suite(
    program: &Path,
    mutant: usize,
    (runs, provider): (Runs, &str),
    cases: &[&str],
    limit: Duration,
) -> Result<Ran, String> {
    let mut command = Command::new(program);
    match runs {
        Runs::TcpLink => command = link::between_namespaces(program),
        Runs::Tcp | Runs::Shm | Runs::Verbs | Runs::Tests => {
            _ = command.args(["--provider", provider])
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
    let of = |status| {
        let cases = report.cases.iter().filter(|case| case.status == status);
        cases.map(|case| case.id.clone()).collect()
    };
    Ok(Ran { failed: of(Status::Fail), unsupported: of(Status::Unsupported) })
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
