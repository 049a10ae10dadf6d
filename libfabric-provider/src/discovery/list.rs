//! The list that `fi_getinfo` gives: for each device that suits, an info for each address that it could be used at.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use fabric::{Capabilities, Catalog, Discovered, Hints, Info};

use super::address::{source_for, suits};
use super::found::Found;
use super::matching::{build, provider_only, terms};
use super::offer::EndpointKind;
use super::owned::{OwnedInfo, into_list};
use super::request::Request;
use crate::abi::FiInfo;
use crate::abi::flags::FI_PROV_ATTR_ONLY;
use crate::errno::Errno;
use crate::handle::Name;

/// The device for all interfaces.
const ANY_DEVICE: &str = "any";

/// What was found last.
static LAST: Found<Vec<Discovered>> = Found::new();

/// A device that can be used, and the name of its domain: `auto:eth0`, as `FABRIC_PROVIDER` has it.
struct Usable {
    domain: String,
    info: Info,
}

/// `fi_getinfo`: the suitable ones, the preferred ones first; `FI_ENODATA` where there is none. `passive` is the passive endpoint
/// that the hints name, whose address an active one is to connect from.
///
/// # Safety
/// As of [`Request::read`].
pub(crate) unsafe fn getinfo(
    version: u32,
    names: (Option<&CStr>, Option<&CStr>),
    flags: u64,
    (hints, passive): (*const FiInfo, Option<(Name, SocketAddr)>),
) -> Result<*mut FiInfo, Errno> {
    if flags & FI_PROV_ATTR_ONLY != 0 {
        return Ok(into_list(vec![provider_only(version)?]));
    }
    // SAFETY: the caller's promise.
    let mut request = unsafe { Request::read(version, names, flags, hints)? };
    if let Some((_, source)) = passive {
        request.source = Some(source);
        request.passive = passive.map(|(name, _)| name);
    }
    let infos = infos(&request)?;
    if infos.is_empty() { Err(Errno::NO_DATA) } else { Ok(into_list(infos)) }
}

fn infos(request: &Request) -> Result<Vec<OwnedInfo>, Errno> {
    let mut infos = Vec::new();
    for Usable { domain, info } in devices(request)? {
        for kind in EndpointKind::ALL {
            match terms(request, (&info, kind), &domain) {
                Ok(terms) => {
                    for address in addresses(request, &info) {
                        infos.push((
                            address.is_loopback(),
                            build(request, &info, &domain, terms, address)?,
                        ));
                    }
                }
                Err(why) => log::debug!("{domain}, {kind:?}: not what is asked for: {why}"),
            }
        }
    }
    // A program that takes the first one, and is no peer of its own host's, is served best by a network.
    infos.sort_by_key(|(is_loopback, _)| *is_loopback);
    // Others take turns among them, a process each (Open MPI): the loopback is for those who ask for it.
    if !request.names_place() && infos.iter().any(|(is_loopback, _)| !is_loopback) {
        infos.retain(|(is_loopback, _)| !is_loopback);
    }
    Ok(infos.into_iter().map(|(_, info)| info).collect())
}

/// The devices that `FABRIC_PROVIDER` leaves, each by the first provider that has it: shared memory joins the others' devices. One
/// that is asked for by name is found by each.
fn devices(request: &Request) -> Result<Vec<Usable>, Errno> {
    let needed = Capabilities::SEND | Capabilities::RMA | Capabilities::PROCESSES;
    let hints = Hints { capabilities: needed, ..Hints::default() };
    let mut usable: Vec<Usable> = Vec::new();
    let all = LAST.get(Instant::now(), request.anew, || Catalog::builtin().discover(&hints))?;
    for found in all.iter() {
        let Ok(info) = found.usable.clone() else { continue };
        let is_known = usable.iter().any(|known| known.info.device == info.device);
        if request.domain.is_some() || !is_known {
            usable.push(Usable { domain: format!("{}:{}", found.provider, found.device), info });
        }
    }
    let is_any = |usable: &Usable| usable.info.device == ANY_DEVICE;
    // It listens at every address, and is there for that; who names it, gets it.
    let wants_any = request.is_at_any_address() && usable.iter().any(is_any);
    usable.retain(|usable| request.domain.is_some() || is_any(usable) == wants_any);
    Ok(usable)
}

/// The addresses of a device that suit the request.
fn addresses(request: &Request, info: &Info) -> Vec<IpAddr> {
    if let (true, Some(source)) = (info.device == ANY_DEVICE, request.source) {
        return vec![source.ip()];
    }
    let asked = request.source.map(|source| source.ip()).filter(|ip| !ip.is_unspecified());
    // By name the application has chosen the device, and the network may have other plans.
    let route = request.destination.filter(|_| asked.is_none() && request.domain.is_none());
    let route = route.and_then(source_for);
    let family = request.destination.map(|to| to.is_ipv4());
    let is_suitable = |ip: &&IpAddr| {
        suits(request.address_format, **ip)
            && asked.or(route).is_none_or(|wanted| wanted == **ip)
            && family.is_none_or(|is_ipv4| is_ipv4 == ip.is_ipv4())
    };
    info.addresses.iter().filter(is_suitable).copied().collect()
}
