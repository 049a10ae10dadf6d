//! Which devices a choice leaves to a program, and which of them suit it.

use std::sync::Arc;

use fabric_core::info::NO_DEVICE;
use fabric_core::{Device, DynProvider, Error, Failure, Hints, Info, Result, Unusable};
use fabric_util::sync::assert_none_held;

use crate::choice::{Choice, ProviderSpec};

/// The provider that is made of `shm` and another.
pub(crate) const AUTO: &str = "auto";
/// The one that reaches peers of this host only.
const SHM: &str = "shm";
/// Those that it is joined with: their peers are processes, by addresses of hosts.
#[cfg(feature = "shm")]
const JOINED: [&str; 2] = ["verbs", "tcp"];

/// Providers of this project, in order of preference, and the features that build them.
const KNOWN: [(&str, &str); 4] = [(AUTO, SHM), ("verbs", "verbs"), ("tcp", "tcp"), (SHM, SHM)];

// Serde takes a field that is written as a reference for one that borrows from its input.
type Name = &'static str;

/// A device as discovery found it, held against the hints and the user's choice.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Discovered {
    /// The provider.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "fabric_core::names::deserialize"))]
    pub provider: Name,
    /// The device; empty for a provider that is not built in.
    pub device: String,
    /// Whether it would do, or why not.
    pub usable: Result<Info, String>,
}

/// A device, and the provider that opens it; none for one that is not built in.
pub(crate) struct Candidate {
    pub(crate) provider: Option<Arc<dyn DynProvider>>,
    pub(crate) found: Discovered,
}

/// The devices that `choice` leaves of these providers, with what keeps each from being used; the preferred ones first.
///
/// # Errors
/// `NoProvider` for a name that none of them has, and none of this project's could have.
pub(crate) fn search(
    providers: &[Arc<dyn DynProvider>],
    choice: &Choice,
    hints: &Hints,
) -> Result<Vec<Candidate>> {
    check_names(providers, choice)?;
    let preferred = preferred(providers);
    let mut found = Vec::new();
    match choice {
        Choice::Auto => {
            for Ranked { provider, .. } in &preferred {
                found.extend(devices_of(provider, None, hints));
            }
            found.extend(not_built_in(providers));
        }
        Choice::Exclude(excluded) => {
            for Ranked { provider, parts } in &preferred {
                let mut devices = devices_of(provider, None, hints);
                if excluded.iter().any(|name| parts.contains(&&**name)) {
                    for device in &mut devices {
                        device.found.usable = Err(format!("excluded by FABRIC_PROVIDER={choice}"));
                    }
                }
                found.extend(devices);
            }
            found.extend(not_built_in(providers));
        }
        Choice::Include(named) => {
            for named in named {
                let of_name =
                    preferred.iter().filter(|ranked| ranked.provider.name() == named.provider);
                let of_name: Vec<_> = of_name.map(|ranked| ranked.provider.clone()).collect();
                if of_name.is_empty() {
                    let missing = not_built_in(providers);
                    found.extend(missing.filter(|c| c.found.provider == named.provider));
                }
                found.extend(named_of(&of_name, named, hints));
            }
        }
    }
    Ok(found)
}

/// A provider, and by which names it is excluded: its own, and those of what it is made of.
struct Ranked {
    provider: Arc<dyn DynProvider>,
    parts: Vec<&'static str>,
}

/// All providers, the preferred ones first: each behind the one that is made of it and shared memory.
fn preferred(providers: &[Arc<dyn DynProvider>]) -> Vec<Ranked> {
    let mut all = Vec::new();
    for provider in providers {
        let name = provider.name();
        let joined = joined(providers, provider);
        all.extend(joined.map(|joined| Ranked { provider: joined, parts: vec![AUTO, SHM, name] }));
        all.push(Ranked { provider: provider.clone(), parts: vec![name] });
    }
    all
}

/// The names of all providers that can be chosen.
pub(crate) fn names(providers: &[Arc<dyn DynProvider>]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for Ranked { provider, .. } in preferred(providers) {
        if !names.contains(&provider.name()) {
            names.push(provider.name());
        }
    }
    names
}

