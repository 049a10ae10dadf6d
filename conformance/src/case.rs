//! What a case is, and what it needs.

use std::fmt;
use std::time::Duration;

use fabric::{AtomicScope, Capabilities, Hints, Info, Security};

use crate::check::Outcome;
use crate::freedom::Freedom;
use crate::rig::Rig;

/// One rule of the contract, and the function that shows whether a provider keeps it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Case {
    /// Its group.
    pub group: Group,
    /// Its name within the group.
    pub name: &'static str,
    /// What it needs of a provider.
    pub needs: Needs,
    /// The rule, in one line.
    pub about: &'static str,
    /// How long it may take, before scaling; longer is a failure.
    pub limit: Duration,
    /// When it runs.
    pub turn: Turn,
    /// Whether it is so long that it runs on request only.
    pub soak: bool,
    /// Whether a naive emulation of RMA over a byte stream fails it.
    pub trap: bool,
    /// What of its transcript may differ between providers.
    pub freedom: Freedom,
    /// Why it cannot run between two hosts; empty if it can.
    pub local_only: &'static str,
    /// The function.
    pub run: fn(&Rig) -> Outcome,
}

impl Case {
    /// A case with the usual time limit of 60 s.
    pub const fn new(
        group: Group,
        name: &'static str,
        needs: Needs,
        about: &'static str,
        run: fn(&Rig) -> Outcome,
    ) -> Self {
        let limit = Duration::from_secs(60);
        let freedom = Freedom::None;
        // What happens to the link happens to every case.
        let turn = if needs.link.is_some() { Turn::Alone } else { Turn::Beside };
        let (soak, trap, local_only) = (false, false, "");
        Case { group, name, needs, about, limit, turn, soak, trap, freedom, local_only, run }
    }

    /// With another time limit.
    pub const fn limit_s(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// It measures time, takes all the link, or forks a child that makes calls, which another thread's locks would hang:
    /// runs alone.
    pub const fn exclusive(mut self) -> Self {
        self.turn = Turn::Alone;
        self
    }

    /// It is long: runs on request (`--soak`) only.
    pub const fn soak(mut self) -> Self {
        self.soak = true;
        self
    }

    /// It looks at what all other cases have left: runs when they have ended.
    pub const fn last(mut self) -> Self {
        self.turn = Turn::Last;
        self
    }

    /// It is there for a mistake that a naive emulation over a byte stream makes.
    pub const fn trap(mut self) -> Self {
        self.trap = true;
        self
    }

    /// The contract leaves something of its transcript open.
    pub const fn freedom(mut self, freedom: Freedom) -> Self {
        self.freedom = freedom;
        self
    }

    /// Both ends must be in one process: what it needs of that.
    pub const fn local_only(mut self, why: &'static str) -> Self {
        self.local_only = why;
        self
    }

    /// `group.name`.
    pub fn id(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }
}

/// When a case runs. Those that run alone come behind the others: one that waited in the midst of them would hold up all
/// until the longest has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Beside others.
    Beside,
    /// Without another beside it: it measures time, changes the link or takes all of it.
    Alone,
    /// Alone and when all others have ended: it looks at what they have left.
    Last,
}

/// A group of cases.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Group {
    /// What there is, and why the rest is not.
    Discovery,
    /// Registration, and its end.
    Memory,
    /// Connecting, rejecting, listening.
    Connection,
    /// Connections between ends with a secret.
    Security,
    /// Sends and receives.
    Send,
    /// One-sided reads and writes.
    Rma,
    /// One-sided atomics.
    Atomic,
    /// What follows what.
    Ordering,
    /// Completion queues.
    Completion,
    /// What a peer must not do.
    Protection,
    /// What happens while the application makes no call.
    Progress,
    /// Random programs beside a model.
    Random,
    /// What fits, and who waits for whom.
    Flow,
    /// Receive queues that endpoints share.
    Shared,
    /// Many threads at the same handles.
    Threads,
    /// Many endpoints, and what runs out.
    Scale,
    /// The asynchronous layer.
    Async,
    /// Reliable datagram endpoints.
    Rdm,
    /// Unreliable datagrams.
    Datagram,
    /// The end of connections and of handles.
    Teardown,
}

