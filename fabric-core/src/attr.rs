//! Settings of domains, endpoints and listeners, and their checks.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::hints::Hints;
use crate::info::{Capabilities, Info, MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};
use crate::security::{IDENTITY_FILE, Identity, SECRET_FILE, Secret, Security, TRUSTED_FILE};

/// How a domain is opened. `Default` protects nothing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DomainAttr {
    /// How much its connections are protected; the device offers that ([`Info::security`]).
    pub security: Security,
    /// What both ends prove to have, from [`Security::Authenticated`] on.
    pub secret: Option<Secret>,
    /// What both ends prove who they are by, where they encrypt.
    pub identity: Option<Identity>,
}

impl DomainAttr {
    /// What the hints ask for. A secret asks for [`Security::Authenticated`] by itself, an identity for
    /// [`Security::Encrypted`].
    ///
    /// # Errors
    /// `InvalidArgument` where the level takes a secret or an identity, and there is neither.
    pub fn of(hints: &Hints) -> Result<Self> {
        let (security, secret, identity) = (hints.level(), &hints.secret, &hints.identity);
        if security > Security::Open && secret.is_none() && identity.is_none() {
            let text = format!(
                "security {security} takes a secret or an identity, and there is neither: name the file of a secret by \
                 {SECRET_FILE}, or set Hints::secret; or those of an identity by {IDENTITY_FILE} and {TRUSTED_FILE}, or set \
                 Hints::identity"
            );
            return Err(Error::invalid("open domain", text));
        }
        Ok(DomainAttr { security, secret: secret.clone(), identity: identity.clone() })
    }
}

/// How an endpoint is made. `Default` is a good start for most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct EndpointAttr {
    /// Operations the send queue holds; completions not yet taken count.
    pub send_depth: usize,
    /// Receives the receive queue holds; completions not yet taken count.
    pub recv_depth: usize,
    /// Most segments of one send-queue operation.
    pub send_segments: usize,
    /// Most segments of one receive.
    pub recv_segments: usize,
    /// Most bytes of one inject.
    pub inject: usize,
    /// How long `connect` and `accept` may take until the connection is established.
    pub connect_timeout: Duration,
    /// A dead peer host ends the endpoint within three of these; at least 1 s, `None` turns it off.
    pub liveness: Option<Duration>,
    /// While something is under way at this end, and nothing of it got on for this long, the connection ends with
    /// [`Stalled`](crate::DisconnectReason::Stalled), at 1.5 times as long at the latest; 1 s to 1 h, `None` turns it off.
    ///
    /// Under way are the operations posted to the send queue, as long as they have not completed. Only a completion says that
    /// they get on, so the limit has to be longer than any single operation takes. Where the provider is what serves
    /// the peer, over streams of bytes, what the peer is owed and does not take, and what it has begun to send, are under
    /// way, too, each for itself; there each byte counts. Receives that wait for messages are not.
    pub stall: Option<Duration>,
    /// The local address to connect from.
    pub source: Option<IpAddr>,
    /// The local port to connect from; 0, the default, is any that is free. Connecting is `AddrInUse` while a listener has the
    /// port, and may be while another connection does, or has just ended.
    pub source_port: u16,
    /// The traffic class (the IPv4 TOS or IPv6 traffic class byte: DSCP and ECN bits).
    pub traffic_class: Option<u8>,
    /// What RDMA devices let one set of the path; all unset by default.
    pub path: PathAttr,
}

/// How an RDMA device sends and repeats packets. Only for devices with
/// [`PATH_SETTINGS`](crate::Capabilities::PATH_SETTINGS); elsewhere an endpoint that sets one is `Unsupported`.
///
/// What is not set, the provider chooses: time-out and retries so that a lost peer is noticed in time for
/// [`liveness`](EndpointAttr::liveness). If you override these, that is up to you. (`ibv_modify_qp(3)`)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PathAttr {
    /// The entry of the port's GID table to send from: one of RoCE v2, of the address family and network in use.
    /// `Unsupported` on InfiniBand, where the subnet manager decides on the path.
    pub gid_index: Option<u8>,
    /// How long to wait for an acknowledgement: rounded up to 4.096 us times a power of two, at most 2.4 h.
    pub ack_timeout: Option<Duration>,
    /// Maximum number of retransmissions: 0 to 7.
    pub retries: Option<u8>,
    /// How long a peer waits before it repeats a message for which no receive was posted here: rounded up to one of
    /// the steps of the InfiniBand specification, 10 us to 491 ms; default 0.96 ms.
    pub rnr_timer: Option<Duration>,
}

/// The most that [`PathAttr::rnr_timer`] can be.
pub const MAX_RNR_TIMER: Duration = Duration::from_micros(491_520);

impl Default for EndpointAttr {
    fn default() -> Self {
        EndpointAttr {
            send_depth: 128,
            recv_depth: 128,
            send_segments: 4,
            recv_segments: 4,
            inject: 128,
            connect_timeout: Duration::from_secs(5),
            liveness: Some(Duration::from_secs(10)),
            stall: None,
            source: None,
            source_port: 0,
            traffic_class: None,
            path: PathAttr::default(),
        }
    }
}

