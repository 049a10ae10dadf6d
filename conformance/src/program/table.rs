//! The report for people at a terminal: providers side by side by group, the cases to look at, and a line that sums
//! up.

use std::fmt::Write;
use std::time::Duration;

use crate::prelude::{Freedom, Group};
use crate::{
    Cell, Column, Counts, Environment, Matrix, ProviderEntry, Row, Status, Totals, Verdict,
};

use super::style::{bad, faint, good, strong, warn};

/// Width of the column of groups.
const NAME: usize = 12;
/// Width of one provider's columns.
const CELL: usize = 34;

/// Writing to a string does not fail, so `let _ =` throughout.
pub(super) fn report(matrix: &Matrix, all: bool) -> String {
    let mut text = String::new();
    groups(&mut text, matrix);
    if all {
        every_case(&mut text, matrix);
    }
    unsupported(&mut text, matrix);
    uneven(&mut text, matrix);
    differences(&mut text, matrix);
    failures(&mut text, matrix);
    text.push('\n');
    for (column, reason) in matrix.unavailable() {
        let what = format!("{} NOT TESTED", column.provider.name);
        let _ = writeln!(text, "{}: {reason}", bad(&what));
    }
    let _ = writeln!(text, "{}", summary(matrix));
    text
}

fn groups(text: &mut String, matrix: &Matrix) {
    if matrix.tested().next().is_none() {
        return;
    }
    let heads: Vec<_> = matrix.columns.iter().map(|c| format!("{:^CELL$}", head(c))).collect();
    let _ = writeln!(text, "{:NAME$}{}", "", strong(heads.join("").trim_end()));
    for column in matrix.tested() {
        ends(text, column);
    }
    let head = |column: &Column| match column.provider.unavailable {
        Some(_) => format!("{:^CELL$}", "-"),
        None => format!("{:>7}{:>7}{:>8}{:>10}  ", "pass", "fail", "unsupp", "time"),
    };
    let heads: Vec<_> = matrix.columns.iter().map(head).collect();
    let _ = writeln!(text, "{:NAME$}{}", "group", faint(heads.join("").trim_end()));
    for group in Group::ALL {
        if matrix.of(group).next().is_some() {
            row(text, group.name(), matrix, &|row| row.group == group);
        }
    }
    row(text, "all", matrix, &|_| true);
}

fn head(column: &Column) -> String {
    let provider = &column.provider;
    match (&provider.unavailable, &provider.device, &provider.version) {
        (Some(_), ..) => format!("{}: unavailable", provider.name),
        (None, device, version) => {
            let [device, version] = [device, version].map(|s| s.as_deref().unwrap_or_default());
            format!("{}:{device} {version}", provider.name)
        }
    }
}

/// Between which two hosts a provider's cases ran.
fn ends(text: &mut String, column: &Column) {
    let (Some(near), Some(peer)) = (&column.environment, &column.peer) else { return };
    let end = |environment: &Environment, provider: &ProviderEntry| {
        let device = provider.device.as_deref().unwrap_or_default();
        format!("{} ({device}, Linux {})", environment.host, environment.kernel)
    };
    let far = column.provider.peer.as_deref().map(|far| end(&peer.environment, far));
    let near = end(near, &column.provider);
    let line = format!(
        "{}: between {near} and {} by {}, round trip {} us",
        column.provider.name,
        far.unwrap_or_default(),
        peer.address,
        peer.round_trip_us
    );
    let _ = writeln!(text, "{}", faint(&line));
}

fn row(text: &mut String, name: &str, matrix: &Matrix, of: &dyn Fn(&Row) -> bool) {
    let _ = write!(text, "{name:NAME$}");
    for column in &matrix.columns {
        if column.provider.unavailable.is_some() {
            // The dash alone is coloured, so that blanks at the end of the line can go.
            text.push_str(&format!("{:^CELL$}", "-").replace('-', &faint("-")));
            continue;
        }
        let cells = matrix.rows.iter().filter(|row| of(row)).flat_map(|row| &row.cells);
        let cells: Vec<_> = cells.filter(|cell| cell.provider == column.provider.name).collect();
        let Counts { pass, fail, unsupported, .. } = Cell::count(cells.iter().copied());
        let time = cells.iter().map(|cell| cell.time()).sum::<Duration>();
        let pass = format!("{pass:>7}");
        let pass = if fail == 0 { good(&pass) } else { pass };
        let fails = format!("{fail:>7}");
        let fails = if fail == 0 { faint(&fails) } else { bad(&fails) };
        let time = format!("{:.1} s", time.as_secs_f64());
        let _ = write!(text, "{pass}{fails}{unsupported:>8}{time:>10}  ");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
}

fn every_case(text: &mut String, matrix: &Matrix) {
    let width = matrix.rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
    let heads: Vec<_> =
        matrix.tested().map(|column| format!("{:>20}", column.provider.name)).collect();
    let _ = writeln!(text, "\n{}{}", strong(&format!("{:width$}", "case")), heads.join(""));
    for row in &matrix.rows {
        let _ = write!(text, "{:width$}", row.id);
        for cell in &row.cells {
            let result = match cell.status {
                Status::Pass => format!("{:>20}", format!("pass {}", time(cell.time()))),
                Status::Fail => bad(&format!("{:>20}", "FAIL")),
                Status::Unsupported => faint(&format!("{:>20}", "unsupported")),
            };
            text.push_str(&result);
        }
        let note = match row.freedom {
            _ if row.differs => bad("  transcripts differ"),
            _ if row.uneven => bad("  on one provider only"),
            Freedom::None => String::new(),
            freedom => faint(&format!("  free: {}", freedom.name())),
        };
        let _ = writeln!(text, "{note}");
    }
}

/// A duration with about three digits.
pub(super) fn time(time: Duration) -> String {
    match time.as_millis() {
        0 => "<1 ms".to_owned(),
        ms @ 1..1000 => format!("{ms} ms"),
        1000..100_000 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{:.0} s", time.as_secs_f64()),
    }
}

fn unsupported(text: &mut String, matrix: &Matrix) {
    let cells: Vec<_> = matrix
        .rows
        .iter()
        .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
        .filter(|(_, cell)| cell.status == Status::Unsupported)
        .collect();
    if !cells.is_empty() {
        let _ = writeln!(text, "\n{}", strong("unsupported"));
    }
    for (row, cell) in cells {
        let _ = writeln!(text, "  {} {}: {}", cell.provider, row.id, cell.detail);
    }
}

fn uneven(text: &mut String, matrix: &Matrix) {
    let rows: Vec<_> = matrix.rows.iter().filter(|row| row.uneven).collect();
    if !rows.is_empty() {
        let title = "unsupported on one provider, though the contract asks all for it";
        let _ = writeln!(text, "\n{}", bad(title));
    }
    for row in rows {
        let _ = writeln!(text, "  {}", strong(&row.id));
    }
}

fn differences(text: &mut String, matrix: &Matrix) {
    let rows: Vec<_> = matrix.rows.iter().filter(|row| row.differs).collect();
    if !rows.is_empty() {
        let _ = writeln!(text, "\n{}", bad("transcripts that differ"));
    }
    for row in rows {
        let _ = writeln!(text, "  {}", strong(&row.id));
        difference(text, row);
    }
}

/// The first line of each sequence in which the transcripts differ.
fn difference(text: &mut String, row: &Row) {
    const MAX_SHOWN: usize = 4;
    for difference in row.differences.iter().take(MAX_SHOWN) {
        let _ = writeln!(text, "    {}, line {}", difference.sequence, difference.line + 1);
        for (provider, line) in difference.providers.iter().zip(&difference.lines) {
            let line = line.as_deref().unwrap_or("(nothing)");
            let _ = writeln!(text, "      {provider:8}{line}");
        }
    }
    let more = row.differences.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "    and in {more} more sequences");
    }
}

