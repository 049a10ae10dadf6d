//! What to run, and how: the options, and the cases and devices that they choose.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fabric::{Catalog, Choice, Discovered, Security};
use globset::{Glob, GlobSetBuilder};

use crate::calibrate;
use crate::case::{Case, LinkFault, Needs};
use crate::cases::cases;
use crate::choose::{anything, device};
use crate::linkcontrol::LinkControl;
use crate::remote::Peer;
use crate::report::ProviderEntry;
use crate::target::{SECURED, Target, is_secured};

/// A round trip to another host that stretches no deadline.
const NEAR: Duration = Duration::from_millis(5);
/// Nothing on this planet is farther away.
const MAX_FAR: f64 = 50.0;

/// Which providers to run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// All that this machine has.
    #[default]
    All,
    /// Those of these names.
    Named(Vec<String>),
}

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The providers, within what `FABRIC_PROVIDER` allows.
    pub wanted: Wanted,
    /// The device; by default the best of each provider.
    pub device: Option<String>,
    /// Globs over `group.name`; a case that fits one of them runs. None means all.
    pub filters: Vec<String>,
    /// The seed of everything random.
    pub seed: u64,
    /// Unsupported cases and unavailable providers are failures.
    pub strict: bool,
    /// Long cases too, and larger counts.
    pub soak: bool,
    /// Cases that would begin later than this are not run, and are reported so.
    pub budget: Option<Duration>,
    /// Cases at a time; those that measure time run alone in any case.
    pub jobs: usize,
    /// The factor by which deadlines are stretched; measured if not given.
    pub factor: Option<f64>,
    /// The provider understands [`MISALIGN`](crate::MISALIGN).
    pub forges: bool,
    /// The other host, for a run between two.
    pub peer: Option<Arc<Peer>>,
    /// The device there; by default one with the address of the server, or else the best.
    pub peer_device: Option<String>,
    /// How long connecting may take; by default 5 s, stretched as all deadlines are. A link that loses packets needs
    /// more: each that is lost costs seconds.
    pub connect_timeout: Option<Duration>,
    /// The link between the two hosts loses packets in all cases. An operation whose refusal is lost may then be
    /// `PeerLost` or `Canceled`, as the contract says. What moves much moves an eighth of it.
    pub lossy: bool,
    /// A program that calls `conformance::main` with the same catalog, for cases that need a second process.
    pub program: Option<PathBuf>,
    /// How the link between the two hosts is broken and mended.
    pub link: Option<LinkControl>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            wanted: Wanted::All,
            device: None,
            filters: Vec::new(),
            seed: 1,
            strict: false,
            soak: false,
            budget: None,
            jobs: 1,
            factor: None,
            forges: false,
            peer: None,
            peer_device: None,
            connect_timeout: None,
            lossy: false,
            program: None,
            link: None,
        }
    }
}

impl Options {
    /// What a case needs that neither provider nor device can offer, and that is not there.
    pub fn lacking(&self, needs: &Needs) -> Vec<String> {
        let mut lacking = Vec::new();
        if needs.process && self.program.is_none() {
            lacking.push("a second process: the path of a program that serves".to_owned());
        }
        if needs.security > Security::Open && is_secured() {
            lacking.push(format!(
                "an environment without {}, for domains without a secret",
                SECURED.join(" and ")
            ));
        }
        let link = self.link.as_ref().filter(|_| self.peer.is_some());
        match (needs.link, link) {
            (None, _) => {}
            (Some(LinkFault::Cut), Some(_)) => {}
            (Some(LinkFault::Lossy), Some(link)) if link.impair.is_some() => {}
            (Some(LinkFault::Cut), _) => {
                lacking.push("two hosts, and --cut-link and --mend-link".to_owned());
            }
            (Some(LinkFault::Lossy), _) => {
                lacking.push("two hosts, and --impair-link and --mend-link".to_owned());
            }
        }
        lacking
    }

