//! What a run knows of the other host.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::provider::{Event, EventSink};
use fabric::{Catalog, Choice, Discovered, Domain, Info};

use super::link::Link;
use super::protocol::{Call, Survey};
use super::provider::{Opened, RemoteProvider};
use super::rdm::RdmLink;
use crate::choose::{self, anything};
use crate::environment::Environment;

/// Calls that measure how long one takes.
const ECHOES: usize = 21;

/// A server that lends its domains to a run: on another host, or in another process.
pub struct Peer {
    addr: SocketAddr,
    own_ip: IpAddr,
    catalog: Arc<Catalog>,
    survey: Survey,
    round_trip: Duration,
}

/// Nothing happens before a domain is open.
struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _event: Event) {}
}

impl Peer {
    /// Asks the server at `addr` what it has.
    ///
    /// # Errors
    /// Why it cannot be asked, or why it will not do: no server, another program, another version.
    pub fn reach(addr: SocketAddr) -> Result<Peer, String> {
        let lost = |error: fabric::Error| format!("the server at {addr}: {error}");
        let link = Link::to(addr, Arc::new(NoEvents))
            .map_err(|reason| format!("no server at {addr}: {reason}"))?;
        let survey: Survey = link.call(Call::Survey).map_err(lost)?;
        let mut times = Vec::with_capacity(ECHOES);
        for _ in 0..ECHOES {
            let start = Instant::now();
            link.call::<()>(Call::Echo).map_err(lost)?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let own_ip = link.addrs().map_err(|error| error.to_string())?.0.ip();
        let catalog = Arc::new(catalog(addr, &survey).map_err(lost)?);
        Ok(Peer { addr, own_ip, catalog, survey, round_trip: times[ECHOES / 2] })
    }

    /// Where the server is.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The other host.
    pub fn environment(&self) -> &Environment {
        &self.survey.environment
    }

    /// How long a call there takes.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// How much slower than an ordinary machine the other host is.
    pub fn factor(&self) -> f64 {
        self.survey.factor
    }

    /// Its providers, under the names that they have there.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The address of this host on the way there.
    pub(crate) fn own_ip(&self) -> IpAddr {
        self.own_ip
    }

    /// Opens a device of this provider there, for cases that make reliable datagram endpoints on it too.
    pub(crate) fn open(
        &self,
        name: &'static str,
        device: &Choice,
    ) -> fabric::Result<(Domain, RdmLink)> {
        let provider = provider(self.addr, &self.survey, name);
        let opened = provider.opened.clone();
        let domain = Catalog::empty().add(provider)?.open_with(device, &anything())?;
        Ok((domain, RdmLink::new(opened.get().cloned().unwrap_or_default())))
    }

    /// The device of `provider` to run on there: the one named, which can be of another provider (`tcp:lo`); or the first usable
    /// one that has the address by which the server is reached, or else the first usable one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn device(&self, provider: &str, device: Option<&str>) -> Result<Info, String> {
        let there = |text: String| format!("the server at {}: {text}", self.addr);
        let names = self.catalog.names();
        let (provider, device) = match device.and_then(|named| named.split_once(':')) {
            Some((other, named)) if names.contains(&other) => (other, Some(named)),
            _ => (provider, device),
        };
        let found = self.catalog.discover_with(&Choice::Auto, &anything());
        let found = found.map_err(|error| there(error.to_string()))?;
        let of_it = |found: &Discovered| found.provider == provider && !found.device.is_empty();
        let devices: Vec<_> = found.into_iter().filter(of_it).collect();
        if devices.is_empty() {
            return Err(there(format!("it does not have the provider {provider}")));
        }
        choose::device(devices, device, Some(self.addr.ip())).map_err(there)
    }
}

fn catalog(addr: SocketAddr, survey: &Survey) -> fabric::Result<Catalog> {
    let mut names: Vec<&'static str> = Vec::new();
    for found in survey.devices.iter().filter(|found| !found.device.is_empty()) {
        if !names.contains(&found.provider) {
            names.push(found.provider);
        }
    }
    let mut names = names.into_iter();
    names.try_fold(Catalog::empty(), |catalog, name| catalog.add(provider(addr, survey, name)))
}

fn provider(addr: SocketAddr, survey: &Survey, name: &'static str) -> RemoteProvider {
    let of_it = survey.devices.iter().filter(|found| found.provider == name);
    RemoteProvider { name, addr, devices: of_it.cloned().collect(), opened: Opened::default() }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peer({})", self.addr)
    }
}
