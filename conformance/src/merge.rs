//! Puts runs side by side.

use std::collections::BTreeSet;

use crate::case::Case;
use crate::cases::{case, cases};
use crate::freedom::Freedom;
use crate::matrix::{Cell, Column, Matrix, Row, Totals, Verdict};
use crate::report::{CaseResult, Counts, FORMAT, ProviderEntry, Report, Status};
use crate::transcript::Difference;

/// Why records cannot be put side by side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// Nothing to merge.
    #[error("no record was given")]
    Nothing,
    /// Two records of one provider.
    #[error("two records have results of {0}: give one of each provider")]
    Twice(String),
    /// A provider that is said to be unavailable has results.
    #[error("{0} is said to be unavailable, and a record has results of it")]
    Available(String),
    /// The runs used other random numbers.
    #[error("{0} ran with seed {1}, {2} with {3}: give both the same --seed")]
    Seeds(String, u64, String, u64),
    /// The runs had other counts.
    #[error("{0} ran with --soak, {1} without")]
    Soak(String, String),
    /// The runs had other cases.
    #[error("{0} and {1} ran other cases: only one of them ran {2}")]
    Cases(String, String, String),
    /// A case that this program does not know.
    #[error("{0} ran {1:?}, which this program does not know: the record is of another version")]
    Unknown(String, String),
}

impl Matrix {
    /// Puts runs side by side. `unavailable` names providers that could not run at all, with reasons.
    ///
    /// # Errors
    /// What does not go together.
    pub fn merge(
        reports: &[Report],
        unavailable: &[(String, String)],
    ) -> Result<Matrix, MergeError> {
        if reports.is_empty() {
            return Err(MergeError::Nothing);
        }
        let columns = columns(reports, unavailable)?;
        let tested: Vec<(&ProviderEntry, &Report)> = reports.iter().flat_map(tested_in).collect();
        check(&tested)?;
        let rows: Vec<Row> = cases().filter_map(|case| row(case, &tested)).collect();
        let strict = reports.iter().any(|report| report.summary.strict);
        let mut matrix = Matrix {
            format: FORMAT,
            summary: totals(&columns, &rows, strict, reports),
            columns,
            rows,
        };
        matrix.summary.verdict = matrix.verdict();
        Ok(matrix)
    }
}

fn tested_in(report: &Report) -> impl Iterator<Item = (&ProviderEntry, &Report)> {
    let tested = report.providers.iter().filter(|provider| provider.unavailable.is_none());
    tested.map(move |provider| (provider, report))
}

/// The tested providers in the order given, then the others, each once.
fn columns(
    reports: &[Report],
    unavailable: &[(String, String)],
) -> Result<Vec<Column>, MergeError> {
    let mut columns: Vec<Column> = Vec::new();
    let known = |columns: &[Column], name: &str| columns.iter().any(|c| c.provider.name == name);
    for report in reports {
        for provider in report.providers.iter().filter(|p| p.unavailable.is_none()) {
            if known(&columns, &provider.name) {
                return Err(MergeError::Twice(provider.name.clone()));
            }
            columns.push(Column {
                provider: provider.clone(),
                counts: Counts::of(report.on(&provider.name)),
                environment: Some(report.environment.clone()),
                peer: report.peer.clone(),
                seconds: report.summary.seconds,
                factor: report.summary.factor,
            });
        }
    }
    if let Some((name, _)) = unavailable.iter().find(|(name, _)| known(&columns, name)) {
        return Err(MergeError::Available(name.clone()));
    }
    let given = unavailable
        .iter()
        .map(|(name, reason)| ProviderEntry::unavailable(name, reason.clone(), false));
    let found = reports.iter().flat_map(|report| &report.providers);
    let found = found.filter(|provider| provider.unavailable.is_some()).cloned();
    // The reason that the caller gives says more than a record in which the provider was not found.
    for provider in given.chain(found) {
        if !known(&columns, &provider.name) {
            let counts = Counts::default();
            columns.push(Column {
                provider,
                counts,
                environment: None,
                peer: None,
                seconds: 0.0,
                factor: 1.0,
            });
        }
    }
    Ok(columns)
}

