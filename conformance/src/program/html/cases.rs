//! The cases of the page: those to look at with all that is known, and each with its results side by side.

use crate::prelude::{Freedom, Group};
use crate::{Cell, Difference, Matrix, Row, Status, Transcript};
use maud::{Markup, html};

use crate::program::table::time;

pub(super) fn seconds(seconds: f64) -> String {
    time(std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Failures and differences.
pub(super) fn to_look_at(matrix: &Matrix) -> Markup {
    let rows: Vec<&Row> = matrix.rows.iter().filter(|row| !row.is_good()).collect();
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "To look at" }
                @for row in rows { (bad(row)) }
            }
        }
    }
}

fn bad(row: &Row) -> Markup {
    html! {
        article.failure id={ "failure-" (row.id) } {
            h3 { code { (row.id) } }
            p { (row.about) }
            @if row.uneven {
                p { strong.bad { "Runs on one provider only" } ", though the contract asks every provider for it." }
            }
            @for cell in &row.cells { (outcome(cell)) }
            @if !row.differences.is_empty() {
                p.outcome {
                    strong.bad { "The transcripts differ" }
                    " in " (row.differences.len()) @if row.differences.len() == 1 { " sequence." } @else { " sequences." }
                }
                (transcripts(row))
            } @else if row.failed() {
                (transcripts(row))
            }
        }
    }
}

/// What one provider has to say about a case that is not as it should be.
fn outcome(cell: &Cell) -> Markup {
    let (class, text) = word(cell.status);
    html! {
        div.outcome {
            p {
                strong { (cell.provider) } " " span.result.(class) { (text) }
                @if cell.status != Status::Unsupported { " " span.faint { (time(cell.time())) } }
            }
            @if let Some(failure) = &cell.failure {
                dl {
                    dt { "expected" } dd { (failure.expected()) }
                    dt { "seen" } dd { (failure.seen()) }
                    @if let Some(place) = failure.place() { dt { "at" } dd { code { (place) } } }
                }
                @if let Some(dump) = failure.dump() {
                    details { summary { "where everything stood" } pre { (dump) } }
                }
            } @else if !cell.detail.is_empty() {
                p.small { (cell.detail) }
            }
        }
    }
}

/// The transcripts side by side, those sequences first that differ.
fn transcripts(row: &Row) -> Markup {
    let cells: Vec<(&Cell, &Transcript)> =
        row.cells.iter().filter_map(|cell| Some((cell, cell.transcript.as_ref()?))).collect();
    let mut names: Vec<&String> = cells.iter().flat_map(|(_, t)| t.sequences.keys()).collect();
    names.sort();
    names.dedup();
    let differs = |name: &str| row.differences.iter().find(|d| d.sequence == name);
    // What differs is to be seen at once; the rest is there to be opened.
    names.sort_by_key(|name| differs(name).is_none());
    html! {
        @for name in names {
            (sequence(name, &cells, differs(name)))
        }
    }
}

fn sequence(name: &str, cells: &[(&Cell, &Transcript)], difference: Option<&Difference>) -> Markup {
    html! {
        details.sequence open[difference.is_some()] {
            summary {
                (name)
                @match difference {
                    Some(difference) => span.bad { ": differs from line " (difference.line + 1) },
                    None if cells.len() > 1 => span.faint { ": the same" },
                    None => {}
                }
            }
            div.columns {
                @for (cell, transcript) in cells {
                    @let lines = transcript.sequences.get(name).map(|s| s.lines()).unwrap_or_default();
                    div {
                        p.small { (cell.provider) }
                        (listing(&lines, difference.map(|difference| difference.line)))
                    }
                }
            }
        }
    }
}

/// The lines, one of them marked. Of those before it only the last few are shown, to say where it is.
fn listing(lines: &[String], mark: Option<usize>) -> Markup {
    const BEFORE: usize = 8;
    let start = mark.unwrap_or(0).saturating_sub(BEFORE).min(lines.len());
    html! {
        @if start > 0 { p.small { (start) " equal lines before" } }
        ol.lines start=(start + 1) {
            @for (at, line) in lines.iter().enumerate().skip(start) {
                li.(if mark == Some(at) { "mark" } else { "plain" }) { (line) }
            }
            @if mark.is_some_and(|mark| mark >= lines.len()) { li.mark.end { "nothing more" } }
        }
    }
}

/// Every case, group by group.
pub(super) fn all(matrix: &Matrix) -> Markup {
    let present = Group::ALL.into_iter().filter(|group| matrix.of(*group).next().is_some());
    html! {
        section {
            h2 { "Cases" }
            @for group in present {
                div.scroll {
                    table.cases id=(group) {
                        thead {
                            tr {
                                th { (group) }
                                @for column in &matrix.columns { th.result { (column.provider.name) } }
                            }
                        }
                        tbody { @for row in matrix.of(group) { (one(matrix, row)) } }
                    }
                }
            }
        }
    }
}

fn one(matrix: &Matrix, row: &Row) -> Markup {
    let class = if row.is_good() { "fine" } else { "trouble" };
    let name = row.id.split_once('.').map_or(row.id.as_str(), |(_, name)| name);
    html! {
        tr.(class) {
            th scope="row" {
                code { (name) }
                @match row.freedom {
                    Freedom::None => {}
                    freedom => { " " span.tag title=(freedom.why()) { "free: " (freedom.name()) } }
                }
                @if row.differs { " " a.tag.bad href={ "#failure-" (row.id) } { "transcripts differ" } }
                @if row.uneven { " " a.tag.bad href={ "#failure-" (row.id) } { "one provider only" } }
                span.about { (row.about) }
                @for cell in row.cells.iter().filter(|cell| cell.status == Status::Unsupported) {
                    span.about.reason { (cell.provider) " lacks: " (cell.detail) }
                }
            }
            @for column in &matrix.columns {
                @let cell = row.cells.iter().find(|cell| cell.provider == column.provider.name);
                (result(row, cell))
            }
        }
    }
}

fn result(row: &Row, cell: Option<&Cell>) -> Markup {
    let Some(cell) = cell else { return html! { td.result.faint { "\u{2013}" } } };
    let (class, text) = word(cell.status);
    html! {
        td.result {
            @if cell.status == Status::Fail {
                a.(class) href={ "#failure-" (row.id) } { (text) }
            } @else {
                span.(class) { (text) }
            }
            @if cell.status != Status::Unsupported { span.time { (time(cell.time())) } }
        }
    }
}

/// The class and the word for a status.
fn word(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Pass => ("good", "pass"),
        Status::Fail => ("bad", "fail"),
        Status::Unsupported => ("none", "unsupported"),
    }
}
