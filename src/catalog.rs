//! The providers this program has, and choosing among their devices.

use std::fmt;
use std::sync::Arc;

use fabric_core::info::NO_DEVICE;
use fabric_core::{DomainAttr, DynProvider, Error, Failure, Hints, Provider, Result, Variable};
use fabric_util::log_line;
use fabric_util::sync::assert_none_held;

use crate::choice::{Choice, Selection};
use crate::domain::{Domain, DomainInner};
use crate::env::{self, Settings, VARIABLES};
use crate::event_router::EventRouter;
use crate::search::{self, AUTO, Candidate, Discovered, search, unknown};

/// The providers to choose from: the compiled-in ones, and any that the application adds.
///
/// ```
/// use fabric::{Catalog, Choice, Hints};
///
/// let catalog = Catalog::builtin();
/// for found in catalog.discover(&Hints::default())? {
///     match found.usable {
///         Ok(info) => println!("{}:{} at {:?}", found.provider, found.device, info.addresses),
///         Err(reason) => println!("{}:{} cannot be used: {reason}", found.provider, found.device),
///     }
/// }
/// // What the program chooses, whatever FABRIC_PROVIDER says.
/// let domain = catalog.open_with(&Choice::parse("tcp")?, &Hints::default())?;
/// assert_eq!(domain.provider(), "tcp");
/// # Ok::<(), fabric::Error>(())
/// ```
#[derive(Clone)]
pub struct Catalog {
    providers: Vec<Arc<dyn DynProvider>>,
}

impl Catalog {
    /// The compiled-in providers, the preferred ones first. Where `shm` is one, so is `auto` of it and each other.
    pub fn builtin() -> Self {
        Catalog {
            providers: vec![
                #[cfg(feature = "verbs")]
                Arc::new(provider_verbs::VerbsProvider::new()),
                #[cfg(feature = "tcp")]
                Arc::new(provider_tcp::TcpProvider::new()),
                // It reaches this host only: for those that ask for it.
                #[cfg(feature = "shm")]
                Arc::new(provider_shm::ShmProvider::new()),
            ],
        }
    }

    /// No provider at all.
    pub fn empty() -> Self {
        Catalog { providers: Vec::new() }
    }

    /// Adds a provider, behind those already there. Its name must be new.
    ///
    /// # Errors
    /// `InvalidArgument` if a provider of this name is there, or if a [variable](Catalog::variables) of it is one of the
    /// library or of another provider.
    #[allow(clippy::should_implement_trait)] // catalogs are not added with `+`
    pub fn add(mut self, provider: impl Provider) -> Result<Self> {
        const OP: &str = "add provider";
        let name = provider.name();
        let has_auto = search::names(&self.providers).contains(&AUTO);
        if self.find(name).is_some() || name == AUTO && has_auto {
            return Err(Error::invalid(OP, format!("there is a provider {name:?} already")));
        }
        self.providers.push(Arc::new(provider));
        let mut variables: Vec<_> = self.variables().into_iter().map(|v| v.name).collect();
        variables.sort();
        if let Some(twice) = variables.windows(2).find(|pair| pair[0] == pair[1]) {
            let text = format!("a setting of {name:?} has a variable that is there: {}", twice[0]);
            return Err(Error::invalid(OP, text));
        }
        Ok(self)
    }

    /// Changes a setting of a provider: `adversary` of `tcp` makes it hard on programs, for tests.
    /// [`variables`](Catalog::variables) has all of them.
    ///
    /// It concerns the domains that this catalog opens afterwards. The setting's environment variable, if it is set, wins:
    /// a user can try another value with a program as it is.
    ///
    /// # Errors
    /// `NoProvider` if there is no such provider, `InvalidArgument` if it has no such setting or does not take the value.
    pub fn configure(mut self, provider: &str, name: &str, value: &str) -> Result<Self> {
        let names = self.names();
        match self.providers.iter_mut().find(|found| found.name() == provider) {
            Some(found) => set(found, name, value)?,
            None => return Err(unknown("provider", provider, &names)),
        }
        Ok(self)
    }

    /// Every environment variable that the library and these providers read. Those of a provider's settings are
    /// `FABRIC_<PROVIDER>_<SETTING>`.
    pub fn variables(&self) -> Vec<Variable> {
        let of = |provider: &Arc<dyn DynProvider>| {
            let name = provider.name();
            provider.settings().iter().map(move |setting| Variable::of(name, setting))
        };
        VARIABLES.into_iter().chain(self.providers.iter().flat_map(of)).collect()
    }

