//! What a provider offers on a device.

use std::fmt;
use std::net::IpAddr;

use crate::atomic::{self, AtomicOp, AtomicType};
use crate::error::Name;
use crate::security::Security;

bitflags::bitflags! {
    /// What endpoints of a device can do.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// Send and receive, inject, immediate data.
        const SEND = 1;
        /// One-sided write and read, write with immediate.
        const RMA = 1 << 1;
        /// One-sided atomic operations, the whole matrix.
        const ATOMIC = 1 << 2;
        /// A dead peer host is noticed ([`EndpointAttr::liveness`](crate::EndpointAttr::liveness)).
        const LIVENESS = 1 << 3;
        /// One-sided operations finish though the target *process* is stopped.
        const PROGRESS_WHILE_STOPPED = 1 << 4;
        /// A remote key, once its region is closed, never comes back in the domain.
        const UNIQUE_KEYS = 1 << 5;
        /// Remote keys have 64 random bits; without this a peer of the domain can guess them.
        const SECRET_KEYS = 1 << 6;
        /// Registered memory counts against `RLIMIT_MEMLOCK`.
        const LOCKS_MEMORY = 1 << 7;
        /// Endpoints take [`PathAttr`](crate::attr::PathAttr), completion queues a vector
        /// ([`CqAttr::vector`](crate::attr::CqAttr::vector)).
        const PATH_SETTINGS = 1 << 8;
        /// Domains report [`Event::PortDown`](crate::Event::PortDown) and
        /// [`Event::PortActive`](crate::Event::PortActive).
        const PORT_EVENTS = 1 << 9;
        /// A part of a region can be opened to the peer of one connection alone
        /// ([`RegistrationOps::grant`](crate::RegistrationOps::grant)).
        const GRANTS = 1 << 10;
        /// Peers may be in other processes. Without this an endpoint reaches those of its own process alone.
        const PROCESSES = 1 << 11;
        /// Endpoints can take their receives from a queue that they share
        /// ([`DomainOps::shared_receives`](crate::DomainOps::shared_receives)).
        const SHARED_RECEIVES = 1 << 12;
        /// A connection request whose peer leaves while it waits gives up its place in the backlog, and is not given to the
        /// application.
        const REQUEST_CANCEL = 1 << 13;
        /// Unreliable datagrams, without connections ([`DomainOps::datagram_endpoint`](crate::DomainOps::datagram_endpoint)).
        const DATAGRAMS = 1 << 14;
    }
}

impl Capabilities {
    /// The capabilities in words, joined by commas.
    pub fn names(self) -> String {
        let names: Vec<_> =
            self.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect();
        names.join(", ")
    }
}

/// For people a list of names in lower case, else the bits. What this version does not know is left out.
#[cfg(feature = "serde")]
mod serde_impl {
    use super::Capabilities;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    impl Serialize for Capabilities {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            if serializer.is_human_readable() {
                return serializer
                    .collect_seq(self.iter_names().map(|(name, _)| name.to_lowercase()));
            }
            self.bits().serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for Capabilities {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            if deserializer.is_human_readable() {
                let names = Vec::<String>::deserialize(deserializer)?;
                return Ok(names
                    .iter()
                    .filter_map(|n| Self::from_name(&n.to_uppercase()))
                    .collect());
            }
            Ok(Capabilities::from_bits_truncate(u32::deserialize(deserializer)?))
        }
    }
}

/// With what else fabric atomics are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum AtomicScope {
    /// With all fabric atomics on the location, from any initiator.
    Fabric,
    /// With the target's CPU as well.
    Cpu,
}

impl fmt::Display for AtomicScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AtomicScope::Fabric => "fabric",
            AtomicScope::Cpu => "fabric and CPU",
        })
    }
}

/// The most private data `connect` carries, in bytes; the same on every provider.
pub const MAX_CONNECT_DATA: usize = 48;
/// The most private data `accept` carries, in bytes.
pub const MAX_ACCEPT_DATA: usize = 160;
/// The most private data `reject` carries, in bytes.
pub const MAX_REJECT_DATA: usize = 112;
/// Every provider takes at least this many bytes in an inject.
pub const MIN_INJECT: usize = 128;

/// How many limits there are.
pub(crate) const NAMED_LIMITS: usize = 14;

/// The largest values a device accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one send, write or read.
    pub message: u64,
    /// Bytes of one inject.
    pub inject: usize,
    /// Bytes of one datagram. Zero where there are none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub datagram: usize,
    /// Segments of one send-queue operation.
    pub send_segments: usize,
    /// Segments of one receive.
    pub recv_segments: usize,
    /// Operations in an endpoint's send queue.
    pub send_depth: usize,
    /// Receives in an endpoint's receive queue.
    pub recv_depth: usize,
    /// Receives in a shared receive queue; their segments are those of other receives. Zero where there are none.
    pub shared_depth: usize,
    /// Completions a completion queue has room for.
    pub cq_capacity: usize,
    /// Completion queues of a domain, if the process may open as many descriptors as they take.
    pub completion_queues: usize,
    /// Endpoints of a domain.
    pub endpoints: usize,
    /// Regions of a domain.
    pub regions: usize,
    /// Bytes of one region.
    pub region_len: u64,
    /// Connection requests that wait for a listener's application.
    pub backlog: usize,
}

