//! Running cases.
//!
//! Each case runs on a thread of its own. The runner waits for it as long as its limit allows; then it asks for a
//! dump, abandons the thread and goes on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Capabilities, Catalog, Choice, ProviderSpec};

use crate::case::{Case, Turn};
use crate::check::{Failed, Outcome};
use crate::choose::anything;
use crate::environment::Environment;
use crate::options::{Options, RunError, find_targets, select};
use crate::report::{CaseResult, Counts, FORMAT, PeerEntry, Report, Summary};
use crate::rig::Rig;
use crate::setup::Setup;
use crate::target::Target;
use crate::usage::Usage;

/// How long domains and endpoints may take to close when a case has ended, before scaling.
const CLOSING: Duration = Duration::from_secs(20);
/// How often [`Progress::waiting`] is called.
const QUIET: Duration = Duration::from_secs(5);

fn setup(target: &Target, id: &str, options: &Options, start: Option<&Usage>) -> Setup {
    Setup {
        target: target.clone(),
        watch: Arc::default(),
        recorder: Arc::default(),
        id: id.to_owned(),
        seed: options.seed,
        factor: options.factor(),
        soak: options.soak,
        start: start.cloned(),
        connect_timeout: options.connect_timeout,
        lossy: options.lossy,
        program: options.program.clone(),
        link: options.link.clone(),
    }
}

/// Follows a run.
pub trait Progress {
    /// The run begins: so many cases on all providers together.
    fn begin(&mut self, _total: usize) {}
    /// A case begins.
    fn started(&mut self, _provider: &str, _case: &Case) {}
    /// A case has ended.
    fn ended(&mut self, _result: &CaseResult) {}
    /// For a while nothing has begun or ended.
    fn waiting(&mut self) {}
}

/// Follows nothing.
impl Progress for () {}