impl Group {
    /// Every group, in the order of reports.
    pub const ALL: [Group; 20] = [
        Group::Discovery,
        Group::Memory,
        Group::Connection,
        Group::Security,
        Group::Send,
        Group::Rma,
        Group::Atomic,
        Group::Ordering,
        Group::Completion,
        Group::Protection,
        Group::Progress,
        Group::Random,
        Group::Flow,
        Group::Shared,
        Group::Threads,
        Group::Scale,
        Group::Async,
        Group::Rdm,
        Group::Datagram,
        Group::Teardown,
    ];

    /// The name, as in `group.name`.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Discovery => "discovery",
            Group::Memory => "memory",
            Group::Connection => "connection",
            Group::Security => "security",
            Group::Send => "send",
            Group::Rma => "rma",
            Group::Atomic => "atomic",
            Group::Ordering => "ordering",
            Group::Completion => "completion",
            Group::Protection => "protection",
            Group::Progress => "progress",
            Group::Random => "random",
            Group::Flow => "flow",
            Group::Shared => "shared",
            Group::Threads => "threads",
            Group::Scale => "scale",
            Group::Async => "async",
            Group::Rdm => "rdm",
            Group::Datagram => "datagram",
            Group::Teardown => "teardown",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a case needs of a provider, as data.
///
/// ```
/// # use conformance::prelude::Needs;
/// const WIDE: Needs = Needs::RMA.min_limits(&[("send_segments", 16), ("message", 1 << 20)]);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Needs {
    /// Capabilities that must be there.
    pub capabilities: Capabilities,
    /// Least scope of atomics.
    pub atomic_scope: Option<AtomicScope>,
    /// Least values of limits, by the names of [`Limits::named`](fabric::Limits::named).
    pub min_limits: &'static [(&'static str, u64)],
    /// An IPv6 address beside the IPv4 one.
    pub ipv6: bool,
    /// A provider that breaks the alignment of an atomic on the wire when asked to; see
    /// [`MISALIGN`](crate::MISALIGN).
    pub forged_wire: bool,
    /// A second process on this host; see [`Rig::process`].
    pub process: bool,
    /// A link between two hosts that can be broken.
    pub link: Option<LinkFault>,
    /// How much connections can be protected, at least.
    pub security: Security,
}

/// How a case wants to break the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkFault {
    /// Nothing comes through; see [`Rig::cut_link`].
    Cut,
    /// Packets are lost; see [`Rig::impair_link`].
    Lossy,
}

impl Needs {
    /// Nothing but a usable device.
    pub const NOTHING: Needs = Needs {
        capabilities: Capabilities::empty(),
        atomic_scope: None,
        min_limits: &[],
        ipv6: false,
        forged_wire: false,
        process: false,
        link: None,
        security: Security::Open,
    };
    /// Sends.
    pub const SEND: Needs = Needs::NOTHING.and(Capabilities::SEND);
    /// Writes and reads.
    pub const RMA: Needs = Needs::NOTHING.and(Capabilities::RMA);
    /// Sends, and writes and reads; so writes with immediate too.
    pub const SEND_RMA: Needs = Needs::SEND.and(Capabilities::RMA);
    /// Atomics.
    pub const ATOMIC: Needs = Needs::NOTHING.and(Capabilities::ATOMIC);
    /// Sends, RMA and atomics.
    pub const ALL: Needs = Needs::SEND_RMA.and(Capabilities::ATOMIC);

    /// These capabilities as well.
    pub const fn and(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = self.capabilities.union(capabilities);
        self
    }

    /// Atomics that are atomic with the target's CPU.
    pub const fn cpu_scope(mut self) -> Self {
        self.atomic_scope = Some(AtomicScope::Cpu);
        self
    }

