//! The runner, on a provider that is right or wrong as the test wants: what must pass passes, what must fail fails with a
//! reason that helps, and nothing stops the run.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod flawed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance::prelude::*;
use conformance::{
    CaseResult, Matrix, Options, Report, Status as Ended, Target, case, run, run_case,
};
use fabric::Catalog;
use flawed::{Flaw, Flawed};

/// Cases that the provider of these tests can run.
const KEPT: [&str; 3] = ["send.fifo", "rma.write_sizes", "protection.prefix_ok"];

fn catalog(flaw: Flaw) -> Arc<Catalog> {
    Arc::new(Catalog::empty().add(Flawed::new(flaw)).unwrap())
}

fn options() -> Options {
    Options { factor: Some(1.0), ..Options::default() }
}

fn result(flaw: Flaw, id: &str) -> CaseResult {
    result_of(flaw, case(id).unwrap())
}

fn result_of(flaw: Flaw, case: &'static Case) -> CaseResult {
    run_case(&Target::find(&catalog(flaw), "flawed", None).unwrap(), case, &options())
}

fn matrix(report: Report) -> Matrix {
    Matrix::merge(&[report], &[]).unwrap()
}

/// The cases that are kept, on a right provider and on one with a flaw.
fn side_by_side(flaw: Flaw) -> Matrix {
    let catalog = Catalog::empty().add(Flawed::named("right", Flaw::None)).unwrap();
    let catalog = catalog.add(Flawed::named("other", flaw)).unwrap();
    let options = Options { filters: KEPT.map(str::to_owned).into(), ..options() };
    matrix(run(&Arc::new(catalog), &options, &mut ()).unwrap())
}

/// The failure of a case that must fail.
#[track_caller]
fn failure(flaw: Flaw, id: &str) -> Failed {
    let result = result(flaw, id);
    assert_eq!(result.status, Ended::Fail, "{flaw:?} passes {id}");
    result.failure.unwrap()
}

#[test]
fn right_provider_passes() {
    for id in KEPT {
        let result = result(Flaw::None, id);
        assert_eq!(result.status, Ended::Pass, "{id}: {}", result.detail);
    }
}

#[test]
fn over_its_budget_no_case_begins() {
    let filters = KEPT.map(str::to_owned).into();
    let options = Options { filters, budget: Some(Duration::ZERO), ..options() };
    let report = run(&catalog(Flaw::None), &options, &mut ()).unwrap();
    assert_eq!(report.cases.len(), KEPT.len());
    for case in &report.cases {
        assert_eq!(case.status, Ended::Unsupported);
        assert!(case.detail.contains("time: the run's 0ns were over"), "{}", case.detail);
    }
    let strict = Options { strict: true, ..options };
    let report = run(&catalog(Flaw::None), &strict, &mut ()).unwrap();
    assert!(report.cases.iter().all(|case| case.status == Ended::Fail));
}

#[test]
fn wrong_order_is_noticed() {
    let failure = failure(Flaw::Reverses, "send.fifo");
    assert!(failure.expected().starts_with("a completion of context 0 with Ok"), "{failure}");
    let place = failure.place().unwrap().file();
    assert!(place.ends_with("cases/send/messages.rs"), "{failure}");
}

#[test]
fn byte_too_many_is_noticed() {
    let failure = failure(Flaw::Overruns, "rma.write_sizes");
    assert_eq!(failure.expected(), "intact guard bytes after 1 bytes of payload");
}

#[test]
fn carrying_on_is_noticed() {
    let failure = failure(Flaw::CarriesOn, "protection.prefix_ok");
    assert!(failure.expected().starts_with("a completion of context 6 with Canceled"), "{failure}");
}

#[test]
fn lost_refusals_are_noticed_unless_the_link_loses() {
    let lost = failure(Flaw::LosesRefusals, "protection.prefix_ok");
    assert!(lost.expected().starts_with("a completion of context 5 with RemoteAccess"), "{lost}");
    let target = Target::find(&catalog(Flaw::LosesRefusals), "flawed", None).unwrap();
    let lossy = Options { lossy: true, ..options() };
    let result = run_case(&target, case("protection.prefix_ok").unwrap(), &lossy);
    assert_eq!(result.status, Ended::Pass, "{:?}", result.failure);
}

#[test]
fn missing_completion_comes_with_a_dump() {
    fn waits(rig: &Rig) -> Outcome {
        let (a, b) = rig.pair()?;
        b.recv(Slices::none(), 1)?;
        a.send(Slices::none(), 2)?;
        a.next_within(Duration::from_millis(50))?;
        Ok(())
    }
    static WAITS: Case = Case::new(Group::Send, "waits", Needs::SEND, "", waits);
    let failure = result_of(Flaw::Forgets, &WAITS).failure.unwrap();
    assert_eq!(failure.expected(), "a completion within 50ms");
    let dump = failure.dump().unwrap();
    for part in ["last wait: ", "endpoint on domain a", "endpoint on domain b", "flaw Forgets"] {
        assert!(dump.contains(part), "no {part:?} in:\n{dump}");
    }
}

#[test]
fn hang_fails_with_a_dump_and_is_left_behind() {
    fn hangs(rig: &Rig) -> Outcome {
        let _pair = rig.pair()?;
        loop {
            thread::park();
        }
    }
    static HANGS: Case = Case::new(Group::Send, "hangs", Needs::SEND, "", hangs).limit_s(1);
    let start = Instant::now();
    let failure = result_of(Flaw::None, &HANGS).failure.unwrap();
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(failure.seen(), "the case hangs");
    assert!(failure.dump().unwrap().contains("domain b:"), "{failure}");
}

