//! Running cases.
//!
//! Each case runs on a thread of its own. The runner waits for it as long as its limit allows; then it asks for a
//! dump, abandons the thread and goes on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Capabilities, Catalog, Choice, Found};
use globset::{Glob, GlobSetBuilder};

use crate::calibrate;
use crate::case::{Case, Link, Needs};
use crate::cases::cases;
use crate::check::{Failed, Outcome};
use crate::environment::Environment;
use crate::linkcontrol::LinkControl;
use crate::remote::Peer;
use crate::report::{CaseResult, Counts, FORMAT, PeerEntry, ProviderEntry, Report, Summary};
use crate::rig::{Rig, Setup};
use crate::target::{Target, anything, device};
use crate::usage::Usage;

/// How long domains and endpoints may take to close when a case has ended, before scaling.
const CLOSING: Duration = Duration::from_secs(20);

/// A round trip to another host that stretches no deadline.
const NEAR: Duration = Duration::from_millis(5);
/// Nothing on this planet is farther away.
const MOST_FAR: f64 = 50.0;

/// Which providers to run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// All that this machine has.
    #[default]
    All,
    /// Those of these names.
    Named(Vec<String>),
}

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The providers, within what `FABRIC_PROVIDER` allows.
    pub wanted: Wanted,
    /// The device; by default the best of each provider.
    pub device: Option<String>,
    /// Globs over `group.name`; a case that fits one of them runs. None means all.
    pub filters: Vec<String>,
    /// The seed of everything random.
    pub seed: u64,
    /// Unsupported cases and unavailable providers are failures.
    pub strict: bool,
    /// Long cases too, and larger counts.
    pub soak: bool,
    /// Cases at a time; those that measure time run alone in any case.
    pub jobs: usize,
    /// The factor by which deadlines are stretched; measured if not given.
    pub factor: Option<f64>,
    /// The provider understands [`MISALIGN`](crate::MISALIGN).
    pub forges: bool,
    /// The other host, for a run between two.
    pub peer: Option<Arc<Peer>>,
    /// The device there; by default one with the address of the server, or else the best.
    pub peer_device: Option<String>,
    /// How long connecting may take; by default 5 s, stretched as all deadlines are. A link that loses packets needs
    /// more: each that is lost costs seconds.
    pub connect_timeout: Option<Duration>,
    /// The program `fabric-conformance`, for cases that need a second process.
    pub program: Option<PathBuf>,
    /// How the link between the two hosts is broken and mended.
    pub link: Option<LinkControl>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            wanted: Wanted::All,
            device: None,
            filters: Vec::new(),
            seed: 1,
            strict: false,
            soak: false,
            jobs: 1,
            factor: None,
            forges: false,
            peer: None,
            peer_device: None,
            connect_timeout: None,
            program: None,
            link: None,
        }
    }
}

impl Options {
    /// What a case needs that neither provider nor device can offer, and that is not there.
    pub fn lacking(&self, needs: &Needs) -> Vec<String> {
        let mut lacking = Vec::new();
        if needs.process && self.program.is_none() {
            lacking.push("a second process: the path of fabric-conformance".to_owned());
        }
        let link = self.link.as_ref().filter(|_| self.peer.is_some());
        match (needs.link, link) {
            (None, _) => {}
            (Some(Link::Cut), Some(_)) => {}
            (Some(Link::Lossy), Some(link)) if link.impair.is_some() => {}
            (Some(Link::Cut), _) => {
                lacking.push("two hosts, and --cut-link and --mend-link".to_owned());
            }
            (Some(Link::Lossy), _) => {
                lacking.push("two hosts, and --impair-link and --mend-link".to_owned());
            }
        }
        lacking
    }

    fn factor(&self) -> f64 {
        self.factor.unwrap_or_else(|| {
            let here = calibrate::factor();
            // Whoever is slower, or the way between them, sets the pace.
            self.peer.as_ref().map_or(here, |peer| {
                let way = peer.round_trip().as_secs_f64() / NEAR.as_secs_f64();
                here.max(peer.factor()).max((way.min(MOST_FAR) * 10.0).round() / 10.0)
            })
        })
    }
}

