//! The completion queue that the connections and datagram endpoints of a node share, as the source of the node's driver.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fabric::{Armed, Completion, CompletionQueue};

use crate::conn_state::ConnState;
use crate::deferred::Deferred;
use crate::lease::RemoteLeaseState;
use crate::op_buffers::OpBuffers;
use crate::op_slab::Phase;
use crate::source::{SlotGuard, Source};

/// What an operation of a connection, or of a datagram endpoint, keeps.
#[derive(Default)]
pub(crate) struct ConnKeeps {
    /// Whose operation it is.
    pub(crate) conn_state: Option<Arc<ConnState>>,
    /// The lease that it uses, which lasts at least as long as it.
    pub(crate) lease: Option<Arc<RemoteLeaseState>>,
}

impl Source for CompletionQueue {
    type Completion = Completion;
    type Keeps = ConnKeeps;

    #[inline]
    fn poll(&self, out: &mut [Completion]) -> fabric::Result<usize> {
        CompletionQueue::poll(self, out)
    }

    fn arm(&self) -> fabric::Result<Armed> {
        CompletionQueue::arm(self)
    }

    fn arm_manual(&self) -> fabric::Result<Armed> {
        CompletionQueue::arm_manual(self)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    #[inline]
    fn slot_of(completion: &Completion) -> u32 {
        completion.context as u32
    }

    /// Ends a receive. Its slot stays the connection's, for the next one.
    #[inline]
    fn absorb<'a>(
        mut slot: SlotGuard<'a, Self>,
        number: u32,
        completion: &Completion,
        deferred: &mut Deferred,
    ) -> Option<SlotGuard<'a, Self>> {
        if !matches!(slot.buffers, OpBuffers::Receive(_)) {
            return Some(slot);
        }
        slot.phase = Phase::Vacant;
        let buffers = std::mem::take(&mut slot.buffers);
        if let (OpBuffers::Receive(range), Some(state)) = (buffers, &slot.keeps.conn_state) {
            let unused = state.arrived(completion, number, range.reclaim(), &mut deferred.wakers);
            deferred.buffer(unused);
        }
        None
    }

    #[inline]
    fn part_with(keeps: &mut ConnKeeps) -> ConnKeeps {
        std::mem::take(keeps)
    }

    #[inline]
    fn ended(keeps: ConnKeeps, deferred: &mut Deferred) {
        deferred.lease(keeps.lease);
        // Its connection has room for another one.
        if let Some(conn_state) = &keeps.conn_state {
            conn_state.room.wake_first(&mut deferred.wakers);
        }
        deferred.conn_state(keeps.conn_state);
    }
}