#[test]
fn panic_is_a_failure() {
    fn panics(_: &Rig) -> Outcome {
        panic!("of no use: {}", 7)
    }
    static PANICS: Case = Case::new(Group::Send, "panics", Needs::NOTHING, "", panics);
    let failure = result_of(Flaw::None, &PANICS).failure.unwrap();
    assert_eq!(failure.seen(), "a panic: of no use: 7");
}

#[test]
fn missing_capability_is_unsupported_and_named() {
    let report = |strict| -> Report {
        let filters = vec!["rma.write_sizes".to_owned(), "send.fifo".to_owned()];
        let options = Options { filters, strict, ..options() };
        run(&catalog(Flaw::SendsOnly), &options, &mut ()).unwrap()
    };
    let lenient = report(false);
    let rma = lenient.cases.iter().find(|result| result.id == "rma.write_sizes").unwrap();
    assert_eq!(rma.status, Ended::Unsupported);
    assert!(rma.detail.contains("wanted rma, offered send"), "{}", rma.detail);
    assert_eq!((lenient.summary.counts.pass, lenient.summary.counts.unsupported), (1, 1));
    assert_eq!(matrix(lenient).exit_code(), 0);
    let strict = report(true);
    assert_eq!((strict.summary.counts.pass, strict.summary.counts.fail), (1, 1));
    assert_eq!(matrix(strict).exit_code(), 1);
}

#[test]
fn run_of_nothing_is_no_success() {
    let options = Options { filters: vec!["send.fifo".to_owned()], ..options() };
    let report = run(&Arc::new(Catalog::empty()), &options, &mut ()).unwrap();
    assert!(report.providers.iter().all(|provider| provider.unavailable.is_some()));
    assert_eq!(matrix(report).exit_code(), 2);
}

#[test]
fn equal_providers_have_equal_transcripts() {
    let matrix = side_by_side(Flaw::None);
    let summary = &matrix.summary;
    assert_eq!((summary.counts.pass, summary.compared, summary.differing), (6, 3, 0));
    assert_eq!(matrix.exit_code(), 0);
}

#[test]
fn difference_that_no_case_checks_is_noticed() {
    let matrix = side_by_side(Flaw::Misleads);
    assert_eq!((matrix.summary.counts.pass, matrix.summary.differing), (6, 1));
    assert_eq!(matrix.exit_code(), 1);
    let row = matrix.rows.iter().find(|row| row.differs).unwrap();
    assert_eq!(row.id, "protection.prefix_ok");
    let lines = row.differences[0].lines.each_ref().map(|line| line.as_deref().unwrap());
    assert_eq!(lines, ["b0 Disconnected(OperationFailed)", "b0 Disconnected(Remote)"]);
}

#[test]
fn failure_on_one_provider_shows_both() {
    let matrix = side_by_side(Flaw::CarriesOn);
    let row = matrix.rows.iter().find(|row| row.failed()).unwrap();
    assert_eq!(row.id, "protection.prefix_ok");
    let statuses: Vec<_> = row.cells.iter().map(|cell| cell.status).collect();
    assert_eq!(statuses, [Ended::Pass, Ended::Fail]);
    let lines =
        |cell: usize| row.cells[cell].transcript.as_ref().unwrap().sequences["a0 send"].lines();
    let expected = ["Write Ok 512 B, context 0 to 4", "Write RemoteAccess, context 5"];
    assert_eq!(lines(0)[..2], expected);
    assert_eq!(lines(0)[2], "Write Canceled, context 6 to 10");
    assert_eq!(lines(1)[2], "Write Ok 512 B, context 6");
    assert_eq!(matrix.exit_code(), 1);
}

#[test]
fn capability_of_one_provider_alone_is_noticed() {
    let matrix = side_by_side(Flaw::SendsOnly);
    assert_eq!((matrix.summary.counts.fail, matrix.summary.uneven), (0, 2));
    assert_eq!(matrix.exit_code(), 1);
}

#[test]
fn many_jobs_keep_the_order() {
    let filters: Vec<_> = KEPT.map(str::to_owned).into();
    let options = Options { filters: filters.clone(), jobs: 3, ..options() };
    let report = run(&catalog(Flaw::None), &options, &mut ()).unwrap();
    let ids: Vec<_> = report.cases.iter().map(|result| result.id.clone()).collect();
    let listed = conformance::select(&filters, false).unwrap();
    assert_eq!(ids, listed.iter().map(|case| case.id()).collect::<Vec<_>>());
}

/// Touches a byte before its buffer, and looks at nothing.
fn damage(rig: &Rig) -> Outcome {
    let (a, _) = rig.pair()?;
    let buffer = a.buffer(8)?;
    buffer.region().write_at(GUARD - 1, &[0])?;
    Ok(())
}

#[test]
fn damaged_guards_fail_a_case_that_forgets_to_look() {
    static CASE: Case = Case::new(Group::Rma, "damage", Needs::NOTHING, "", damage);
    let result = result_of(Flaw::None, &CASE);
    assert_eq!(result.status, Ended::Fail, "{}", result.detail);
    assert!(result.detail.contains("intact guard bytes before 8 bytes"), "{}", result.detail);
}
