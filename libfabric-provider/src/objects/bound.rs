//! What endpoints of either kind are bound to: queues and counters.

use std::sync::Arc;

use super::completions::Completions;
use super::counter::Counter;
use super::domain::{Domain, Queue};
use super::tally::Tally;
use crate::abi::flags::{
    FI_EDOMAIN, FI_ENOCQ, FI_READ, FI_RECV, FI_SELECTIVE_COMPLETION, FI_SEND, FI_WRITE,
};
use crate::discovery::with_directions;
use crate::errno::Errno;

/// The sides of an endpoint, as indices.
pub(crate) const TX: usize = 0;
pub(crate) const RX: usize = 1;

/// See above.
#[derive(Default)]
pub(crate) struct Bound {
    /// Of transmits, of receives.
    queues: [Option<Arc<Queue>>; 2],
    pub(crate) is_selective: [bool; 2],
    counters: Vec<Arc<Counter>>,
    pub(crate) tally: Tally,
}

impl Bound {
    /// Binds a queue for the completions of the sides that `flags` name.
    pub(crate) fn bind_queue(
        &mut self,
        domain: &Domain,
        queue: &Arc<Queue>,
        flags: u64,
    ) -> Result<(), Errno> {
        if !Arc::ptr_eq(&queue.domain.device, &domain.device) {
            return Err(Errno(FI_EDOMAIN));
        }
        if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
            || flags & (FI_SEND | FI_RECV) == 0
        {
            return Err(Errno::INVALID);
        }
        let named = || [(TX, FI_SEND), (RX, FI_RECV)].into_iter().filter(|one| flags & one.1 != 0);
        if named().any(|(side, _)| self.queues[side].is_some()) {
            return Err(Errno::INVALID);
        }
        for (side, _) in named() {
            self.queues[side] = Some(queue.clone());
            self.is_selective[side] = flags & FI_SELECTIVE_COMPLETION != 0;
        }
        Ok(())
    }

    pub(crate) fn bind_counter(&mut self, counter: &Arc<Counter>, flags: u64) -> Result<(), Errno> {
        // What peers do to memory here is not known here.
        if flags & !Tally::ALL != 0 {
            return Err(Errno::NOT_THERE);
        }
        if flags == 0 {
            return Err(Errno::INVALID);
        }
        self.tally.bind(&counter.count, flags)?;
        self.counters.push(counter.clone());
        Ok(())
    }

    /// The queues for both sides' completions, of an endpoint with these capabilities.
    pub(crate) fn completions(
        &self,
        domain: &Domain,
        caps: u64,
    ) -> Result<[Arc<Completions>; 2], Errno> {
        Ok([self.of_side(domain, caps, TX)?, self.of_side(domain, caps, RX)?])
    }

    /// The queue for one side's completions; where only counters are bound, or the endpoint does not have that side, one that no
    /// one reads.
    fn of_side(&self, domain: &Domain, caps: u64, side: usize) -> Result<Arc<Completions>, Errno> {
        let kinds = if side == RX { FI_RECV } else { FI_SEND | FI_READ | FI_WRITE };
        let is_there = caps == 0 || with_directions(caps) & kinds != 0;
        match &self.queues[side] {
            Some(queue) => Ok(queue.completions.clone()),
            None if !is_there || self.tally.counts(kinds) => {
                let queue = Arc::new(Completions::unread(&domain.device.domain)?);
                domain.device.add_queue(&queue);
                Ok(queue)
            }
            None => Err(Errno(FI_ENOCQ)),
        }
    }

    /// From now on counters look where completions come.
    pub(crate) fn feed_counters(&self, completions: &[Arc<Completions>; 2]) {
        for counter in &self.counters {
            completions.iter().for_each(|queue| counter.add_source(queue));
        }
    }
}
