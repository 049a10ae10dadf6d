//! The inside of a completion queue, which its handles and the endpoints bound to it share.
//!
//! A queue owns the completing ends of the in-flight rings of the endpoints bound to it: a completion names
//! its operation by token, the ring gives back what the operation holds on to, and that is let go when the
//! application takes the completion. Completions that were reaped before the application asked for them (to find
//! room for a post, or when an endpoint is dropped) wait in the `stash`. Room for all of them is reserved
//! when an endpoint is bound, so nothing here overflows and nothing is counted per post.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_core::{
    Armed, Completion, CqAttr, CqOps, EndpointId, Error, RawCompletion, Result, Side, Status,
    Token, cold_path, likely, unlikely,
};
use fabric_util::inflight::Consumer;
use fabric_util::slots::SlotConsumer;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::batch::Chunk;
use crate::cq::bound::{BoundEndpoint, BoundEndpoints};
use crate::cq::receives::BoundReceives;
use crate::dispatch::AnyCq;
use crate::domain::{DomainInner, QueuePlace};
use crate::inflight::{DeferredDrops, Fate, InFlightOp, RegionRefs, ReportMode};
use crate::process::ForkChecked;
use crate::registry::EndpointShared;

/// A completion that waits for the application.
struct PendingCompletion {
    completion: Completion,
    regions: RegionRefs,
    /// Whom to credit; `None` once its endpoint is gone.
    credit_to: Option<Token>,
}

/// What is left of an endpoint, or a shared receive queue, that is gone.
#[derive(Default)]
struct Left {
    completions: usize,
    /// Regions that stay registered.
    leaked: u64,
}

struct CqState {
    endpoints: BoundEndpoints,
    reserved: usize,
    stash: VecDeque<PendingCompletion>,
    raw: Box<[RawCompletion]>,
}

pub(crate) struct CqInner {
    state: Mutex<CqState>,
    pub(super) ops: ForkChecked<AnyCq>,
    pub(super) capacity: usize,
    pub(crate) domain: Arc<DomainInner>,
    /// The last sleeper of `wait` that woke found a completion.
    found: AtomicBool,
    /// Free when the provider's queue is gone.
    _place: QueuePlace,
}

const BATCH: usize = 64;

/// A queue's state, for `Debug`.
pub(super) struct Snapshot {
    pub(super) reserved: usize,
    pub(super) stashed: usize,
    pub(super) unknown_tokens: u64,
}

impl CqState {
    fn snapshot(&self) -> Snapshot {
        let (reserved, stashed) = (self.reserved, self.stash.len());
        Snapshot { reserved, stashed, unknown_tokens: self.endpoints.unknown_tokens }
    }

    /// Hands the stash out, oldest first.
    #[cold]
    fn take_stashed(&mut self, out: &mut [Completion], drops: &mut DeferredDrops) -> usize {
        let count = out.len().min(self.stash.len());
        for (out, stashed) in out.iter_mut().zip(self.stash.drain(..count)) {
            *out = stashed.completion;
            stashed.regions.release(drops);
            let Some(credit_to) = stashed.credit_to else {
                // The room was kept for this completion alone.
                self.reserved -= 1;
                continue;
            };
            self.endpoints.credit(credit_to);
        }
        count
    }

    /// What waits here of an endpoint, or a shared receive queue, that is gone holds on to nothing; says how many they are.
    fn let_go_of(&mut self, token: Token, drops: &mut DeferredDrops) -> Left {
        let is_credited = |credit_to: &Token| {
            (credit_to.slot(), credit_to.generation()) == (token.slot(), token.generation())
        };
        let mut left = Left::default();
        for stashed in
            self.stash.iter_mut().filter(|s| s.credit_to.as_ref().is_some_and(is_credited))
        {
            stashed.credit_to = None;
            std::mem::take(&mut stashed.regions).release(drops);
            left.completions += 1;
        }
        left
    }

