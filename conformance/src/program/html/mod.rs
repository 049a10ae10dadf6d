//! The report for people in a browser: one page that needs nothing else, no network and no scripts.
//!
//! `maud` escapes whatever is inserted; the style sheet, written here, is all that is not.

mod cases;

use crate::prelude::Group;
use crate::{Cell, Column, Counts, Environment, Matrix, ProviderEntry, Row, Totals, Verdict};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");

pub(super) fn page(matrix: &Matrix) -> String {
    let (verdict, part) = (verdict(matrix), matrix.part());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "fabric conformance: " (verdict.1) @if let Some(part) = &part { ", " (part) } }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "fabric conformance" }
                    p.verdict.(verdict.0) { (verdict.1) @if let Some(part) = &part { ", " (part) } }
                    p.sub { (subtitle(matrix)) }
                }
                main {
                    (notices(matrix))
                    (tiles(matrix))
                    (cases::to_look_at(matrix))
                    (groups(matrix))
                    (cases::all(matrix))
                    (freedoms(matrix))
                    (environment(matrix))
                }
            }
        }
    };
    page.into_string()
}

fn verdict(matrix: &Matrix) -> (&'static str, &'static str) {
    match matrix.summary.verdict {
        Verdict::Pass if matrix.summary.unavailable > 0 => {
            ("warn", "passed, not on every provider")
        }
        Verdict::Pass if matrix.part().is_some() => ("warn", "passed in part"),
        Verdict::Pass => ("good", "passed"),
        Verdict::Fail => ("bad", "failed"),
        Verdict::Nothing => ("bad", "nothing ran"),
    }
}

fn subtitle(matrix: &Matrix) -> String {
    let began = matrix.tested().filter_map(|c| c.environment.as_ref()).map(|e| e.began).min();
    let seconds = matrix.seconds();
    let when = began.map_or(String::new(), |began| format!("{}, ", moment(began)));
    format!("{when}{seconds:.0} s, seed {}", matrix.summary.seed)
}

/// What did not run comes before anything else: providers, and cases that a filter left out.
fn notices(matrix: &Matrix) -> Markup {
    html! {
        @if let Some(part) = matrix.part() {
            p.notice {
                strong { "Not the whole suite: " }
                (part) ". Nothing is shown of the other cases."
            }
        }
        @for (column, reason) in matrix.unavailable() {
            p.notice {
                strong { (column.provider.name) " was not tested" }
                " " (reason)
            }
        }
    }
}

fn tiles(matrix: &Matrix) -> Markup {
    let Totals { compared, differing, uneven, free, .. } = matrix.summary;
    html! {
        section.tiles aria-label="Summary" {
            @for column in &matrix.columns {
                (tile_of(matrix, column))
            }
            @if matrix.tested().count() > 1 {
                div.tile.(if differing == 0 { "good" } else { "bad" }) {
                    h2 { "differing transcripts" }
                    p.number { (differing) }
                    p.small {
                        "of " (compared) " compared; " (free) " cases state a freedom"
                        @if uneven > 0 { "; " (uneven) " run on one provider only" }
                    }
                }
            }
        }
    }
}

fn tile_of(matrix: &Matrix, column: &Column) -> Markup {
    let good = if matrix.part().is_some() { "warn" } else { "good" };
    let Counts { pass, fail, unsupported, .. } = column.counts;
    let provider = &column.provider;
    let device = provider.device.as_deref().unwrap_or_default();
    html! {
        @if provider.unavailable.is_some() {
            div.tile.warn {
                h2 { (provider.name) }
                p.number { "\u{2013}" }
                p.small { "unavailable" }
            }
        } @else {
            div.tile.(if fail == 0 { good } else { "bad" }) {
                h2 { (provider.name) " " span.faint { (device) } }
                p.number { (pass) span.of { " / " (column.counts.total()) } }
                p.small { (fail) " failed, " (unsupported) " unsupported, " (cases::seconds(column.seconds)) }
            }
        }
    }
}

