//! The providers this program has, and choosing among their devices.

use std::fmt;

use fabric_core::info::NO_DEVICE;
use fabric_core::{Device, Error, Failure, Hints, Info, Provider, Result, Unusable};
use fabric_util::log_line;

use crate::any::AnyProvider;
use crate::choice::{Choice, Named};
use crate::domain::Domain;
use crate::env::Settings;
use crate::eq::Hub;

/// Providers of this project, in order of preference, and what to do for one that is not built in.
const KNOWN: [(&str, &str); 2] = [
    (
        "verbs",
        "build with cargo's `--features verbs`, or enable the feature `verbs` of the crate `fabric`",
    ),
    (
        "tcp",
        "build with cargo's `--features tcp`, or enable the feature `tcp` of the crate `fabric`",
    ),
];

/// The providers to choose from: the compiled-in ones, and any that the application adds.
///
/// ```
/// use fabric::{Catalog, Choice, Hints};
///
/// let catalog = Catalog::builtin();
/// for found in catalog.discover(&Hints::default())? {
///     match found.verdict {
///         Ok(info) => println!("{}:{} at {:?}", found.provider, found.device, info.addresses),
///         Err(reason) => println!("{}:{} cannot be used: {reason}", found.provider, found.device),
///     }
/// }
/// // What the program chooses, whatever FABRIC_PROVIDER says.
/// let domain = catalog.open_with(&Choice::parse("tcp")?, &Hints::default())?;
/// assert_eq!(domain.provider(), "tcp");
/// # Ok::<(), fabric::Error>(())
/// ```
pub struct Catalog {
    providers: Vec<AnyProvider>,
}

// Serde takes a field that is written as a reference for one that borrows from its input.
type Name = &'static str;

/// A device as discovery found it, held against the hints and the user's choice.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Found {
    /// The provider.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "fabric_core::names::deserialize"))]
    pub provider: Name,
    /// The device; empty for a provider that is not built in.
    pub device: String,
    /// Whether it would do, or why not.
    pub verdict: Result<Info, String>,
}

/// Which provider and device a domain runs on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// The provider.
    pub provider: &'static str,
    /// The device.
    pub device: String,
    /// The choice it follows: `auto`, or the value of `FABRIC_PROVIDER`.
    pub choice: Choice,
    /// What was preferred and passed over, each with the reason.
    pub passed_over: Vec<String>,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chose {}:{} ({})", self.provider, self.device, self.choice)?;
        for reason in &self.passed_over {
            write!(f, "; not {reason}")?;
        }
        Ok(())
    }
}

impl Catalog {
    /// The compiled-in providers, the preferred ones first.
    pub fn builtin() -> Self {
        Catalog {
            providers: vec![
                #[cfg(feature = "verbs")]
                AnyProvider::Verbs(provider_verbs::VerbsProvider::new()),
                #[cfg(feature = "tcp")]
                AnyProvider::Tcp(provider_tcp::TcpProvider::new()),
            ],
        }
    }

    /// No provider at all.
    pub fn empty() -> Self {
        Catalog { providers: Vec::new() }
    }

    /// For tests: TCP takes every liberty that the contract leaves and that nature rarely takes. It cuts what it
    /// sends and receives anywhere, puts off acknowledgements, credits and answers, serves connections in odd orders
    /// and is late. What the contract guarantees still holds, so a program that relies on no more works as before,
    /// only slower. Choices follow from the seed. Other providers are as they are.
    ///
    /// `FABRIC_TCP_ADVERSARY` does the same for a program as it is.
    pub fn adversary(mut self, seed: u64) -> Self {
        self.providers.iter_mut().for_each(|provider| provider.adversary(Some(seed)));
        self
    }

    /// Adds a provider, behind those already there. Its name must be new.
    ///
    /// # Errors
    /// `InvalidArgument` if a provider of this name is there.
    #[allow(clippy::should_implement_trait)] // catalogs are not added with `+`
    pub fn add(mut self, provider: impl Provider) -> Result<Self> {
        let name = provider.name();
        if self.providers.iter().any(|p| p.name() == name) {
            return Err(Error::invalid(
                "add provider",
                format!("there is a provider {name:?} already"),
            ));
        }
        self.providers.push(AnyProvider::Dyn(Box::new(provider)));
        Ok(self)
    }

