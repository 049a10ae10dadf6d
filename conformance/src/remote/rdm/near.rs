//! An endpoint at the far end, as cases here have it.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Domain, Error, Op, Result, Slice};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{
    Address, Completion, DeathCause, Kind, OpId, Peer, PeerEvent, PostError, Probed, RdmAttr, Recv,
    Send,
};
use serde::de::DeserializeOwned;

use super::calls::RdmCall;
use crate::remote::link::Link;
use crate::remote::protocol::Call;

/// Between two questions about something that is waited for.
const PAUSE: Duration = Duration::from_micros(200);

/// The way to a domain at the far end, on which endpoints are made.
#[derive(Clone)]
pub(crate) struct RdmLink(Weak<Link>);

/// An endpoint at the far end. Its methods are those of [`fabric_rdm::Endpoint`]. When the far end is gone each of them fails,
/// and says so.
pub(crate) struct RdmProxy {
    name: u64,
    address: Address,
    // Before the link: a link that goes closes the domain.
    domain: Domain,
    link: Arc<Link>,
}

impl RdmLink {
    pub(in crate::remote) fn new(link: Weak<Link>) -> Self {
        RdmLink(link)
    }

    /// An endpoint on `domain`, to which this is the way.
    pub(crate) fn endpoint(&self, domain: &Domain, attr: RdmAttr) -> Result<RdmProxy> {
        let link = self.0.upgrade().ok_or(Error::DeviceLost)?;
        let name = link.next_id();
        let address = call(&link, name, RdmCall::Make(Box::new(attr)))?;
        Ok(RdmProxy { name, address, domain: domain.clone(), link })
    }
}

fn call<T: DeserializeOwned>(link: &Link, endpoint: u64, call: RdmCall) -> Result<T> {
    let answer = link.call(Call::Rdm { endpoint, call });
    answer.map_err(|error| lost(link).unwrap_or(error))
}

fn lost(link: &Link) -> Option<Error> {
    link.is_over().then(|| Error::state("remote", "the other host answers no more"))
}

/// Asks until there is an answer, or the time is over.
fn ask<T>(timeout: Option<Duration>, question: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = question()? {
            return Ok(answer);
        }
        if timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
            return Err(Error::TimedOut(None));
        }
        thread::sleep(PAUSE);
    }
}

impl RdmProxy {
    fn call<T: DeserializeOwned>(&self, made: RdmCall) -> Result<T> {
        call(&self.link, self.name, made)
    }

    fn post<T: DeserializeOwned>(&self, made: RdmCall) -> Result<T, PostError> {
        self.call::<Result<T, PostError>>(made)?
    }

    /// Why no call is answered any more.
    pub(crate) fn lost(&self) -> Option<Error> {
        lost(&self.link)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn insert(&self, address: &Address) -> Result<Peer> {
        self.call(RdmCall::Insert(address.clone()))
    }

    pub(crate) fn remove(&self, peer: Peer) -> Result<()> {
        self.call(RdmCall::Remove(peer))
    }

    pub(crate) fn address_of(&self, peer: Peer) -> Result<Address> {
        self.call(RdmCall::AddressOf(peer))
    }

    pub(crate) fn down(&self, peer: Peer) -> Result<Option<DeathCause>> {
        self.call(RdmCall::Down(peer))
    }

    pub(crate) fn revive(&self, peer: Peer) -> Result<()> {
        self.call(RdmCall::Revive(peer))
    }

    pub(crate) fn post_send(&self, peer: Peer, send: &Send<'_>) -> Result<OpId, PostError> {
        self.post(RdmCall::PostSend(peer, send.into()))
    }

    pub(crate) fn post_recv(&self, recv: &Recv<'_>) -> Result<OpId, PostError> {
        self.post(RdmCall::PostRecv(recv.into()))
    }

    /// The initiator is on this host, in all cases.
    pub(crate) fn post_one_sided(&self, _: Peer, _: &Op<'_>) -> Result<OpId, PostError> {
        let text = "one-sided operations begin at the endpoints of domain a";
        Err(Error::unsupported("post", "remote", text).into())
    }

    pub(crate) fn cancel(&self, op: OpId) -> Result<bool> {
        self.call(RdmCall::Cancel(op))
    }

    pub(crate) fn poll_one(&self) -> Result<Option<Completion>> {
        self.call(RdmCall::Poll)
    }

    pub(crate) fn wait_one(&self, timeout: Option<Duration>) -> Result<Completion> {
        ask(timeout, || self.poll_one())
    }

    pub(crate) fn poll_event(&self) -> Result<Option<PeerEvent>> {
        self.call(RdmCall::PollEvent)
    }

    pub(crate) fn progress(&self) -> Result<()> {
        self.call(RdmCall::Progress)
    }

    pub(crate) fn arrived(&self) -> Result<u64> {
        self.call(RdmCall::Arrived)
    }

    pub(crate) fn count(&self, kind: Kind) -> Result<(u64, u64)> {
        self.call(RdmCall::Count(kind))
    }

    /// As [`Counter::wait_for`](fabric_rdm::Counter::wait_for).
    pub(crate) fn wait_for(
        &self,
        kind: Kind,
        (successes, known_errors): (u64, u64),
        timeout: Option<Duration>,
    ) -> Result<()> {
        ask(timeout, || match self.call(RdmCall::Reached { kind, successes, known_errors }) {
            Err(Error::TimedOut(_)) => Ok(None),
            answer => answer.map(Some),
        })
    }

    pub(crate) fn max_inject(&self) -> Result<usize> {
        self.call(RdmCall::MaxInject)
    }

    pub(crate) fn connections(&self) -> Result<u32> {
        self.call(RdmCall::Connections)
    }

    pub(crate) fn dump(&self) -> String {
        self.call(RdmCall::Dump).unwrap_or_else(|error| error.to_string())
    }

    pub(crate) fn probe(&self, pattern: &Pattern) -> Result<Option<Probed>> {
        self.call(RdmCall::Probe(*pattern))
    }

    pub(crate) fn claim(&self, probed: &Probed) -> Result<Option<RemoteClaimed<'_>>> {
        let claimed = self.link.next_id();
        let is_there: bool = self.call(RdmCall::Claim { claimed, probed: *probed })?;
        Ok(is_there.then_some(RemoteClaimed { endpoint: self, claimed }))
    }
}

impl Drop for RdmProxy {
    fn drop(&mut self) {
        // A server that is gone has dropped it.
        let _ = self.call::<()>(RdmCall::Drop);
    }
}

impl std::fmt::Debug for RdmProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RdmProxy({:?})", self.address)
    }
}

impl std::fmt::Debug for RdmLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RdmLink")
    }
}

/// A message that is claimed at the far end.
#[derive(Debug)]
pub(crate) struct RemoteClaimed<'a> {
    endpoint: &'a RdmProxy,
    claimed: u64,
}

impl RemoteClaimed<'_> {
    pub(crate) fn receive(&mut self, into: Slice<'_>, context: u64) -> Result<OpId, PostError> {
        let (claimed, into) = (self.claimed, into.into());
        self.endpoint.post(RdmCall::Receive { claimed, into, context })
    }
}

impl Drop for RemoteClaimed<'_> {
    fn drop(&mut self) {
        let _ = self.endpoint.call::<()>(RdmCall::Forget { claimed: self.claimed });
    }
}