/// Runs cases on the providers of `catalog`.
///
/// # Errors
/// If the request itself is wrong. What a case or a provider does is never an error here: the report has it.
pub fn run(
    catalog: &Arc<Catalog>,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Report, RunError> {
    let selected = select(&options.filters, options.soak)?;
    let (providers, targets) = find_targets(catalog, options)?;
    let environment = Environment::now();
    let start = Instant::now();
    // Before anything else keeps the processors busy.
    let factor = options.factor();
    let options = Options { factor: Some(factor), ..options.clone() };
    progress.begin(targets.len() * selected.len());
    let starts = look_at_start(&targets, &selected, &options);
    let work: Vec<_> = std::iter::zip(&targets, &starts)
        .flat_map(|(target, start)| {
            selected.iter().map(move |case| (target, *case, start.as_ref()))
        })
        .collect();
    let cases = run_all(&work, &options, progress);
    let summary = Summary {
        counts: Counts::of(&cases),
        unavailable: providers.iter().filter(|p| p.unavailable.is_some()).count(),
        strict: options.strict,
        soak: options.soak,
        filter: options.filters.clone(),
        seed: options.seed,
        seconds: (start.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        factor,
    };
    let program = env!("CARGO_PKG_VERSION").to_owned();
    let peer = options.peer.as_deref().map(PeerEntry::of);
    Ok(Report { format: FORMAT, program, environment, peer, providers, cases, summary })
}

/// What the process holds before the first case, seen from within a rig on each target; for the cases that run last.
fn look_at_start(
    targets: &[Target],
    selected: &[&'static Case],
    options: &Options,
) -> Vec<Option<Usage>> {
    if !selected.iter().any(|case| case.turn == Turn::Last) {
        return vec![None; targets.len()];
    }
    let look = |target: &Target| {
        let seen = Arc::new(OnceLock::new());
        let found = seen.clone();
        let outcome = watched(&setup(target, "start", options, None), CLOSING, move |_| {
            // It is set once.
            let _ = found.set(Usage::at_rest()?);
            Ok(())
        });
        outcome.ok().and_then(|()| seen.get().cloned())
    };
    // What libraries open once and keep is there afterwards, those of devices that are not under test, too.
    for target in targets {
        let connects = target.info().capabilities.contains(Capabilities::SEND);
        // A provider that fails here fails cases, too.
        let _ = watched(&setup(target, "warm-up", options, None), CLOSING, move |rig| {
            let catalog = rig.target().catalog();
            for found in catalog.discover_with(&Choice::Auto, &anything())? {
                let named = ProviderSpec {
                    provider: found.provider.to_owned(),
                    device: Some(found.device),
                };
                // One that cannot be opened keeps nothing.
                let _ = catalog.open_with(&Choice::Include(vec![named]), &anything());
            }
            if connects {
                let (a, b) = rig.pair()?;
                a.settle(&b)?;
            }
            Ok(())
        });
    }
    targets.iter().map(look).collect()
}

fn run_all(
    work: &[(&Target, &'static Case, Option<&Usage>)],
    options: &Options,
    progress: &mut dyn Progress,
) -> Vec<CaseResult> {
    enum News {
        Started(usize),
        Ended(usize, CaseResult),
        Waiting,
    }
    let began = Instant::now();
    let run = |index: usize| {
        let (target, case, start) = work[index];
        match options.budget.filter(|budget| began.elapsed() >= *budget) {
            Some(budget) => not_run(target, case, options, &[over(budget)]),
            None => run_one(target, case, options, start),
        }
    };
    let turn = |&index: &usize| work[index].1.turn;
    let (beside, mut alone): (Vec<_>, Vec<_>) =
        (0..work.len()).partition(|index| turn(index) == Turn::Beside);
    alone.sort_by_key(turn);
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<CaseResult>> = work.iter().map(|_| None).collect();
    let mut take_news = |news| match news {
        News::Started(index) => {
            let (target, case, _) = work[index];
            progress.started(target.info().provider, case);
        }
        News::Ended(index, result) => {
            progress.ended(&result);
            results[index] = Some(result);
        }
        News::Waiting => progress.waiting(),
    };
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..options.jobs.clamp(1, beside.len().max(1)) {
            let (send, next, beside, run) = (send.clone(), &next, &beside, &run);
            scope.spawn(move || {
                while let Some(&index) = beside.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver lives until all senders are gone.
                    let _ = send.send(News::Started(index));
                    let _ = send.send(News::Ended(index, run(index)));
                }
            });
        }
        drop(send);
        loop {
            match receive.recv_timeout(QUIET) {
                Ok(news) => take_news(news),
                Err(RecvTimeoutError::Timeout) => take_news(News::Waiting),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    for index in alone {
        take_news(News::Started(index));
        take_news(News::Ended(index, run(index)));
    }
    results.into_iter().flatten().collect()
}

/// Runs one case on one device. Cases that measure time wait until they are alone, in this process.
pub fn run_case(target: &Target, case: &'static Case, options: &Options) -> CaseResult {
    run_one(target, case, options, None)
}

fn run_one(
    target: &Target,
    case: &'static Case,
    options: &Options,
    start: Option<&Usage>,
) -> CaseResult {
    static GATE: RwLock<()> = RwLock::new(());
    let result = |time| CaseResult::new(case, target.info().provider, time);
    if target.peer().is_some() && !case.local_only.is_empty() {
        let why = format!("both ends in one process: {}", case.local_only);
        return result(Duration::ZERO).unsupported(&[why]);
    }
    let mut missing = case.needs.missing(target.common(), options.forges);
    missing.extend(options.lacking(&case.needs));
    if !missing.is_empty() {
        return not_run(target, case, options, &missing);
    }
    let (_alone, _beside) = if case.turn != Turn::Beside {
        (Some(GATE.write().unwrap_or_else(PoisonError::into_inner)), None)
    } else {
        (None, Some(GATE.read().unwrap_or_else(PoisonError::into_inner)))
    };
    let setup = setup(target, &case.id(), options, start);
    let began = Instant::now();
    let outcome = watched(&setup, case.limit, case.run);
    let mut result = result(began.elapsed());
    result.transcript = setup.recorder.transcript();
    match outcome {
        Ok(()) => result,
        Err(failure) => result.failed(failure),
    }
}

/// The result of a case for which something is missing.
fn not_run(target: &Target, case: &Case, options: &Options, missing: &[String]) -> CaseResult {
    let result = CaseResult::new(case, target.info().provider, Duration::ZERO);
    if !options.strict {
        return result.unsupported(missing);
    }
    result.failed(Failed::nowhere("everything that it needs", missing.join("; ")))
}

fn over(budget: Duration) -> String {
    format!("time: the run's {budget:?} were over")
}

/// What a case's thread reports.
enum ThreadReport {
    Ended(Outcome),
    Closed,
}

/// Runs `body` on a rig, on a thread of its own that is left behind if it takes longer than `limit`.
fn watched(
    setup: &Setup,
    limit: Duration,
    body: impl FnOnce(&Rig) -> Outcome + Send + 'static,
) -> Outcome {
    let (factor, watch) = (setup.factor, &setup.watch);
    let (send, receive) = mpsc::channel();
    let theirs = setup.clone();
    let thread = thread::Builder::new().name(setup.id.clone()).spawn(move || {
        let watch = theirs.watch.clone();
        // Sending fails when the runner has given up; then its outcome is of no use.
        let _ = send.send(ThreadReport::Ended(guarded(theirs, body)));
        watch.clear();
        let _ = send.send(ThreadReport::Closed);
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => return Err(Failed::nowhere("a thread for the case", error.to_string())),
    };
    let limit = limit.mul_f64(factor);
    let outcome = match receive.recv_timeout(limit) {
        Ok(ThreadReport::Ended(outcome)) => outcome,
        Ok(ThreadReport::Closed) | Err(RecvTimeoutError::Disconnected) => {
            return Err(Failed::nowhere("an outcome of the case", "its thread ended without"));
        }
        Err(RecvTimeoutError::Timeout) => {
            let expected = format!("an end within {limit:?}");
            return Err(Failed::nowhere(expected, "the case hangs").with_dump(watch.dump()));
        }
    };
    let closing = CLOSING.mul_f64(factor);
    match receive.recv_timeout(closing) {
        Ok(_) => {
            // It has sent its last word; joined so that leak checks of other cases do not see it.
            let _ = thread.join();
            outcome
        }
        Err(_) if outcome.is_err() => outcome,
        Err(_) => {
            let expected = format!("its domains to close within {closing:?}");
            Err(Failed::nowhere(expected, "closing hangs").with_dump(watch.dump()))
        }
    }
}

/// Runs a case; a panic is a failure like any other.
fn guarded(setup: Setup, body: impl FnOnce(&Rig) -> Outcome) -> Outcome {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let watch = setup.watch.clone();
        let rig = Rig::new(setup)?;
        body(&rig)?;
        watch.intact()
    }));
    caught.unwrap_or_else(|panic| {
        Err(Failed::nowhere("no panic", format!("a panic: {}", message(&*panic))))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "without a message"
    }
}
