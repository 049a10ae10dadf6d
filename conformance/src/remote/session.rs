//! The far end of one connection: a domain, and what its calls do there.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use fabric::{
    Access, Armed, BatchError, Catalog, Choice, Completion, CompletionQueue, ConnectRequest,
    CqAttr, Domain, Endpoint, EndpointId, Error, Listener, ListenerAttr, Memory, OpKind,
    ProviderSpec, Recv, Region, Result,
};
use serde::Serialize;
use serde_bytes::ByteBuf;

use super::ops;
use super::outbox::Outbox;
use super::protocol::{
    Asking, Call, Done, Local, Receive, Registered, Survey, Surveyed, Taken, WireAttr,
    WireCounters, Work,
};
use super::wire::{Fault, of_status};
use crate::calibrate;
use crate::environment::Environment;
use crate::sys;
use crate::target::anything;

/// What one connection may allocate. Pages that nobody touches cost nothing.
const MOST_MEMORY: u64 = 16 << 30;
/// Completions of one poll.
const MOST_DONE: usize = 1024;

/// The objects of one connection, by their names. Dropping it lets everything go.
pub(super) struct Session {
    catalog: Arc<Catalog>,
    outbox: Arc<Outbox>,
    domain: Option<Domain>,
    memories: HashMap<u64, Memory>,
    memory_bytes: u64,
    pub(super) regions: HashMap<u64, Hosted>,
    queues: HashMap<u64, CompletionQueue>,
    listeners: HashMap<u64, Listener>,
    requests: HashMap<u64, ConnectRequest>,
    endpoints: HashMap<u64, Endpoint>,
    names: HashMap<EndpointId, u64>,
    next_request: u64,
}

/// A region, and the address by which the near end knows its first byte.
pub(super) struct Hosted {
    pub(super) region: Region,
    pub(super) start: u64,
}