fn failures(text: &mut String, matrix: &Matrix) {
    let rows: Vec<_> = matrix.rows.iter().filter(|row| row.failed()).collect();
    if !rows.is_empty() {
        let _ = writeln!(text, "\n{}", bad("failures"));
    }
    for row in rows {
        for cell in row.cells.iter().filter(|cell| cell.status == Status::Fail) {
            failure(text, row, cell);
        }
        if !row.differences.is_empty() {
            let _ = writeln!(text, "    the transcripts differ first in");
            difference(text, row);
        }
    }
}

fn failure(text: &mut String, row: &Row, cell: &Cell) {
    let _ = writeln!(text, "  {} {}", cell.provider, strong(&row.id));
    let Some(failure) = &cell.failure else {
        let _ = writeln!(text, "    {}", cell.detail);
        return;
    };
    let _ = writeln!(text, "    expected  {}", failure.expected());
    let _ = writeln!(text, "    seen      {}", failure.seen());
    if let Some(place) = failure.place() {
        let _ = writeln!(text, "    at        {place}");
    }
    for line in failure.dump().unwrap_or_default().lines() {
        let _ = writeln!(text, "      {}", faint(line));
    }
}

/// The last line.
pub(super) fn summary(matrix: &Matrix) -> String {
    let Totals { counts, compared, differing, uneven, seed, .. } = &matrix.summary;
    let part = matrix.part();
    let verdict = match matrix.summary.verdict {
        Verdict::Pass if part.is_some() => warn("passed in part"),
        Verdict::Pass => good("passed"),
        Verdict::Fail => bad("FAILED"),
        _ => bad("NOTHING RAN"),
    };
    let Counts { pass, fail, unsupported, .. } = counts;
    let seconds = matrix.seconds();
    let part = part.map_or_else(String::new, |part| format!(", {part}"));
    let mut text = format!(
        "{verdict}{part}: {pass} passed, {fail} failed, {unsupported} unsupported in {seconds:.1} s"
    );
    if matrix.tested().count() > 1 {
        let _ = write!(text, "; {compared} transcripts compared, {differing} differ");
    }
    if *uneven > 0 {
        let _ = write!(text, "; {uneven} on one provider only");
    }
    let factor = matrix.tested().map(|column| column.factor).fold(1.0, f64::max);
    let _ = write!(text, " (seed {seed}");
    if factor > 1.0 {
        let _ = write!(text, ", deadlines x {factor}");
    }
    text.push(')');
    let missing: Vec<_> = matrix.missing().map(|c| c.provider.name.as_str()).collect();
    if !missing.is_empty() {
        let _ = write!(text, "; strict: {} unavailable", missing.join(", "));
    }
    text.push_str(&failed_names(matrix));
    text
}

/// What failed, once more by name: of a long output the end is what one sees.
fn failed_names(matrix: &Matrix) -> String {
    const MAX_SHOWN: usize = 8;
    let of_row = |row: &Row| -> Vec<String> {
        let failed = row.cells.iter().filter(|cell| cell.status == Status::Fail);
        failed.map(|cell| format!("{} {}", cell.provider, row.id)).collect()
    };
    let names: Vec<_> = matrix.rows.iter().flat_map(of_row).collect();
    match names.len() {
        0 => String::new(),
        n if n > MAX_SHOWN => {
            format!("; failed: {}, and {} more", names[..MAX_SHOWN].join(", "), n - MAX_SHOWN)
        }
        _ => format!("; failed: {}", names.join(", ")),
    }
}