    /// The names of the providers, in order of preference.
    pub fn names(&self) -> Vec<&'static str> {
        self.providers.iter().map(AnyProvider::name).collect()
    }

    /// Every device of every provider with what it offers, or why it is not usable, excluded by
    /// `FABRIC_PROVIDER`, or short of what `hints` need; preferred ones first.
    ///
    /// # Errors
    /// As [`open`](Catalog::open), for what is wrong with the request itself.
    pub fn discover(&self, hints: &Hints) -> Result<Vec<Found>> {
        self.discover_with(&Settings::from_env()?.choice, hints)
    }

    /// As [`discover`](Catalog::discover), with a choice of the program's own.
    ///
    /// # Errors
    /// As [`open`](Catalog::open), for what is wrong with the request itself.
    pub fn discover_with(&self, choice: &Choice, hints: &Hints) -> Result<Vec<Found>> {
        self.check_names(choice)?;
        let mut found = Vec::new();
        match choice {
            Choice::Auto => {
                for provider in &self.providers {
                    found.extend(self.devices_of(provider, None, hints));
                }
                found.extend(self.not_built_in());
            }
            Choice::Not(excluded) => {
                for provider in &self.providers {
                    let mut devices = self.devices_of(provider, None, hints);
                    if excluded.iter().any(|name| name == provider.name()) {
                        for device in &mut devices {
                            device.verdict = Err(format!("excluded by FABRIC_PROVIDER={choice}"));
                        }
                    }
                    found.extend(devices);
                }
                found.extend(self.not_built_in());
            }
            Choice::Only(named) => {
                for named in named {
                    match self.providers.iter().find(|p| p.name() == named.provider) {
                        Some(provider) => {
                            found.extend(self.devices_of(provider, Some(named), hints))
                        }
                        None => found
                            .extend(self.not_built_in().filter(|f| f.provider == named.provider)),
                    }
                }
            }
        }
        Ok(found)
    }

    /// Opens the device that suits `hints` best, within what `FABRIC_PROVIDER` allows.
    ///
    /// # Errors
    /// `NoProvider` if none suits or a name is unknown; the text says for each why not. `InvalidArgument`
    /// for an environment variable with a bad value. Or what the provider says when it opens the device.
    pub fn open(&self, hints: &Hints) -> Result<Domain> {
        let settings = Settings::from_env()?;
        self.open_settings(settings, hints)
    }

    /// As [`open`](Catalog::open), with a choice of the program's own instead of `FABRIC_PROVIDER`.
    ///
    /// # Errors
    /// As [`open`](Catalog::open).
    pub fn open_with(&self, choice: &Choice, hints: &Hints) -> Result<Domain> {
        let settings = Settings { choice: choice.clone(), ..Settings::from_env()? };
        self.open_settings(settings, hints)
    }

    fn open_settings(&self, settings: Settings, hints: &Hints) -> Result<Domain> {
        let choice = &settings.choice;
        let found = self.discover_with(choice, hints)?;
        let (mut passed_over, mut unusable) = (Vec::new(), false);
        for Found { provider: name, device, verdict } in found {
            match verdict {
                Ok(info) => {
                    let Some(provider) = self.providers.iter().find(|p| p.name() == name) else {
                        continue;
                    };
                    let selection =
                        Selection { provider: name, device, choice: choice.clone(), passed_over };
                    // That there is no device to prefer is nothing to be warned of.
                    if unusable {
                        log_line!(Warn, "{selection}");
                    } else {
                        log_line!(Info, "{selection}");
                    }
                    let hub = Hub::new()?;
                    let ops = provider.open(&info, hub.clone(), settings.tcp)?;
                    return Ok(Domain::new(ops, hub, info, selection, settings.endpoint));
                }
                Err(reason) if device.is_empty() => passed_over.push(format!("{name}: {reason}")),
                Err(reason) => {
                    unusable |= device != NO_DEVICE || *choice != Choice::Auto;
                    passed_over.push(format!("{name}:{device}: {reason}"));
                }
            }
        }
        Err(nothing(choice, &passed_over))
    }

    /// Refuses a name that no provider has and none of this project's could have.
    fn check_names(&self, choice: &Choice) -> Result<()> {
        let mut known = self.names();
        known.extend(KNOWN.iter().map(|k| k.0).filter(|k| !self.names().contains(k)));
        for name in choice.names() {
            if !known.contains(&name) {
                return Err(unknown("provider", name, &known));
            }
        }
        Ok(())
    }

    fn devices_of(
        &self,
        provider: &AnyProvider,
        named: Option<&Named>,
        hints: &Hints,
    ) -> Vec<Found> {
        let devices = provider.devices();
        let wanted = named.and_then(|named| named.device.as_deref());
        if let Some(wanted) = wanted
            && !devices.iter().any(|device| device.name == wanted)
        {
            let names: Vec<_> = devices.iter().map(|d| d.name.as_str()).collect();
            let mut text = unknown_text("device", wanted, &names);
            // Where nothing is usable, the reason matters more than the names.
            for device in devices.iter().filter(|_| devices.iter().all(|d| d.state.is_err())) {
                if let Err(unusable) = &device.state {
                    text = format!("{text}; {}: {unusable}", device.name);
                }
            }
            let verdict = Err(text);
            return vec![Found { provider: provider.name(), device: wanted.to_owned(), verdict }];
        }
        let devices = devices.into_iter().filter(|d| wanted.is_none_or(|wanted| d.name == wanted));
        devices.map(|device| judge(provider.name(), device, hints)).collect()
    }

    fn not_built_in(&self) -> impl Iterator<Item = Found> {
        let names = self.names();
        KNOWN.into_iter().filter(move |(name, _)| !names.contains(name)).map(|(name, remedy)| {
            Found {
                provider: name,
                device: String::new(),
                verdict: Err(format!("not built in ({remedy})")),
            }
        })
    }
}

fn judge(provider: &'static str, device: Device, hints: &Hints) -> Found {
    let verdict = match device.state {
        Err(Unusable { reason, remedy }) => Err(format!("{reason} ({remedy})")),
        Ok(info) => {
            let unmet: Vec<_> = hints.unmet(&info).iter().map(ToString::to_string).collect();
            if unmet.is_empty() { Ok(info) } else { Err(unmet.join("; ")) }
        }
    };
    Found { provider, device: device.name, verdict }
}

fn unknown(what: &'static str, name: &str, known: &[&str]) -> Error {
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

fn nothing(choice: &Choice, passed_over: &[String]) -> Error {
    let reasons = if passed_over.is_empty() {
        "this program has no providers".to_owned()
    } else {
        passed_over.join("; ")
    };
    let text = match choice {
        Choice::Auto => format!("no device satisfies the request: {reasons}"),
        _ => format!("FABRIC_PROVIDER={choice} leaves nothing usable: {reasons}"),
    };
    Error::NoProvider(Failure::new("choose provider", text))
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalog").field(&self.names()).finish()
    }
}
