//! The cases, one module a group.
//!
//! Each module has a table `CASES`, and one function for each of its entries, of the same name. An entry says where
//! the function is, what it needs and which rule it shows. The table below joins them; the order
//! of reports is that of the tables. `CASES.md` lists them for readers, and has by hand which rule of the contract
//! each shows; tests here keep both true.

/// A table of cases of one group: `module::function, needs, "rule" .modifier(..);`. A case has the name of its
/// function.
macro_rules! cases {
    ($group:ident: $($module:ident :: $name:ident, $needs:expr, $about:literal
        $(. $modifier:ident ($($value:tt)*))*;)*) => {
        &[$(Case::new(Group::$group, stringify!($name), $needs, $about, $module::$name)
            $(.$modifier($($value)*))*),*]
    };
}

mod asynchronous;
mod atomic;
mod completion;
mod connection;
mod crowd;
mod datagram;
mod discovery;
mod flow;
mod layout;
mod memory;
mod ordering;
mod places;
mod processes;
mod progress;
mod protection;
mod random;
mod rdm;
mod rma;
mod scale;
mod security;
mod send;
mod shared;
mod teardown;
mod threads;

use crate::case::Case;

const TABLES: &[&[Case]] = &[
    discovery::CASES,
    memory::CASES,
    connection::CASES,
    security::CASES,
    send::CASES,
    processes::SEND,
    rma::CASES,
    atomic::CASES,
    processes::ATOMIC,
    ordering::CASES,
    completion::CASES,
    protection::CASES,
    progress::CASES,
    processes::PROGRESS,
    random::CASES,
    flow::CASES,
    shared::CASES,
    threads::CASES,
    scale::CASES,
    processes::SCALE,
    asynchronous::CASES,
    rdm::CASES,
    datagram::CASES,
    teardown::CASES,
    processes::TEARDOWN,
];

/// Every case, group by group.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    TABLES.iter().copied().flatten()
}

/// The case of this id, `group.name`.
pub fn case(id: &str) -> Option<&'static Case> {
    cases().find(|case| case.id() == id)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write;

    use super::*;
    use crate::case::{Group, Turn};

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/CASES.md");

    /// Where the list ends that is made from the tables, and the text begins that is written by hand.
    const RULES: &str = "\n## Rules of the contract\n";

    #[test]
    fn names_are_unique_and_plain() {
        let mut seen = HashSet::new();
        for case in cases() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(!case.name.is_empty() && case.name.chars().all(plain), "{}", case.id());
            assert!(seen.insert(case.id()), "{} is there twice", case.id());
        }
    }

    #[test]
    fn groups_come_in_order() {
        assert!(cases().is_sorted_by_key(|case| case.group));
    }

    #[test]
    fn needed_limits_exist() {
        let known = fabric::Limits::none().named().map(|limit| limit.0);
        for case in cases() {
            for (name, _) in case.needs.min_limits {
                assert!(known.contains(name), "{}: there is no limit {name:?}", case.id());
            }
        }
    }

    /// `UPDATE_CASES=1 cargo test -p anyfabric-conformance --lib` writes the list anew.
    #[test]
    fn list_for_readers_is_true() {
        let expected = list();
        let text = std::fs::read_to_string(PATH).unwrap();
        let (written, rules) = text.split_at(text.find(RULES).unwrap());
        if std::env::var_os("UPDATE_CASES").is_some() {
            return std::fs::write(PATH, expected + rules).unwrap();
        }
        let mut lines = written.lines().zip(expected.lines());
        if let Some((written, expected)) = lines.find(|(written, expected)| written != expected) {
            panic!(
                "CASES.md says {written:?}, the tables say {expected:?}; UPDATE_CASES=1 writes it anew"
            );
        }
        assert_eq!(
            written.lines().count(),
            expected.lines().count(),
            "UPDATE_CASES=1 writes it anew"
        );
    }

    /// Every rule has a case that exists, or a test.
    #[test]
    fn rules_have_cases() {
        let text = std::fs::read_to_string(PATH).unwrap();
        let rules = &text[text.find(RULES).unwrap()..];
        let rows = rules.lines().filter(|line| line.starts_with("| "));
        let rows: Vec<[&str; 3]> = rows
            .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>())
            .filter(|row| !row[0].starts_with('*') && row[0] != "rule")
            .map(|row| row.try_into().unwrap())
            .collect();
        assert!(rows.len() > 50, "only {} rules", rows.len());
        for [rule, shown, model] in rows {
            assert!(matches!(model, "yes" | "no"), "{rule}: the model is {model:?}");
            let names: Vec<_> = shown.split('`').skip(1).step_by(2).collect();
            assert!(!names.is_empty(), "{rule}: nothing shows it");
            for name in names {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
                let exists = if name.contains('/') { path.exists() } else { case(name).is_some() };
                assert!(exists, "{rule}: there is no {name}");
            }
        }
    }

    fn list() -> String {
        let mut text = "**T**: a naive emulation over a byte stream fails it. **alone**: measures time, changes the \
             link or takes all of it, so no other case runs beside it.\n**last**: looks at what all others have left, so it runs when they have ended. \
             **soak**: long, runs on request. **free**: what of its transcript may differ between \
             providers, and why; of all other\ncases transcripts are equal. **one process**: what keeps it from \
             running between two hosts.\n"
            .to_owned();
        for group in Group::ALL {
            write!(text, "\n## {group}\n\n").unwrap();
            for case in cases().filter(|case| case.group == group) {
                write!(text, "- `{}`: {}; needs {}", case.name, case.about, case.needs).unwrap();
                let marks = [
                    (case.trap, "T"),
                    (case.turn != Turn::Beside, "alone"),
                    (case.turn == Turn::Last, "last"),
                    (case.soak, "soak"),
                ];
                for (_, mark) in marks.iter().filter(|mark| mark.0) {
                    write!(text, " **{mark}**").unwrap();
                }
                if !case.freedom.name().is_empty() {
                    write!(text, " **free** ({})", case.freedom).unwrap();
                }
                if !case.local_only.is_empty() {
                    write!(text, " **one process** ({})", case.local_only).unwrap();
                }
                text.push('\n');
            }
        }
        text
    }
}