    /// Limits of at least these values.
    pub const fn min_limits(mut self, limits: &'static [(&'static str, u64)]) -> Self {
        self.min_limits = limits;
        self
    }

    /// An IPv6 address.
    pub const fn ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// A provider that forges; see [`MISALIGN`](crate::MISALIGN).
    pub const fn forged_wire(mut self) -> Self {
        self.forged_wire = true;
        self
    }

    /// A second process.
    pub const fn process(mut self) -> Self {
        self.process = true;
        self
    }

    /// Two hosts, and a link between them that can be cut.
    pub const fn cut_link(mut self) -> Self {
        self.link = Some(LinkFault::Cut);
        self
    }

    /// Two hosts, and a link between them that can be made to lose packets.
    pub const fn lossy_link(mut self) -> Self {
        self.link = Some(LinkFault::Lossy);
        self
    }

    /// Connections that are protected so.
    pub const fn secured(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// Whether the contract leaves it to each device to offer what this names beyond sends, RMA and atomics; so
    /// that a case may be unsupported on one provider and pass on another.
    pub const fn is_optional(&self) -> bool {
        let declared = Capabilities::UNIQUE_KEYS
            .union(Capabilities::SECRET_KEYS)
            .union(Capabilities::LOCKS_MEMORY)
            .union(Capabilities::PROGRESS_WHILE_STOPPED)
            .union(Capabilities::PROCESSES)
            .union(Capabilities::GRANTS)
            .union(Capabilities::SHARED_RECEIVES)
            .union(Capabilities::REQUEST_CANCEL)
            .union(Capabilities::DATAGRAMS);
        self.capabilities.intersects(declared)
            || self.process
            || self.atomic_scope.is_some()
            || self.forged_wire
            || !matches!(self.security, Security::Open)
    }

    /// What of it a device lacks; empty if the case can run. `forges` says whether the provider under test
    /// understands [`MISALIGN`](crate::MISALIGN).
    pub fn missing(&self, info: &Info, forges: bool) -> Vec<String> {
        let mut capabilities = self.capabilities;
        if self.process {
            capabilities |= Capabilities::PROCESSES;
        }
        let Needs { atomic_scope, security, .. } = *self;
        let hints = Hints { capabilities, atomic_scope, security, ..Hints::default() };
        let mut missing: Vec<_> = hints.unmet(info).iter().map(ToString::to_string).collect();
        let limits = info.limits.named();
        for &(name, wanted) in self.min_limits {
            let offered =
                limits.iter().find(|(known, _)| *known == name).map_or(0, |limit| limit.1);
            if offered < wanted {
                missing.push(format!("{name}: wanted {wanted}, offered at most {offered}"));
            }
        }
        if self.ipv6 && !info.addresses.iter().any(|ip| ip.is_ipv6()) {
            missing.push("address: wanted an IPv6 one, the device has none".to_owned());
        }
        if self.forged_wire && !forges {
            missing.push("a provider that forges requests on demand".to_owned());
        }
        missing
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.capabilities.is_empty() {
            parts.push(self.capabilities.names());
        }
        if let Some(scope) = self.atomic_scope {
            parts.push(format!("atomic scope {scope}"));
        }
        parts.extend(self.min_limits.iter().map(|(name, min)| format!("{name} >= {min}")));
        if self.security > Security::Open {
            parts.push(format!("security {}", self.security));
        }
        if self.ipv6 {
            parts.push("ipv6".to_owned());
        }
        if self.forged_wire {
            parts.push("forging provider".to_owned());
        }
        if self.process {
            parts.push("a second process".to_owned());
        }
        parts.extend(self.link.map(|link| match link {
            LinkFault::Cut => "two hosts and a link that can be cut".to_owned(),
            LinkFault::Lossy => "two hosts and a link that can lose packets".to_owned(),
        }));
        f.pad(&if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::Limits;

    #[test]
    fn what_is_missing_is_named() {
        let mut info = Info::new("mock", "m0");
        info.capabilities = Capabilities::SEND | Capabilities::ATOMIC;
        info.addresses = vec![[127, 0, 0, 1].into()];
        info.limits = Limits::none();
        info.limits.send_segments = 4;
        assert_eq!(Needs::SEND.missing(&info, false), Vec::<String>::new());
        assert_eq!(
            Needs::SEND.min_limits(&[("send_segments", 4)]).missing(&info, false),
            Vec::<String>::new()
        );
        let needs =
            Needs::SEND_RMA.cpu_scope().min_limits(&[("send_segments", 5)]).ipv6().forged_wire();
        let missing = needs.missing(&info, false);
        assert_eq!(missing.len(), 5, "{missing:?}");
        assert!(missing[0].contains("rma"), "{missing:?}");
        assert_eq!(missing[2], "send_segments: wanted 5, offered at most 4");
        assert_eq!(needs.missing(&info, true).len(), 4);
    }
}