impl EndpointAttr {
    /// Checks every setting against the device's limits.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and the limit.
    pub fn check(&self, info: &Info) -> Result<()> {
        let limits = &info.limits;
        within(OP, "send_depth", self.send_depth, 1, limits.send_depth.min(MAX_DEPTH))?;
        within(OP, "recv_depth", self.recv_depth, 1, limits.recv_depth.min(MAX_DEPTH))?;
        within(OP, "send_segments", self.send_segments, 1, limits.send_segments)?;
        within(OP, "recv_segments", self.recv_segments, 1, limits.recv_segments)?;
        within(OP, "inject", self.inject, 0, limits.inject)?;
        if self.connect_timeout.is_zero() || self.connect_timeout > Duration::from_secs(3600) {
            let given = self.connect_timeout;
            return Err(Error::invalid(
                OP,
                format!("connect_timeout {given:?} is not in 1ns..=1h"),
            ));
        }
        for (name, time) in [("liveness", self.liveness), ("stall", self.stall)] {
            let in_range = Duration::from_secs(1)..=Duration::from_secs(3600);
            if let Some(time) = time.filter(|time| !in_range.contains(time)) {
                return Err(Error::invalid(OP, format!("{name} {time:?} is not in 1s..=1h")));
            }
        }
        self.path.check(info)?;
        if let Some(source) = self.source.filter(|ip| !info.addresses.contains(ip)) {
            let has = &info.addresses;
            return Err(Error::invalid(
                OP,
                format!("source {source} is no address of {}: it has {has:?}", info.device),
            ));
        }
        Ok(())
    }
}

impl PathAttr {
    fn check(&self, info: &Info) -> Result<()> {
        if *self == PathAttr::default() {
            return Ok(());
        }
        if !info.capabilities.contains(Capabilities::PATH_SETTINGS) {
            let text = format!("{} does not support {self}", info.device);
            return Err(Error::unsupported(OP, info.provider, text));
        }
        if let Some(retries) = self.retries.filter(|retries| *retries > 7) {
            return Err(Error::invalid(OP, format!("retries {retries} is not in 0..=7")));
        }
        if let Some(timer) = self.rnr_timer.filter(|timer| *timer > MAX_RNR_TIMER) {
            return Err(Error::invalid(
                OP,
                format!("rnr_timer {timer:?} is beyond {MAX_RNR_TIMER:?}"),
            ));
        }
        let max = Duration::from_nanos(4096 << 31);
        if let Some(timeout) = self.ack_timeout.filter(|t| t.is_zero() || *t > max) {
            return Err(Error::invalid(
                OP,
                format!("ack_timeout {timeout:?} is not in 1ns..={max:?}"),
            ));
        }
        Ok(())
    }
}

impl fmt::Display for PathAttr {
    /// The names of what is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathAttr { gid_index, ack_timeout, retries, rnr_timer } = self;
        let set = [
            ("gid_index", gid_index.is_some()),
            ("ack_timeout", ack_timeout.is_some()),
            ("retries", retries.is_some()),
            ("rnr_timer", rnr_timer.is_some()),
        ];
        let names: Vec<_> = set.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

const OP: &str = "make endpoint";

pub(crate) fn within(
    op: &'static str,
    what: &str,
    value: usize,
    min: usize,
    max: usize,
) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(op, format!("{what} {value} is not in {min}..={max}")))
}

/// The most operations that a queue of an endpoint can be made for, whatever a device's limits say.
pub const MAX_DEPTH: usize = 1 << 20;

/// The most completions that a queue can be made for, whatever a device's limits say.
pub const MAX_CQ_CAPACITY: usize = 1 << 24;

/// How a completion queue is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CqAttr {
    /// Completions it has room for: binding an endpoint reserves its depths.
    pub capacity: usize,
    /// The device's interrupt that wakes its sleepers, counted from 0, beyond the last one from the beginning again;
    /// unset, the queues of a domain are spread over all of them. Only for devices with
    /// [`PATH_SETTINGS`](Capabilities::PATH_SETTINGS). (`ibv_create_cq(3)`, `comp_vector`)
    pub vector: Option<u32>,
}

impl CqAttr {
    /// A queue with this room.
    pub fn new(capacity: usize) -> Self {
        CqAttr { capacity, vector: None }
    }

    /// Checks the settings against the device's limits.
    ///
    /// # Errors
    /// `InvalidArgument` that names the limit; `Unsupported` for a vector where the device has no choice of them.
    pub fn check(&self, info: &Info) -> Result<()> {
        const OP: &str = "make completion queue";
        let (capacity, most) = (self.capacity, info.limits.cq_capacity.min(MAX_CQ_CAPACITY));
        if !(1..=most).contains(&capacity) {
            return Err(Error::invalid(OP, format!("capacity {capacity} is not in 1..={most}")));
        }
        if self.vector.is_some() && !info.capabilities.contains(Capabilities::PATH_SETTINGS) {
            let text =
                format!("{} does not support a choice of the completion vector", info.device);
            return Err(Error::unsupported(OP, info.provider, text));
        }
        Ok(())
    }
}

