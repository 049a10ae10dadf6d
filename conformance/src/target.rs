//! A provider's device that cases run on.

use std::fmt;
use std::sync::Arc;

use fabric::{Capabilities, Catalog, Choice, Domain, Found, Hints, Info, Named};

/// A usable device of one provider, and the catalog to open it from.
#[derive(Clone)]
pub struct Target {
    catalog: Arc<Catalog>,
    info: Info,
}

impl Target {
    /// The device of `provider`: the one named, or the best that is usable. `FABRIC_PROVIDER` has no say here.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(
        catalog: &Arc<Catalog>,
        provider: &str,
        device: Option<&str>,
    ) -> Result<Target, String> {
        let named = Named { provider: provider.to_owned(), device: device.map(str::to_owned) };
        let choice = Choice::Only(vec![named]);
        let found =
            catalog.discover_with(&choice, &anything()).map_err(|error| error.to_string())?;
        Ok(Target { catalog: catalog.clone(), info: best(found)? })
    }

    pub(crate) fn new(catalog: &Arc<Catalog>, info: Info) -> Self {
        Target { catalog: catalog.clone(), info }
    }

    /// What the device offers.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The catalog that has it.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The choice of this device and no other.
    pub fn choice(&self) -> Choice {
        let Info { provider, device, .. } = &self.info;
        Choice::Only(vec![Named { provider: (*provider).to_owned(), device: Some(device.clone()) }])
    }

    /// Opens it.
    ///
    /// # Errors
    /// What the provider says.
    pub fn open(&self) -> fabric::Result<Domain> {
        self.catalog.open_with(&self.choice(), &anything())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.info.provider, self.info.device)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

/// Hints that every device satisfies: what is missing is for each case to see.
pub(crate) fn anything() -> Hints {
    Hints { capabilities: Capabilities::empty(), ..Hints::default() }
}

/// The first usable one of a provider's devices, or why there is none.
pub(crate) fn best(devices: Vec<Found>) -> Result<Info, String> {
    if devices.is_empty() {
        return Err("it has no devices".to_owned());
    }
    // By reason, since all devices of a provider often have the same one.
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for Found { device, verdict, .. } in devices {
        let reason = match verdict {
            Ok(info) => return Ok(info),
            Err(reason) => reason,
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, devices)) => devices.push(device),
            None => reasons.push((reason, vec![device])),
        }
    }
    let text = |(reason, devices): &(String, Vec<String>)| match devices.join(", ").as_str() {
        "" => reason.clone(),
        devices => format!("{devices}: {reason}"),
    };
    Err(reasons.iter().map(text).collect::<Vec<_>>().join("; "))
}
