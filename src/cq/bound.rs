//! The endpoints bound to a completion queue, and what a provider's completion means to them.

use std::sync::Arc;

use fabric_core::token::MAX_ENDPOINTS_PER_CQ;
use fabric_core::{
    Completion, EndpointState, Error, Event, EventSink, Failure, OpKind, RawCompletion, Result,
    Side, Status, Token, cold_path, likely, unlikely,
};
use fabric_util::inflight::Consumer;

use super::receives::{BoundReceives, UnknownToken};
use crate::counters::Ends;
use crate::event_router::EventRouter;
use crate::inflight::{DeferredDrops, InFlightOp, RegionRefs, ReportMode};
use crate::registry::EndpointShared;

/// An endpoint, as the queue knows it.
pub(super) struct BoundEndpoint {
    pub(super) shared: Arc<EndpointShared>,
    pub(super) send: Option<Consumer<InFlightOp>>,
    pub(super) recv: Option<Consumer<InFlightOp>>,
    /// What it has reserved.
    pub(super) room: usize,
}

impl BoundEndpoint {
    pub(super) fn side(&mut self, side: Side) -> Option<&mut Consumer<InFlightOp>> {
        match side {
            Side::Send => self.send.as_mut(),
            Side::Recv => self.recv.as_mut(),
        }
    }
}

/// A slot has either.
#[derive(Default)]
struct EndpointSlot {
    generation: u32,
    endpoint: Option<BoundEndpoint>,
    receives: Option<BoundReceives>,
}

/// The endpoints bound to the queue.
pub(super) struct BoundEndpoints {
    events: Arc<EventRouter>,
    slots: Vec<EndpointSlot>,
    free: Vec<u32>,
    /// Completions whose token names nothing: a provider's mistake.
    pub(super) unknown_tokens: u64,
}

impl BoundEndpoints {
    pub(super) fn new(events: Arc<EventRouter>) -> Self {
        BoundEndpoints { events, slots: Vec::new(), free: Vec::new(), unknown_tokens: 0 }
    }

    /// Adds an endpoint, and gives the token of its first operation.
    pub(super) fn add(&mut self, endpoint: BoundEndpoint) -> Result<Token> {
        let (token, slot) = self.vacancy()?;
        slot.endpoint = Some(endpoint);
        Ok(token)
    }

    /// Adds a shared receive queue, and gives its token, all but the sequence number.
    pub(super) fn add_receives(&mut self, receives: BoundReceives) -> Result<Token> {
        let (token, slot) = self.vacancy()?;
        slot.receives = Some(receives);
        Ok(Token::new(token.slot(), token.generation(), Side::Recv, 0))
    }

    fn vacancy(&mut self) -> Result<(Token, &mut EndpointSlot)> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() < MAX_ENDPOINTS_PER_CQ => {
                self.slots.push(EndpointSlot::default());
                (self.slots.len() - 1) as u32
            }
            None => {
                let text =
                    format!("the queue serves {MAX_ENDPOINTS_PER_CQ} endpoints, the most it can");
                return Err(Error::NoMemory(Failure::new("make endpoint", text)));
            }
        };
        let slot = &mut self.slots[place as usize];
        Ok((Token::new(place, slot.generation, Side::Send, 0), slot))
    }

    /// Removes an endpoint: from now on its tokens name nothing.
    pub(super) fn remove(&mut self, token: Token) -> Option<BoundEndpoint> {
        self.endpoint(token)?;
        self.vacate(token).endpoint.take()
    }

    /// Removes a shared receive queue: from now on its tokens name nothing.
    pub(super) fn remove_receives(&mut self, token: Token) -> Option<BoundReceives> {
        self.receives(token)?;
        self.vacate(token).receives.take()
    }

    fn vacate(&mut self, token: Token) -> &mut EndpointSlot {
        self.free.push(token.slot());
        let slot = &mut self.slots[token.slot() as usize];
        slot.generation = Token::next_generation(slot.generation);
        slot
    }

    #[inline]
    pub(super) fn endpoint(&mut self, token: Token) -> Option<&mut BoundEndpoint> {
        find(&mut self.slots, token)
    }

    pub(super) fn receives(&mut self, token: Token) -> Option<&mut BoundReceives> {
        find_receives(&mut self.slots, token)
    }

    /// An operation that was reaped before has been taken by the application.
    pub(super) fn credit(&mut self, token: Token) {
        if let Some(endpoint) = self.endpoint(token) {
            if let Some(consumer) = endpoint.side(token.side()) {
                consumer.credit(1);
            }
        } else if let Some(receives) = self.receives(token) {
            receives.operations.credit();
        }
    }

    /// Turns a provider's completion into those of the application, in order; each goes to `deliver` with
    /// what it held on to and the provider's token. `deliver` gives back what it held on to if the application has
    /// the completion now. Unsignaled operations that succeeded are retired on the way. False: it is not of an endpoint
    /// ([`resolve_shared`](BoundEndpoints::resolve_shared)).
    #[inline]
    pub(super) fn resolve(
        &mut self,
        raw: &RawCompletion,
        drops: &mut DeferredDrops,
        deliver: &mut impl FnMut(Completion, RegionRefs, Token) -> Option<RegionRefs>,
    ) -> bool {
        let BoundEndpoints { events, slots, unknown_tokens, .. } = self;
        let token = raw.token;
        let Some(BoundEndpoint { shared, send, recv, .. }) = find(slots, token) else {
            return false;
        };
        let consumer = match token.side() {
            Side::Send => send.as_mut(),
            Side::Recv => recv.as_mut(),
        };
        let Some(consumer) = consumer.filter(|consumer| consumer.contains(token.sequence())) else {
            cold_path();
            *unknown_tokens += u64::from(!raw.flushes_earlier);
            return true;
        };
        let ends = &shared.counters.side(token.side()).ends;
        let reporter = Reporter { shared, ends, token };
        let mut done = 0;
        if consumer.oldest() != token.sequence() {
            done = reporter.retire_before(consumer, raw, drops, deliver);
        }
        if let Some((_, op)) = consumer.pop() {
            let InFlightOp { context, len, kind, report, regions } = op;
            let mut completion = Completion::new(context, shared.id, kind, raw.status);
            completion.provider_code = raw.provider_code;
            if likely(raw.status == Status::Ok) {
                completion.len = len;
                if token.side() == Side::Recv {
                    completion.len = raw.len as usize;
                    completion.immediate = raw.immediate;
                    if unlikely(raw.remote_write) {
                        completion.kind = OpKind::RecvWrite;
                    }
                    ends.bytes.add(raw.len);
                    if let Some(sources) = &shared.sources {
                        completion.source = sources.get(token);
                    }
                    if unlikely(shared.state.get() == EndpointState::Connecting) {
                        connected_early(events, shared);
                    }
                }
            }
            done += reporter.end(completion, report, regions, drops, deliver);
        }
        consumer.credit(done);
        true
    }
}

