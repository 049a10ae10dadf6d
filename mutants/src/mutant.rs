//! What a mutant is.

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
    Shm,
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
            Runs::Shm => "shm",
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

pub(crate) const fn edit(function: &'static str, find: &'static str, wrong: &'static str) -> Edit {
    Edit { function, find, wrong }
}
