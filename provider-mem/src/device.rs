//! Discovery: one device, this process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fabric_core::{AtomicScope, Capabilities, Device, Error, Failure, Info, Limits, Result};
use fabric_util::stream::wire::frame::MAX_MESSAGE;

use crate::NAME;

/// The name of the device.
const DEVICE: &str = "process";
/// What an endpoint can inject: a copy of so many bytes is cheaper than anything else that could be done.
const INJECT: usize = 256;

fn limits() -> Limits {
    let mut limits = Limits::none();
    limits.message = MAX_MESSAGE.into();
    limits.inject = INJECT;
    limits.send_segments = 16;
    limits.recv_segments = 16;
    limits.send_depth = 1 << 14;
    limits.recv_depth = 1 << 14;
    limits.cq_capacity = 1 << 20;
    limits.completion_queues = 1 << 16;
    limits.endpoints = 1 << 16;
    limits.regions = 1 << 24;
    limits.region_len = 1 << 40;
    limits.backlog = 1 << 12;
    limits
}

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
        | Capabilities::GRANTS;
    info.limits = limits();
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
