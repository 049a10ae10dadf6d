//! The far end of one connection: a domain, and what its calls do there.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use fabric::provider::{Posted, RawCompletion, RawRequest, RemoteAddr, RequestId, Token};
use fabric::{
    Access, Armed, BatchError, Capabilities, Catalog, Choice, Completion, CompletionQueue,
    ConnectRequest, Domain, Endpoint, EndpointAttr, EndpointId, Error, Grant, Info, Listener,
    ListenerAttr, Memory, OpKind, ProviderSpec, Recv, Result, SharedReceiveQueue,
};
use fabric_util::byte_quota::ByteQuota;
use fabric_util::fair_table::Network;
use serde_bytes::ByteBuf;

use super::allocation::Allocation;
use super::ops::{self, Hosted, known};
use super::outbox::Outbox;
use super::protocol::{
    Call, EndpointCall, ListenerCall, LocalBytes, MemoryCall, QueueCall, Receives, RecvMsg,
    SendMsg, SharedCall, Survey, answer,
};
use super::rdm::RdmHost;
use crate::calibrate;
use crate::choose::anything;
use crate::environment::Environment;
use crate::sys;

/// Completions of one poll.
const MAX_POLLED: usize = 1024;

/// The objects of one connection, by their names. Dropping it lets everything go.
pub(super) struct Session {
    catalog: Arc<Catalog>,
    outbox: Arc<Outbox>,
    domain: Option<Domain>,
    quota: Arc<ByteQuota>,
    network: Network,
    memories: HashMap<u64, Allocation>,
    regions: HashMap<u64, Hosted>,
    grants: HashMap<u64, Grant>,
    queues: HashMap<u64, CompletionQueue>,
    receives: HashMap<u64, SharedReceiveQueue>,
    listeners: HashMap<u64, Listener>,
    requests: HashMap<u64, ConnectRequest>,
    endpoints: HashMap<u64, Endpoint>,
    names: HashMap<EndpointId, u64>,
    takers: HashMap<EndpointId, Taker>,
    rdm: RdmHost,
    next_request: u64,
}