    pub(crate) fn factor(&self) -> f64 {
        self.factor.unwrap_or_else(|| {
            let here = calibrate::factor();
            // The slower host, or the way between them, sets the pace.
            self.peer.as_ref().map_or(here, |peer| {
                let way = peer.round_trip().as_secs_f64() / NEAR.as_secs_f64();
                here.max(peer.factor()).max((way.min(MAX_FAR) * 10.0).round() / 10.0)
            })
        })
    }
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A filter is no glob.
    #[error("{0:?} is no pattern: {1}")]
    BadFilter(String, String),
    /// A filter that fits nothing is a mistake.
    #[error("no case fits {0:?}; `--list` shows all cases, `--list-groups` the groups{1}")]
    NoCase(String, &'static str),
    /// The request for a provider cannot be understood.
    #[error("{0}")]
    Provider(#[from] fabric::Error),
}

/// The cases that fit the filters, each filter at least one of them; soak cases only if asked for.
///
/// # Errors
/// `BadFilter` or `NoCase`, naming the filter.
pub fn select(filters: &[String], soak: bool) -> Result<Vec<&'static Case>, RunError> {
    let mut set = GlobSetBuilder::new();
    for filter in filters {
        let bad = |error: globset::Error| RunError::BadFilter(filter.clone(), error.to_string());
        let glob = Glob::new(filter).map_err(bad)?;
        let matcher = glob.compile_matcher();
        let mut fitting = cases().filter(|case| matcher.is_match(case.id())).peekable();
        if fitting.peek().is_none() {
            return Err(RunError::NoCase(filter.clone(), ""));
        }
        if fitting.all(|case| case.soak && !soak) {
            return Err(RunError::NoCase(
                filter.clone(),
                "; those that fit run with `--soak` only",
            ));
        }
        set.add(glob);
    }
    let bad = |error: globset::Error| RunError::BadFilter(filters.join(" "), error.to_string());
    let set = set.build().map_err(bad)?;
    let wanted =
        |case: &&Case| (soak || !case.soak) && (filters.is_empty() || set.is_match(case.id()));
    Ok(cases().filter(wanted).collect())
}

/// The providers that were asked for, and the usable ones of them.
pub(crate) fn find_targets(
    catalog: &Arc<Catalog>,
    options: &Options,
) -> Result<(Vec<ProviderEntry>, Vec<Target>), RunError> {
    let found = catalog.discover(&anything())?;
    let excluded = match std::env::var("FABRIC_PROVIDER").map(|text| Choice::parse(&text)) {
        Ok(Ok(Choice::Exclude(names))) => names,
        _ => Vec::new(),
    };
    let mut names: Vec<&str> = Vec::new();
    for name in found.iter().map(|found| found.provider) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if let Wanted::Named(wanted) = &options.wanted {
        names.clear();
        for name in wanted {
            // An error if no provider has the name.
            catalog.discover_with(&Choice::only(name), &anything())?;
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let (mut entries, mut targets) = (Vec::new(), Vec::new());
    for name in names {
        let of_it = |found: &&Discovered| found.provider == name;
        let devices: Vec<Discovered> = found.iter().filter(of_it).cloned().collect();
        let left_out = devices.is_empty() || excluded.iter().any(|excluded| excluded == name);
        match choose(catalog, devices, options) {
            Ok(target) => {
                entries.push(ProviderEntry::tested(&target));
                targets.push(target);
            }
            Err(reason) => entries.push(ProviderEntry::unavailable(name, reason, left_out)),
        }
    }
    Ok((entries, targets))
}

/// The device to run on, and the one at the other host.
fn choose(
    catalog: &Arc<Catalog>,
    devices: Vec<Discovered>,
    options: &Options,
) -> Result<Target, String> {
    if devices.is_empty() {
        let value = std::env::var("FABRIC_PROVIDER").unwrap_or_default();
        return Err(format!("left out by FABRIC_PROVIDER={value}"));
    }
    let wanted = options.device.as_deref();
    let Some(peer) = &options.peer else {
        return Ok(Target::new(catalog, device(devices, wanted, None)?));
    };
    let info = device(devices, wanted, Some(peer.own_ip()))?;
    Target::new(catalog, info).with_peer(peer, options.peer_device.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_must_fit() {
        let ids = |filters: &[&str]| {
            let filters: Vec<_> = filters.iter().map(|f| (*f).to_owned()).collect();
            select(&filters, false).map(|cases| cases.iter().map(|c| c.id()).collect::<Vec<_>>())
        };
        assert_eq!(ids(&["send.fifo"]).unwrap(), ["send.fifo"]);
        assert!(ids(&["rma.*", "send.fifo"]).unwrap().len() > 1);
        assert!(ids(&["rma.*"]).unwrap().iter().all(|id| id.starts_with("rma.")));
        assert!(
            matches!(ids(&["send.fifo", "nosuch.*"]), Err(RunError::NoCase(name, _)) if name == "nosuch.*")
        );
        assert!(matches!(ids(&["[a"]), Err(RunError::BadFilter(..))));
    }
}
