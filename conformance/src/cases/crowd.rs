//! Several threads of one case, and several pairs on one queue.

use std::collections::HashMap;
use std::ops::Range;
use std::thread::ScopedJoinHandle;

use fabric::{EndpointAttr, EndpointId};

use crate::prelude::*;

/// Runs `body` for every item, each on a thread of its own.
pub(super) fn at_once<I: Sync, T: Send>(
    items: &[I],
    body: impl Fn(usize, &I) -> Result<T, Failed> + Sync,
) -> Result<Vec<T>, Failed> {
    let body = &body;
    thread::scope(|scope| {
        let start = |(i, item)| scope.spawn(move || body(i, item));
        let threads: Vec<_> = items.iter().enumerate().map(start).collect();
        // All of them are joined before the first failure counts.
        let outcomes: Vec<_> = threads.into_iter().map(joined).collect();
        outcomes.into_iter().collect()
    })
}

/// Settings of these depths.
pub(super) fn depths(send: usize, recv: usize) -> impl Fn(&mut EndpointAttr) + Copy {
    move |attr| (attr.send_depth, attr.recv_depth) = (send, recv)
}

/// What a thread came to; its panic is the case's own.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Connected pairs, initiators on domain a and peers on domain b; all ends of a side share one completion queue, with
/// exactly the room that they need.
pub(super) struct Crowd {
    pub(super) ends: Vec<End>,
    pub(super) peers: Vec<End>,
}

impl Crowd {
    pub(super) fn new(
        rig: &Rig,
        count: usize,
        settings: impl Fn(&mut EndpointAttr),
    ) -> Result<Self, Failed> {
        Crowd::on(rig, rig.domain_a(), count, settings)
    }

    /// As [`new`](Crowd::new), with the initiators on this domain.
    pub(super) fn on(
        rig: &Rig,
        domain: &fabric::Domain,
        count: usize,
        settings: impl Fn(&mut EndpointAttr),
    ) -> Result<Self, Failed> {
        let mut attr = EndpointAttr::default();
        settings(&mut attr);
        let room = count * (attr.send_depth + attr.recv_depth);
        let side = |domain: &fabric::Domain| -> Result<Vec<End>, Failed> {
            let queue = domain.completion_queue(room)?;
            (0..count).map(|_| rig.end_on(domain, &queue, &settings)).collect()
        };
        let crowd = Crowd { ends: side(domain)?, peers: side(rig.domain_b())? };
        crowd.connect(rig)?;
        Ok(crowd)
    }

    /// Many at a time, by one listener. The private data says who it is.
    fn connect(&self, rig: &Rig) -> Outcome {
        const AT_ONCE: usize = 50;
        let listener = rig.listen(rig.domain_b())?;
        let patience = Some(rig.connect_timeout());
        for first in (0..self.ends.len()).step_by(AT_ONCE) {
            let now = first..self.ends.len().min(first + AT_ONCE);
            for who in now.clone() {
                let name = (who as u32).to_ne_bytes();
                self.ends[who].connect(listener.local_addr(), &name)?;
            }
            for _ in now.clone() {
                let mut request = listener.accept(patience)?;
                let name = request.private_data().try_into().map(u32::from_ne_bytes);
                let peer = name.ok().and_then(|who| self.peers.get(who as usize));
                let Some(peer) = peer else { fail!("the name of an end", "{request:?}") };
                request.accept(peer, &[])?;
            }
            for who in now {
                self.ends[who].expect_connected()?;
                self.peers[who].expect_connected()?;
            }
        }
        Ok(())
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&End, &End)> {
        self.ends.iter().zip(&self.peers)
    }
}

/// Where message `i` of an end goes, in a buffer in which each end has room for the 8 bytes of `receives` messages.
pub(super) fn slot(who: usize, i: u64, receives: usize) -> Range<usize> {
    let at = (who * receives + i as usize % receives) * 8;
    at..at + 8
}

/// Posts so many receives of each end into such a buffer, with the contexts from 0 on.
pub(super) fn post_receives(ends: &[End], sink: &Guarded, receives: usize) -> Outcome {
    for (who, end) in ends.iter().enumerate() {
        for i in 0..receives as u64 {
            end.recv(sink.slice(slot(who, i, receives)), i)?;
        }
    }
    Ok(())
}

/// The places of ends in a list, by the names in their completions.
pub(super) fn places(ends: &[End]) -> HashMap<EndpointId, usize> {
    ends.iter().enumerate().map(|(place, end)| (end.id(), place)).collect()
}
