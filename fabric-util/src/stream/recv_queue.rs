//! The receive queue, and the credits by which the peer knows of it.

use std::collections::VecDeque;

use fabric_core::work::total_len;
use fabric_core::{RawCompletion, RecvWork, Status, Token};

use super::segments::{Segments, Span};

/// A posted receive.
pub(super) struct Receive {
    pub(super) token: Token,
    pub(super) span: Span,
    pub(super) len: usize,
}

/// The receive queue.
#[derive(Default)]
pub(super) struct RecvQueue {
    queue: VecDeque<Receive>,
    /// Of those in the queue, and of the one that was taken last, into which a message may be coming.
    pub(super) segments: Segments,
    /// Receives posted so far, those of them announced to the peer, and those that were matched.
    posted: u32,
    announced: u32,
    matched: u32,
}

impl RecvQueue {
    pub(super) fn push(&mut self, work: &RecvWork<'_>) {
        self.queue.push_back(Receive {
            token: work.token,
            span: self.segments.push(work.segments),
            len: total_len(work.segments),
        });
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
                || news as usize * 2 >= self.queue.len())
    }

    /// The next receive, for a message; `None` if the peer sends without a credit.
    pub(super) fn take(&mut self) -> Option<Receive> {
        if self.announced == self.matched {
            return None;
        }
        self.matched = self.matched.wrapping_add(1);
        let receive = self.queue.pop_front()?;
        self.segments.forget_before(receive.span);
        Some(receive)
    }

    /// The next receive, to cancel it.
    pub(super) fn cancel(&mut self) -> Option<Receive> {
        self.queue.pop_front()
    }

    pub(super) fn dump(&self) -> String {
        format!(
            "{} receives posted, {} announced, {} matched",
            self.posted, self.announced, self.matched
        )
    }
}

/// The completion of a receive that took a message.
pub(super) fn received(
    token: Token,
    len: u32,
    imm: Option<u32>,
    remote_write: bool,
) -> RawCompletion {
    let mut completion = RawCompletion::new(token, Status::Ok);
    completion.len = len.into();
    completion.immediate = imm;
    completion.remote_write = remote_write;
    completion
}