/// Whether the runs can be compared.
fn check(tested: &[(&ProviderEntry, &Report)]) -> Result<(), MergeError> {
    let ids = |name: &str, report: &Report| -> BTreeSet<String> {
        report.on(name).map(|result| result.id.clone()).collect()
    };
    for (ProviderEntry { name, .. }, report) in tested {
        if let Some(unknown) = report.on(name).find(|result| case(&result.id).is_none()) {
            return Err(MergeError::Unknown(name.clone(), unknown.id.clone()));
        }
    }
    let Some(((first, reference), others)) = tested.split_first() else { return Ok(()) };
    let first = &first.name;
    for (ProviderEntry { name, .. }, report) in others {
        let both = || (first.clone(), name.clone());
        let (one, two) = (&reference.summary, &report.summary);
        if one.seed != two.seed {
            let (first, name) = both();
            return Err(MergeError::Seeds(first, one.seed, name, two.seed));
        }
        if one.soak != two.soak {
            let (first, name) = both();
            let (with, without) = if one.soak { (first, name) } else { (name, first) };
            return Err(MergeError::Soak(with, without));
        }
        let (theirs, its) = (ids(first, reference), ids(name, report));
        let apart: Vec<&str> = theirs.symmetric_difference(&its).map(String::as_str).collect();
        if !apart.is_empty() {
            let (first, name) = both();
            return Err(MergeError::Cases(first, name, few(&apart)));
        }
    }
    Ok(())
}

/// The first names of many.
fn few(names: &[&str]) -> String {
    const MAX_NAMES: usize = 5;
    match names.len().saturating_sub(MAX_NAMES) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}

fn row<'a>(case: &Case, tested: &[(&'a ProviderEntry, &'a Report)]) -> Option<Row> {
    let id = case.id();
    let found = |(provider, report): &(&'a ProviderEntry, &'a Report)| {
        let result = report.on(&provider.name).find(|result| result.id == id);
        result.map(|result| (*provider, result))
    };
    let all: Vec<(&ProviderEntry, &CaseResult)> = tested.iter().filter_map(found).collect();
    let results: Vec<&CaseResult> = all.iter().map(|(_, result)| *result).collect();
    if results.is_empty() {
        return None;
    }
    let has = |status| results.iter().any(|result| result.status == status);
    let ran: Vec<_> = all.iter().filter(|(_, r)| r.status != Status::Unsupported).collect();
    let differences = match ran.split_first() {
        Some((first, others)) => others
            .iter()
            .map(|other| compare(case, first, other))
            .find(|differences| !differences.is_empty())
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let passes = results.iter().filter(|result| result.status == Status::Pass).count();
    let compared = passes > 1 && !matches!(case.freedom, Freedom::Whole(_));
    let differs = !has(Status::Fail) && !differences.is_empty();
    let optional = case.needs.is_optional();
    let uneven = has(Status::Pass) && has(Status::Unsupported) && !optional;
    let shown = has(Status::Fail) || differs;
    Some(Row {
        id,
        group: case.group,
        about: case.about,
        freedom: case.freedom,
        optional,
        cells: results.iter().map(|result| cell(result, shown)).collect(),
        compared,
        differences,
        differs,
        uneven,
    })
}

fn compare(
    case: &Case,
    (one, first): &(&ProviderEntry, &CaseResult),
    (two, other): &(&ProviderEntry, &CaseResult),
) -> Vec<Difference> {
    // Whatever the freedom, a failure is looked at with everything there is.
    let failed = first.status == Status::Fail || other.status == Status::Fail;
    let freedom = if failed { Freedom::None } else { case.freedom };
    let freedom = freedom.between(&one.limits, &two.limits);
    first.transcript.differences(&other.transcript, [&one.name, &two.name], freedom)
}

fn cell(result: &CaseResult, shown: bool) -> Cell {
    Cell {
        provider: result.provider.clone(),
        status: result.status,
        detail: result.detail.clone(),
        ms: result.time.as_millis() as u64,
        failure: result.failure.clone(),
        transcript: shown.then(|| result.transcript.clone()),
    }
}