/// What a completion of a shared receive names. An endpoint counts also when it is gone: it completes the receive that it had
/// begun.
struct Taker {
    /// The shared queue.
    receives: u64,
    /// The endpoint; without one it is the queue itself.
    endpoint: Option<u64>,
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Session {
    pub(super) fn new(
        catalog: &Arc<Catalog>,
        quota: &Arc<ByteQuota>,
        peer: SocketAddr,
        outbox: &Arc<Outbox>,
    ) -> Self {
        Session {
            catalog: catalog.clone(),
            outbox: outbox.clone(),
            domain: None,
            quota: quota.clone(),
            network: peer.ip().into(),
            memories: HashMap::new(),
            regions: HashMap::new(),
            grants: HashMap::new(),
            queues: HashMap::new(),
            receives: HashMap::new(),
            listeners: HashMap::new(),
            requests: HashMap::new(),
            endpoints: HashMap::new(),
            names: HashMap::new(),
            takers: HashMap::new(),
            rdm: RdmHost::default(),
            next_request: 1,
        }
    }

    /// Executes a call; gives the answer as it travels.
    pub(super) fn execute(&mut self, call: Call) -> Result<ByteBuf> {
        match call {
            Call::Echo => answer(&()),
            Call::Survey => answer(&self.survey()?),
            Call::Open { provider, device } => answer(&self.open(provider, device)?),
            Call::Counters => answer(&self.domain()?.counters().provider),
            Call::Dump { endpoint: None } => answer(&self.domain()?.dump()),
            Call::Dump { endpoint: Some(name) } => answer(&self.endpoint(name)?.dump()),
            Call::Memory(call) => self.execute_memory(call),
            Call::Queue(call) => self.execute_queue(call),
            Call::Shared(call) => self.execute_shared(call),
            Call::Listener(call) => self.execute_listener(call),
            Call::Endpoint(call) => self.execute_endpoint(call),
            Call::Rdm { endpoint, call } => {
                let domain = self.domain.as_ref().ok_or_else(misplaced)?;
                self.rdm.execute(endpoint, call, domain, &self.regions)
            }
        }
    }

    fn execute_memory(&mut self, call: MemoryCall) -> Result<ByteBuf> {
        match call {
            MemoryCall::Allocate { memory, len } => answer(&self.allocate(memory, len)?),
            MemoryCall::Free { memory } => {
                self.memories.remove(&memory);
                answer(&())
            }
            MemoryCall::Store { memory, at, bytes } => {
                answer(&sys::store(self.memory(memory)?, size(at), &bytes)?)
            }
            MemoryCall::Load { memory, at, len } => {
                let memory = self.memory(memory)?;
                let mut bytes = vec![0; size(len).min(memory.len())];
                sys::load(memory, size(at), &mut bytes)?;
                answer(&ByteBuf::from(bytes))
            }
            MemoryCall::Register { region, memory, at, len, access, start } => {
                let Allocation { memory, reserved } = known(&self.memories, memory, "memory")?;
                let reserved = reserved.clone();
                let range = size(at)..size(at.saturating_add(len));
                let domain = self.domain()?;
                let access = with_grants(Access::from_bits_retain(access), &range, domain.info());
                let made = domain.register_part(memory, range, access)?;
                let (key, addr) = (made.remote().key(), made.remote().base());
                self.regions.insert(region, Hosted { region: made, start, _reserved: reserved });
                answer(&RemoteAddr { key, addr })
            }
            MemoryCall::Deregister { region } => {
                // The near end has taken the completions of all operations that used it.
                let closed = known(&self.regions, region, "region")?.region.close();
                self.regions.remove(&region);
                answer(&closed?)
            }
            MemoryCall::Close { start } => {
                let mut there = self.regions.values().filter(|hosted| hosted.start == start);
                answer(&there.try_for_each(|hosted| hosted.region.close())?)
            }
            MemoryCall::Grant { grant, region, endpoint, range, access } => {
                let Hosted { region, .. } = known(&self.regions, region, "region")?;
                let access = Access::from_bits_retain(access);
                let made = region.grant(self.endpoint(endpoint)?, range, access)?;
                let (key, addr) = (made.remote().key(), made.remote().base());
                self.grants.insert(grant, made);
                answer(&RemoteAddr { key, addr })
            }
            MemoryCall::Revoke { grant } => {
                known(&self.grants, grant, "grant")?.revoke()?;
                self.grants.remove(&grant);
                answer(&())
            }
        }
    }

    fn execute_queue(&mut self, call: QueueCall) -> Result<ByteBuf> {
        match call {
            QueueCall::Make { queue, attr } => {
                let made = self.domain()?.completion_queue_with(&attr)?;
                self.queues.insert(queue, made);
                answer(&())
            }
            QueueCall::Drop { queue } => {
                self.outbox.disarm(queue);
                self.queues.remove(&queue);
                answer(&())
            }
            QueueCall::Poll { queue, max } => answer(&self.poll(queue, max)?),
            QueueCall::Arm { queue } => {
                let armed = known(&self.queues, queue, "queue")?;
                let ready = armed.arm()? == Armed::Ready;
                if !ready {
                    self.outbox.armed(queue, armed);
                }
                answer(&ready)
            }
        }
    }

    fn execute_shared(&mut self, call: SharedCall) -> Result<ByteBuf> {
        match call {
            SharedCall::Make { receives, attr, queue } => {
                let queue = known(&self.queues, queue, "queue")?;
                let made = self.domain()?.shared_receive_queue_with(&attr, queue)?;
                self.takers.insert(made.id(), Taker { receives, endpoint: None });
                self.receives.insert(receives, made);
                answer(&())
            }
            SharedCall::Drop { receives } => {
                // First its names, as for an endpoint.
                self.takers.retain(|_, taker| taker.receives != receives);
                self.receives.remove(&receives);
                answer(&())
            }
            SharedCall::PostRecv { receives, work } => {
                let receives = known(&self.receives, receives, "shared receive queue")?;
                answer(&self.post_recvs(&work, |recvs| receives.post_recvs(recvs))?)
            }
        }
    }

    fn execute_listener(&mut self, call: ListenerCall) -> Result<ByteBuf> {
        match call {
            ListenerCall::Listen { listener, addr, attr } => {
                answer(&self.listen(listener, addr, &attr)?)
            }
            ListenerCall::NextRequest { listener } => {
                let next = known(&self.listeners, listener, "listener")?.poll();
                answer(&next.map(|request| {
                    let id = RequestId(self.next_request);
                    self.next_request += 1;
                    let data = request.private_data().into();
                    let raw = RawRequest::new(id, request.peer_addr(), data)
                        .with_identity(request.identity().map(Into::into));
                    self.requests.insert(id.0, request);
                    raw
                }))
            }
            ListenerCall::Drop { listener } => {
                self.outbox.forget_listener(listener);
                self.listeners.remove(&listener);
                answer(&())
            }
            ListenerCall::Reject { request, data } => {
                let rejected = self.requests.get_mut(&request);
                rejected.ok_or_else(misplaced)?.reject(&data)?;
                self.requests.remove(&request);
                answer(&())
            }
            ListenerCall::IsWaiting { request } => {
                answer(&self.requests.get(&request).is_some_and(ConnectRequest::is_waiting))
            }
        }
    }

    fn execute_endpoint(&mut self, call: EndpointCall) -> Result<ByteBuf> {
        match call {
            EndpointCall::Make { endpoint, attr, send_queue, receives } => {
                answer(&self.make_endpoint(endpoint, attr, send_queue, receives)?)
            }
            EndpointCall::Drop { endpoint } => {
                // First its name: at the near end nothing is left to get its events and completions.
                if let Some(ended) = self.endpoints.remove(&endpoint) {
                    self.names.remove(&ended.id());
                    self.outbox.forget_endpoint(ended.id());
                }
                answer(&())
            }
            EndpointCall::Connect { endpoint, to, data } => {
                answer(&self.endpoint(endpoint)?.connect(to, &data)?)
            }
            EndpointCall::Accept { endpoint, request, data } => {
                let accepting = known(&self.endpoints, endpoint, "endpoint")?;
                let accepted = self.requests.get_mut(&request);
                accepted.ok_or_else(misplaced)?.accept(accepting, &data)?;
                self.requests.remove(&request);
                answer(&())
            }
            EndpointCall::Disconnect { endpoint } => {
                self.endpoint(endpoint)?.disconnect();
                answer(&())
            }
            EndpointCall::Addresses { endpoint } => {
                let endpoint = self.endpoint(endpoint)?;
                answer(&(endpoint.local_addr(), endpoint.peer_addr()))
            }
            EndpointCall::PostSend { endpoint, work } => answer(&self.post_send(endpoint, &work)?),
            EndpointCall::PostRecv { endpoint, work } => {
                let endpoint = self.endpoint(endpoint)?;
                answer(&self.post_recvs(&work, |recvs| endpoint.post_recvs(recvs))?)
            }
        }
    }

    fn domain(&self) -> Result<&Domain> {
        self.domain.as_ref().ok_or_else(misplaced)
    }

    fn endpoint(&self, name: u64) -> Result<&Endpoint> {
        known(&self.endpoints, name, "endpoint")
    }

    fn survey(&self) -> Result<Survey> {
        let devices = self.catalog.discover(&anything())?;
        Ok(Survey { environment: Environment::now(), factor: calibrate::factor(), devices })
    }

    fn open(&mut self, provider: String, device: String) -> Result<()> {
        if self.domain.is_some() {
            return Err(misplaced());
        }
        let choice = Choice::Include(vec![ProviderSpec { provider, device: Some(device) }]);
        let domain = self.catalog.open_with(&choice, &anything())?;
        self.outbox.watch(domain.events());
        self.domain = Some(domain);
        Ok(())
    }

    fn allocate(&mut self, name: u64, len: u64) -> Result<()> {
        let domain = self.domain.as_ref();
        self.memories.insert(name, Allocation::new(&self.quota, self.network, len, domain)?);
        Ok(())
    }

    fn memory(&self, name: u64) -> Result<&Memory> {
        known(&self.memories, name, "memory").map(|allocation| &allocation.memory)
    }

    fn listen(&mut self, name: u64, addr: SocketAddr, attr: &ListenerAttr) -> Result<SocketAddr> {
        let domain = self.domain()?;
        // Its first request may come before it has a name.
        let listener = self.outbox.name_listener(name, || domain.listen_with(addr, attr))?;
        let addr = listener.local_addr();
        self.listeners.insert(name, listener);
        Ok(addr)
    }

    fn make_endpoint(
        &mut self,
        name: u64,
        attr: EndpointAttr,
        send: u64,
        receives: Receives,
    ) -> Result<()> {
        let send = known(&self.queues, send, "queue")?;
        let builder = self.domain()?.endpoint().attr(attr);
        let made = match receives {
            Receives::Own(queue) => {
                builder.build_with(send, known(&self.queues, queue, "queue")?)?
            }
            Receives::Shared(receives) => {
                let shared = known(&self.receives, receives, "shared receive queue")?;
                let made = builder.shared_receives(shared).build(send)?;
                self.takers.insert(made.id(), Taker { receives, endpoint: Some(name) });
                made
            }
        };
        self.outbox.name_endpoint(name, made.id());
        self.names.insert(made.id(), name);
        self.endpoints.insert(name, made);
        Ok(())
    }

    /// Takes completions, those of endpoints that are gone left out: the near end has canceled what they had of their own.
    fn poll(&mut self, queue: u64, max: usize) -> Result<Vec<RawCompletion>> {
        let queue = known(&self.queues, queue, "queue")?;
        let mut polled = vec![Completion::default(); max.min(MAX_POLLED)];
        loop {
            let count = queue.poll(&mut polled)?;
            let raw: Vec<_> = polled[..count].iter().filter_map(|done| self.raw(done)).collect();
            if count == 0 || !raw.is_empty() {
                return Ok(raw);
            }
        }
    }

    fn post_send(&self, endpoint: u64, work: &[SendMsg]) -> Result<Posted> {
        let endpoint = self.endpoint(endpoint)?;
        let local = |work: &SendMsg| match &work.local {
            LocalBytes::Pieces(pieces) => ops::slices(&self.regions, pieces),
            LocalBytes::Inject(_) => Ok(Vec::new()),
        };
        let slices = work.iter().map(local).collect::<Result<Vec<_>>>()?;
        let ops = work.iter().zip(&slices).map(|(work, slices)| ops::op(work, slices));
        Ok(posted(work.len(), endpoint.post_batch(&ops.collect::<Result<Vec<_>>>()?)))
    }

    fn post_recvs(
        &self,
        work: &[RecvMsg],
        post: impl FnOnce(&[Recv<'_>]) -> Result<(), BatchError>,
    ) -> Result<Posted> {
        let local = |work: &RecvMsg| ops::slices(&self.regions, &work.pieces);
        let slices = work.iter().map(local).collect::<Result<Vec<_>>>()?;
        let receives = work.iter().zip(&slices);
        let receives: Vec<_> = receives
            .map(|(work, slices)| Recv::new(slices.as_slice(), work.token.to_bits()))
            .collect();
        Ok(posted(work.len(), post(&receives)))
    }

    /// As the near end's provider reports it.
    fn raw(&self, done: &Completion) -> Option<RawCompletion> {
        let mut raw = RawCompletion::new(Token::from_bits(done.context), done.status);
        match self.takers.get(&done.endpoint).filter(|_| done.kind.is_receive()) {
            Some(taker) => raw.endpoint = taker.endpoint.map(EndpointId),
            None if self.names.contains_key(&done.endpoint) => {}
            None => return None,
        }
        raw.remote_write = done.kind == OpKind::RecvWrite;
        (raw.len, raw.immediate) = (done.len as u64, done.immediate);
        raw.provider_code = done.provider_code;
        Some(raw)
    }
}

fn posted(all: usize, result: Result<(), BatchError>) -> Posted {
    match result {
        Ok(()) => Posted::all(all),
        Err(batch) => Posted::until(batch.posted, batch.error),
    }
}

/// A call that the near end should not have made.
fn misplaced() -> Error {
    Error::state("remote", "the call does not belong here")
}

/// Rights by which a region can be granted as the near end allows, which alone knows what is for grants: the key of a region
/// without rights for peers opens nothing all the same.
fn with_grants(access: Access, range: &Range<usize>, info: &Info) -> Access {
    if access.intersects(Access::REMOTE) || !info.capabilities.contains(Capabilities::GRANTS) {
        return access;
    }
    let mut rights = Access::GRANTS_ONLY | Access::REMOTE_READ;
    if access.contains(Access::LOCAL_WRITE) {
        rights |= Access::REMOTE_WRITE;
        // Memory starts on a page.
        if range.start.is_multiple_of(8) && range.end.is_multiple_of(8) {
            rights |= Access::REMOTE_ATOMIC;
        }
    }
    access | rights
}