/// How a shared receive queue is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SharedReceiveAttr {
    /// Receives that it holds; completions not yet taken count.
    pub depth: usize,
    /// Most segments of one receive.
    pub segments: usize,
}

impl SharedReceiveAttr {
    /// A queue of this depth, for receives of up to four segments.
    pub fn new(depth: usize) -> Self {
        SharedReceiveAttr { depth, segments: 4 }
    }

    /// Checks the settings against the device's limits.
    ///
    /// # Errors
    /// `Unsupported` where the device has no shared receive queues; `InvalidArgument` that names the setting and the limit.
    pub fn check(&self, info: &Info) -> Result<()> {
        const OP: &str = "make shared receive queue";
        if !info.capabilities.contains(Capabilities::SHARED_RECEIVES) {
            let text = format!("{} does not offer shared-receives", info.device);
            return Err(Error::unsupported(OP, info.provider, text));
        }
        let limits = &info.limits;
        within(OP, "depth", self.depth, 1, limits.shared_depth.min(MAX_DEPTH))?;
        within(OP, "segments", self.segments, 1, limits.recv_segments)
    }
}

/// How a listener is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ListenerAttr {
    /// Requests that may wait for the application; one more is refused.
    pub backlog: usize,
}

impl Default for ListenerAttr {
    fn default() -> Self {
        ListenerAttr { backlog: 128 }
    }
}

impl ListenerAttr {
    /// Checks the backlog against the device's limit.
    ///
    /// # Errors
    /// `InvalidArgument` that names the limit.
    pub fn check(&self, info: &Info) -> Result<()> {
        let (backlog, most) = (self.backlog, info.limits.backlog);
        if (1..=most).contains(&backlog) {
            return Ok(());
        }
        Err(Error::invalid("listen", format!("backlog {backlog} is not in 1..={most}")))
    }
}

/// Checks the length of private data; `operation` is `connect`, `accept` or `reject`.
///
/// # Errors
/// `InvalidArgument` that names both lengths.
pub fn check_private_data(operation: &'static str, data: &[u8]) -> Result<()> {
    let max = match operation {
        "connect" => MAX_CONNECT_DATA,
        "accept" => MAX_ACCEPT_DATA,
        _ => MAX_REJECT_DATA,
    };
    if data.len() <= max {
        return Ok(());
    }
    let len = data.len();
    Err(Error::invalid(operation, format!("{len} bytes of private data; it carries at most {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_takes_a_secret_or_an_identity_and_these_a_level() {
        let secret = Secret::new(&[1; 32]).ok();
        let [key, certificate] = ["PRIVATE KEY", "CERTIFICATE"]
            .map(|kind| format!("-----BEGIN {kind}-----\nAQID\n-----END {kind}-----\n"));
        let pem = format!("{key}{certificate}");
        let identity = Identity::from_pem(pem.as_bytes(), certificate.as_bytes()).ok();
        let of = |security, secret: &Option<_>, identity: &Option<_>| {
            let (secret, identity) = (secret.clone(), identity.clone());
            DomainAttr::of(&Hints { security, secret, identity, ..Hints::default() })
                .map(|attr| attr.security)
        };
        assert_eq!(of(Security::Open, &None, &None).unwrap(), Security::Open);
        assert_eq!(of(Security::Open, &secret, &None).unwrap(), Security::Authenticated);
        for level in Security::ALL {
            assert_eq!(of(level, &None, &identity).unwrap(), Security::Encrypted);
            assert_eq!(of(level, &secret, &identity).unwrap(), Security::Encrypted);
        }
        let text = of(Security::Authenticated, &None, &None).unwrap_err().to_string();
        for says in
            ["authenticated", "FABRIC_SECRET_FILE", "FABRIC_IDENTITY_FILE", "FABRIC_TRUSTED_FILE"]
        {
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn path_settings_are_for_devices_that_have_them() {
        let mut info = Info::new("tcp", "lo");
        let mut path = PathAttr { retries: Some(3), ..PathAttr::default() };
        let error = path.check(&info).unwrap_err();
        assert!(matches!(&error, Error::Unsupported(f) if f.detail.contains("retries")), "{error}");
        info.capabilities = Capabilities::PATH_SETTINGS;
        assert!(path.check(&info).is_ok());
        path.retries = Some(8);
        assert!(matches!(path.check(&info), Err(Error::InvalidArgument(_))));
        path = PathAttr { rnr_timer: Some(Duration::from_secs(1)), ..PathAttr::default() };
        assert!(matches!(path.check(&info), Err(Error::InvalidArgument(_))));
        path = PathAttr { ack_timeout: Some(Duration::ZERO), ..PathAttr::default() };
        assert!(matches!(path.check(&info), Err(Error::InvalidArgument(_))));
    }
}
