//! A reliable datagram endpoint as the source of a driver.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric::{Armed, Domain};
use fabric_rdm::{Completion, Kind, Status};

use super::conditions::Conditions;
use super::room::Rooms;
use crate::deferred::Deferred;
use crate::lease::RemoteLeaseState;
use crate::op_slab::Phase;
use crate::source::{SlotGuard, Source};
use crate::timers::Timers;
use crate::wait_queue::WaitQueue;
use crate::wakers::Wakers;

/// See the module.
pub(crate) struct RdmSource {
    /// `None`: it is closed. No other has it while the driver is there.
    endpoint: Option<Arc<fabric_rdm::Endpoint>>,
    descriptor: OwnedFd,
    domain: Domain,
    pub(super) rooms: Rooms,
    pub(super) conditions: Conditions,
    /// Futures that wait for an event of a peer.
    pub(super) events: Arc<WaitQueue>,
    /// Futures that wait for a write to memory here.
    pub(super) notified: Arc<WaitQueue>,
}

/// What an operation of such an endpoint keeps.
#[derive(Default)]
pub(crate) struct RdmKeeps {
    /// The lease that it uses, which lasts at least as long as it.
    pub(super) lease: Option<Arc<RemoteLeaseState>>,
    /// Of a receive of many messages: those that were not asked for yet.
    pub(super) messages: Option<VecDeque<Completion>>,
}

impl RdmSource {
    pub(super) fn new(
        endpoint: fabric_rdm::Endpoint,
        timers: &Arc<Timers>,
    ) -> fabric::Result<Self> {
        let domain = endpoint.domain().clone();
        let system = |cause| fabric::Error::system("make rdm endpoint", "fabric-async", cause);
        let descriptor = endpoint.descriptor()?.try_clone_to_owned().map_err(system)?;
        Ok(RdmSource {
            endpoint: Some(Arc::new(endpoint)),
            descriptor,
            domain,
            rooms: Rooms::new(timers),
            conditions: Conditions::default(),
            events: WaitQueue::new(timers),
            notified: WaitQueue::new(timers),
        })
    }

    /// The endpoint.
    ///
    /// # Errors
    /// `InvalidState`: it is closed, as it never is while its driver is there.
    pub(super) fn endpoint(&self) -> fabric::Result<&Arc<fabric_rdm::Endpoint>> {
        let closed = || fabric::Error::state("use rdm endpoint", "it is closed");
        self.endpoint.as_ref().ok_or_else(closed)
    }

    /// The watcher that they rely on is gone: adds the wakers of all that wait for something else than a completion.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_all(&self, wakers: &mut Wakers) {
        if let Some(endpoint) = &self.endpoint {
            self.conditions.wake(endpoint, true, wakers);
        }
        self.rooms.wake_all(wakers);
        self.events.wake_all(wakers);
        self.notified.wake_all(wakers);
    }

    /// Whether no endpoint of the domain left memory that a device may still touch.
    fn is_quiet(&self) -> bool {
        self.domain.counters().leaked_regions == 0
    }
}

impl Source for RdmSource {
    type Completion = Completion;
    type Keeps = RdmKeeps;

    #[inline]
    fn progress(&self) {
        if let Some(endpoint) = &self.endpoint {
            // In a forked child it makes none.
            let _ = endpoint.progress();
        }
    }

    #[inline]
    fn poll(&self, out: &mut [Completion]) -> fabric::Result<usize> {
        self.endpoint()?.take(out)
    }

    #[inline]
    fn polled(&self, wakers: &mut Wakers) {
        let Some(endpoint) = &self.endpoint else { return };
        if endpoint.has_event() {
            self.events.wake_first(wakers);
        }
        if endpoint.has_written() {
            self.notified.wake_first(wakers);
        }
        self.rooms.wake(|key| endpoint.has_room(key).unwrap_or(true), wakers);
        self.conditions.wake(endpoint, false, wakers);
    }

    /// `fabric-rdm`'s thread has its own work beside a driver that polls: it takes over where the driver does not.
    fn arm(&self) -> fabric::Result<Armed> {
        self.endpoint()?.arm()
    }

    fn arm_manual(&self) -> fabric::Result<Armed> {
        self.endpoint()?.arm()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    #[inline]
    fn slot_of(completion: &Completion) -> u32 {
        u32::try_from(completion.context).unwrap_or(u32::MAX)
    }

    /// A message of a receive of many goes to its future.
    #[inline]
    fn absorb<'a>(
        mut slot: SlotGuard<'a, Self>,
        _number: u32,
        completion: &Completion,
        deferred: &mut Deferred,
    ) -> Option<SlotGuard<'a, Self>> {
        let is_wanted = slot.phase == Phase::InFlight;
        let Some(messages) = &mut slot.keeps.messages else { return Some(slot) };
        if completion.kind != Kind::Recv {
            return Some(slot);
        }
        if is_wanted {
            messages.push_back(*completion);
            deferred.wakers.wake(slot.waker.take());
        }
        None
    }

    #[inline]
    fn part_with(keeps: &mut RdmKeeps) -> RdmKeeps {
        RdmKeeps { lease: keeps.lease.take(), messages: None }
    }

    #[inline]
    fn ended(keeps: RdmKeeps, deferred: &mut Deferred) {
        deferred.lease(keeps.lease);
    }

    /// What ended badly may have ended with its connection, whose device may not have let go of the memory.
    #[inline]
    fn is_proof(&self, completion: &Completion) -> bool {
        let ended_itself = matches!(completion.status, Status::Ok | Status::Truncated)
            && completion.kind != Kind::Released;
        ended_itself || self.is_quiet()
    }

    /// An endpoint that is gone has made all its connections quiet, or left leaked regions.
    fn close(&mut self) -> bool {
        let Some(endpoint) = self.endpoint.take() else { return false };
        let is_here = endpoint.take(&mut []).is_ok(); // in a forked child memory is the parent's
        let is_last = Arc::into_inner(endpoint).is_some();
        is_here && is_last && self.is_quiet()
    }
}
