//! The devices: the network interfaces of this machine, whose addresses name the ends of connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use fabric_core::{AtomicScope, Capabilities, Device, Info, Result, Unusable};

use super::family::SocketFamily;
use crate::datagram::HEADER_LEN;
use crate::route;
use crate::stream::{Protection, limits};

/// The device that means all interfaces.
const ANY: &str = "any";

fn info<F: SocketFamily>(device: &str, description: String, addresses: Vec<IpAddr>) -> Info {
    let mut info = Info::new(F::NAME, device);
    info.version = F::VERSION.to_owned();
    info.description = description;
    info.addresses = addresses;
    info.capabilities = Capabilities::SEND
        | Capabilities::RMA
        | Capabilities::ATOMIC
        | Capabilities::LIVENESS
        | Capabilities::UNIQUE_KEYS
        | Capabilities::SECRET_KEYS
        | Capabilities::PROCESSES
        | Capabilities::GRANTS
        | Capabilities::SHARED_RECEIVES
        | Capabilities::REQUEST_CANCEL;
    info.limits = limits();
    info.capabilities.set(Capabilities::DATAGRAMS, F::DATAGRAM > 0);
    info.limits.datagram = F::DATAGRAM.saturating_sub(HEADER_LEN);
    info.atomic_scope = AtomicScope::Cpu;
    info.security = Protection::OFFERED;
    info
}

/// All interfaces as one device, then each by itself.
pub(super) fn devices<F: SocketFamily>() -> Vec<Device> {
    let interfaces = match if_addrs::get_if_addrs() {
        Ok(interfaces) => interfaces,
        Err(cause) => {
            let reason = format!("the network interfaces cannot be listed: {cause}");
            let remedy = "see getifaddrs(3)".to_owned();
            return vec![Device { name: ANY.to_owned(), state: Err(Unusable { reason, remedy }) }];
        }
    };
    let mut named: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for interface in interfaces {
        // A link-local IPv6 address means nothing without its scope.
        let usable = !matches!(interface.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        if usable {
            named.entry(interface.name.clone()).or_default().push(interface.ip());
        }
    }
    if named.is_empty() {
        let reason = "no network interface is up with an address".to_owned();
        let remedy = "bring the loopback interface up: `ip link set lo up`".to_owned();
        return vec![Device { name: ANY.to_owned(), state: Err(Unusable { reason, remedy }) }];
    }
    let mut all: Vec<_> = named.values().flatten().copied().collect();
    route::outward_first(&mut all);
    let mut devices = vec![(ANY, info::<F>(ANY, "all network interfaces".to_owned(), all))];
    for (name, addresses) in &named {
        let description = format!("network interface {name}");
        devices.push((name, info::<F>(name, description, addresses.clone())));
    }
    let device = |(name, info): (&str, Info)| Device { name: name.to_owned(), state: Ok(info) };
    devices.into_iter().map(device).collect()
}

/// The address to listen on so that only this device is reached.
pub(super) fn listen_addr(info: &Info, addr: SocketAddr) -> Result<SocketAddr> {
    if info.device == ANY { Ok(addr) } else { route::listen_addr(info, addr) }
}

/// The address to connect from so that this device is used; `None` leaves it to the routing table.
pub(super) fn source_addr(
    info: &Info,
    to: SocketAddr,
    source: Option<IpAddr>,
) -> Result<Option<IpAddr>> {
    if info.device == ANY && source.is_none() {
        return Ok(None);
    }
    route::source_addr(info, to, source).map(Some)
}
