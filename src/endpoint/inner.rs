//! The inside of an endpoint, and how it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::{
    EndpointAttr, EndpointState, Error, OpKind, RemoteAddr, Result, Segment, SendFlags, SendOp,
    SendWork, Side, Token,
};
use fabric_util::callback;
use fabric_util::inflight::Producer;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::cq::CqInner;
use crate::dispatch::AnyEndpoint;
use crate::domain::DomainInner;
use crate::eq::EventHub;
use crate::inflight::{Fate, InFlightOp, RegionRefs, ReportMode};
use crate::process::ForkChecked;
use crate::registry::{EndpointShared, Settle};
use crate::shared_receives::SharedReceives;
use crate::unopened::Unopened;

/// The posting end of a queue, under its lock.
pub(crate) struct PostState {
    pub(crate) queue: PostQueue,
    /// What is handed to the provider; kept for its room, so that posting allocates nothing.
    pub(crate) segments: Vec<Segment>,
}

/// What a queue knows of its posts.
pub(crate) struct PostQueue {
    pub(crate) ring: Producer<InFlightOp>,
    /// The queue's tokens, all but the sequence number.
    pub(crate) token: Token,
    /// Unsignaled posts since the last one that was signaled inside.
    pub(crate) unsignaled_run: u32,
    /// The handle is dropped: the library posts nothing of its own any more.
    pub(crate) closed: bool,
}

/// What an endpoint is made of. Reclaiming regions (`reclaim.rs`) borrows it now and then, never beyond the handle's drop
/// for long.
pub(crate) struct EndpointInner {
    pub(crate) ops: ForkChecked<AnyEndpoint>,
    pub(crate) shared: Arc<EndpointShared>,
    pub(super) send: Mutex<PostState>,
    pub(super) recv: Mutex<PostState>,
    pub(crate) send_cq: Arc<CqInner>,
    pub(crate) recv_cq: Arc<CqInner>,
    /// Grants that were given up before they were open, until they can be revoked.
    pub(super) late_grants: Mutex<Vec<Unopened>>,
    pub(crate) attr: EndpointAttr,
    /// How many unsignaled operations go by before one is signaled inside, so that a queue whose owner never
    /// asks for completions retires its operations: a quarter of the depth, so that a small queue notices
    /// each, and a large one need not wait for half of it.
    pub(crate) max_unsignaled_run: u32,
    pub(crate) domain: Arc<DomainInner>,
    /// Where its events go.
    pub(crate) hub: Arc<EventHub>,
    /// The queue that its receives come from, if that is not its own. It goes after `ops`.
    pub(crate) receives: Option<Arc<SharedReceives>>,
}

impl EndpointInner {
    #[inline]
    pub(crate) fn lock_send(&self) -> MutexGuard<'_, PostState> {
        self.send.lock()
    }

    /// What a call gets that only a living endpoint can serve.
    #[cold]
    pub(crate) fn not_connected(&self) -> Error {
        if self.hub.device_lost() { Error::DeviceLost } else { Error::NotConnected }
    }

    pub(crate) fn check_connected(&self) -> Result<()> {
        match self.shared.state.get() {
            EndpointState::Connected => Ok(()),
            _ => Err(self.not_connected()),
        }
    }

    /// Keeps a grant that is not open in time, and with it its region, until it can be revoked.
    pub(crate) fn keep_until_open(&self, grant: Unopened) {
        self.late_grants.lock().push(grant);
        // After a drop of the region a thread has to look as well.
        self.domain.reclaim.needed.store(true, Ordering::Relaxed);
    }

    /// True if none is left.
    fn revoke_late_grants(&self) -> bool {
        let mut late = self.late_grants.lock();
        late.retain_mut(|grant| !grant.is_revoked());
        late.is_empty()
    }

    /// Makes sure that the end of the unsignaled operations posted so far becomes known: unless the last post was
    /// signaled, posts a signaled empty write whose completion is hidden. False if there is no room yet.
    fn flush(&self, queue: &mut PostQueue) -> bool {
        let PostQueue { ring, token, unsignaled_run, closed } = queue;
        // A dead endpoint reports its last operation by itself.
        if *unsignaled_run == 0 || *closed || self.shared.state.get() != EndpointState::Connected {
            return true;
        }
        let token = token.with_sequence(ring.next());
        let Some(vacancy) = ring.reserve() else { return false };
        let (kind, report, regions) = (OpKind::Write, ReportMode::Internal, RegionRefs::default());
        vacancy.insert(InFlightOp { context: 0, len: 0, kind, report, regions });
        let op = SendOp::Write { to: RemoteAddr::default(), imm: None };
        let work = [SendWork::new(token, op, &[], SendFlags::SIGNALED)];
        // SAFETY: there are no segments.
        let taken = unsafe { self.ops.post_send(&work) }.accepted > 0;
        if taken {
            *unsignaled_run = 0;
        } else {
            // SAFETY: the provider never completes what it refused.
            unsafe { ring.unpush(1) };
        }
        taken
    }

    /// Ends all that is in flight. Its regions go only if the provider has proven that nothing touches them any more.
    pub(super) fn close(&self) {
        let (send, recv) = {
            let queue = &mut self.send.lock().queue;
            // From here on the provider is asked for nothing but the end.
            queue.closed = true;
            (queue.token, self.recv.lock().queue.token)
        };
        let quiesced = callback::caught(|| self.ops.quiesce());
        let fate = if matches!(quiesced, Some(Ok(()))) { Fate::Free } else { Fate::Leak };
        // What cannot be revoked now stays, and says so.
        self.late_grants.lock().clear();
        if let Some(receives) = &self.receives {
            // What ended is known to be this endpoint's as long as the queue knows it.
            receives.cq.collect();
            receives.cq.remove_endpoint_of_receives(receives.token, self.shared.id, fate);
        }
        let mut leaked = self.send_cq.unbind(send, fate);
        if self.receives.is_none() && !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            leaked += self.recv_cq.unbind(recv, fate);
        }
        self.domain.events.forget_endpoint(self.shared.id);
        self.hub.remove(self.shared.id);
        self.domain.endpoints.remove(&self.shared);
        if fate == Fate::Leak {
            self.domain.report_leaked(self.shared.id, leaked, quiesced);
        }
    }
}

impl Settle for EndpointInner {
    fn settle(&self) -> bool {
        let (flushed, token) = {
            let mut side = self.send.lock();
            (self.flush(&mut side.queue), side.queue.token)
        };
        self.send_cq.reap();
        let granted = self.revoke_late_grants();
        flushed && granted && self.send_cq.outstanding(token, Side::Send) == 0
    }

    fn hand_over(&self) {
        // Arming clears the descriptor, so sleepers on it look again.
        let _ = self.send_cq.arm(false);
        self.send_cq.ops().wake();
    }
}
