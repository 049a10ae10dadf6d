//! What an application needs, and the one matcher that holds it against what a device offers.

use std::fmt;
use std::net::IpAddr;

use crate::atomic::{AtomicOp, AtomicType};
use crate::info::{AtomicScope, Capabilities, Info, NAMED_LIMITS};
use crate::security::{Identity, Secret, Security};

/// What an application needs of a device. The default needs sends, RMA and atomics.
///
/// Numbers are the least the device must accept; zero asks for nothing.
#[derive(Clone, Debug)]
pub struct Hints {
    /// Needed capabilities.
    pub capabilities: Capabilities,
    /// A provider by name; `FABRIC_PROVIDER` has the same meaning and must agree.
    pub provider: Option<String>,
    /// A device by name.
    pub device: Option<String>,
    /// An address that the device must have.
    pub address: Option<IpAddr>,
    /// Least scope of atomics.
    pub atomic_scope: Option<AtomicScope>,
    /// Atomic operations that must be there.
    pub atomics: Vec<(AtomicOp, AtomicType)>,
    /// Bytes of one message.
    pub message: u64,
    /// Bytes of one inject.
    pub inject: u64,
    /// Bytes of one datagram.
    pub datagram: u64,
    /// Segments of one send-queue operation.
    pub send_segments: u64,
    /// Segments of one receive.
    pub recv_segments: u64,
    /// Operations in a send queue.
    pub send_depth: u64,
    /// Receives in a receive queue.
    pub recv_depth: u64,
    /// Receives in a shared receive queue.
    pub shared_depth: u64,
    /// Room of one completion queue.
    pub cq_capacity: u64,
    /// Completion queues of the domain.
    pub completion_queues: u64,
    /// Endpoints of the domain.
    pub endpoints: u64,
    /// Regions of the domain.
    pub regions: u64,
    /// Bytes of one region.
    pub region_len: u64,
    /// Connection requests waiting at one listener.
    pub backlog: u64,
    /// How much connections are to be protected, at least; `FABRIC_SECURITY` can raise it.
    pub security: Security,
    /// The secret that both ends of every connection have. With one, an end without it is refused: the level is at least
    /// [`Security::Authenticated`]. Where there is none, `FABRIC_SECRET_FILE` names the file of one.
    pub secret: Option<Secret>,
    /// What both ends of every connection prove who they are by. With one, the level is [`Security::Encrypted`]; an end without
    /// one, or with one of an authority that is not trusted, is refused. Where there is none, `FABRIC_IDENTITY_FILE` and
    /// `FABRIC_TRUSTED_FILE` name the files of one.
    pub identity: Option<Identity>,
}

impl Default for Hints {
    fn default() -> Self {
        Hints {
            capabilities: Capabilities::SEND | Capabilities::RMA | Capabilities::ATOMIC,
            provider: None,
            device: None,
            address: None,
            atomic_scope: None,
            atomics: Vec::new(),
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
            security: Security::Open,
            secret: None,
            identity: None,
        }
    }
}

/// One thing an application needs and a device does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// What it is: a capability, the name of a limit, `provider`, `device`.
    pub what: &'static str,
    /// What was asked for.
    pub wanted: String,
    /// What there is.
    pub offered: String,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wanted {}, offered {}", self.what, self.wanted, self.offered)
    }
}

impl Hints {
    /// Everything that `info` does not offer; empty means that it matches.
    pub fn unmet(&self, info: &Info) -> Vec<Unmet> {
        let mut unmet = Vec::new();
        let mut miss = |what, wanted: String, offered: String| {
            unmet.push(Unmet { what, wanted, offered });
        };
        if let Some(name) = self.provider.as_ref().filter(|name| *name != info.provider) {
            miss("provider", name.clone(), info.provider.to_owned());
        }
        if let Some(name) = self.device.as_ref().filter(|name| **name != info.device) {
            miss("device", name.clone(), info.device.clone());
        }
        if let Some(ip) = self.address.filter(|ip| !info.addresses.contains(ip)) {
            miss("address", ip.to_string(), join(&info.addresses));
        }
        let missing = self.capabilities.difference(info.capabilities);
        if !missing.is_empty() {
            miss("capabilities", missing.names(), info.capabilities.names());
        }
        if let Some(scope) = self.atomic_scope.filter(|scope| *scope > info.atomic_scope) {
            miss("atomic scope", scope.to_string(), info.atomic_scope.to_string());
        }
        for &(op, ty) in &self.atomics {
            if !info.supports_atomic(op, ty) {
                miss("atomics", format!("{op} on {ty}"), "no such operation".to_owned());
            }
        }
        if self.level() > info.security {
            miss("security", self.level().to_string(), info.security.to_string());
        }
        for ((what, offered), wanted) in info.limits.named().into_iter().zip(self.least()) {
            if wanted > offered {
                miss(what, wanted.to_string(), format!("at most {offered}"));
            }
        }
        unmet
    }

    /// How much the connections of a domain with these hints are protected.
    pub fn level(&self) -> Security {
        let implied = match (&self.identity, &self.secret) {
            (Some(_), _) => Security::Encrypted,
            (None, Some(_)) => Security::Authenticated,
            (None, None) => Security::Open,
        };
        self.security.max(implied)
    }

    /// The numbers in the order of [`Limits::named`](crate::Limits::named).
    fn least(&self) -> [u64; NAMED_LIMITS] {
        [
            self.message,
            self.inject,
            self.datagram,
            self.send_segments,
            self.recv_segments,
            self.send_depth,
            self.recv_depth,
            self.shared_depth,
            self.cq_capacity,
            self.completion_queues,
            self.endpoints,
            self.regions,
            self.region_len,
            self.backlog,
        ]
    }
}

fn join(addresses: &[IpAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
    if addresses.is_empty() { "none".to_owned() } else { addresses.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::Limits;

    fn device() -> Info {
        Info {
            capabilities: Capabilities::SEND | Capabilities::RMA,
            limits: Limits { inject: 128, message: 1 << 20, ..Limits::none() },
            addresses: vec![[127, 0, 0, 1].into()],
            ..Info::new("tcp", "lo")
        }
    }

    #[test]
    fn every_miss_is_named() {
        let hints = Hints {
            inject: 1 << 40,
            device: Some("eth0".into()),
            provider: Some("verbs".into()),
            address: Some([10, 0, 0, 1].into()),
            atomic_scope: Some(AtomicScope::Cpu),
            atomics: vec![(AtomicOp::Add, AtomicType::U64)],
            secret: Some(Secret::new(&[0; 32]).unwrap()),
            ..Hints::default()
        };
        let what: Vec<_> = hints.unmet(&device()).iter().map(|u| u.what).collect();
        assert_eq!(
            what,
            [
                "provider",
                "device",
                "address",
                "capabilities",
                "atomic scope",
                "atomics",
                "security",
                "inject"
            ]
        );
        let security = hints.unmet(&device())[6].to_string();
        assert_eq!(security, "security: wanted authenticated, offered open");
        assert!(
            hints.unmet(&device())[7]
                .to_string()
                .contains("wanted 1099511627776, offered at most 128")
        );
    }

    #[test]
    fn limits_count_from_their_exact_value() {
        let mut hints = Hints { capabilities: Capabilities::SEND, inject: 128, ..Hints::default() };
        assert!(hints.unmet(&device()).is_empty());
        hints.inject = 129;
        assert_eq!(hints.unmet(&device()).len(), 1);
    }
}
