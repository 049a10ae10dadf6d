//! Runs on several providers side by side: one row a case, one column a provider.
//!
//! It is made from one run of all providers, or merged from the records of several: a provider's run may be a
//! process of its own, on another machine even. What makes it fail: a case that fails, transcripts that differ
//! without a [`Freedom`] that says why, a case that runs on one provider only though the contract asks every
//! provider for it.

use std::time::Duration;

use serde::Serialize;

use crate::case::Group;
use crate::check::Failed;
use crate::environment::Environment;
use crate::freedom::Freedom;
use crate::report::{Counts, PeerEntry, ProviderEntry, Status};
use crate::transcript::{Difference, Transcript};

/// Results side by side. Its JSON form is `report.json`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Matrix {
    /// The version of this form, [`FORMAT`](crate::FORMAT).
    pub format: u32,
    /// The whole in numbers.
    pub summary: Totals,
    /// The providers, the tested ones first.
    pub columns: Vec<Column>,
    /// The cases, in the order of their list.
    pub rows: Vec<Row>,
}

/// The matrix in numbers.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// How it ended as a whole.
    pub verdict: Verdict,
    /// Results by status, over all providers.
    #[serde(flatten)]
    pub counts: Counts,
    /// Cases whose transcripts were compared.
    pub compared: usize,
    /// Cases that passed and whose transcripts differ; anything but zero is a failure.
    pub differing: usize,
    /// Cases that pass on one provider and are unsupported on another, though no provider may lack what they need;
    /// anything but zero is a failure.
    pub uneven: usize,
    /// Cases that the contract leaves something open in.
    pub free: usize,
    /// Providers on which nothing ran.
    pub unavailable: usize,
    /// Whether those are failures.
    pub strict: bool,
    /// The globs that chose the cases; none if all ran.
    pub filter: Vec<String>,
    /// Cases that there are; [`Matrix::rows`] may have a part of them.
    pub known: usize,
    /// The seed of everything random.
    pub seed: u64,
}

/// How a matrix ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything holds.
    Pass,
    /// Something does not.
    Fail,
    /// No case ran, which shows nothing.
    Nothing,
}

/// A provider.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Column {
    /// What it is, or why nothing ran on it.
    #[serde(flatten)]
    pub provider: ProviderEntry,
    /// Its results by status.
    pub counts: Counts,
    /// The machine that its cases ran on.
    pub environment: Option<Environment>,
    /// The other host, if its cases ran between two.
    pub peer: Option<PeerEntry>,
    /// How long its run took, in seconds.
    pub seconds: f64,
    /// The factor by which deadlines were stretched.
    pub factor: f64,
}

/// A case.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// `group.name`.
    pub id: String,
    /// The group.
    pub group: Group,
    /// The rule.
    pub about: &'static str,
    /// What of its transcript may differ, and why; null if nothing.
    #[serde(serialize_with = "as_text")]
    pub freedom: Freedom,
    /// Whether a provider may lack what it needs.
    pub optional: bool,
    /// How it ended on each tested provider, in the order of the columns.
    pub cells: Vec<Cell>,
    /// Whether transcripts were compared: it passed on more than one provider, and is not free as a whole.
    pub compared: bool,
    /// Where transcripts differ that should not.
    pub differences: Vec<Difference>,
    /// Whether the case passed, and the transcripts differ all the same.
    pub differs: bool,
    /// Whether it passed on one provider and is unsupported on another, without being optional.
    pub uneven: bool,
}

/// How a case ended on a provider.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// The provider.
    pub provider: String,
    /// How it ended.
    pub status: Status,
    /// What was expected and seen, or what is missing; empty for a pass.
    pub detail: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// The failure in its parts.
    pub failure: Option<Failed>,
    /// What the case took from the API, where the row fails or differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript: Option<Transcript>,
}

fn as_text<S: serde::Serializer>(freedom: &Freedom, to: S) -> Result<S::Ok, S::Error> {
    match freedom {
        Freedom::None => to.serialize_none(),
        some => to.collect_str(some),
    }
}

/// How many of the words that chose cases are named in a line.
const MAX_NAMED: usize = 6;

impl Matrix {
    /// The columns of providers that cases ran on; they are those of [`Row::cells`].
    pub fn tested(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.provider.unavailable.is_none())
    }

    /// The columns on which nothing ran, with the reason.
    pub fn unavailable(&self) -> impl Iterator<Item = (&Column, &str)> {
        self.columns.iter().filter_map(|c| Some((c, c.provider.unavailable.as_deref()?)))
    }

    /// The unavailable providers that make a strict run fail: not those that the user's own choice left out.
    pub fn missing(&self) -> impl Iterator<Item = &Column> {
        let strict = self.summary.strict;
        self.unavailable().map(|c| c.0).filter(move |column| strict && !column.provider.left_out)
    }

    /// How many of the cases ran, and what chose them, if not all did: such a run shows a part of the contract only.
    pub fn part(&self) -> Option<String> {
        let (ran, known) = (self.rows.len(), self.summary.known);
        self.tested().next().filter(|_| ran < known)?;
        let filter = &self.summary.filter;
        let mut named = filter[..filter.len().min(MAX_NAMED)].join(", ");
        if filter.len() > MAX_NAMED {
            named += &format!(" and {} more", filter.len() - MAX_NAMED);
        }
        let named = if named.is_empty() { named } else { format!(" ({named})") };
        Some(format!("{ran} of {known} cases{named}"))
    }

    /// How long the runs took together, in seconds, each once: one run may be of several providers.
    pub fn seconds(&self) -> f64 {
        let mut seen: Vec<(&Option<Environment>, f64)> = Vec::new();
        for column in self.tested() {
            let run = (&column.environment, column.seconds);
            if !seen.contains(&run) {
                seen.push(run);
            }
        }
        // Not `sum`: that of nothing is -0.0.
        seen.iter().fold(0.0, |all, (_, seconds)| all + seconds)
    }

    /// The rows of a group.
    pub fn of(&self, group: Group) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.group == group)
    }

    /// The program's exit status: 0 all holds, 1 something does not, 2 nothing ran.
    pub fn exit_code(&self) -> u8 {
        match self.summary.verdict {
            Verdict::Pass => 0,
            Verdict::Fail => 1,
            Verdict::Nothing => 2,
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let Totals { counts, differing, uneven, .. } = &self.summary;
        if counts.pass + counts.fail == 0 {
            Verdict::Nothing
        } else if counts.fail + differing + uneven > 0 || self.missing().next().is_some() {
            Verdict::Fail
        } else {
            Verdict::Pass
        }
    }
}

impl Row {
    /// Whether it failed on a provider.
    pub fn failed(&self) -> bool {
        self.cells.iter().any(|cell| cell.status == Status::Fail)
    }

    /// Whether it is as it should be.
    pub fn is_good(&self) -> bool {
        !(self.failed() || self.differs || self.uneven)
    }
}

impl Cell {
    /// Cells by status.
    pub fn count<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Counts {
        Counts::of_statuses(cells.into_iter().map(|cell| cell.status))
    }

    /// How long it took.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.ms)
    }
}
