//! The receive queue, and the credits by which the peer knows of it; or the queue that a link shares with others.

use std::sync::Arc;

use fabric_core::{EndpointId, RecvWork, Token};

use super::receives::{Receive, Receives};
use super::shared_receives::SharedReceives;

/// The credit by which a peer knows that its messages meet a shared queue: it needs none to send.
pub(super) const SHARED: u32 = u32::MAX;

/// The receive queue.
#[derive(Default)]
pub(super) struct RecvQueue {
    pub(super) receives: Receives,
    /// Receives posted so far, those of them announced to the peer, and those that were matched.
    posted: u32,
    announced: u32,
    matched: u32,
    /// Where receives come from instead, if they are shared. Nothing is posted here then.
    shared: Option<Arc<SharedReceives>>,
}

impl RecvQueue {
    /// A queue that takes its receives from a shared one.
    pub(super) fn sharing(shared: Arc<SharedReceives>) -> Self {
        let shared = Some(shared);
        RecvQueue {
            posted: SHARED,
            announced: SHARED,
            matched: SHARED,
            shared,
            ..RecvQueue::default()
        }
    }

    /// For tests: counts from here on, as after so many receives, all of them matched.
    #[cfg(any(test, fuzzing))]
    pub(super) fn count_from(&mut self, first: u32) {
        if self.shared.is_none() {
            (self.posted, self.announced, self.matched) = (first, first, first);
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The connection has ended.
    pub(super) fn stop_waiting(&self, id: EndpointId) {
        if let Some(shared) = &self.shared {
            shared.forget(id);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, work: &RecvWork<'_>) {
        self.receives.push(work);
        self.posted = self.posted.wrapping_add(1);
    }

    /// The receives posted so far, for a frame that announces them to the peer.
    pub(super) fn announce(&mut self) -> u32 {
        self.announced = self.posted;
        self.posted
    }

    /// As many of them as were announced to the peer.
    pub(super) fn announced(&self) -> u32 {
        self.announced
    }

    /// Whether more receives should be announced though no frame goes to the peer: it may have no credit
    /// left, or a good part of the queue is news.
    pub(super) fn owes_credit(&self) -> bool {
        let news = self.posted.wrapping_sub(self.announced);
        news > 0
            && (self.announced == self.matched
                || news >= 32
                || news as usize * 2 >= self.receives.len())
    }

    /// As [`take`](RecvQueue::take), of either queue, if the receive is one run of memory with room for so many bytes; gives where
    /// that begins.
    #[inline(always)] // one place calls it
    pub(super) fn take_run(&mut self, len: usize) -> Option<(Token, *mut u8)> {
        if let Some(shared) = &self.shared {
            return shared.take_run(len);
        }
        if self.announced == self.matched {
            return None;
        }
        let taken = self.receives.pop_run(len)?;
        self.matched = self.matched.wrapping_add(1);
        Some(taken)
    }

    /// The next receive, for a message; `None` if the peer sends without a credit, or the receives are shared.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Receive> {
        if self.announced == self.matched {
            return None;
        }
        self.matched = self.matched.wrapping_add(1);
        self.receives.pop()
    }

    /// As `take`, from the shared queue; if that is empty, the endpoint waits.
    pub(super) fn take_shared(&mut self, id: EndpointId) -> Option<Receive> {
        self.shared.as_ref()?.take_or_wait(id, &mut self.receives.segments)
    }

    /// The next receive, to cancel it.
    pub(super) fn cancel(&mut self) -> Option<Receive> {
        self.receives.pop()
    }

    pub(super) fn dump(&self) -> String {
        format!(
            "{} receives posted, {} announced, {} matched",
            self.posted, self.announced, self.matched
        )
    }
}