/// An object of the session, or the near end's mistake.
pub(super) fn known<'a, T>(objects: &'a HashMap<u64, T>, name: u64, what: &str) -> Result<&'a T> {
    objects.get(&name).ok_or_else(|| Error::invalid("remote", format!("no {what} {name} is here")))
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Session {
    pub(super) fn new(catalog: &Arc<Catalog>, outbox: &Arc<Outbox>) -> Self {
        Session {
            catalog: catalog.clone(),
            outbox: outbox.clone(),
            domain: None,
            memories: HashMap::new(),
            memory_bytes: 0,
            regions: HashMap::new(),
            queues: HashMap::new(),
            listeners: HashMap::new(),
            requests: HashMap::new(),
            endpoints: HashMap::new(),
            names: HashMap::new(),
            next_request: 1,
        }
    }

    /// Does what is asked; gives the answer as it travels.
    pub(super) fn execute(&mut self, call: Call) -> Result<ByteBuf> {
        match call {
            Call::Echo => answer(&()),
            Call::Survey => answer(&self.survey()?),
            Call::Open { provider, device } => answer(&self.open(provider, device)?),
            Call::Counters => answer(&self.counters()?),
            Call::Dump { endpoint: None } => answer(&self.domain()?.dump()),
            Call::Dump { endpoint: Some(name) } => answer(&self.endpoint(name)?.dump()),
            Call::Allocate { .. }
            | Call::Free { .. }
            | Call::Store { .. }
            | Call::Load { .. }
            | Call::Register { .. }
            | Call::Deregister { .. } => self.execute_memory(call),
            Call::MakeQueue { .. }
            | Call::DropQueue { .. }
            | Call::Poll { .. }
            | Call::Arm { .. } => self.execute_queue(call),
            Call::Listen { .. }
            | Call::NextRequest { .. }
            | Call::DropListener { .. }
            | Call::Reject { .. } => self.execute_listener(call),
            Call::MakeEndpoint { .. }
            | Call::DropEndpoint { .. }
            | Call::Connect { .. }
            | Call::Accept { .. }
            | Call::Disconnect { .. }
            | Call::Addresses { .. }
            | Call::PostSend { .. }
            | Call::PostRecv { .. } => self.execute_endpoint(call),
        }
    }

    fn execute_memory(&mut self, call: Call) -> Result<ByteBuf> {
        match call {
            Call::Allocate { memory, len } => answer(&self.allocate(memory, len)?),
            Call::Free { memory } => {
                let freed = self.memories.remove(&memory).map_or(0, |memory| memory.len());
                self.memory_bytes -= freed as u64;
                answer(&())
            }
            Call::Store { memory, at, bytes } => {
                answer(&sys::store(known(&self.memories, memory, "memory")?, size(at), &bytes)?)
            }
            Call::Load { memory, at, len } => {
                let memory = known(&self.memories, memory, "memory")?;
                let mut bytes = vec![0; size(len).min(memory.len())];
                sys::load(memory, size(at), &mut bytes)?;
                answer(&ByteBuf::from(bytes))
            }
            Call::Register { region, memory, at, len, access, start } => {
                let memory = known(&self.memories, memory, "memory")?;
                let range = size(at)..size(at.saturating_add(len));
                let access = Access::from_bits_retain(access);
                let made = self.domain()?.register_part(memory, range, access)?;
                let (key, base) = (made.remote().key(), made.remote().base());
                self.regions.insert(region, Hosted { region: made, start });
                answer(&Registered { key, base })
            }
            Call::Deregister { region } => {
                // The near end has taken the completions of all operations that used it.
                let closed = known(&self.regions, region, "region")?.region.close();
                self.regions.remove(&region);
                answer(&closed?)
            }
            _ => Err(misplaced()),
        }
    }

    fn execute_queue(&mut self, call: Call) -> Result<ByteBuf> {
        match call {
            Call::MakeQueue { queue, capacity, vector } => {
                let mut attr = CqAttr::new(capacity);
                attr.vector = vector;
                let made = self.domain()?.completion_queue_with(&attr)?;
                self.queues.insert(queue, made);
                answer(&())
            }
            Call::DropQueue { queue } => {
                self.outbox.disarm(queue);
                self.queues.remove(&queue);
                answer(&())
            }
            Call::Poll { queue, most } => answer(&self.poll(queue, most)?),
            Call::Arm { queue } => {
                let armed = known(&self.queues, queue, "queue")?;
                let ready = armed.arm()? == Armed::Ready;
                if !ready {
                    self.outbox.armed(queue, armed);
                }
                answer(&ready)
            }
            _ => Err(misplaced()),
        }
    }

    fn execute_listener(&mut self, call: Call) -> Result<ByteBuf> {
        match call {
            Call::Listen { listener, addr, backlog } => {
                answer(&self.listen(listener, addr, backlog)?)
            }
            Call::NextRequest { listener } => {
                let taken = known(&self.listeners, listener, "listener")?.poll();
                answer(&taken.map(|request| {
                    let name = self.next_request;
                    self.next_request += 1;
                    let (peer, data) = (request.peer_addr(), request.private_data().to_vec());
                    self.requests.insert(name, request);
                    Asking { request: name, peer, data: ByteBuf::from(data) }
                }))
            }
            Call::DropListener { listener } => {
                self.outbox.forget_listener(listener);
                self.listeners.remove(&listener);
                answer(&())
            }
            Call::Reject { request, data } => {
                let rejected = self.requests.get_mut(&request);
                rejected.ok_or_else(misplaced)?.reject(&data)?;
                self.requests.remove(&request);
                answer(&())
            }
            _ => Err(misplaced()),
        }
    }

    fn execute_endpoint(&mut self, call: Call) -> Result<ByteBuf> {
        match call {
            Call::MakeEndpoint { endpoint, attr, send_queue, recv_queue } => {
                answer(&self.make_endpoint(endpoint, attr, [send_queue, recv_queue])?)
            }
            Call::DropEndpoint { endpoint } => {
                // First its name: nobody is left to hear of it, nor to take its completions.
                if let Some(ended) = self.endpoints.remove(&endpoint) {
                    self.names.remove(&ended.id());
                    self.outbox.forget_endpoint(ended.id());
                }
                answer(&())
            }
            Call::Connect { endpoint, to, data } => {
                answer(&self.endpoint(endpoint)?.connect(to, &data)?)
            }
            Call::Accept { endpoint, request, data } => {
                let accepting = known(&self.endpoints, endpoint, "endpoint")?;
                let accepted = self.requests.get_mut(&request);
                accepted.ok_or_else(misplaced)?.accept(accepting, &data)?;
                self.requests.remove(&request);
                answer(&())
            }
            Call::Disconnect { endpoint } => {
                self.endpoint(endpoint)?.disconnect();
                answer(&())
            }
            Call::Addresses { endpoint } => {
                let endpoint = self.endpoint(endpoint)?;
                answer(&(endpoint.local_addr(), endpoint.peer_addr()))
            }
            Call::PostSend { endpoint, work } => answer(&self.post_send(endpoint, &work)?),
            Call::PostRecv { endpoint, work } => answer(&self.post_recv(endpoint, &work)?),
            _ => Err(misplaced()),
        }
    }

    fn domain(&self) -> Result<&Domain> {
        self.domain.as_ref().ok_or_else(misplaced)
    }

    fn endpoint(&self, name: u64) -> Result<&Endpoint> {
        known(&self.endpoints, name, "endpoint")
    }

    fn survey(&self) -> Result<Survey> {
        let found = self.catalog.discover(&anything())?;
        let surveyed = |found: &fabric::Discovered| Surveyed {
            provider: found.provider.to_owned(),
            device: found.device.clone(),
            state: found.usable.as_ref().map(Into::into).map_err(Clone::clone),
        };
        let devices = found.iter().map(surveyed).collect();
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

    fn counters(&self) -> Result<WireCounters> {
        let counters = self.domain()?.counters().provider;
        Ok(WireCounters {
            copied_bytes: counters.copied_bytes,
            wakeups: counters.wakeups,
            system_calls: counters.system_calls,
            protocol_errors: counters.protocol_errors,
        })
    }

    fn allocate(&mut self, name: u64, len: u64) -> Result<()> {
        let sum = self.memory_bytes.saturating_add(len);
        if sum > MOST_MEMORY {
            let text = format!("{sum} bytes; one connection may allocate {MOST_MEMORY}");
            return Err(Error::invalid("allocate", text));
        }
        self.memories.insert(name, Memory::zeroed(size(len))?);
        self.memory_bytes = sum;
        Ok(())
    }

    fn listen(&mut self, name: u64, addr: SocketAddr, backlog: usize) -> Result<SocketAddr> {
        let mut attr = ListenerAttr::default();
        attr.backlog = backlog;
        let domain = self.domain()?;
        // Its first request may come before it has a name.
        let listener = self.outbox.name_listener(name, || domain.listen_with(addr, &attr))?;
        let addr = listener.local_addr();
        self.listeners.insert(name, listener);
        Ok(addr)
    }

    fn make_endpoint(&mut self, name: u64, attr: WireAttr, queues: [u64; 2]) -> Result<()> {
        let [send, recv] = queues;
        let send = known(&self.queues, send, "queue")?;
        let recv = known(&self.queues, recv, "queue")?;
        let made = self.domain()?.endpoint().attr(attr.into()).build_with(send, recv)?;
        self.outbox.name_endpoint(name, made.id());
        self.names.insert(made.id(), name);
        self.endpoints.insert(name, made);
        Ok(())
    }

    /// Takes completions, those of endpoints that are gone left out: the near end has canceled what they had.
    fn poll(&mut self, queue: u64, most: usize) -> Result<Vec<Done>> {
        let queue = known(&self.queues, queue, "queue")?;
        let mut taken = vec![Completion::default(); most.min(MOST_DONE)];
        loop {
            let count = queue.poll(&mut taken)?;
            let alive = |done: &&Completion| self.names.contains_key(&done.endpoint);
            let done: Vec<_> = taken[..count].iter().filter(alive).map(done).collect();
            if count == 0 || !done.is_empty() {
                return Ok(done);
            }
        }
    }

    fn post_send(&self, endpoint: u64, work: &[Work]) -> Result<Taken> {
        let endpoint = self.endpoint(endpoint)?;
        let local = |work: &Work| match &work.local {
            Local::Pieces(pieces) => ops::slices(&self.regions, pieces),
            Local::Inject(_) => Ok(Vec::new()),
        };
        let slices = work.iter().map(local).collect::<Result<Vec<_>>>()?;
        let ops = work.iter().zip(&slices).map(|(work, slices)| ops::op(work, slices));
        Ok(taken(work.len(), endpoint.post_batch(&ops.collect::<Result<Vec<_>>>()?)))
    }

    fn post_recv(&self, endpoint: u64, work: &[Receive]) -> Result<Taken> {
        let endpoint = self.endpoint(endpoint)?;
        let local = |work: &Receive| ops::slices(&self.regions, &work.pieces);
        let slices = work.iter().map(local).collect::<Result<Vec<_>>>()?;
        let receives = work.iter().zip(&slices);
        let receives: Vec<_> =
            receives.map(|(work, slices)| Recv::new(slices.as_slice(), work.token)).collect();
        Ok(taken(work.len(), endpoint.post_recvs(&receives)))
    }
}

fn done(completion: &Completion) -> Done {
    Done {
        token: completion.context,
        status: of_status(completion.status),
        remote_write: completion.kind == OpKind::RecvWrite,
        len: completion.len as u64,
        immediate: completion.immediate,
        provider_code: completion.provider_code,
    }
}

fn taken(all: usize, posted: Result<(), BatchError>) -> Taken {
    match posted {
        Ok(()) => Taken { accepted: all, refusal: None },
        Err(batch) => Taken { accepted: batch.posted, refusal: Some(Fault::from(batch.error)) },
    }
}

fn answer(value: &impl Serialize) -> Result<ByteBuf> {
    let bytes = postcard::to_stdvec(value);
    bytes.map(ByteBuf::from).map_err(|error| Error::invalid("answer", error.to_string()))
}

/// A call that the near end should not have made.
fn misplaced() -> Error {
    Error::state("remote", "the call does not belong here")
}
