//! The report for CI systems: one suite a provider.

use conformance::{ProviderEntry, Report, Status};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

pub(super) fn report(report: &Report) -> Result<String, String> {
    let mut out = quick_junit::Report::new("fabric-conformance");
    for provider in &report.providers {
        let mut suite = TestSuite::new(provider.name.clone());
        if let Some(device) = &provider.device {
            suite.add_property(("device", device.as_str()));
        }
        suite.add_property(("seed", report.summary.seed.to_string().as_str()));
        if let Some(reason) = &provider.unavailable {
            suite.add_test_case(unavailable(report, provider, reason));
        }
        for result in report.on(&provider.name) {
            let status = match result.status {
                Status::Pass => TestCaseStatus::success(),
                Status::Fail => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    let first = result.detail.lines().next().unwrap_or_default();
                    status.set_message(first).set_description(result.detail.as_str());
                    status
                }
                Status::Unsupported => skipped(&result.detail),
            };
            let mut case = TestCase::new(result.id.clone(), status);
            case.set_classname(provider.name.clone()).set_time(result.time);
            suite.add_test_case(case);
        }
        out.add_test_suite(suite);
    }
    out.to_string().map_err(|error| error.to_string())
}

fn unavailable(report: &Report, provider: &ProviderEntry, reason: &str) -> TestCase {
    let fails = report.missing_providers().any(|missing| missing.name == provider.name);
    let status = if fails {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(format!("unavailable: {reason}"));
        status
    } else {
        skipped(&format!("unavailable: {reason}"))
    };
    TestCase::new("is_available", status)
}

fn skipped(reason: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(reason);
    status
}
