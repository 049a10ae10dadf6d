//! What a run found. Its JSON form is the record that `fabric-conformance merge` reads.

use std::collections::BTreeMap;
use std::time::Duration;

use fabric::Info;
use serde::{Deserialize, Serialize};

use crate::case::{Case, Group};
use crate::check::Failed;
use crate::environment::Environment;
use crate::remote::Peer;
use crate::target::Target;
use crate::transcript::Transcript;

/// The version of the JSON form: of what the fields mean. A reader takes its own version only.
pub const FORMAT: u32 = 1;

/// How a case ended on a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderEntry {
    /// Its name.
    pub name: String,
    /// The device the cases ran on.
    pub device: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// What the device says of itself: description, addresses, capabilities, ports, links.
    #[serde(default)]
    pub declares: BTreeMap<String, String>,
    /// The limits it declares.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
    /// The device of the other host, in a run between two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Box<ProviderEntry>>,
    /// Why nothing ran on it, if so.
    pub unavailable: Option<String>,
    /// Whether the user's own choice left it out; then it is no failure of a strict run.
    #[serde(default)]
    pub left_out: bool,
}

impl ProviderEntry {
    pub(crate) fn tested(target: &Target) -> Self {
        let peer = target.peer().map(|(_, info)| Box::new(ProviderEntry::of(info)));
        ProviderEntry { peer, ..ProviderEntry::of(target.info()) }
    }

    fn of(info: &Info) -> Self {
        ProviderEntry {
            name: info.provider.to_owned(),
            device: Some(info.device.clone()),
            version: Some(info.version.clone()),
            declares: declared(info),
            limits: info.limits.named().map(|(name, most)| (name.to_owned(), most)).into(),
            peer: None,
            unavailable: None,
            left_out: false,
        }
    }

    pub(crate) fn unavailable(name: &str, reason: String, left_out: bool) -> Self {
        ProviderEntry {
            name: name.to_owned(),
            device: None,
            version: None,
            declares: BTreeMap::new(),
            limits: BTreeMap::new(),
            peer: None,
            unavailable: Some(reason),
            left_out,
        }
    }
}

/// The other host of a run between two.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeerEntry {
    /// Where its server is.
    pub address: String,
    /// The machine.
    pub environment: Environment,
    /// How long a call there took.
    pub round_trip_us: u64,
}

impl PeerEntry {
    pub(crate) fn of(peer: &Peer) -> Self {
        PeerEntry {
            address: peer.addr().to_string(),
            environment: peer.environment().clone(),
            round_trip_us: peer.round_trip().as_micros() as u64,
        }
    }
}

fn declared(info: &Info) -> BTreeMap<String, String> {
    let addresses: Vec<_> = info.addresses.iter().map(ToString::to_string).collect();
    let declared = [
        ("addresses", addresses.join(", ")),
        ("atomic scope", info.atomic_scope.to_string()),
        ("capabilities", info.capabilities.names()),
        ("description", info.description.clone()),
    ];
    let declared = declared.map(|(name, value)| (name.to_owned(), value));
    info.details.iter().cloned().chain(declared).collect()
}

/// How one case ended on one provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    #[serde(rename = "ms", with = "milliseconds")]
    pub time: Duration,
    /// The group.
    pub group: Group,
    /// The failure in its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failed>,
    /// What the case took from the API.
    #[serde(default)]
    pub transcript: Transcript,
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(time.as_millis() as u64)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
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
            transcript: Transcript::default(),
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        Counts::of_statuses(results.into_iter().map(|result| result.status))
    }

    pub(crate) fn of_statuses(statuses: impl Iterator<Item = Status>) -> Self {
        let mut counts = Counts::default();
        for status in statuses {
            match status {
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// Results by status.
    #[serde(flatten)]
    pub counts: Counts,
    /// Providers on which nothing ran.
    pub unavailable: usize,
    /// Whether unsupported cases and unavailable providers are failures.
    pub strict: bool,
    /// Whether long cases ran too, and larger counts.
    pub soak: bool,
    /// The globs that chose the cases; none if all ran.
    #[serde(default)]
    pub filter: Vec<String>,
    /// The seed of everything random.
    pub seed: u64,
    /// How long the run took.
    pub seconds: f64,
    /// The factor by which deadlines were stretched.
    pub factor: f64,
}

/// What a run found. Its JSON form is that of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of this form, [`FORMAT`].
    pub format: u32,
    /// The version of the program that ran.
    pub program: String,
    /// The machine.
    pub environment: Environment,
    /// The other one, in a run between two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerEntry>,
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
}
