//! What a run found.

use std::time::Duration;

use fabric::Info;
use serde::Serialize;

use crate::case::{Case, Group};
use crate::check::Failed;

/// How a case ended on a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The rule is kept.
    Pass,
    /// It is not.
    Fail,
    /// The provider declares that it does not offer what the case needs.
    Unsupported,
}

/// A provider of the run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProviderEntry {
    /// Its name.
    pub name: String,
    /// The device the cases ran on.
    pub device: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Why nothing ran on it, if so.
    pub unavailable: Option<String>,
    /// Whether the user's own choice left it out; then it is no failure of a strict run.
    #[serde(skip)]
    pub left_out: bool,
}

impl ProviderEntry {
    pub(crate) fn tested(info: &Info) -> Self {
        ProviderEntry {
            name: info.provider.to_owned(),
            device: Some(info.device.clone()),
            version: Some(info.version.clone()),
            unavailable: None,
            left_out: false,
        }
    }

    pub(crate) fn unavailable(name: &str, reason: String, left_out: bool) -> Self {
        let name = name.to_owned();
        ProviderEntry { name, device: None, version: None, unavailable: Some(reason), left_out }
    }
}

/// How one case ended on one provider.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseResult {
    /// `group.name`.
    pub id: String,
    /// The provider's name.
    pub provider: String,
    /// How it ended.
    pub status: Status,
    /// What was expected and seen, or what is missing; empty for a pass.
    pub detail: String,
    /// How long it took.
    #[serde(rename = "ms", serialize_with = "as_milliseconds")]
    pub time: Duration,
    /// The group.
    #[serde(skip)]
    pub group: Group,
    /// The failure in its parts.
    #[serde(skip)]
    pub failure: Option<Failed>,
}

fn as_milliseconds<S: serde::Serializer>(
    time: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_millis() as u64)
}

impl CaseResult {
    pub(crate) fn new(case: &Case, provider: &str, time: Duration) -> Self {
        CaseResult {
            id: case.id(),
            provider: provider.to_owned(),
            status: Status::Pass,
            detail: String::new(),
            time,
            group: case.group,
            failure: None,
        }
    }

    pub(crate) fn failed(mut self, failure: Failed) -> Self {
        self.status = Status::Fail;
        self.detail = failure.to_string();
        self.failure = Some(failure);
        self
    }

    pub(crate) fn unsupported(mut self, missing: &[String]) -> Self {
        self.status = Status::Unsupported;
        self.detail = missing.join("; ");
        self
    }
}

/// Results by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Cases that passed.
    pub pass: usize,
    /// Cases that failed.
    pub fail: usize,
    /// Cases whose needs are not offered.
    pub unsupported: usize,
}

impl Counts {
    /// Counts results.
    pub fn of<'a>(results: impl IntoIterator<Item = &'a CaseResult>) -> Self {
        let mut counts = Counts::default();
        for result in results {
            match result.status {
                Status::Pass => counts.pass += 1,
                Status::Fail => counts.fail += 1,
                Status::Unsupported => counts.unsupported += 1,
            }
        }
        counts
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.pass + self.fail + self.unsupported
    }
}

/// The run in numbers.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Results by status.
    #[serde(flatten)]
    pub counts: Counts,
    /// Providers on which nothing ran.
    pub unavailable: usize,
    /// Whether unsupported cases and unavailable providers are failures.
    pub strict: bool,
    /// The seed of everything random.
    pub seed: u64,
    /// How long the run took.
    pub seconds: f64,
    /// The factor by which deadlines were stretched.
    pub factor: f64,
}

/// What a run found. Its JSON form is that of the program.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The providers, in order of preference.
    pub providers: Vec<ProviderEntry>,
    /// The results, in the order of providers and then of the list of cases.
    pub cases: Vec<CaseResult>,
    /// The run in numbers.
    pub summary: Summary,
}

impl Report {
    /// The results on one provider.
    pub fn on<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = &'a CaseResult> {
        self.cases.iter().filter(move |result| result.provider == provider)
    }

    /// The results that are failures.
    pub fn failures(&self) -> impl Iterator<Item = &CaseResult> {
        self.cases.iter().filter(|result| result.status == Status::Fail)
    }

    /// Whether a case ran at all. A run of nothing shows nothing, so it is not a good one.
    pub fn ran(&self) -> bool {
        self.summary.counts.pass + self.summary.counts.fail > 0
    }

    /// The providers that make a strict run fail.
    pub fn missing_providers(&self) -> impl Iterator<Item = &ProviderEntry> {
        let strict = self.summary.strict;
        self.providers.iter().filter(move |p| strict && p.unavailable.is_some() && !p.left_out)
    }

    /// The program's exit status: 0 all passed, 1 something failed, 2 nothing ran.
    pub fn exit_code(&self) -> u8 {
        if !self.ran() {
            2
        } else {
            u8::from(self.summary.counts.fail > 0 || self.missing_providers().next().is_some())
        }
    }
}
