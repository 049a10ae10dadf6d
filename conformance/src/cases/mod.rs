//! The cases, one module a group.
//!
//! Each module has a table `CASES`, and one function for each of its lines. The table below joins them; the order
//! of reports is that of the tables. `CASES.md` lists them for readers, and a test here keeps it true.

mod asynchronous;
mod atomic;
mod completion;
mod connection;
mod crowd;
mod discovery;
mod flow;
mod layout;
mod memory;
mod ordering;
mod processes;
mod progress;
mod protection;
mod random;
mod rma;
mod scale;
mod send;
mod teardown;
mod threads;

use crate::case::Case;

const TABLES: &[&[Case]] = &[
    discovery::CASES,
    memory::CASES,
    connection::CASES,
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
    threads::CASES,
    scale::CASES,
    processes::SCALE,
    asynchronous::CASES,
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
    use crate::case::Group;

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
            for (name, _) in case.needs.least {
                assert!(known.contains(name), "{}: there is no limit {name:?}", case.id());
            }
        }
    }

    /// `UPDATE_CASES=1 cargo test -p conformance --lib` writes the list anew.
    #[test]
    fn list_for_readers_is_true() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/CASES.md");
        let expected = list();
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
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
                    (case.exclusive, "alone"),
                    (case.last, "last"),
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