/// The provider that is made of shared memory and this one.
#[cfg(feature = "shm")]
fn joined(
    providers: &[Arc<dyn DynProvider>],
    far: &Arc<dyn DynProvider>,
) -> Option<Arc<dyn DynProvider>> {
    use std::any::Any;

    let as_shm = |provider: &Arc<dyn DynProvider>| {
        (&**provider as &dyn Any).downcast_ref::<provider_shm::ShmProvider>().cloned()
    };
    let near = providers.iter().find_map(as_shm)?;
    if !JOINED.contains(&far.name()) {
        return None;
    }
    Some(Arc::new(provider_auto::AutoProvider::new(near, far.clone())))
}

#[cfg(not(feature = "shm"))]
fn joined(_: &[Arc<dyn DynProvider>], _: &Arc<dyn DynProvider>) -> Option<Arc<dyn DynProvider>> {
    None
}

/// Refuses a name that no provider has and none of this project's could have.
fn check_names(providers: &[Arc<dyn DynProvider>], choice: &Choice) -> Result<()> {
    let mut known = names(providers);
    for (name, _) in KNOWN {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    for name in choice.names() {
        if !known.contains(&name) {
            return Err(unknown("provider", name, &known));
        }
    }
    Ok(())
}

/// The devices of providers of one name, or of them the one that is named.
fn named_of(
    providers: &[Arc<dyn DynProvider>],
    named: &ProviderSpec,
    hints: &Hints,
) -> Vec<Candidate> {
    let wanted = named.device.as_deref();
    let of = |wanted| providers.iter().flat_map(move |p| devices_of(p, wanted, hints)).collect();
    let found: Vec<Candidate> = of(wanted);
    let (Some(wanted), true, Some(first)) = (wanted, found.is_empty(), providers.first()) else {
        return found;
    };
    let all: Vec<Candidate> = of(None);
    let names: Vec<_> = all.iter().map(|candidate| candidate.found.device.as_str()).collect();
    let mut text = unknown_text("device", wanted, &names);
    // Where nothing is usable, the reason matters more than the names.
    if all.iter().all(|candidate| candidate.found.usable.is_err()) {
        for Candidate { found: Discovered { device, usable, .. }, .. } in &all {
            if let Err(unusable) = usable {
                text = format!("{text}; {device}: {unusable}");
            }
        }
    }
    let found = Discovered { provider: first.name(), device: wanted.to_owned(), usable: Err(text) };
    vec![Candidate { provider: None, found }]
}

/// The devices of a provider, or the one of this name.
fn devices_of(
    provider: &Arc<dyn DynProvider>,
    wanted: Option<&str>,
    hints: &Hints,
) -> Vec<Candidate> {
    assert_none_held("a provider is called");
    let is_wanted = |device: &Device| match wanted {
        Some(wanted) => device.name == wanted,
        // That there is none to join with, that provider says.
        None => provider.name() != AUTO || device.name != NO_DEVICE,
    };
    let candidate = |device| Candidate {
        provider: Some(provider.clone()),
        found: evaluate(provider.name(), device, hints),
    };
    provider.devices().into_iter().filter(is_wanted).map(candidate).collect()
}

fn not_built_in(providers: &[Arc<dyn DynProvider>]) -> impl Iterator<Item = Candidate> {
    let names = names(providers);
    KNOWN.into_iter().filter(move |(name, _)| !names.contains(name)).map(|(name, feature)| {
        let text = format!(
            "not built in (build with cargo's `--features {feature}`, or enable the feature `{feature}` of the package `anyfabric`)"
        );
        let found = Discovered { provider: name, device: String::new(), usable: Err(text) };
        Candidate { provider: None, found }
    })
}

fn evaluate(provider: &'static str, device: Device, hints: &Hints) -> Discovered {
    let usable = match device.state {
        Err(Unusable { reason, remedy }) => Err(format!("{reason} ({remedy})")),
        Ok(info) => {
            let unmet: Vec<_> = hints.unmet(&info).iter().map(ToString::to_string).collect();
            if unmet.is_empty() { Ok(info) } else { Err(unmet.join("; ")) }
        }
    };
    Discovered { provider, device: device.name, usable }
}

/// An error of a name that nothing has.
pub(crate) fn unknown(what: &'static str, name: &str, known: &[&str]) -> Error {
    Error::NoProvider(Failure::new("choose provider", unknown_text(what, name, known)))
}

fn unknown_text(what: &str, name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(name, k), k))
        .min()
        .filter(|(distance, _)| *distance <= 1 + name.len() / 3);
    let hint = nearest.map_or(String::new(), |(_, name)| format!("; did you mean {name:?}?"));
    format!("there is no {what} {name:?}{hint} (there are: {})", known.join(", "))
}