fn groups(matrix: &Matrix) -> Markup {
    let present = || Group::ALL.into_iter().filter(|group| matrix.of(*group).next().is_some());
    html! {
        section {
            h2 { "Groups" }
            div.scroll {
                table.groups {
                    thead {
                        tr {
                            th { "group" }
                            @for column in &matrix.columns { th { (column.provider.name) } }
                        }
                    }
                    tbody {
                        @for group in present() {
                            tr {
                                th scope="row" { a href={ "#" (group) } { (group) } }
                                @for column in &matrix.columns { (bar(matrix, group, column)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The results of a group on a provider: a bar, and the numbers.
fn bar(matrix: &Matrix, group: Group, column: &Column) -> Markup {
    if column.provider.unavailable.is_some() {
        return html! { td.faint { "not tested" } };
    }
    let own = |row: &&'_ Row| -> Vec<Cell> {
        row.cells.iter().filter(|cell| cell.provider == column.provider.name).cloned().collect()
    };
    let cells: Vec<Cell> = matrix.of(group).flat_map(|row| own(&row)).collect();
    let Counts { pass, fail, unsupported, .. } = Cell::count(&cells);
    let time: f64 = cells.iter().map(|cell| cell.time().as_secs_f64()).sum();
    let label = format!("{pass} passed, {fail} failed, {unsupported} unsupported");
    html! {
        td {
            div.bar role="img" aria-label=(label) title=(label) {
                @for (count, class) in [(pass, "good"), (fail, "bad"), (unsupported, "none")] {
                    @if count > 0 { span.(class) style={ "flex-grow:" (count) } {} }
                }
            }
            span.small {
                (pass) " passed" @if fail > 0 { ", " strong.bad { (fail) " failed" } }
                @if unsupported > 0 { ", " (unsupported) " unsupported" }
                span.faint { ", " (cases::seconds(time)) }
            }
        }
    }
}

fn freedoms(matrix: &Matrix) -> Markup {
    let free: Vec<&Row> = matrix.rows.iter().filter(|row| !row.freedom.name().is_empty()).collect();
    html! {
        @if !free.is_empty() {
            section {
                h2 { "Freedoms" }
                p.small {
                    "What of a transcript may differ between providers, and why the contract allows it. \
                     Every other transcript is compared in full."
                }
                dl.freedoms {
                    @for row in free {
                        dt { code { (row.id) } " " span.tag { (row.freedom.name()) } }
                        dd { (row.freedom.why()) }
                    }
                }
            }
        }
    }
}

fn environment(matrix: &Matrix) -> Markup {
    let columns: Vec<&Column> = matrix.tested().collect();
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        for (name, value) in facts(column) {
            let known = rows.iter().position(|(known, _)| *known == name);
            let row = known.unwrap_or_else(|| {
                rows.push((name, vec![String::new(); columns.len()]));
                rows.len() - 1
            });
            rows[row].1[at] = value;
        }
    }
    // What is known of no machine is not shown.
    rows.retain(|(_, values)| values.iter().any(|value| !value.is_empty()));
    html! {
        section {
            h2 { "Environment" }
            div.scroll {
                table.environment {
                    thead {
                        tr {
                            th {}
                            @for column in &columns { th { (column.provider.name) } }
                        }
                    }
                    tbody {
                        @for (name, values) in rows {
                            tr.(if values.windows(2).any(|two| two[0] != two[1]) { "apart" } else { "same" }) {
                                th scope="row" { (name) }
                                @for value in values { td { (value) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn facts(column: &Column) -> Facts {
    let mut facts = described(&column.provider);
    if let Some(environment) = &column.environment {
        facts.extend(machine(environment));
        facts.push(("began".to_owned(), moment(environment.began)));
    }
    facts.push(("deadlines".to_owned(), format!("x {}", column.factor)));
    facts.extend(declared(&column.provider));
    if let (Some(peer), Some(provider)) = (&column.peer, &column.provider.peer) {
        let way = format!("{}, round trip {} us", peer.address, peer.round_trip_us);
        let of_it = [described(provider), machine(&peer.environment), declared(provider)].concat();
        facts.push(("other host".to_owned(), way));
        facts.extend(of_it.into_iter().map(|(name, value)| (format!("there: {name}"), value)));
    }
    facts
}

type Facts = Vec<(String, String)>;

fn described(provider: &ProviderEntry) -> Facts {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    vec![("device".to_owned(), of(&provider.device)), ("version".to_owned(), of(&provider.version))]
}

fn machine(environment: &Environment) -> Facts {
    let Environment { host, kernel, system, architecture, processor, machine, .. } = environment;
    let processors = match environment.processors {
        0 => processor.clone(),
        count => format!("{count} x {processor}"),
    };
    let memory = format!("{:.1} GiB", environment.memory_bytes as f64 / (1u64 << 30) as f64);
    vec![
        ("host".to_owned(), host.clone()),
        ("kernel".to_owned(), format!("{kernel} ({architecture})")),
        ("system".to_owned(), system.clone()),
        ("machine".to_owned(), machine.clone()),
        ("processors".to_owned(), processors),
        ("memory".to_owned(), memory),
    ]
}

fn declared(provider: &ProviderEntry) -> Facts {
    let declares = provider.declares.iter().map(|(name, value)| (name.clone(), value.clone()));
    let limits = provider.limits.iter();
    declares.chain(limits.map(|(name, most)| (format!("limit {name}"), most.to_string()))).collect()
}

/// Seconds since 1970 as a date and a time, UTC. (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".)
fn moment(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_told_is_escaped() {
        let options = crate::Options { factor: Some(1.0), ..Default::default() };
        let catalog = std::sync::Arc::new(fabric::Catalog::empty());
        let report = crate::run(&catalog, &options, &mut ()).unwrap();
        let evil = "<script>\"&'".to_owned();
        let matrix = Matrix::merge(&[report], &[(evil.clone(), evil.clone())]).unwrap();
        let page = page(&matrix);
        assert!(page.contains("&lt;script&gt;&quot;&amp;'"), "{page}");
        assert!(!page.contains(&evil) && !page.contains("<script"), "{page}");
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400 + 3_600 + 60), "2000-02-29 01:01 UTC");
        assert_eq!(moment(1_795_219_199), "2026-11-20 23:59 UTC");
    }
}
