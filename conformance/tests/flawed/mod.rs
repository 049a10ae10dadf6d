//! The reference provider with one flaw, for tests of the runner: what must pass passes, what must fail fails. Flaws are
//! in what a layer around it changes on the way in or out; everything else is the provider's own.

#![allow(clippy::unwrap_used)] // helpers of tests too

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fabric::provider::{
    Armed, CqOps, DatagramOps, DatagramSources, Device, DomainAttr, DomainOps, EndpointOps, Event,
    EventSink, Posted, Provider, ProviderCounters, RawCompletion, RecvWork, RequestId, Segment,
    SendFlags, SendOp, SendWork, SharedReceiveOps, Side, Token,
};
use fabric::{
    Access, Capabilities, CqAttr, DatagramAttr, DisconnectReason, EndpointAttr, EndpointId, Error,
    Info, ListenerAttr, ListenerId, Result, SharedReceiveAttr, Status,
};
use provider_mem::{MemCq, MemDomain, MemEndpoint, MemListener, MemProvider};

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Reports as done what was posted behind a refused operation.
    CarriesOn,
    /// Writes a byte more than asked.
    Overruns,
    /// Matches the second of two receives first.
    Reverses,
    /// Never completes a send.
    Forgets,
    /// Takes the peer of a refused operation for lost.
    LosesRefusals,
    /// Has no RMA.
    SendsOnly,
    /// Reports a wrong reason when an operation ends a connection.
    Misleads,
}

/// The provider.
#[derive(Clone, Copy)]
pub(crate) struct Flawed {
    name: &'static str,
    flaw: Flaw,
}

impl Flawed {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Flawed::named("flawed", flaw)
    }

    pub(crate) fn named(name: &'static str, flaw: Flaw) -> Self {
        Flawed { name, flaw }
    }
}

impl Provider for Flawed {
    type Domain = FlawedDomain;

    fn name(&self) -> &'static str {
        self.name
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices = Provider::devices(&MemProvider::new());
        for info in devices.iter_mut().filter_map(|device| device.state.as_mut().ok()) {
            info.provider = self.name;
            if self.flaw == Flaw::SendsOnly {
                info.capabilities -= Capabilities::RMA | Capabilities::ATOMIC;
            }
        }
        devices
    }

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<FlawedDomain> {
        let events = Arc::new(FlawedSink { events, flaw: self.flaw });
        let inner = Provider::open(&MemProvider::new(), info, attr, events)?;
        Ok(FlawedDomain { inner, flaw: self.flaw })
    }
}

struct FlawedSink {
    events: Arc<dyn EventSink>,
    flaw: Flaw,
}

impl EventSink for FlawedSink {
    fn event(&self, mut event: Event) {
        if let Event::Disconnected { reason, .. } = &mut event
            && *reason == DisconnectReason::OperationFailed
            && self.flaw == Flaw::Misleads
        {
            *reason = DisconnectReason::Remote;
        }
        self.events.event(event);
    }
}

pub(crate) struct FlawedDomain {
    inner: MemDomain,
    flaw: Flaw,
}

// SAFETY: the inner provider's registrations, as they are.
unsafe impl DomainOps for FlawedDomain {
    type Endpoint = FlawedEndpoint;
    type Cq = FlawedCq;
    type Registration = <MemDomain as DomainOps>::Registration;
    type Listener = MemListener;

    fn completion_queue(&self, attr: &CqAttr) -> Result<FlawedCq> {
        Ok(FlawedCq { inner: DomainOps::completion_queue(&self.inner, attr)?, flaw: self.flaw })
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Self::Registration> {
        // SAFETY: the caller's promise.
        unsafe { DomainOps::register(&self.inner, addr, len, access) }
    }

    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &FlawedCq,
        recv_cq: &FlawedCq,
    ) -> Result<FlawedEndpoint> {
        let queues = (&send_cq.inner, &recv_cq.inner);
        let inner = DomainOps::endpoint(&self.inner, id, attr, queues.0, queues.1)?;
        Ok(FlawedEndpoint { inner, flaw: self.flaw, held: Mutex::default() })
    }

