//! The report for people: a matrix of groups and providers, failures, and a line that sums up.

use std::fmt::Write;
use std::time::Duration;

use conformance::{CaseResult, Counts, Group, ProviderEntry, Report, Status};

use super::style::Style;

/// Width of the column of groups.
const NAME: usize = 12;
/// Width of one provider's columns.
const CELL: usize = 34;

/// Writing to a string does not fail, so `let _ =` throughout.
pub(super) fn report(report: &Report, style: &Style) -> String {
    let mut text = String::new();
    matrix(&mut text, report, style);
    for ProviderEntry { name, unavailable, .. } in &report.providers {
        if let Some(reason) = unavailable {
            let _ = writeln!(text, "{}: {reason}", style.strong(&format!("{name} unavailable")));
        }
    }
    let unsupported: Vec<_> =
        report.cases.iter().filter(|r| r.status == Status::Unsupported).collect();
    if !unsupported.is_empty() {
        let _ = writeln!(text, "\n{}", style.strong("unsupported"));
        for result in unsupported {
            let _ = writeln!(text, "  {} {}: {}", result.provider, result.id, result.detail);
        }
    }
    if report.failures().next().is_some() {
        let _ = writeln!(text, "\n{}", style.bad("failures"));
        for result in report.failures() {
            failure(&mut text, result, style);
        }
    }
    let _ = writeln!(text, "\n{}", summary(report, style));
    text
}

fn matrix(text: &mut String, report: &Report, style: &Style) {
    let tested: Vec<_> = report.providers.iter().filter(|p| p.unavailable.is_none()).collect();
    if tested.is_empty() {
        return;
    }
    let head = |provider: &&ProviderEntry| {
        let device = provider.device.as_deref().unwrap_or_default();
        let version = provider.version.as_deref().unwrap_or_default();
        format!("{:^CELL$}", format!("{}:{device} {version}", provider.name))
    };
    let heads: Vec<_> = tested.iter().map(head).collect();
    let _ = writeln!(text, "{:NAME$}{}", "", style.strong(heads.join("").trim_end()));
    let columns =
        format!("{:>7}{:>7}{:>8}{:>10}  ", "pass", "fail", "unsupp", "time").repeat(tested.len());
    let _ = writeln!(text, "{:NAME$}{}", "group", style.faint(columns.trim_end()));
    for group in Group::ALL {
        if report.cases.iter().any(|result| result.group == group) {
            row(text, group.name(), &tested, style, |provider| {
                report.on(&provider.name).filter(|result| result.group == group).collect()
            });
        }
    }
    row(text, "all", &tested, style, |provider| report.on(&provider.name).collect());
}

fn row<'a>(
    text: &mut String,
    name: &str,
    providers: &[&'a ProviderEntry],
    style: &Style,
    results: impl Fn(&'a ProviderEntry) -> Vec<&'a CaseResult>,
) {
    let _ = write!(text, "{name:NAME$}");
    for provider in providers {
        let results = results(provider);
        let Counts { pass, fail, unsupported, .. } = Counts::of(results.iter().copied());
        let time = results.iter().map(|result| result.time).sum::<Duration>();
        let pass = format!("{pass:>7}");
        let pass = if fail == 0 { style.good(&pass) } else { pass };
        let fails = format!("{fail:>7}");
        let fails = if fail == 0 { style.faint(&fails) } else { style.bad(&fails) };
        let time = format!("{:.1} s", time.as_secs_f64());
        let _ = write!(text, "{pass}{fails}{unsupported:>8}{time:>10}  ");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
}

fn failure(text: &mut String, result: &CaseResult, style: &Style) {
    let _ = writeln!(text, "  {} {}", result.provider, style.strong(&result.id));
    let Some(failure) = &result.failure else {
        let _ = writeln!(text, "    {}", result.detail);
        return;
    };
    let _ = writeln!(text, "    expected  {}", failure.expected());
    let _ = writeln!(text, "    seen      {}", failure.seen());
    if let Some(place) = failure.place() {
        let _ = writeln!(text, "    at        {}:{}", place.file(), place.line());
    }
    for line in failure.dump().unwrap_or_default().lines() {
        let _ = writeln!(text, "      {}", style.faint(line));
    }
}

/// The last line.
pub(super) fn summary(report: &Report, style: &Style) -> String {
    let summary = &report.summary;
    let Counts { pass, fail, unsupported, .. } = summary.counts;
    let verdict = match report.exit_code() {
        0 => style.good("passed"),
        1 => style.bad("FAILED"),
        _ => style.bad("NOTHING RAN"),
    };
    let mut text = format!(
        "{verdict}: {pass} passed, {fail} failed, {unsupported} unsupported in {:.1} s (seed {}",
        summary.seconds, summary.seed
    );
    if summary.factor > 1.0 {
        let _ = write!(text, ", deadlines x {}", summary.factor);
    }
    text.push(')');
    let missing: Vec<_> = report.missing_providers().map(|p| p.name.as_str()).collect();
    if !missing.is_empty() {
        let _ = write!(text, "; strict: {} unavailable", missing.join(", "));
    }
    text
}
