//! The mutants, one table for each part of the product.

mod core;
mod handles;
mod layer;
mod shared;
mod sound;
mod tcp;
mod tcp_engine;
mod verbs;

/// A wrong change.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// Its name.
    pub(crate) name: &'static str,
    /// What is wrong, in one line.
    pub(crate) about: &'static str,
    /// What it is tried on.
    pub(crate) runs: Runs,
    /// What is changed.
    pub(crate) edits: &'static [Edit],
    /// The cases that are there for it: at least one of them fails.
    pub(crate) cases: &'static [&'static str],
}

/// The provider that a mutant is tried on, and between what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Tcp,
    /// Two network namespaces, with a link between them that can be cut.
    TcpLink,
    /// Tests of the crates, in place of cases: each as `package/program/name`.
    Tests,
    Verbs,
}

impl Runs {
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Runs::Tcp | Runs::TcpLink => "tcp",
            Runs::Tests => "tests",
            Runs::Verbs => "verbs",
        }
    }
}

/// A change at one place.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The function, as `name` or `Type::name`, in whatever file of the libraries it is.
    pub(crate) function: &'static str,
    /// The text in it, found exactly once: an expression, or a statement with its semicolon.
    pub(crate) find: &'static str,
    /// What takes its place while the mutant is enabled. If it names `MUTANT`, which is true then, it is there as it
    /// is at all times.
    pub(crate) wrong: &'static str,
}

const fn edit(function: &'static str, find: &'static str, wrong: &'static str) -> Edit {
    Edit { function, find, wrong }
}

/// Every mutant with its number, which starts at 1.
pub(crate) fn all() -> impl Iterator<Item = (usize, &'static Mutant)> {
    let tables = [
        core::MUTANTS,
        handles::MUTANTS,
        layer::MUTANTS,
        shared::MUTANTS,
        sound::MUTANTS,
        tcp::MUTANTS,
        tcp_engine::MUTANTS,
        verbs::MUTANTS,
    ];
    tables.into_iter().flatten().enumerate().map(|(at, mutant)| (at + 1, mutant))
}

/// Those of these names, or all; on one provider, or all.
pub(crate) fn choose(
    names: &[String],
    provider: &Option<String>,
) -> Result<Vec<(usize, &'static Mutant)>, String> {
    if let Some(name) = names.iter().find(|name| !all().any(|m| m.1.name == **name)) {
        return Err(format!("there is no mutant {name:?}; --list shows them"));
    }
    let wanted = |(_, mutant): &(usize, &Mutant)| {
        (names.is_empty() || names.iter().any(|name| name == mutant.name))
            && provider.as_ref().is_none_or(|provider| provider == mutant.runs.provider())
    };
    Ok(all().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_cases_exist() {
        let mut seen = HashSet::new();
        for (_, mutant) in all() {
            assert!(seen.insert(mutant.name), "{} is there twice", mutant.name);
            assert!(!mutant.edits.is_empty() && !mutant.cases.is_empty(), "{}", mutant.name);
            for id in mutant.cases {
                let there = match mutant.runs {
                    Runs::Tests => id.split('/').count() == 3,
                    _ => conformance::case(id).is_some(),
                };
                assert!(there, "{}: there is no case {id}", mutant.name);
            }
        }
    }
}
