//! The list of cases.

use std::fmt::Write;

use crate::prelude::{Case, Group, Turn};
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a> {
    id: String,
    needs: String,
    about: &'a str,
    limit_seconds: u64,
    trap: bool,
    exclusive: bool,
    soak: bool,
    freedom: String,
    local_only: &'a str,
}

pub(super) fn json(cases: &[&'static Case]) -> Result<String, String> {
    let line = |case: &&'static Case| Line {
        id: case.id(),
        needs: case.needs.to_string(),
        about: case.about,
        limit_seconds: case.limit.as_secs(),
        trap: case.trap,
        exclusive: case.turn != Turn::Beside,
        soak: case.soak,
        freedom: case.freedom.to_string(),
        local_only: case.local_only,
    };
    let lines: Vec<_> = cases.iter().map(line).collect();
    let text = serde_json::to_string_pretty(&lines).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// A group, and how many cases it has.
#[derive(Serialize)]
pub(super) struct GroupSize {
    group: &'static str,
    cases: usize,
}

pub(super) fn group_sizes() -> Vec<GroupSize> {
    let size = |group: Group| GroupSize {
        group: group.name(),
        cases: crate::cases().filter(|case| case.group == group).count(),
    };
    Group::ALL.into_iter().map(size).collect()
}

pub(super) fn groups() -> String {
    let mut text = String::new();
    for GroupSize { group, cases } in group_sizes() {
        let s = if cases == 1 { "" } else { "s" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:16}{cases:4} case{s}", format!("{group}.*"));
    }
    text
}

pub(super) fn table(cases: &[&Case]) -> String {
    let width = |of: &dyn Fn(&Case) -> usize| cases.iter().map(|case| of(case)).max().unwrap_or(0);
    let ids = width(&|case| case.id().len());
    let needs = width(&|case| case.needs.to_string().len());
    let mut text = String::new();
    for case in cases {
        let soak = if case.soak { " (with --soak only)" } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:ids$}  {:needs$}  {}{soak}", case.id(), case.needs, case.about);
    }
    text
}