    /// This catalog with its providers set as the environment says. They are copies: any thread may open domains of one
    /// catalog, and each domain follows the environment as it was when that domain was opened, and nothing older.
    fn set_by_env(&self) -> Result<Self> {
        env::warn_of_mistakes(&self.variables());
        let mut catalog = self.clone();
        for provider in &mut catalog.providers {
            for setting in provider.settings() {
                let variable = Variable::of(provider.name(), setting).name;
                if let Some(value) = env::value(&variable) {
                    set(provider, setting.name, &value)
                        .map_err(|error| env::bad(format!("{variable}: {error}")))?;
                }
            }
        }
        Ok(catalog)
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn DynProvider>> {
        self.providers.iter().find(|provider| provider.name() == name)
    }

    /// The names of the providers, in order of preference.
    pub fn names(&self) -> Vec<&'static str> {
        self.providers.iter().map(|provider| provider.name()).collect()
    }

    /// Every device of every provider with what it offers, or why it is not usable, excluded by
    /// `FABRIC_PROVIDER`, or short of what `hints` need; preferred ones first.
    ///
    /// # Errors
    /// As [`open`](Catalog::open), for what is wrong with the request itself.
    pub fn discover(&self, hints: &Hints) -> Result<Vec<Discovered>> {
        self.set_by_env()?.discover_settings(&Settings::from(env::value)?, hints)
    }

    /// As [`discover`](Catalog::discover), with a choice of the program's own.
    ///
    /// # Errors
    /// As [`open`](Catalog::open), for what is wrong with the request itself.
    pub fn discover_with(&self, choice: &Choice, hints: &Hints) -> Result<Vec<Discovered>> {
        let settings = Settings { choice: choice.clone(), ..Settings::from(env::value)? };
        self.set_by_env()?.discover_settings(&settings, hints)
    }

    fn discover_settings(&self, settings: &Settings, hints: &Hints) -> Result<Vec<Discovered>> {
        let hints = settings.secured(hints);
        DomainAttr::of(&hints)?;
        let found = search(&self.providers, &settings.choice, &hints)?;
        Ok(found.into_iter().map(|candidate| candidate.found).collect())
    }

    /// Opens the device that suits `hints` best, within what `FABRIC_PROVIDER` allows.
    ///
    /// # Errors
    /// `NoProvider` if none suits or a name is unknown; the text says for each why not. `InvalidArgument`
    /// for an environment variable with a bad value. Or what the provider says when it opens the device.
    pub fn open(&self, hints: &Hints) -> Result<Domain> {
        self.set_by_env()?.open_settings(Settings::from(env::value)?, hints)
    }

    /// As [`open`](Catalog::open), with a choice of the program's own instead of `FABRIC_PROVIDER`.
    ///
    /// # Errors
    /// As [`open`](Catalog::open).
    pub fn open_with(&self, choice: &Choice, hints: &Hints) -> Result<Domain> {
        let settings = Settings { choice: choice.clone(), ..Settings::from(env::value)? };
        self.set_by_env()?.open_settings(settings, hints)
    }

    fn open_settings(&self, settings: Settings, hints: &Hints) -> Result<Domain> {
        let choice = &settings.choice;
        let hints = &settings.secured(hints);
        let attr = DomainAttr::of(hints)?;
        let candidates = search(&self.providers, choice, hints)?;
        let (mut passed_over, mut unusable) = (Vec::new(), false);
        for Candidate { provider, found } in candidates {
            let Discovered { provider: name, device, usable } = found;
            match usable {
                Ok(info) => {
                    let Some(provider) = provider else { continue };
                    let selection =
                        Selection { provider: name, device, choice: choice.clone(), passed_over };
                    // That there is no device to prefer is nothing to be warned of.
                    if unusable {
                        log_line!(Warn, "{selection}");
                    } else {
                        log_line!(Info, "{selection}");
                    }
                    let events = EventRouter::new()?;
                    assert_none_held("a provider is called");
                    let ops = provider.open(&info, &attr, events.clone())?;
                    let inner =
                        DomainInner::new(ops, events, info, attr, selection, settings.endpoint);
                    return Ok(Domain { inner: Arc::new(inner) });
                }
                Err(reason) if device.is_empty() => passed_over.push(format!("{name}: {reason}")),
                Err(reason) => {
                    unusable |= device != NO_DEVICE || *choice != Choice::Auto;
                    passed_over.push(format!("{name}:{device}: {reason}"));
                }
            }
        }
        Err(no_match_error(choice, &passed_over))
    }
}

fn set(provider: &mut Arc<dyn DynProvider>, name: &str, value: &str) -> Result<()> {
    assert_none_held("a provider is called");
    *provider = provider.configure(name, value)?.into();
    Ok(())
}

fn no_match_error(choice: &Choice, passed_over: &[String]) -> Error {
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

impl Domain {
    /// Opens the device that suits `hints` best, among the compiled-in providers and within what
    /// `FABRIC_PROVIDER` allows.
    ///
    /// # Errors
    /// `NoProvider` if none suits; the text says for each provider and device why not. `InvalidArgument`
    /// for an environment variable with a bad value.
    pub fn open(hints: &Hints) -> Result<Self> {
        Catalog::builtin().open(hints)
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalog").field(&self.names()).finish()
    }
}
