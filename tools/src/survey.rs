//! What discovery finds, held against the user's choice.

use fabric::{Capabilities, Catalog, Choice, Discovered, Hints, Info, Result};

/// What could become of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// A program with default hints gets this one.
    Chosen,
    /// It could be asked for.
    Usable,
    /// `FABRIC_PROVIDER` leaves it out.
    Excluded,
    /// It does not work, or does not exist.
    Unusable,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Chosen => "chosen",
            Status::Usable => "usable",
            Status::Excluded => "excluded",
            Status::Unusable => "unusable",
        }
    }
}

/// A device, or a provider that is not built in.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) provider: &'static str,
    /// Empty for a provider that is not built in.
    pub(crate) device: String,
    /// What it offers, where that is known.
    pub(crate) info: Option<Info>,
    pub(crate) status: Status,
    /// Why it is not usable and what helps, or what default hints miss.
    pub(crate) reason: Option<String>,
}

/// All devices, in the order in which a program would try them.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) choice: Choice,
    /// Provider and device that a program with default hints would get.
    pub(crate) chosen: Option<(&'static str, String)>,
    pub(crate) entries: Vec<Entry>,
}

impl Survey {
    /// Asks every provider.
    ///
    /// # Errors
    /// What the environment says wrongly.
    pub(crate) fn take() -> Result<Self> {
        let catalog = Catalog::builtin();
        // Without needs, so that a device which lacks something is shown with what it has.
        let no_needs = Hints { capabilities: Capabilities::empty(), ..Hints::default() };
        // Reads all environment variables, and fails for each that is wrong.
        let allowed = catalog.discover(&no_needs)?;
        let choice = match std::env::var("FABRIC_PROVIDER") {
            Ok(text) => Choice::parse(&text)?,
            Err(_) => Choice::Auto,
        };
        let all = catalog.discover_with(&Choice::Auto, &no_needs)?;
        let same =
            |a: &Discovered, b: &Discovered| a.provider == b.provider && a.device == b.device;
        let known =
            |found: &Discovered| all.iter().find(|other| same(found, other))?.usable.clone().ok();
        let others = all.iter().filter(|found| !allowed.iter().any(|other| same(found, other)));
        let mut entries: Vec<Entry> = Vec::new();
        for Discovered { provider, device, usable, .. } in &allowed {
            let (status, reason) = match usable {
                Ok(info) => (Status::Usable, missing(info)),
                Err(reason) if excludes(&choice, reason) => {
                    (Status::Excluded, Some(reason.clone()))
                }
                Err(reason) => (Status::Unusable, Some(reason.clone())),
            };
            entries.push(Entry { provider, device: device.clone(), info: None, status, reason });
        }
        for (entry, found) in entries.iter_mut().zip(&allowed) {
            entry.info = known(found);
        }
        for found in others {
            let why = match &found.usable {
                Ok(_) => (Status::Excluded, format!("FABRIC_PROVIDER={choice} names others")),
                Err(reason) => (Status::Unusable, reason.clone()),
            };
            entries.push(Entry {
                provider: found.provider,
                device: found.device.clone(),
                info: known(found),
                status: why.0,
                reason: Some(why.1),
            });
        }
        let best = |entry: &&mut Entry| entry.status == Status::Usable && entry.reason.is_none();
        let chosen = entries.iter_mut().find(best).map(|entry| {
            entry.status = Status::Chosen;
            (entry.provider, entry.device.clone())
        });
        Ok(Survey { choice, chosen, entries })
    }

    /// Keeps only `provider` or `provider:device`.
    ///
    /// # Errors
    /// A text, if there is no such thing.
    pub(crate) fn restrict(&mut self, only: &str) -> std::result::Result<(), String> {
        let named = |entry: &Entry| format!("{}:{}", entry.provider, entry.device);
        let names: Vec<_> = self.entries.iter().map(named).collect();
        self.entries.retain(|entry| entry.provider == only || named(entry) == only);
        if self.entries.is_empty() {
            return Err(format!("there is no {only:?} (there are: {})", names.join(", ")));
        }
        Ok(())
    }
}

/// Whether it is the choice that leaves a device out: by the name of its provider, or of one that this is made of.
fn excludes(choice: &Choice, reason: &str) -> bool {
    matches!(choice, Choice::Exclude(_)) && reason.starts_with("excluded by ")
}

/// What default hints ask for and the device does not have.
fn missing(info: &Info) -> Option<String> {
    let unmet: Vec<_> = Hints::default().unmet(info).iter().map(ToString::to_string).collect();
    (!unmet.is_empty()).then(|| format!("only for hints that ask for less: {}", unmet.join("; ")))
}
