//! The report for CI systems: one suite a provider, and one for what shows between providers only.

use crate::{Cell, Column, Difference, Matrix, Row, Status};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

pub(super) fn report(matrix: &Matrix) -> Result<String, String> {
    let mut out = Report::new("fabric-conformance");
    for column in &matrix.columns {
        out.add_test_suite(suite(matrix, column));
    }
    if matrix.tested().count() > 1 {
        out.add_test_suite(comparison(matrix));
    }
    out.to_string().map_err(|error| error.to_string())
}

fn suite(matrix: &Matrix, column: &Column) -> TestSuite {
    let provider = &column.provider;
    let mut suite = TestSuite::new(provider.name.clone());
    if let Some(device) = &provider.device {
        suite.add_property(("device", device.as_str()));
    }
    if let Some(environment) = &column.environment {
        suite.add_property(("kernel", environment.kernel.as_str()));
    }
    if let (Some(peer), Some(there)) = (&column.peer, &provider.peer) {
        suite.add_property(("peer", peer.address.as_str()));
        suite.add_property(("peer device", there.device.as_deref().unwrap_or_default()));
        suite.add_property(("peer kernel", peer.environment.kernel.as_str()));
    }
    suite.add_property(("seed", matrix.summary.seed.to_string().as_str()));
    if let Some(part) = matrix.part() {
        suite.add_property(("filter", matrix.summary.filter.join(" ").as_str()));
        suite.add_property(("part", part.as_str()));
    }
    if let Some(reason) = &provider.unavailable {
        let fails = matrix.missing().any(|missing| missing.provider.name == provider.name);
        let text = format!("unavailable: {reason}");
        let status = if fails { failed(&text, "") } else { skipped(&text) };
        suite.add_test_case(TestCase::new("is_available", status));
    }
    for row in &matrix.rows {
        if let Some(cell) = row.cells.iter().find(|cell| cell.provider == provider.name) {
            suite.add_test_case(test(row, cell));
        }
    }
    suite
}

fn test(row: &Row, cell: &Cell) -> TestCase {
    let status = match cell.status {
        Status::Pass => TestCaseStatus::success(),
        Status::Fail => failed(cell.detail.lines().next().unwrap_or_default(), &cell.detail),
        Status::Unsupported => skipped(&cell.detail),
    };
    let mut case = TestCase::new(row.id.clone(), status);
    case.set_classname(cell.provider.clone()).set_time(cell.time());
    case
}

/// A test for each case that was compared: that the providers showed the same.
fn comparison(matrix: &Matrix) -> TestSuite {
    let mut suite = TestSuite::new("comparison");
    for row in matrix.rows.iter().filter(|row| row.compared || row.uneven) {
        let status = if row.uneven {
            failed("it passes on one provider and is unsupported on another", "")
        } else if row.differs {
            let lines: Vec<_> = row.differences.iter().map(text).collect();
            failed("the transcripts differ", &lines.join("\n"))
        } else {
            TestCaseStatus::success()
        };
        let mut case = TestCase::new(row.id.clone(), status);
        case.set_classname("comparison");
        suite.add_test_case(case);
    }
    suite
}

fn text(difference: &Difference) -> String {
    let [one, two] = difference.lines.each_ref().map(|l| l.as_deref().unwrap_or("nothing"));
    format!("{}, line {}: {one} | {two}", difference.sequence, difference.line + 1)
}

fn failed(message: &str, description: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message);
    if !description.is_empty() {
        status.set_description(description);
    }
    status
}

fn skipped(reason: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(reason);
    status
}
