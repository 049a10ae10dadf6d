//! How an endpoint is made.

use std::net::SocketAddr;

use fabric::Domain;
use fabric_core::{EndpointAttr, Error, Info, Result};

use super::wire::MAX_INJECT;
use crate::connection::Timeouts;
use crate::window::WindowLimits;

/// The settings of an endpoint. `Default` suits most.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RdmAttr {
    /// Sends and one-sided operations that may be outstanding, to all peers together; completions not yet taken count.
    pub send_depth: u32,
    /// Receives that may be outstanding; completions not yet taken count. Of a receive of many messages these have places of
    /// their own, those of the messages.
    pub recv_depth: u32,
    /// Peers that there may be at a time.
    pub max_peers: u32,
    /// Connections that may be open at a time. Beyond that the least recently used one is parked: closed in agreement with the
    /// peer, and made again when it is needed. One of the endpoint to itself, for one-sided operations, does not count.
    pub max_open: u32,
    /// How many peers may be admitted that were not inserted here, but connect by themselves. 0: they are refused until the
    /// application inserts them.
    pub max_strangers: u32,
    /// Operations that one connection holds; more wait in the endpoint.
    pub connection_depth: u32,
    /// Bytes of one receive slot. A message that fits one with its header is sent in one piece.
    pub slot_len: u32,
    /// Receive slots, where connections share them; each connection has a part of so many where they do not.
    pub slots: u32,
    /// The shortest message whose payload stays at the sender until it has met a receive, and is then read from where it is, if
    /// the region it is in allows that ([`Send`](crate::Send)).
    pub rendezvous: u64,
    /// What there is for messages that have not met a receive.
    pub window: WindowLimits,
    /// How long connecting may take.
    pub timeouts: Timeouts,
    /// Where to listen; `None`: at the device's first address, with any port. Of all interfaces that is one by which this host
    /// reaches others, where it has one; an unspecified address (`0.0.0.0:0`) listens at each.
    pub listen: Option<SocketAddr>,
    /// The identity follows from where it listens ([`Address::of_listener`](crate::Address::of_listener)), so that peers need to
    /// know no more than that. An endpoint that is made later at the same place has the same one: peers that had a connection find
    /// it lost, but others take it for its predecessor. Not for one that listens at every address.
    pub named_by_place: bool,
    /// Completions of writes with immediate data to memory here ([`RecvWrite`](crate::Kind::RecvWrite)) are taken by
    /// [`take_written`](crate::Endpoint::take_written) alone, and by no poll: for a layer that gives them to others than the rest.
    pub writes_apart: bool,
    /// Connection requests that may wait.
    pub backlog: usize,
    /// What connections are made with: liveness, stall, traffic class, path. `None`: the domain's defaults, which are those of the
    /// environment (`FABRIC_LIVENESS_S`, `FABRIC_STALL_S`). Its depths, segments, inject and connect time-out are not used: how
    /// long connecting may take is in `timeouts`.
    pub connection: Option<EndpointAttr>,
}

impl Default for RdmAttr {
    fn default() -> Self {
        RdmAttr {
            send_depth: 1024,
            recv_depth: 16_384,
            max_peers: 1 << 20,
            max_open: 256,
            max_strangers: 0,
            connection_depth: 64,
            slot_len: 8192,
            slots: 256,
            rendezvous: 32 << 10,
            window: WindowLimits::default(),
            timeouts: Timeouts::default(),
            listen: None,
            named_by_place: false,
            writes_apart: false,
            backlog: 128,
            connection: None,
        }
    }
}

/// The smallest slot: every control message fits.
pub(super) const MIN_SLOT: u32 = 512;
/// The most slots, and operations of a connection: what providers' queues take.
const MAX_QUEUE: u32 = 1 << 16;
/// Operations of a connection that only control messages use.
pub(super) const CONTROL_DEPTH: u32 = 4;

impl RdmAttr {
    /// Checks every setting against the device's limits and the others.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and what would be right.
    pub fn check(&self, info: &Info) -> Result<()> {
        let between = |name: &str, value: u64, min: u64, max: u64| match value {
            _ if (min..=max).contains(&value) => Ok(()),
            _ => Err(invalid(format!("{name} is {value}; it has to be {min} to {max}"))),
        };
        between("send_depth", self.send_depth.into(), 1, 1 << 24)?;
        between("recv_depth", self.recv_depth.into(), 1, 1 << 24)?;
        between("max_peers", self.max_peers.into(), 1, u32::MAX.into())?;
        between("max_open", self.max_open.into(), 1, 1 << 16)?;
        let max = info.limits.send_depth.min(MAX_QUEUE as usize) as u64;
        between("connection_depth", self.connection_depth.into(), 8, max)?;
        between("slot_len", self.slot_len.into(), MIN_SLOT.into(), 1 << 24)?;
        between("slots", self.slots.into(), 4, MAX_QUEUE.into())?;
        let WindowLimits { places, bytes } = self.window;
        for (name, resource) in [("window.places", places), ("window.bytes", bytes)] {
            between(&format!("{name}.window"), resource.window, 1, resource.total)?;
            between(&format!("{name}.reserved"), resource.reserved, 0, resource.window)?;
        }
        between("window.places.total", places.total, 1, 1 << 30)?;
        between("window.places.window", places.window, 1, u32::MAX.into())
    }

    /// What one connection is made with.
    pub(super) fn connection_attr(&self, domain: &Domain) -> EndpointAttr {
        let (info, defaults) = (domain.info(), domain.endpoint());
        let mut attr = self.connection.as_ref().unwrap_or(defaults.as_attr()).clone();
        attr.send_depth = self.connection_depth as usize;
        attr.recv_depth = (self.slots as usize).min(info.limits.recv_depth);
        attr.send_segments = attr.send_segments.max(2).min(info.limits.send_segments);
        attr.recv_segments = 1;
        attr.inject = info.limits.inject.min(MAX_INJECT);
        attr.connect_timeout = self.timeouts.attempt;
        attr
    }
}

fn invalid(detail: String) -> Error {
    Error::invalid("make rdm endpoint", detail)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use fabric::Hints;

    use super::*;

    /// Itself in a program of its own, with the variable set.
    #[test]
    #[cfg_attr(miri, ignore)] // starts a program
    fn connections_are_made_as_the_environment_says() {
        const VARIABLE: &str = "FABRIC_LIVENESS_S";
        if std::env::var(VARIABLE).is_err() {
            let test = std::thread::current().name().unwrap().to_owned();
            let mut program = Command::new(std::env::current_exe().unwrap());
            let output = program.args(["--exact", &test]).env(VARIABLE, "77").output().unwrap();
            let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
            assert!(output.status.success() && passed, "{output:?}");
            return;
        }
        let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
        let domain = Domain::open(&hints).unwrap();
        let mut attr = RdmAttr::default();
        assert_eq!(attr.connection_attr(&domain).liveness, Some(Duration::from_secs(77)));
        attr.connection = Some(EndpointAttr::default());
        assert_eq!(attr.connection_attr(&domain).liveness, EndpointAttr::default().liveness);
    }
}