    /// Cancels an operation of an endpoint, or a shared receive queue, that is gone; true if its completion waits here.
    fn cancel(
        &mut self,
        op: InFlightOp,
        id: EndpointId,
        fate: Fate,
        left: &mut Left,
        drops: &mut DeferredDrops,
    ) -> bool {
        if fate == Fate::Leak {
            // A completion would say that nothing touches its memory any more.
            left.leaked += op.regions.leak();
            return false;
        }
        op.regions.release(drops);
        if op.report == ReportMode::Internal {
            return false;
        }
        let completion = Completion::new(op.context, id, op.kind, Status::Canceled);
        let regions = RegionRefs::default();
        self.stash.push_back(PendingCompletion { completion, regions, credit_to: None });
        left.completions += 1;
        true
    }

    /// Moves everything the provider has into the stash.
    fn reap(&mut self, ops: &AnyCq, drops: &mut DeferredDrops) {
        self.reap_by(|raw| ops.poll(raw), drops);
    }

    /// As `reap`, when an endpoint is let go of.
    fn collect(&mut self, ops: &AnyCq, drops: &mut DeferredDrops) {
        self.reap_by(|raw| ops.collect(raw), drops);
    }

    fn reap_by(&mut self, take: impl Fn(&mut [RawCompletion]) -> usize, drops: &mut DeferredDrops) {
        let CqState { endpoints, stash, raw, .. } = self;
        let mut put = |completion, regions, token| {
            stash.push_back(PendingCompletion { completion, regions, credit_to: Some(token) });
            None
        };
        loop {
            let got = take(raw).min(raw.len());
            for raw in &raw[..got] {
                if !endpoints.resolve(raw, drops, &mut put) {
                    endpoints.resolve_shared(raw, drops, &mut put);
                }
            }
            if got < raw.len() {
                break;
            }
        }
    }
}

impl CqInner {
    pub(super) fn new(domain: &Arc<DomainInner>, attr: &CqAttr) -> Result<Self> {
        const OP: &str = "make completion queue";
        domain.ops.check(OP)?;
        attr.check(&domain.info)?;
        let capacity = attr.capacity;
        let place = domain.place_queue()?;
        let ops = ForkChecked::new(domain.ops.completion_queue(attr)?.into());
        let state = CqState {
            endpoints: BoundEndpoints::new(domain.events.clone()),
            reserved: 0,
            stash: VecDeque::new(),
            raw: vec![RawCompletion::default(); BATCH.min(capacity)].into(),
        };
        let (state, domain) = (Mutex::new(state), domain.clone());
        let found = AtomicBool::new(true);
        Ok(CqInner { state, ops, capacity, domain, found, _place: place })
    }

    /// Whether a thread that sleeps in `wait` is to wake for all that comes, and to serve it: one switch between threads less for a
    /// message. For what is no message of its own, the provider's thread is there, which looks for a while before it sleeps.
    pub(super) fn wakes_for_all(&self) -> bool {
        self.domain.has_one_queue() && self.found.load(Ordering::Relaxed)
    }

    /// A thread that slept in `wait` has woken.
    pub(super) fn note_wake(&self, found: bool) {
        self.found.store(found, Ordering::Relaxed);
    }