fn totals(columns: &[Column], rows: &[Row], strict: bool, reports: &[Report]) -> Totals {
    // Runs that go together have the same of both.
    let summary = reports.first().map(|report| &report.summary);
    let soak = summary.is_some_and(|summary| summary.soak);
    let filter: BTreeSet<_> = reports.iter().flat_map(|r| &r.summary.filter).cloned().collect();
    let count = |of: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count();
    let mut counts = Counts::default();
    for column in columns {
        counts.pass += column.counts.pass;
        counts.fail += column.counts.fail;
        counts.unsupported += column.counts.unsupported;
    }
    Totals {
        verdict: Verdict::Nothing,
        counts,
        compared: count(&|row| row.compared),
        differing: count(&|row| row.differs),
        uneven: count(&|row| row.uneven),
        free: count(&|row| row.freedom != Freedom::None),
        unavailable: columns.iter().filter(|c| c.provider.unavailable.is_some()).count(),
        strict,
        filter: filter.into_iter().collect(),
        known: cases().filter(|case| soak || !case.soak).count(),
        seed: summary.map_or(0, |summary| summary.seed),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::Failed;
    use crate::environment::Environment;
    use crate::report::Summary;

    /// A run of these cases on a provider, all of them passed.
    fn report(provider: &str, ids: &[&str]) -> Report {
        let result = |id: &&str| CaseResult::new(case(id).unwrap(), provider, Duration::ZERO);
        let cases: Vec<_> = ids.iter().map(result).collect();
        let mut entry = ProviderEntry::unavailable(provider, String::new(), false);
        entry.unavailable = None;
        Report {
            format: FORMAT,
            program: String::new(),
            environment: Environment::default(),
            peer: None,
            providers: vec![entry],
            summary: Summary {
                counts: Counts::of(&cases),
                unavailable: 0,
                strict: false,
                soak: false,
                filter: Vec::new(),
                seed: 1,
                seconds: 1.0,
                factor: 1.0,
            },
            cases,
        }
    }

    /// Changes a result and counts anew.
    fn change(mut report: Report, id: &str, how: impl Fn(CaseResult) -> CaseResult) -> Report {
        let at = report.cases.iter().position(|result| result.id == id).unwrap();
        report.cases[at] = how(report.cases[at].clone());
        report.summary.counts = Counts::of(&report.cases);
        report
    }

    /// The result, with a transcript of this many completions.
    fn took(count: u64) -> impl Fn(CaseResult) -> CaseResult {
        use fabric::{Completion, EndpointId, OpKind, Status};
        move |mut result| {
            let recorder = crate::recorder::Recorder::default();
            for context in 0..count {
                let done = Completion::new(context, EndpointId(1), OpKind::Send, Status::Ok);
                recorder.completions("a", &[done]);
            }
            result.transcript = recorder.transcript();
            result
        }
    }

    const IDS: [&str; 3] = ["send.fifo", "rma.write_sizes", "memory.dereg_vs_write"];

    fn merged(one: Report, two: Report) -> Matrix {
        Matrix::merge(&[one, two], &[]).unwrap()
    }

    #[test]
    fn equal_runs_pass() {
        let matrix = merged(report("tcp", &IDS), report("verbs", &IDS));
        assert_eq!((matrix.summary.verdict, matrix.exit_code()), (Verdict::Pass, 0));
        assert_eq!(matrix.summary.counts.pass, 6);
        // One of the three is free as a whole.
        assert_eq!((matrix.summary.compared, matrix.summary.differing), (2, 0));
        let ids: Vec<_> = matrix.rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["memory.dereg_vs_write", "send.fifo", "rma.write_sizes"]);
        assert!(matrix.rows[0].cells.iter().all(|cell| cell.transcript.is_none()));
    }

    #[test]
    fn difference_fails_but_for_a_freedom() {
        let differing = |id: &str| {
            let (one, two) = (report("tcp", &IDS), report("verbs", &IDS));
            merged(change(one, id, took(5)), change(two, id, took(6)))
        };
        let matrix = differing("send.fifo");
        assert_eq!((matrix.summary.differing, matrix.exit_code()), (1, 1));
        let row = matrix.rows.iter().find(|row| row.differs).unwrap();
        assert_eq!((row.id.as_str(), row.differences.len()), ("send.fifo", 1));
        assert_eq!(row.differences[0].providers, ["tcp", "verbs"]);
        assert!(row.cells.iter().all(|cell| cell.transcript.is_some()));
        assert_eq!(differing("memory.dereg_vs_write").exit_code(), 0);
    }

    #[test]
    fn limits_are_free_where_they_differ() {
        let run = |provider, message, count| {
            let mut report = change(report(provider, &IDS), "rma.write_sizes", took(count));
            report.providers[0].limits.insert("message".to_owned(), message);
            report
        };
        assert_eq!(merged(run("tcp", 1 << 30, 9), run("verbs", 1 << 23, 7)).exit_code(), 0);
        assert_eq!(merged(run("tcp", 1 << 30, 9), run("verbs", 1 << 30, 7)).exit_code(), 1);
    }

    #[test]
    fn failure_shows_both_transcripts() {
        let fails = |result: CaseResult| took(1)(result).failed(Failed::nowhere("a", "b"));
        let two = change(report("verbs", &IDS), "send.fifo", fails);
        let matrix = merged(change(report("tcp", &IDS), "send.fifo", took(2)), two);
        // It counts as a failure, not as a difference too.
        assert_eq!((matrix.summary.counts.fail, matrix.summary.differing), (1, 0));
        let row = matrix.rows.iter().find(|row| row.failed()).unwrap();
        assert!(row.cells.iter().all(|cell| cell.transcript.is_some()));
        assert_eq!((row.differences.len(), matrix.exit_code()), (1, 1));
    }

    #[test]
    fn unsupported_on_one_alone_fails_unless_optional() {
        for (id, code) in [("send.fifo", 1), ("protection.guess_keys", 0)] {
            let lacks = |result: CaseResult| result.unsupported(&["something".to_owned()]);
            let matrix = merged(report("tcp", &[id]), change(report("verbs", &[id]), id, lacks));
            assert_eq!(matrix.exit_code(), code, "{id}");
        }
    }

    #[test]
    fn a_part_of_the_cases_is_not_the_whole() {
        let whole = || cases().filter(|case| !case.soak).map(|case| case.id()).collect::<Vec<_>>();
        let ids = whole();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(Matrix::merge(&[report("tcp", &ids)], &[]).unwrap().part(), None);
        let mut part = report("tcp", &IDS);
        part.summary.filter = vec!["rma.*".to_owned(), "send.fifo".to_owned()];
        let of_it = Matrix::merge(&[part.clone()], &[]).unwrap();
        let text = format!("{} of {} cases (rma.*, send.fifo)", IDS.len(), ids.len());
        assert_eq!(of_it.part(), Some(text));
        // A line names some.
        part.summary.filter = (0..9).map(|of| format!("g{of}")).collect();
        let text = Matrix::merge(&[part], &[]).unwrap().part().unwrap();
        assert!(text.ends_with("(g0, g1, g2, g3, g4, g5 and 3 more)"), "{text}");
        // Whatever the record says of its filter.
        let unsaid = Matrix::merge(&[report("tcp", &IDS)], &[]).unwrap();
        assert_eq!(unsaid.part(), Some(format!("{} of {} cases", IDS.len(), ids.len())));
    }

    #[test]
    fn unavailable_provider_is_a_column() {
        let unavailable = [("verbs".to_owned(), "no device".to_owned())];
        let mut strict = report("tcp", &IDS);
        let matrix = Matrix::merge(&[strict.clone()], &unavailable).unwrap();
        let named: Vec<_> =
            matrix.unavailable().map(|(c, why)| (c.provider.name.as_str(), why)).collect();
        assert_eq!((named, matrix.exit_code()), (vec![("verbs", "no device")], 0));
        strict.summary.strict = true;
        assert_eq!(Matrix::merge(&[strict], &unavailable).unwrap().exit_code(), 1);
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        let error = |one: Report, two: Report| Matrix::merge(&[one, two], &[]).unwrap_err();
        let tcp = || report("tcp", &IDS);
        assert_eq!(error(tcp(), tcp()), MergeError::Twice("tcp".to_owned()));
        let mut seed = report("verbs", &IDS);
        seed.summary.seed = 2;
        let text = "tcp ran with seed 1, verbs with 2: give both the same --seed";
        assert_eq!(error(tcp(), seed).to_string(), text);
        let mut soak = report("verbs", &IDS);
        soak.summary.soak = true;
        let text = "verbs ran with --soak, tcp without";
        assert_eq!(error(tcp(), soak).to_string(), text);
        let text = "tcp and verbs ran other cases: only one of them ran memory.dereg_vs_write";
        assert_eq!(error(tcp(), report("verbs", &IDS[..2])).to_string(), text);
        let mut unknown = report("verbs", &IDS);
        unknown.cases[0].id = "send.of_tomorrow".to_owned();
        assert!(error(tcp(), unknown).to_string().starts_with("verbs ran \"send.of_tomorrow\""));
        assert_eq!(Matrix::merge(&[], &[]).unwrap_err(), MergeError::Nothing);
        let unavailable = [("tcp".to_owned(), "gone".to_owned())];
        let error = Matrix::merge(&[tcp()], &unavailable).unwrap_err();
        assert_eq!(error, MergeError::Available("tcp".to_owned()));
    }

    #[test]
    fn tested_provider_is_not_unavailable_elsewhere() {
        // A run of all providers, on a machine without the second.
        let mut tcp = report("tcp", &IDS);
        let entry = ProviderEntry::unavailable("verbs", "no device".to_owned(), false);
        tcp.providers.push(entry);
        let matrix = merged(tcp, report("verbs", &IDS));
        assert_eq!((matrix.tested().count(), matrix.unavailable().count()), (2, 0));
    }
}
