//! What the calls do at the far end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fabric::{Domain, Error, Result, Slice};
use fabric_rdm::{Claimed, Endpoint, OpId, PayloadRef, Peer, PostError};
use serde_bytes::ByteBuf;

use super::calls::{RdmCall, RdmPayload, RdmSend, RdmSlice};
use crate::remote::ops::{Hosted, known};
use crate::remote::protocol::answer;

/// The endpoints of a connection, and the messages that were claimed, by their names.
#[derive(Default)]
pub(in crate::remote) struct RdmHost {
    claimed: HashMap<u64, Claimed<'static>>,
    endpoints: HashMap<u64, Arc<Endpoint>>,
}

type Regions = HashMap<u64, Hosted>;

impl RdmHost {
    /// Executes a call; gives the answer as it travels.
    pub(in crate::remote) fn execute(
        &mut self,
        name: u64,
        call: RdmCall,
        domain: &Domain,
        regions: &Regions,
    ) -> Result<ByteBuf> {
        if let RdmCall::Make(attr) = call {
            let made = Endpoint::new(domain, &attr)?;
            let address = answer(made.address())?;
            self.endpoints.insert(name, Arc::new(made));
            return Ok(address);
        }
        let endpoint = known(&self.endpoints, name, "datagram endpoint")?;
        match call {
            RdmCall::Make(_) => Err(Error::state("remote", "it is there")),
            RdmCall::Drop => {
                self.endpoints.remove(&name);
                answer(&())
            }
            RdmCall::Insert(address) => answer(&endpoint.insert(&address)?),
            RdmCall::Remove(peer) => answer(&endpoint.remove(peer)?),
            RdmCall::AddressOf(peer) => answer(&endpoint.address_of(peer)?),
            RdmCall::Down(peer) => answer(&endpoint.down(peer)?),
            RdmCall::Revive(peer) => answer(&endpoint.revive(peer)?),
            RdmCall::PostSend(peer, send) => answer(&post_send(endpoint, peer, &send, regions)?),
            RdmCall::PostRecv(recv) => {
                let into = slice(regions, recv.into)?;
                answer(&endpoint.post_recv(&recv.of(into)))
            }
            RdmCall::Cancel(op) => answer(&endpoint.cancel(op)?),
            RdmCall::Poll => answer(&endpoint.poll_one()?),
            RdmCall::PollEvent => answer(&endpoint.poll_event()?),
            RdmCall::Progress => answer(&endpoint.progress()?),
            RdmCall::Arrived => answer(&endpoint.arrived()),
            RdmCall::Count(kind) => {
                let counter = endpoint.counter(kind);
                answer(&(counter.successes(), counter.errors()))
            }
            RdmCall::Reached { kind, successes, known_errors } => {
                let at_once = Some(Duration::ZERO);
                answer(&endpoint.counter(kind).wait_for(successes, known_errors, at_once)?)
            }
            RdmCall::MaxInject => answer(&endpoint.max_inject()?),
            RdmCall::Connections => answer(&endpoint.connections()?),
            RdmCall::Dump => answer(&endpoint.dump()),
            RdmCall::Probe(pattern) => answer(&endpoint.probe(&pattern)?),
            RdmCall::Claim { claimed, probed } => {
                let found = endpoint.claim_shared(&probed)?;
                let is_there = found.is_some();
                self.claimed.extend(found.map(|found| (claimed, found)));
                answer(&is_there)
            }
            RdmCall::Receive { claimed, into, context } => {
                let into = slice(regions, into)?;
                let message = self.claimed.get_mut(&claimed);
                let message = message.ok_or_else(|| Error::invalid("remote", "no such message"))?;
                answer(&message.receive(into, context))
            }
            RdmCall::Forget { claimed } => {
                self.claimed.remove(&claimed);
                answer(&())
            }
        }
    }
}

fn post_send(
    endpoint: &Endpoint,
    peer: Peer,
    send: &RdmSend,
    regions: &Regions,
) -> Result<Result<OpId, PostError>> {
    let payload = match &send.payload {
        RdmPayload::Inject(bytes) => PayloadRef::Bytes(bytes),
        RdmPayload::At(part) => PayloadRef::Slice(slice(regions, *part)?),
    };
    Ok(endpoint.post_send(peer, &send.of(payload)))
}

/// The part of the region that has all of it. Cases register no memory twice for such endpoints.
fn slice(regions: &Regions, part: RdmSlice) -> Result<Slice<'_>> {
    let find = |hosted: &Hosted| {
        let from = part.start.checked_sub(hosted.start)?;
        let end = from.checked_add(part.len)?;
        (end <= hosted.region.len() as u64).then_some(from as usize..end as usize)
    };
    let mut found = regions.values().filter_map(|hosted| Some(hosted.region.slice(find(hosted)?)));
    found.next().ok_or_else(|| Error::invalid("remote", "no region has these bytes"))
}