    /// Room that no endpoint has reserved.
    pub(super) fn room(&self) -> usize {
        self.capacity - self.lock().reserved
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, CqState> {
        self.state.lock()
    }

    /// Mostly nothing has ended, and a waiting poller notices the end of its operation the sooner the less that costs:
    /// this finds it out, and `deliver` does the rest.
    #[inline]
    pub(super) fn poll(&self, out: &mut [Completion]) -> usize {
        let mut state = self.lock();
        if unlikely(!state.stash.is_empty()) {
            return self.deliver(state, 0, 0, out);
        }
        let want = out.len().min(state.raw.len());
        if want == 0 {
            return 0;
        }
        match self.ops.poll(&mut state.raw[..want]).min(want) {
            0 => 0,
            got => self.deliver(state, got, want, out),
        }
    }

    /// Hands out the stash and then the provider's completions: the first `got`, of `want` that were asked for, are
    /// there already.
    #[inline(never)]
    fn deliver(
        &self,
        mut guard: MutexGuard<'_, CqState>,
        mut got: usize,
        mut want: usize,
        out: &mut [Completion],
    ) -> usize {
        let mut drops = DeferredDrops::new();
        let state = &mut *guard;
        let mut taken = 0;
        if unlikely(!state.stash.is_empty()) {
            taken = state.take_stashed(out, &mut drops);
        }
        let CqState { endpoints, stash, raw, .. } = state;
        loop {
            let mut give = |completion, regions, token| {
                hand_out(completion, regions, token, out, &mut taken, stash)
            };
            for raw in &raw[..got] {
                if !endpoints.resolve(raw, &mut drops, &mut give) {
                    endpoints.resolve_shared(raw, &mut drops, &mut give);
                }
            }
            if likely(got < want || taken == out.len()) {
                break;
            }
            want = (out.len() - taken).min(raw.len());
            got = self.ops.poll(&mut raw[..want]).min(want);
        }
        drop(guard);
        drop(drops);
        taken
    }

    /// Makes room if that can be done without waiting for another poller.
    pub(crate) fn try_reap(&self) {
        let mut drops = DeferredDrops::new();
        let Some(mut state) = self.state.try_lock() else { return };
        state.reap(&self.ops, &mut drops);
        drop(state);
    }

    pub(crate) fn reap(&self) {
        let mut drops = DeferredDrops::new();
        let mut state = self.lock();
        state.reap(&self.ops, &mut drops);
        self.wake_if_stashed(state);
    }

    /// As `reap`, when an endpoint is let go of.
    pub(crate) fn collect(&self) {
        let mut drops = DeferredDrops::new();
        let mut state = self.lock();
        state.collect(&self.ops, &mut drops);
        self.wake_if_stashed(state);
    }

    fn wake_if_stashed(&self, state: MutexGuard<'_, CqState>) {
        let waits = !state.stash.is_empty();
        drop(state);
        if waits {
            self.ops.wake();
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    pub(crate) fn ops(&self) -> &dyn CqOps {
        &**self.ops
    }

    /// Binds an endpoint's side or sides, reserving room for all they can have in flight.
    pub(crate) fn bind(
        &self,
        shared: &Arc<EndpointShared>,
        send: Option<(Consumer<InFlightOp>, usize)>,
        recv: Option<(Consumer<InFlightOp>, usize)>,
    ) -> Result<Token> {
        let depth = |side: &Option<(Consumer<InFlightOp>, usize)>| side.as_ref().map_or(0, |s| s.1);
        let room = depth(&send).saturating_add(depth(&recv));
        let mut state = self.lock();
        self.check_room("make endpoint", room, &state)?;
        let (send, recv) = (send.map(|side| side.0), recv.map(|side| side.0));
        let token =
            state.endpoints.add(BoundEndpoint { shared: shared.clone(), send, recv, room })?;
        state.reserved += room;
        Ok(token)
    }

    /// Binds a shared receive queue, reserving room for all it can have in flight.
    pub(crate) fn bind_receives(
        &self,
        id: EndpointId,
        operations: SlotConsumer<InFlightOp>,
        room: usize,
    ) -> Result<Token> {
        let mut state = self.lock();
        self.check_room("make shared receive queue", room, &state)?;
        let token = state.endpoints.add_receives(BoundReceives::new(id, operations, room))?;
        state.reserved += room;
        Ok(token)
    }

    /// An endpoint takes receives from a shared queue from now on.
    pub(crate) fn add_endpoint_of_receives(&self, token: Token, shared: &Arc<EndpointShared>) {
        if let Some(receives) = self.lock().endpoints.receives(token) {
            receives.add_endpoint(shared);
        }
    }

    /// It is gone; see [`BoundReceives::remove_endpoint`].
    pub(crate) fn remove_endpoint_of_receives(&self, token: Token, id: EndpointId, fate: Fate) {
        if let Some(receives) = self.lock().endpoints.receives(token) {
            receives.remove_endpoint(id, fate);
        }
    }

    /// Takes back receives that the provider refused.
    pub(crate) fn take_refused(&self, refused: impl Iterator<Item = Token>) {
        let mut taken: Chunk<_> = Chunk::new();
        let mut state = self.lock();
        for token in refused {
            let Some(receives) = state.endpoints.receives(token) else { continue };
            if let Some(op) = receives.operations.take(token.sequence()) {
                receives.operations.credit();
                taken.push(op);
            }
        }
        drop(state);
        drop(taken);
    }

    fn check_room(&self, operation: &'static str, room: usize, state: &CqState) -> Result<()> {
        let (capacity, free) = (self.capacity, self.capacity - state.reserved);
        if room <= free {
            return Ok(());
        }
        let text = format!(
            "the depths ask for room for {room} completions, the queue has {free} of {capacity} left"
        );
        Err(Error::invalid(operation, text))
    }

    /// As [`unbind`](CqInner::unbind), of a shared receive queue; gives the fate of its receives, which is an endpoint's if
    /// that is worse.
    pub(crate) fn unbind_receives(&self, token: Token, fate: Fate) -> (Fate, u64) {
        let mut drops = DeferredDrops::new();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.collect(&self.ops, &mut drops);
        let Some(mut receives) = state.endpoints.remove_receives(token) else { return (fate, 0) };
        let fate = if receives.fate == Fate::Leak { Fate::Leak } else { fate };
        let mut left = state.let_go_of(token, &mut drops);
        for op in receives.operations.take_all() {
            state.cancel(op, receives.id, fate, &mut left, &mut drops);
        }
        (fate, self.end_unbinding(guard, receives.room, left, drops))
    }

    /// Unbinds an endpoint: what finished keeps its real status, what it still had in flight becomes `Canceled`, or has no
    /// completion if it may still be executed. Their regions meet their fate now; says how many leaked. Room stays reserved for the completions that are left.
    pub(crate) fn unbind(&self, token: Token, fate: Fate) -> u64 {
        let mut drops = DeferredDrops::new();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.collect(&self.ops, &mut drops);
        let Some(mut endpoint) = state.endpoints.remove(token) else { return 0 };
        let shared = endpoint.shared.clone();
        let mut left = state.let_go_of(token, &mut drops);
        for side in [Side::Send, Side::Recv] {
            let Some(consumer) = endpoint.side(side) else { continue };
            while let Some((_, op)) = consumer.pop() {
                if state.cancel(op, shared.id, fate, &mut left, &mut drops) {
                    shared.counters.side(side).ends.errors.add(1);
                }
            }
        }
        self.end_unbinding(guard, endpoint.room, left, drops)
    }

    /// Keeps room for the completions that are left, of what it had before; says how many regions leaked.
    fn end_unbinding(
        &self,
        mut state: MutexGuard<'_, CqState>,
        room: usize,
        left: Left,
        drops: DeferredDrops,
    ) -> u64 {
        state.reserved = state.reserved - room + left.completions;
        drop(state);
        drop(drops);
        if left.completions > 0 {
            self.ops.wake();
        }
        left.leaked
    }

    /// How many operations of the side the provider still works on.
    pub(crate) fn outstanding(&self, token: Token, side: Side) -> usize {
        let mut state = self.lock();
        state
            .endpoints
            .endpoint(token)
            .and_then(|endpoint| endpoint.side(side))
            .map_or(0, |c| c.len())
    }

    pub(crate) fn arm(&self, manual: bool) -> Result<Armed> {
        // Under the lock, so that no other thread reaps between the look at the stash and the arming.
        let state = self.lock();
        if !state.stash.is_empty() {
            return Ok(Armed::Ready);
        }
        let armed = if manual { self.ops.arm_manual()? } else { self.ops.arm()? };
        if armed == Armed::Ready {
            // It may have cleared what was set for another sleeper, and the caller need not take everything.
            self.ops.wake();
        }
        Ok(armed)
    }
}

/// Gives a completion to the application, and its regions back; it waits in the stash if there is no room.
#[inline(always)] // once for each operation
fn hand_out(
    completion: Completion,
    regions: RegionRefs,
    token: Token,
    out: &mut [Completion],
    taken: &mut usize,
    stash: &mut VecDeque<PendingCompletion>,
) -> Option<RegionRefs> {
    let Some(place) = out.get_mut(*taken) else {
        cold_path();
        // One completion of a faulty provider may report several operations.
        stash.push_back(PendingCompletion { completion, regions, credit_to: Some(token) });
        return None;
    };
    *place = completion;
    *taken += 1;
    Some(regions)
}