impl Setup {
    fn new(target: &Target, id: &str, options: &Options, start: Option<Usage>) -> Self {
        Setup {
            target: target.clone(),
            watch: Arc::default(),
            recorder: Arc::default(),
            id: id.to_owned(),
            seed: options.seed,
            factor: options.factor(),
            soak: options.soak,
            start,
            connect_timeout: options.connect_timeout,
            program: options.program.clone(),
            link: options.link.clone(),
        }
    }
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A filter is no glob.
    #[error("{0:?} is no pattern: {1}")]
    BadFilter(String, String),
    /// A filter that fits nothing is a mistake.
    #[error("no case fits {0:?}; `--list` shows them all{1}")]
    NoCase(String, &'static str),
    /// The request for a provider cannot be understood.
    #[error("{0}")]
    Provider(#[from] fabric::Error),
}

/// Is told how a run goes on.
pub trait Progress {
    /// The run begins: so many cases on all providers together.
    fn begin(&mut self, _total: usize) {}
    /// A case begins.
    fn started(&mut self, _provider: &str, _case: &Case) {}
    /// A case has ended.
    fn ended(&mut self, _result: &CaseResult) {}
}

/// Tells nobody.
impl Progress for () {}

/// The cases that fit the filters, each filter at least one of them; soak cases only if asked for.
///
/// # Errors
/// `BadFilter` or `NoCase`, naming the filter.
pub fn select(filters: &[String], soak: bool) -> Result<Vec<&'static Case>, RunError> {
    let mut set = GlobSetBuilder::new();
    for filter in filters {
        let bad = |error: globset::Error| RunError::BadFilter(filter.clone(), error.to_string());
        let glob = Glob::new(filter).map_err(bad)?;
        let matcher = glob.compile_matcher();
        let mut fitting = cases().filter(|case| matcher.is_match(case.id())).peekable();
        if fitting.peek().is_none() {
            return Err(RunError::NoCase(filter.clone(), ""));
        }
        if fitting.all(|case| case.soak && !soak) {
            return Err(RunError::NoCase(
                filter.clone(),
                "; those that fit run with `--soak` only",
            ));
        }
        set.add(glob);
    }
    let bad = |error: globset::Error| RunError::BadFilter(filters.join(" "), error.to_string());
    let set = set.build().map_err(bad)?;
    let wanted =
        |case: &&Case| (soak || !case.soak) && (filters.is_empty() || set.is_match(case.id()));
    Ok(cases().filter(wanted).collect())
}

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
    let work: Vec<_> = std::iter::zip(&targets, starts)
        .flat_map(|(target, start)| selected.iter().map(move |case| (target, *case, start)))
        .collect();
    let cases = run_all(&work, &options, progress);
    let summary = Summary {
        counts: Counts::of(&cases),
        unavailable: providers.iter().filter(|p| p.unavailable.is_some()).count(),
        strict: options.strict,
        soak: options.soak,
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
    if !selected.iter().any(|case| case.last) {
        return vec![None; targets.len()];
    }
    let look = |target: &Target| {
        let seen = Arc::new(OnceLock::new());
        let tell = seen.clone();
        let outcome = watched(&Setup::new(target, "start", options, None), CLOSING, move |_| {
            // It is set once.
            let _ = tell.set(Usage::at_rest()?);
            Ok(())
        });
        outcome.ok().and_then(|()| seen.get().copied())
    };
    // What libraries open once and keep is there afterwards.
    for target in targets {
        let connects = target.info().capabilities.contains(Capabilities::SEND);
        // A provider that fails here fails cases, too.
        let _ = watched(&Setup::new(target, "warm-up", options, None), CLOSING, move |rig| {
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
    work: &[(&Target, &'static Case, Option<Usage>)],
    options: &Options,
    progress: &mut dyn Progress,
) -> Vec<CaseResult> {
    enum News {
        Started(usize),
        Ended(usize, CaseResult),
    }
    let run = |index: usize| {
        let (target, case, start) = work[index];
        run_one(target, case, options, start)
    };
    let (last, usual): (Vec<_>, Vec<_>) = (0..work.len()).partition(|&index| work[index].1.last);
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<CaseResult>> = work.iter().map(|_| None).collect();
    let mut tell = |news| match news {
        News::Started(index) => {
            let (target, case, _) = work[index];
            progress.started(target.info().provider, case);
        }
        News::Ended(index, result) => {
            progress.ended(&result);
            results[index] = Some(result);
        }
    };
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..options.jobs.clamp(1, usual.len().max(1)) {
            let (send, next, usual, run) = (send.clone(), &next, &usual, &run);
            scope.spawn(move || {
                while let Some(&index) = usual.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver lives until all senders are gone.
                    let _ = send.send(News::Started(index));
                    let _ = send.send(News::Ended(index, run(index)));
                }
            });
        }
        drop(send);
        receive.into_iter().for_each(&mut tell);
    });
    for index in last {
        tell(News::Started(index));
        tell(News::Ended(index, run(index)));
    }
    results.into_iter().flatten().collect()
}

/// The providers that were asked for, and the usable ones of them.
fn find_targets(
    catalog: &Arc<Catalog>,
    options: &Options,
) -> Result<(Vec<ProviderEntry>, Vec<Target>), RunError> {
    let found = catalog.discover(&anything())?;
    let excluded = match std::env::var("FABRIC_PROVIDER").map(|text| Choice::parse(&text)) {
        Ok(Ok(Choice::Not(names))) => names,
        _ => Vec::new(),
    };
    let mut names: Vec<&str> = Vec::new();
    for name in found.iter().map(|found| found.provider) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if let Wanted::Named(wanted) = &options.wanted {
        names.clear();
        for name in wanted {
            // Says so if nobody ever heard of the name.
            catalog.discover_with(&Choice::only(name), &anything())?;
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let (mut entries, mut targets) = (Vec::new(), Vec::new());
    for name in names {
        let of_it = |found: &&Found| found.provider == name;
        let devices: Vec<Found> = found.iter().filter(of_it).cloned().collect();
        let left_out = devices.is_empty() || excluded.iter().any(|excluded| excluded == name);
        match choose(catalog, devices, options) {
            Ok(target) => {
                entries.push(ProviderEntry::tested(&target));
                targets.push(target);
            }
            Err(reason) => entries.push(ProviderEntry::unavailable(name, reason, left_out)),
        }
    }
    Ok((entries, targets))
}

/// The device to run on, and the one at the other host.
fn choose(
    catalog: &Arc<Catalog>,
    devices: Vec<Found>,
    options: &Options,
) -> Result<Target, String> {
    if devices.is_empty() {
        let value = std::env::var("FABRIC_PROVIDER").unwrap_or_default();
        return Err(format!("left out by FABRIC_PROVIDER={value}"));
    }
    let wanted = options.device.as_deref();
    let Some(peer) = &options.peer else {
        return Ok(Target::new(catalog, device(devices, wanted, None)?));
    };
    let info = device(devices, wanted, Some(peer.own_ip()))?;
    Target::new(catalog, info).with_peer(peer, options.peer_device.as_deref())
}

/// Runs one case on one device. Cases that measure time wait until they are alone, in this process.
pub fn run_case(target: &Target, case: &'static Case, options: &Options) -> CaseResult {
    run_one(target, case, options, None)
}

fn run_one(
    target: &Target,
    case: &'static Case,
    options: &Options,
    start: Option<Usage>,
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
        let result = result(Duration::ZERO);
        if options.strict {
            return result.failed(Failed::nowhere(
                "the provider to offer what it needs",
                missing.join("; "),
            ));
        }
        return result.unsupported(&missing);
    }
    let (_alone, _beside) = if case.exclusive {
        (Some(GATE.write().unwrap_or_else(PoisonError::into_inner)), None)
    } else {
        (None, Some(GATE.read().unwrap_or_else(PoisonError::into_inner)))
    };
    let setup = Setup::new(target, &case.id(), options, start);
    let began = Instant::now();
    let outcome = watched(&setup, case.limit, case.run);
    let mut result = result(began.elapsed());
    result.transcript = setup.recorder.transcript();
    match outcome {
        Ok(()) => result,
        Err(failure) => result.failed(failure),
    }
}

/// What a case's thread reports.
enum Step {
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
        // Sending fails when the runner has given up; then nobody wants to know.
        let _ = send.send(Step::Ended(guarded(theirs, body)));
        watch.clear();
        let _ = send.send(Step::Closed);
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => return Err(Failed::nowhere("a thread for the case", error.to_string())),
    };
    let limit = limit.mul_f64(factor);
    let outcome = match receive.recv_timeout(limit) {
        Ok(Step::Ended(outcome)) => outcome,
        Ok(Step::Closed) | Err(RecvTimeoutError::Disconnected) => {
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
        let rig = Rig::new(setup)?;
        body(&rig)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_must_fit() {
        let ids = |filters: &[&str]| {
            let filters: Vec<_> = filters.iter().map(|f| (*f).to_owned()).collect();
            select(&filters, false).map(|cases| cases.iter().map(|c| c.id()).collect::<Vec<_>>())
        };
        assert_eq!(ids(&["send.fifo"]).unwrap(), ["send.fifo"]);
        assert!(ids(&["rma.*", "send.fifo"]).unwrap().len() > 1);
        assert!(ids(&["rma.*"]).unwrap().iter().all(|id| id.starts_with("rma.")));
        assert!(
            matches!(ids(&["send.fifo", "nosuch.*"]), Err(RunError::NoCase(name, _)) if name == "nosuch.*")
        );
        assert!(matches!(ids(&["[a"]), Err(RunError::BadFilter(..))));
    }
}
