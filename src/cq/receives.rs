//! A shared receive queue bound to a completion queue, and what a provider's completion means to it.

use std::sync::Arc;

use fabric_core::{
    Completion, EndpointId, EndpointState, OpKind, RawCompletion, Status, Token, cold_path, likely,
    unlikely,
};
use fabric_util::endpoint_map::EndpointMap;
use fabric_util::slots::SlotConsumer;

use crate::inflight::{DeferredDrops, Fate, InFlightOp, RegionRefs};
use crate::registry::EndpointShared;

/// A completion that names nothing: a provider's mistake.
pub(super) struct UnknownToken;

/// A shared receive queue, as the completion queue knows it.
pub(super) struct BoundReceives {
    pub(super) id: EndpointId,
    /// Its receives.
    pub(super) operations: SlotConsumer<InFlightOp>,
    /// The endpoints that take receives from it.
    endpoints: EndpointMap<Arc<EndpointShared>>,
    /// What becomes of the receives that are left at the end.
    pub(super) fate: Fate,
    /// What it has reserved.
    pub(super) room: usize,
}

impl BoundReceives {
    pub(super) fn new(id: EndpointId, operations: SlotConsumer<InFlightOp>, room: usize) -> Self {
        let (endpoints, fate) = (EndpointMap::default(), Fate::Free);
        BoundReceives { id, operations, endpoints, fate, room }
    }

    pub(super) fn add_endpoint(&mut self, shared: &Arc<EndpointShared>) {
        self.endpoints.insert(shared.id, shared.clone());
    }

    /// An endpoint is gone; with [`Fate::Leak`] it may still touch any of the receives, from now on.
    pub(super) fn remove_endpoint(&mut self, id: EndpointId, fate: Fate) {
        self.endpoints.remove(id);
        if fate == Fate::Leak {
            self.fate = fate;
        }
    }

    /// Turns a provider's completion into that of the application, as
    /// [`BoundEndpoints::resolve`](super::bound::BoundEndpoints::resolve) does; gives the endpoint whose message took the receive if
    /// that is not known to be connected yet.
    #[inline(always)] // once for each operation
    pub(super) fn resolve(
        &mut self,
        raw: &RawCompletion,
        drops: &mut DeferredDrops,
        deliver: &mut impl FnMut(Completion, RegionRefs, Token) -> Option<RegionRefs>,
    ) -> Result<Option<Arc<EndpointShared>>, UnknownToken> {
        if unlikely(raw.flushes_earlier) {
            // A device that vanished completes one for all.
            for op in self.operations.take_all() {
                self.end(op, raw, drops, deliver);
            }
            return Ok(None);
        }
        let op = self.operations.take(raw.token.sequence()).ok_or(UnknownToken)?;
        Ok(self.end(op, raw, drops, deliver))
    }

    /// Ends a receive.
    #[inline(always)] // as above
    fn end(
        &mut self,
        op: InFlightOp,
        raw: &RawCompletion,
        drops: &mut DeferredDrops,
        deliver: &mut impl FnMut(Completion, RegionRefs, Token) -> Option<RegionRefs>,
    ) -> Option<Arc<EndpointShared>> {
        let id = raw.endpoint.unwrap_or(self.id);
        let completion = received(raw, op.context, id);
        let early = match self.endpoints.get(id) {
            Some(shared) if count_received(shared, &completion) => Some(shared.clone()),
            Some(_) => None,
            None => {
                cold_path();
                None
            }
        };
        if let Some(regions) = deliver(completion, op.regions, raw.token) {
            regions.release(drops);
            self.operations.credit();
        }
        early
    }
}

/// The completion of a receive, as its provider reports it.
#[inline]
fn received(raw: &RawCompletion, context: u64, endpoint: EndpointId) -> Completion {
    let mut completion = Completion::new(context, endpoint, OpKind::Recv, raw.status);
    completion.provider_code = raw.provider_code;
    if likely(raw.status == Status::Ok) {
        completion.len = raw.len as usize;
        completion.immediate = raw.immediate;
        if unlikely(raw.remote_write) {
            completion.kind = OpKind::RecvWrite;
        }
    }
    completion
}

/// Counts a receive for the endpoint whose message took it; says whether that is not known to be connected yet.
#[inline]
fn count_received(shared: &EndpointShared, completion: &Completion) -> bool {
    let ends = &shared.counters.recv.ends;
    if !completion.is_ok() {
        cold_path();
        ends.errors.add(1);
        shared.state.replace(EndpointState::Connected, EndpointState::Dead);
        return false;
    }
    ends.completed.add(1);
    ends.bytes.add(completion.len as u64);
    unlikely(shared.state.get() == EndpointState::Connecting)
}
