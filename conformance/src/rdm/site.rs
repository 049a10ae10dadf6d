//! An endpoint wherever it is: in this process, or at the other host.

use std::time::Duration;

use fabric::{Domain, Error, Op, Result, Slice};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{
    Address, Completion, DeathCause, Endpoint, Kind, OpId, Peer, PeerEvent, PostError, Probed,
    Recv, Send,
};

use crate::remote::rdm::{RdmProxy, RemoteClaimed};

/// Where it is. The methods are those of [`Endpoint`].
#[derive(Debug)]
pub(crate) enum Site {
    Here(Endpoint),
    There(RdmProxy),
}

/// Methods that both have.
macro_rules! forwarded {
    ($(fn $name:ident($($arg:ident: $of:ty),*) -> $gives:ty;)*) => {
        $(
            pub(crate) fn $name(&self, $($arg: $of),*) -> $gives {
                match self {
                    Site::Here(endpoint) => endpoint.$name($($arg),*),
                    Site::There(endpoint) => endpoint.$name($($arg),*),
                }
            }
        )*
    };
}

impl Site {
    forwarded! {
        fn address() -> &Address;
        fn domain() -> &Domain;
        fn insert(address: &Address) -> Result<Peer>;
        fn remove(peer: Peer) -> Result<()>;
        fn address_of(peer: Peer) -> Result<Address>;
        fn down(peer: Peer) -> Result<Option<DeathCause>>;
        fn revive(peer: Peer) -> Result<()>;
        fn post_send(peer: Peer, send: &Send<'_>) -> Result<OpId, PostError>;
        fn post_recv(recv: &Recv<'_>) -> Result<OpId, PostError>;
        fn cancel(op: OpId) -> Result<bool>;
        fn poll_one() -> Result<Option<Completion>>;
        fn wait_one(timeout: Option<Duration>) -> Result<Completion>;
        fn poll_event() -> Result<Option<PeerEvent>>;
        fn progress() -> Result<()>;
        fn max_inject() -> Result<usize>;
        fn connections() -> Result<u32>;
        fn dump() -> String;
        fn probe(pattern: &Pattern) -> Result<Option<Probed>>;
    }

    pub(crate) fn post(&self, peer: Peer, op: &Op<'_>) -> Result<OpId, PostError> {
        match self {
            Site::Here(endpoint) => endpoint.post(peer, op),
            Site::There(endpoint) => endpoint.post_one_sided(peer, op),
        }
    }

    pub(crate) fn arrived(&self) -> Result<u64> {
        match self {
            Site::Here(endpoint) => Ok(endpoint.arrived()),
            Site::There(endpoint) => endpoint.arrived(),
        }
    }

    pub(crate) fn counter(&self, kind: Kind) -> CounterAt<'_> {
        CounterAt { site: self, kind }
    }

    pub(crate) fn claim(&self, probed: &Probed) -> Result<Option<Claimed<'_>>> {
        Ok(match self {
            Site::Here(endpoint) => endpoint.claim(probed)?.map(Claimed::Here),
            Site::There(endpoint) => endpoint.claim(probed)?.map(Claimed::There),
        })
    }

    /// Why no call is answered any more.
    pub(crate) fn lost(&self) -> Option<Error> {
        match self {
            Site::Here(_) => None,
            Site::There(endpoint) => endpoint.lost(),
        }
    }
}

/// A counter of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterAt<'a> {
    site: &'a Site,
    kind: Kind,
}

impl CounterAt<'_> {
    /// Successes and errors by now.
    pub(crate) fn now(&self) -> Result<(u64, u64)> {
        match self.site {
            Site::Here(endpoint) => {
                let counter = endpoint.counter(self.kind);
                Ok((counter.successes(), counter.errors()))
            }
            Site::There(endpoint) => endpoint.count(self.kind),
        }
    }

    /// As [`Counter::wait_for`](fabric_rdm::Counter::wait_for).
    pub(crate) fn wait_for(
        &self,
        successes: u64,
        known_errors: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        match self.site {
            Site::Here(endpoint) => {
                endpoint.counter(self.kind).wait_for(successes, known_errors, timeout)
            }
            Site::There(endpoint) => {
                endpoint.wait_for(self.kind, (successes, known_errors), timeout)
            }
        }
    }
}

/// A message that was claimed.
#[derive(Debug)]
pub(crate) enum Claimed<'a> {
    Here(fabric_rdm::Claimed<'a>),
    There(RemoteClaimed<'a>),
}

impl Claimed<'_> {
    pub(crate) fn receive(&mut self, into: Slice<'_>, context: u64) -> Result<OpId, PostError> {
        match self {
            Claimed::Here(claimed) => claimed.receive(into, context),
            Claimed::There(claimed) => claimed.receive(into, context),
        }
    }
}