impl Limits {
    /// All zero; a provider fills in every field.
    pub fn none() -> Self {
        Limits {
            message: 0,
            inject: 0,
            datagram: 0,
            send_segments: 0,
            recv_segments: 0,
            send_depth: 0,
            recv_depth: 0,
            shared_depth: 0,
            cq_capacity: 0,
            completion_queues: 0,
            endpoints: 0,
            regions: 0,
            region_len: 0,
            backlog: 0,
        }
    }

    /// What both accept.
    pub fn common(&self, other: &Limits) -> Limits {
        Limits {
            message: self.message.min(other.message),
            inject: self.inject.min(other.inject),
            datagram: self.datagram.min(other.datagram),
            send_segments: self.send_segments.min(other.send_segments),
            recv_segments: self.recv_segments.min(other.recv_segments),
            send_depth: self.send_depth.min(other.send_depth),
            recv_depth: self.recv_depth.min(other.recv_depth),
            shared_depth: self.shared_depth.min(other.shared_depth),
            cq_capacity: self.cq_capacity.min(other.cq_capacity),
            completion_queues: self.completion_queues.min(other.completion_queues),
            endpoints: self.endpoints.min(other.endpoints),
            regions: self.regions.min(other.regions),
            region_len: self.region_len.min(other.region_len),
            backlog: self.backlog.min(other.backlog),
        }
    }

    /// Every limit with its name, in the order of the fields.
    pub fn named(&self) -> [(&'static str, u64); NAMED_LIMITS] {
        [
            ("message", self.message),
            ("inject", self.inject as u64),
            ("datagram", self.datagram as u64),
            ("send_segments", self.send_segments as u64),
            ("recv_segments", self.recv_segments as u64),
            ("send_depth", self.send_depth as u64),
            ("recv_depth", self.recv_depth as u64),
            ("shared_depth", self.shared_depth as u64),
            ("cq_capacity", self.cq_capacity as u64),
            ("completion_queues", self.completion_queues as u64),
            ("endpoints", self.endpoints as u64),
            ("regions", self.regions as u64),
            ("region_len", self.region_len),
            ("backlog", self.backlog as u64),
        ]
    }
}

/// What a provider offers on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Info {
    /// The provider's name: `auto`, `tcp`, `verbs`, `shm`, `mem`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::names::deserialize"))]
    pub provider: Name,
    /// The provider's version.
    pub version: String,
    /// The device: a network interface or an RDMA device.
    pub device: String,
    /// The device in words.
    pub description: String,
    /// The addresses it can listen on and connect from. The first is one by which this host reaches others, where it has one: to be
    /// reached by another way, name that.
    pub addresses: Vec<IpAddr>,
    /// What its endpoints can do.
    pub capabilities: Capabilities,
    /// The largest values it accepts.
    pub limits: Limits,
    /// With what else its atomics are atomic.
    pub atomic_scope: AtomicScope,
    /// How much it can protect connections, at most.
    #[cfg_attr(feature = "serde", serde(default))]
    pub security: Security,
    /// Further details for people, as names and values: ports, links, GIDs. No program needs it.
    pub details: Vec<(String, String)>,
}

impl Info {
    /// A device with nothing to offer yet; a provider fills in the fields.
    pub fn new(provider: &'static str, device: impl Into<String>) -> Self {
        Info {
            provider,
            version: String::new(),
            device: device.into(),
            description: String::new(),
            addresses: Vec::new(),
            capabilities: Capabilities::empty(),
            limits: Limits::none(),
            atomic_scope: AtomicScope::Fabric,
            security: Security::Open,
            details: Vec::new(),
        }
    }

    /// Whether endpoints of this device execute `op` on operands of type `ty`.
    pub fn supports_atomic(&self, op: AtomicOp, ty: AtomicType) -> bool {
        self.capabilities.contains(Capabilities::ATOMIC) && atomic::is_defined(op, ty)
    }
}

/// A device as discovery found it.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// What it offers, or why it cannot be used.
    pub state: Result<Info, Unusable>,
}

/// The device name of a provider that finds no device at all.
pub const NO_DEVICE: &str = "none";

/// Why a device or a whole provider cannot be used, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// What is missing or wrong.
    pub reason: String,
    /// What would make it usable.
    pub remedy: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.remedy)
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn info_survives_json() {
        let mut info = Info::new("tcp", "lo");
        info.capabilities = Capabilities::SEND | Capabilities::PORT_EVENTS;
        info.addresses = vec![[127, 0, 0, 1].into()];
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(json["capabilities"], serde_json::json!(["send", "port_events"]));
        assert_eq!(
            (&json["addresses"][0], &json["atomic_scope"]),
            (&"127.0.0.1".into(), &"fabric".into())
        );
        assert_eq!(json["limits"]["backlog"], 0);
        assert_eq!(serde_json::from_value::<Info>(json).unwrap(), info);
    }
}
