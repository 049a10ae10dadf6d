//! What becomes of an operation's place: its outcome is taken out, or nobody asks for it any more.

use super::*;

impl Driver {
    /// Looks whether an operation has ended, and takes it out if so.
    #[inline]
    pub(crate) fn take(&self, number: u32, waker: Option<&Waker>) -> Option<(Completion, Cargo)> {
        let fresh = waker.cloned();
        let mut place = self.table.lock(number)?;
        if place.phase == Phase::Done {
            return Some(self.take_out(number, place));
        }
        let old = std::mem::replace(&mut place.waker, fresh);
        drop(place);
        discard(old);
        None
    }

    /// As [`take`](Driver::take), for who does not wait: whoever does is still told.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_take(&self, number: u32) -> Option<(Completion, Cargo)> {
        let place = self.table.lock(number)?;
        (place.phase == Phase::Done).then(|| self.take_out(number, place))
    }

    /// Takes out what is at a place, and gives the place back. Whoever calls it has no other lock, or has taken out lane
    /// and lease.
    pub(super) fn take_out(
        &self,
        number: u32,
        mut place: MutexGuard<'_, Place>,
    ) -> (Completion, Cargo) {
        let Place { lane, lease, waker, completion, cargo, .. } = std::mem::take(&mut *place);
        drop(place);
        self.table.end(number);
        drop((lane, lease));
        discard(waker);
        (completion, cargo)
    }

    /// Takes out what an operation carries that only the parent of this process can end.
    pub(crate) fn withdraw(&self, number: u32) -> Cargo {
        self.table.lock(number).map(|place| self.take_out(number, place).1).unwrap_or_default()
    }

    /// What the operation carries is not asked for: it goes back to the pool as soon as the operation is over.
    #[cfg(feature = "tokio")]
    pub(crate) fn unburden(&self, number: u32) {
        let Some(mut place) = self.table.lock(number) else { return };
        match place.phase {
            Phase::Flying => place.phase = Phase::Unburdened,
            Phase::Done => {
                let cargo = std::mem::take(&mut place.cargo);
                drop(place);
                cargo.land();
            }
            Phase::Vacant | Phase::Unburdened | Phase::Abandoned => {}
        }
    }

    /// Gives back the place that receives of a connection had, which is gone.
    pub(crate) fn retire(&self, number: u32) {
        if let Some(place) = self.table.lock(number) {
            self.take_out(number, place);
        }
    }

    /// Nobody asks for the operation any more.
    pub(crate) fn abandon(&self, number: u32) {
        let Some(mut place) = self.table.lock(number) else { return };
        match place.phase {
            Phase::Flying | Phase::Unburdened => {
                place.phase = Phase::Abandoned;
                let waker = place.waker.take();
                drop(place);
                discard(waker);
            }
            Phase::Done => self.take_out(number, place).1.land(),
            Phase::Vacant | Phase::Abandoned => {}
        }
    }

    /// Takes out what no completion was taken for: the operations may still be executed, since their endpoint could not be
    /// brought to rest. Memory that an adapter may write to is not given to anybody: it leaks. Says how many operations.
    pub(super) fn leak(&self) -> usize {
        let mut leaked = 0;
        let mut leftover = Leftover::new();
        self.table.for_each(|place| {
            let Place { phase, lane, cargo, lease, waker, .. } = std::mem::take(place);
            match (phase, cargo) {
                (Phase::Done, cargo) => leftover.land(cargo),
                (_, Cargo::Nothing) => {}
                (_, cargo) => {
                    leaked += 1;
                    cargo.leak();
                }
            }
            leftover.wakers.discard(waker);
            leftover.lease(lease);
            leftover.lane(lane);
        });
        leaked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::Piece;

    /// What an operation has is nobody else's until a completion says so, whatever becomes of its node.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn memory_of_operations_that_were_not_completed_leaks() {
        let node = crate::Node::builder().build().unwrap();
        let pool = node.pool().clone();
        let put = |phase: Phase, cargo| {
            let table = &node.inner.driver.table;
            let number = table.begin().unwrap();
            let mut place = table.lock(number).unwrap();
            (place.phase, place.cargo) = (phase, cargo);
        };
        let piece = || Piece::new(pool.alloc(64).unwrap(), 0, 64);
        put(Phase::Flying, Cargo::One(piece()));
        put(Phase::Abandoned, Cargo::Receive(piece()));
        put(Phase::Unburdened, Cargo::Shared(pool.alloc(64).unwrap().share()));
        put(Phase::Done, Cargo::One(piece()));
        drop(node);
        let metrics = pool.metrics();
        assert_eq!((metrics.in_use, metrics.leaks), (3, 3));
    }
}