impl BoundEndpoints {
    /// As `resolve`, of a receive of a shared queue.
    #[inline]
    pub(super) fn resolve_shared(
        &mut self,
        raw: &RawCompletion,
        drops: &mut DeferredDrops,
        deliver: &mut impl FnMut(Completion, RegionRefs, Token) -> Option<RegionRefs>,
    ) {
        let BoundEndpoints { events, slots, unknown_tokens, .. } = self;
        let Some(receives) = find_receives(slots, raw.token) else {
            cold_path();
            *unknown_tokens += 1;
            return;
        };
        match receives.resolve(raw, drops, deliver) {
            Ok(None) => {}
            Ok(Some(shared)) => {
                cold_path();
                connected_early(events, &shared);
            }
            Err(UnknownToken) => {
                cold_path();
                *unknown_tokens += 1;
            }
        }
    }
}

#[inline]
fn find(slots: &mut [EndpointSlot], token: Token) -> Option<&mut BoundEndpoint> {
    let slot = slots.get_mut(token.slot() as usize)?;
    if slot.generation == token.generation() { slot.endpoint.as_mut() } else { None }
}

#[inline]
fn find_receives(slots: &mut [EndpointSlot], token: Token) -> Option<&mut BoundReceives> {
    let slot = slots.get_mut(token.slot() as usize)?;
    if slot.generation == token.generation() { slot.receives.as_mut() } else { None }
}

/// A message came to an endpoint that accepts, before the `Connected` event of its provider: the thread that takes
/// the message may answer it.
#[cold]
fn connected_early(events: &EventRouter, shared: &EndpointShared) {
    events.event(Event::Connected { endpoint: shared.id, data: Box::default() });
}

/// Reports completed operations of one side, and counts them.
#[derive(Clone, Copy)]
struct Reporter<'a> {
    shared: &'a EndpointShared,
    ends: &'a Ends,
    token: Token,
}

impl Reporter<'_> {
    /// Says how many operations no longer count against the depth: one or none.
    #[inline(always)] // once for each operation; the completion then never takes the way over memory
    fn end(
        self,
        completion: Completion,
        report: ReportMode,
        regions: RegionRefs,
        drops: &mut DeferredDrops,
        deliver: &mut impl FnMut(Completion, RegionRefs, Token) -> Option<RegionRefs>,
    ) -> u32 {
        let ok = completion.status == Status::Ok;
        if !ok {
            cold_path();
            // While it is connecting, an event reports how that ends.
            self.shared.state.replace(EndpointState::Connected, EndpointState::Dead);
        }
        if report != ReportMode::Internal {
            if ok { self.ends.completed.add(1) } else { self.ends.errors.add(1) }
        }
        let visible = report == ReportMode::Always || report == ReportMode::OnError && !ok;
        let regions =
            if visible { deliver(completion, regions, self.token) } else { Some(regions) };
        let Some(regions) = regions else { return 0 };
        regions.release(drops);
        1
    }

    /// Ends the operations before that of `raw`, which have no completion of their own.
    #[inline(never)]
    fn retire_before(
        self,
        consumer: &mut Consumer<InFlightOp>,
        raw: &RawCompletion,
        drops: &mut DeferredDrops,
        deliver: &mut impl FnMut(Completion, RegionRefs, Token) -> Option<RegionRefs>,
    ) -> u32 {
        let mut done = 0;
        while consumer.oldest() != raw.token.sequence() {
            let Some((_, op)) = consumer.pop() else { break };
            let status = match op.report {
                _ if raw.flushes_earlier => raw.status,
                // Signaled, and its own completion never came: a provider's mistake, but each is reported exactly once.
                ReportMode::Always => Status::Internal,
                // Unsignaled: it succeeded.
                _ => Status::Ok,
            };
            let mut completion = Completion::new(op.context, self.shared.id, op.kind, status);
            completion.provider_code = raw.provider_code;
            done += self.end(completion, op.report, op.regions, drops, deliver);
        }
        done
    }
}
