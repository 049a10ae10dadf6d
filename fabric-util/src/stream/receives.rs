//! Posted receives, in order, with their segments.

use std::collections::VecDeque;

use fabric_core::work::total_len;
use fabric_core::{RecvWork, Token, unlikely};

use super::segments::{Segments, Span};

/// A posted receive.
pub(super) struct Receive {
    pub(super) token: Token,
    pub(super) span: Span,
    pub(super) len: usize,
}

/// Receives in posting order.
#[derive(Default)]
pub(super) struct Receives {
    queue: VecDeque<Receive>,
    /// Of the receives in the queue, and of the one that was taken last, into which a message may be coming.
    pub(super) segments: Segments,
}

impl Receives {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(super) fn push(&mut self, work: &RecvWork<'_>) {
        self.queue.push_back(Receive {
            token: work.token,
            span: self.segments.push(work.segments),
            len: total_len(work.segments),
        });
    }

    /// Takes the oldest if it is one run of memory with room for so many bytes; gives where that begins.
    #[inline]
    pub(super) fn pop_run(&mut self, len: usize) -> Option<(Token, *mut u8)> {
        let receive = self.queue.front()?;
        let run = receive.span.one()?;
        if unlikely(len > run.len) {
            return None;
        }
        let taken = (receive.token, run.addr);
        self.segments.forget_before(receive.span);
        self.queue.pop_front();
        Some(taken)
    }

    /// Takes the oldest; the segments of those before it are forgotten.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Receive> {
        let receive = self.queue.pop_front()?;
        self.segments.forget_before(receive.span);
        Some(receive)
    }
}
