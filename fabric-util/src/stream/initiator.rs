//! The initiator's side: what the peer answers, and completions in posting order.

use fabric_core::{SendOp, Status};
use smallvec::SmallVec;

use super::io_vec::{IoVec, store_value};
use super::link::Link;
use super::protocol_error::Breach;

impl Link {
    /// Whether the peer has accepted operations that are not completed.
    #[inline]
    pub(super) fn has_finished(&self) -> bool {
        self.sends.has_finished()
    }

    /// Completes what is finished, in posting order.
    #[inline]
    pub fn complete_finished(&mut self) {
        while let Some((token, flags)) = self.sends.pop_finished() {
            self.complete_send(token, flags, Status::Ok);
        }
    }

    /// Checks the header of a chunk of a read's answer.
    pub(super) fn check_chunk(&mut self, seq: u32, len: usize, last: bool) -> Result<(), Breach> {
        let entry = self.sends.answering(seq)?;
        if !matches!(entry.op, SendOp::Read { .. }) {
            return Err(Breach::of("a read's answer to an atomic"));
        }
        let end = entry.answered + len;
        if end > entry.len || last && end != entry.len || len == 0 && !last {
            return Err(Breach::of("an answer that does not fit its read"));
        }
        Ok(())
    }

    /// `bytes` of a read's answer are where they belong; `finished` if these are the last.
    pub(super) fn take_chunk(
        &mut self,
        seq: u32,
        bytes: usize,
        finished: bool,
    ) -> Result<(), Breach> {
        let entry = self.sends.answering(seq)?;
        entry.answered += bytes;
        entry.done = finished;
        Ok(())
    }

    /// Checks the header of an old value.
    pub(super) fn check_old(&mut self, seq: u32) -> Result<(), Breach> {
        match self.sends.answering(seq)?.op {
            SendOp::Atomic { .. } => Ok(()),
            _ => Err(Breach::of("an atomic's answer to a read")),
        }
    }

    /// Puts an atomic's old value where it belongs.
    pub(super) fn take_old(&mut self, seq: u32, old: u64) -> Result<(), Breach> {
        let entry = self.sends.answering(seq)?;
        entry.done = true;
        let (span, len) = (entry.span, entry.len.min(8));
        let mut runs = SmallVec::<[IoVec; 8]>::new();
        self.sends.segments.scatter(span, 0, len, usize::MAX, &mut runs);
        // SAFETY: the operation has not completed, so its segment is valid.
        unsafe { store_value(runs, old, len) };
        Ok(())
    }
}
