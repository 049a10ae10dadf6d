//! A provider's device that cases run on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fabric::{
    AtomicScope, Catalog, Choice, Domain, Hints, Identity, Info, ProviderSpec, Secret, Security,
};

use crate::choose::{anything, best};
use crate::remote::Peer;
use crate::remote::rdm::RdmLink;

/// A usable device of one provider, and the catalog to open it from; in a run between two hosts also the device of
/// the other host.
#[derive(Clone)]
pub struct Target {
    catalog: Arc<Catalog>,
    info: Info,
    far: Option<Arc<Far>>,
}

struct Far {
    peer: Arc<Peer>,
    info: Info,
    /// What both devices offer.
    common: Info,
}

/// With one of these no domain is open.
pub(crate) const SECURED: [&str; 4] =
    ["FABRIC_SECRET_FILE", "FABRIC_IDENTITY_FILE", "FABRIC_TRUSTED_FILE", "FABRIC_SECURITY"];

/// Whether this process's environment gives domains a secret or an identity.
pub(crate) fn is_secured() -> bool {
    SECURED.iter().any(|name| std::env::var_os(name).is_some())
}

/// How much the connections of a domain are protected, and by what.
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    /// The least level that will do.
    pub security: Security,
    /// The secret that both ends have.
    pub secret: Option<&'a Secret>,
    /// By what this end proves who it is.
    pub identity: Option<&'a Identity>,
}

impl<'a> Level<'a> {
    /// Not at all.
    pub const OPEN: Self = Level { security: Security::Open, secret: None, identity: None };

    /// At this level, by a secret.
    pub fn secret(security: Security, secret: &'a Secret) -> Self {
        Level { security, secret: Some(secret), ..Level::OPEN }
    }

    /// By an identity.
    pub fn identity(identity: &'a Identity) -> Self {
        Level { identity: Some(identity), ..Level::OPEN }
    }
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
        let named =
            ProviderSpec { provider: provider.to_owned(), device: device.map(str::to_owned) };
        let choice = Choice::Include(vec![named]);
        let found =
            catalog.discover_with(&choice, &anything()).map_err(|error| error.to_string())?;
        Ok(Target { catalog: catalog.clone(), info: best(found)?, far: None })
    }

    /// The same, with a device of the same provider on another host for the peer's end: the one named, or the best.
    ///
    /// # Errors
    /// Why there is none.
    pub fn with_peer(mut self, peer: &Arc<Peer>, device: Option<&str>) -> Result<Target, String> {
        let info = peer.device(self.info.provider, device)?;
        let common = common(&self.info, &info, peer.own_ip());
        self.far = Some(Arc::new(Far { peer: peer.clone(), info, common }));
        Ok(self)
    }

    pub(crate) fn new(catalog: &Arc<Catalog>, info: Info) -> Self {
        Target { catalog: catalog.clone(), info, far: None }
    }

    /// What the device offers.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// What cases can use: of two devices what both offer.
    pub fn common(&self) -> &Info {
        self.far.as_ref().map_or(&self.info, |far| &far.common)
    }

    /// The other host, and the device there.
    pub fn peer(&self) -> Option<(&Arc<Peer>, &Info)> {
        self.far.as_ref().map(|far| (&far.peer, &far.info))
    }

    /// The catalog that has it.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The choice of this device and no other.
    pub fn choice(&self) -> Choice {
        choice(&self.info)
    }

    /// The address to listen on: the loopback address if the device has it, else its first IPv4 address, else its
    /// first one.
    pub fn ip(&self) -> IpAddr {
        let has = &self.info.addresses;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        if has.contains(&loopback) {
            return loopback;
        }
        has.iter().find(|ip| ip.is_ipv4()).or(has.first()).copied().unwrap_or(loopback)
    }

    /// Opens it.
    ///
    /// # Errors
    /// What the provider says.
    pub fn open(&self) -> fabric::Result<Domain> {
        self.open_secured(Level::OPEN)
    }

    /// Opens it at this level.
    ///
    /// # Errors
    /// What the provider says.
    pub fn open_secured(&self, level: Level<'_>) -> fabric::Result<Domain> {
        let Level { security, secret, identity } = level;
        let (secret, identity) = (secret.cloned(), identity.cloned());
        let hints = Hints { security, secret, identity, ..anything() };
        self.catalog.open_with(&self.choice(), &hints)
    }

    /// Opens the peer's device: the one on the other host, with the way there, or the same once more.
    ///
    /// # Errors
    /// What the provider says.
    pub(crate) fn open_peer(&self) -> fabric::Result<(Domain, Option<RdmLink>)> {
        match self.peer() {
            Some((peer, info)) => {
                let (domain, link) = peer.open(info.provider, &choice(info))?;
                Ok((domain, Some(link)))
            }
            None => Ok((self.open()?, None)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.info.provider, self.info.device)?;
        match self.peer() {
            Some((peer, info)) => {
                write!(f, " and {}:{} at {}", info.provider, info.device, peer.addr())
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

/// The choice of one device and no other.
fn choice(info: &Info) -> Choice {
    let (provider, device) = (info.provider.to_owned(), Some(info.device.clone()));
    Choice::Include(vec![ProviderSpec { provider, device }])
}

/// What two devices offer both. The address is the one by which the hosts know each other, if it is the device's.
fn common(near: &Info, far: &Info, own_ip: IpAddr) -> Info {
    let mut common = near.clone();
    common.capabilities &= far.capabilities;
    common.limits = near.limits.common(&far.limits);
    common.security = near.security.min(far.security);
    if far.atomic_scope != AtomicScope::Cpu {
        common.atomic_scope = far.atomic_scope;
    }
    let addresses: Vec<_> = near.addresses.iter().filter(|ip| **ip == own_ip).copied().collect();
    if !addresses.is_empty() {
        common.addresses = addresses;
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_the_smaller_one() {
        let none = Info::new("tcp", "lo");
        let mut some = none.clone();
        let limits = some.limits.named().map(|(name, _)| format!("\"{name}\":7"));
        some.limits = serde_json::from_str(&format!("{{{}}}", limits.join(","))).unwrap();
        assert_eq!(some.limits.named().map(|(_, value)| value), [7; 14]);
        let ip = Ipv4Addr::LOCALHOST.into();
        for (near, far) in [(&none, &some), (&some, &none)] {
            assert_eq!(common(near, far, ip).limits, none.limits);
        }
    }
}
