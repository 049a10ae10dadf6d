//! The ends of an operation's slot: the outcome is taken, or the operation is abandoned.

use super::*;

impl<S: Source> Driver<S> {
    /// Takes the outcome of an operation, if it has ended; else registers the waker.
    #[inline]
    pub(crate) fn take(
        &self,
        number: u32,
        waker: Option<&Waker>,
    ) -> Option<(S::Completion, OpBuffers)> {
        let fresh = waker.cloned();
        let mut slot = self.slab.lock(number)?;
        if slot.phase == Phase::Done {
            return Some(self.take_out(number, slot));
        }
        let old = std::mem::replace(&mut slot.waker, fresh);
        drop(slot);
        discard(old);
        None
    }

    /// As [`take`](Driver::take), without waiting: a registered waker stays.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_take(&self, number: u32) -> Option<(S::Completion, OpBuffers)> {
        let slot = self.slab.lock(number)?;
        (slot.phase == Phase::Done).then(|| self.take_out(number, slot))
    }

    /// Takes out what is in a slot, and gives the slot back. The caller has no other lock, or has taken out what the operation
    /// kept.
    pub(super) fn take_out(
        &self,
        number: u32,
        mut slot: SlotGuard<'_, S>,
    ) -> (S::Completion, OpBuffers) {
        let OpSlot { keeps, waker, completion, buffers, .. } = std::mem::take(&mut *slot);
        drop(slot);
        self.slab.end(number);
        drop(keeps);
        discard(waker);
        (completion, buffers)
    }

    /// Takes out the buffers of an operation that only the parent of this process can end.
    pub(crate) fn reclaim_forked(&self, number: u32) -> OpBuffers {
        self.slab.lock(number).map(|slot| self.take_out(number, slot).1).unwrap_or_default()
    }

    /// The operation's buffers are not wanted: they go back to the pool as soon as it has ended.
    #[cfg(feature = "tokio")]
    pub(crate) fn detach(&self, number: u32) {
        let Some(mut slot) = self.slab.lock(number) else { return };
        match slot.phase {
            Phase::InFlight => slot.phase = Phase::Detached,
            Phase::Done => {
                let buffers = std::mem::take(&mut slot.buffers);
                drop(slot);
                buffers.reclaim();
            }
            Phase::Vacant | Phase::Detached | Phase::Abandoned => {}
        }
    }

    /// Gives back the slot that receives of a connection had, which is gone.
    pub(crate) fn release(&self, number: u32) {
        if let Some(slot) = self.slab.lock(number) {
            self.take_out(number, slot);
        }
    }

    /// The operation's future was dropped.
    pub(crate) fn abandon(&self, number: u32) {
        let Some(mut slot) = self.slab.lock(number) else { return };
        match slot.phase {
            Phase::InFlight | Phase::Detached => {
                slot.phase = Phase::Abandoned;
                let waker = slot.waker.take();
                drop(slot);
                discard(waker);
            }
            Phase::Done => self.take_out(number, slot).1.reclaim(),
            Phase::Vacant | Phase::Abandoned => {}
        }
    }

    /// Takes out operations without a completion: unless all are known to be `quiet`, they may still be executed, since their
    /// endpoint could not be quiesced. Memory that an adapter may write to is never reused: it leaks. Returns the number of
    /// operations whose memory does.
    pub(super) fn leak(&self, quiet: bool) -> usize {
        let mut leaked = 0;
        let mut deferred = Deferred::new();
        self.slab.for_each(|slot| {
            let OpSlot { phase, keeps, buffers, waker, .. } = std::mem::take(slot);
            match (phase, buffers) {
                (_, buffers) if quiet => deferred.reclaim(buffers),
                (Phase::Done, buffers) => deferred.reclaim(buffers),
                (_, OpBuffers::Nothing) => {}
                (_, buffers) => {
                    leaked += 1;
                    buffers.leak();
                }
            }
            deferred.wakers.discard(waker);
            S::ended(keeps, &mut deferred);
        });
        leaked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op_buffers::BufferRange;

    /// An operation keeps its memory until its completion, even if its node is dropped.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn memory_of_operations_that_were_not_completed_leaks() {
        let node = crate::Node::builder().build().unwrap();
        let pool = node.pool().clone();
        let put = |phase: Phase, buffers| {
            let slab = &node.inner.driver.slab;
            let number = slab.begin().unwrap();
            let mut slot = slab.lock(number).unwrap();
            (slot.phase, slot.buffers) = (phase, buffers);
        };
        let range = || BufferRange::new(pool.alloc(64).unwrap(), 0, 64);
        put(Phase::InFlight, OpBuffers::One(range()));
        put(Phase::Abandoned, OpBuffers::Receive(range()));
        put(Phase::Detached, OpBuffers::Shared(pool.alloc(64).unwrap().share()));
        put(Phase::Done, OpBuffers::One(range()));
        drop(node);
        // The node's thread may be in a round, and lets go of it behind that.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let seen = || (pool.metrics().in_use, pool.metrics().leaks);
        while seen() != (3, 3) && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(seen(), (3, 3));
    }
}