    fn shared_receives(
        &self,
        attr: &SharedReceiveAttr,
        cq: &FlawedCq,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        DomainOps::shared_receives(&self.inner, attr, &cq.inner)
    }

    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &FlawedCq,
        receives: &dyn SharedReceiveOps,
    ) -> Result<FlawedEndpoint> {
        let inner = DomainOps::endpoint_sharing(&self.inner, id, attr, &send_cq.inner, receives)?;
        Ok(FlawedEndpoint { inner, flaw: self.flaw, held: Mutex::default() })
    }

    fn datagram_endpoint(
        &self,
        id: EndpointId,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        send_cq: &FlawedCq,
        recv_cq: &FlawedCq,
    ) -> Result<Box<dyn DatagramOps>> {
        let queues = (&send_cq.inner, &recv_cq.inner);
        DomainOps::datagram_endpoint(&self.inner, id, attr, sources, queues.0, queues.1)
    }

    fn listen(&self, id: ListenerId, addr: SocketAddr, attr: &ListenerAttr) -> Result<MemListener> {
        DomainOps::listen(&self.inner, id, addr, attr)
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        DomainOps::reject(&self.inner, request, data)
    }

    fn counters(&self) -> ProviderCounters {
        DomainOps::counters(&self.inner)
    }

    fn dump(&self) -> String {
        DomainOps::dump(&self.inner)
    }
}

pub(crate) struct FlawedEndpoint {
    inner: MemEndpoint,
    flaw: Flaw,
    /// A receive that waits for the one that is to be matched before it.
    held: Mutex<Option<(Token, Vec<Segment>)>>,
}

impl FlawedEndpoint {
    /// The segments and flags of an operation of the send queue, with the flaw.
    fn lower(&self, work: &SendWork<'_>) -> (Vec<Segment>, SendFlags) {
        let (mut segments, mut flags) = (work.segments.to_vec(), work.flags);
        match (self.flaw, work.op, segments.last_mut()) {
            // Buffers of tests have guard bytes behind them, here and there.
            (Flaw::Overruns, SendOp::Write { .. }, Some(last)) => last.len += 1,
            (Flaw::Forgets, SendOp::Send { .. }, _) => flags -= SendFlags::SIGNALED,
            _ => {}
        }
        (segments, flags)
    }
}

// SAFETY: the inner endpoint's promise; a receive that is held is not touched, and the tests end it with its endpoint.
unsafe impl EndpointOps for FlawedEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let lowered: Vec<_> = work.iter().map(|one| self.lower(one)).collect();
        let work: Vec<_> = std::iter::zip(work, &lowered)
            .map(|(one, (segments, flags))| SendWork::new(one.token, one.op, segments, *flags))
            .collect();
        // SAFETY: the caller's promise; guard bytes are of the same region.
        unsafe { self.inner.post_send(&work) }
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        if self.flaw != Flaw::Reverses {
            // SAFETY: the caller's promise.
            return unsafe { self.inner.post_recv(work) };
        }
        for one in work {
            let held = self.held.lock().unwrap().take();
            let Some((token, segments)) = held else {
                *self.held.lock().unwrap() = Some((one.token, one.segments.to_vec()));
                continue;
            };
            // SAFETY: the caller's promise, for both.
            let posted = unsafe { self.inner.post_recv(&[*one, RecvWork::new(token, &segments)]) };
            assert!(posted.refusal.is_none(), "these tests end no connection before its receives");
        }
        Posted::all(work.len())
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        self.inner.connect(to, data)
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        self.inner.accept(request, data)
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    fn quiesce(&self) -> Result<()> {
        self.inner.quiesce()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.local_addr()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.peer_addr()
    }

    fn dump(&self) -> String {
        format!("{}; flaw {:?}", self.inner.dump(), self.flaw)
    }
}

pub(crate) struct FlawedCq {
    inner: MemCq,
    flaw: Flaw,
}

// SAFETY: the inner queue's completions, each once, with another status at most.
unsafe impl CqOps for FlawedCq {
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let count = self.inner.poll(out);
        for raw in &mut out[..count] {
            raw.status = match (self.flaw, raw.status, raw.token.side()) {
                (Flaw::CarriesOn, Status::Canceled, Side::Send) => Status::Ok,
                (Flaw::LosesRefusals, Status::RemoteAccess, _) => Status::PeerLost,
                (_, status, _) => status,
            };
        }
        count
    }

    fn arm(&self) -> Result<Armed, Error> {
        self.inner.arm()
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }
}
