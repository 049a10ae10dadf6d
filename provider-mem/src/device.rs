//! Discovery: one device, this process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fabric_core::{AtomicScope, Capabilities, Device, Error, Failure, Info, Result};
use fabric_util::stream::limits;

use crate::name::NAME;

/// The name of the device.
const DEVICE: &str = "process";

/// Bytes of the longest datagram: what UDP has, rounded down to what is easy to remember.
const DATAGRAM: usize = 64_000;

/// The device.
pub(crate) fn device() -> Device {
    let mut info = Info::new(NAME, DEVICE);
    info.version = env!("CARGO_PKG_VERSION").to_owned();
    info.description = "memory of this process".to_owned();
    info.addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    info.capabilities = Capabilities::SEND
        | Capabilities::RMA
        | Capabilities::ATOMIC
        // No peer dies alone.
        | Capabilities::LIVENESS
        | Capabilities::UNIQUE_KEYS
        | Capabilities::SECRET_KEYS
        | Capabilities::GRANTS
        | Capabilities::SHARED_RECEIVES
        | Capabilities::REQUEST_CANCEL
        | Capabilities::DATAGRAMS;
    info.limits = limits();
    info.limits.datagram = DATAGRAM;
    info.atomic_scope = AtomicScope::Cpu;
    Device { name: DEVICE.to_owned(), state: Ok(info) }
}

/// Refuses an address that no endpoint of this process can have.
pub(crate) fn check_peer(info: &Info, to: SocketAddr) -> Result<()> {
    if info.addresses.contains(&to.ip()) {
        return Ok(());
    }
    let text = format!("this device reaches {:?} alone: its own process", info.addresses);
    let mut failure = Failure::new("connect", text).of(NAME);
    failure.addr = Some(to);
    Err(Error::Unreachable(failure))
}
