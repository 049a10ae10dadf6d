//! Shared receive queues: the contract's view.
//!
//! A queue pair in error completes the one receive that it has taken from its shared queue and a message has begun; what is in
//! the queue stays for others (InfiniBand specification, "Shared Receive Queue"). So the end of a connection waits for one completion
//! (`close.rs`), and when the device is lost, the queue itself reports all others, once no queue pair takes one any more
//! (`domain/proof.rs`).

use std::sync::Arc;

use fabric_core::{Error, Failure, Posted, RecvWork, Result, SharedReceiveAttr, SharedReceiveOps};

use crate::cq::VerbsCq;
use crate::domain::state::DomainState;
use crate::error::{NAME, failed};
use crate::handle::Srq;
use crate::receive::post_receives;
use crate::shared_queue::SharedQueue;

/// A shared receive queue.
pub struct VerbsSharedReceives {
    pub(crate) shared: Arc<SharedQueue>,
    domain: Arc<DomainState>,
}

impl VerbsSharedReceives {
    pub(crate) fn new(
        domain: &Arc<DomainState>,
        attr: &SharedReceiveAttr,
        cq: &VerbsCq,
    ) -> Result<Self> {
        const OP: &str = "make shared receive queue";
        let device = &domain.device;
        device.check()?;
        let (depth, segments) = (attr.depth as u32, attr.segments.max(1) as u32);
        let srq = Srq::new(&device.pd, depth, segments)
            .map_err(|cause| failed(OP, "the queue, or the device has no more of them", cause))?;
        let shared = SharedQueue::new(srq, &cq.queue);
        domain.shared.lock().push(shared.clone());
        let made = VerbsSharedReceives { shared, domain: domain.clone() };
        // The thread that canceled all others may not have seen this one.
        device.check().map(|()| made)
    }
}

// SAFETY: the device completes each receive that a message has begun once; the others when it is lost, or never: segments are
// reached by the device until a completion, or until `quiesce` has destroyed the queue, which says so if it cannot.
unsafe impl SharedReceiveOps for VerbsSharedReceives {
    #[inline]
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        if self.domain.device.is_lost() {
            return Posted::until(0, Error::DeviceLost);
        }
        let posted = post_receives(work, |chain, _| {
            // SAFETY: the caller's promise; the chain is on the stack until the call returns.
            unsafe { self.shared.srq.post_recv(chain) }
        });
        if let Some(last) = posted.accepted.checked_sub(1).and_then(|last| work.get(last)) {
            self.shared.note(last.token);
        }
        posted
    }

    fn quiesce(&self) -> Result<()> {
        // From here on it is not canceled any more.
        self.domain.shared.lock().retain(|shared| !Arc::ptr_eq(shared, &self.shared));
        // SAFETY: posts do not come beside or after `quiesce`; queue pairs hold it, but make no call on it.
        let destroyed = unsafe { self.shared.srq.destroy() };
        self.domain.device.unless_gone(destroyed).map_err(|cause| {
            let text = "the shared receive queue stays until the process ends";
            Error::Internal(Failure::new("end", text).of(NAME).because(cause))
        })
    }
}

impl Drop for VerbsSharedReceives {
    fn drop(&mut self) {
        // Mostly done before, and then this says the same once more. The domain must not hold what has no owner.
        let _ = self.quiesce();
    }
}
