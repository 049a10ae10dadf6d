//! Short messages, where nothing is before them: the usual case of an application that waits for each answer.
//!
//! Such a send goes to the transport as it is posted, and one that came whole goes to its receive as its header is read. What
//! becomes of either is what `transmit` and `incoming` make of it, in fewer steps; whatever is in the way leaves it to them.

use std::io;
use std::mem::MaybeUninit;
use std::slice;

use fabric_core::work::total_len;
use fabric_core::{SendFlags, SendOp, SendWork, cold_path, memory};

use super::link::Link;
use super::payload::Incoming;
use super::protocol_error::Breach;
use super::sends::Beside;
use super::target::received;
use super::transport::Transport;
use crate::stream::wire::{
    WholeSend,
    frame::{Header, Kind, MAX_HEADER},
};

/// The most bytes of a message that is copied on its way to the transport, with its header.
const SHORT: usize = 256 - MAX_HEADER;

impl Link {
    /// Whether the operation is a short send, and could be transmitted at once.
    #[inline]
    pub(super) fn is_short(&self, work: &SendWork<'_>) -> bool {
        matches!(work.op, SendOp::Send { .. })
            && matches!(work.segments, [] | [_])
            && total_len(work.segments) <= SHORT
            && self.has_nothing_to_send()
            && self.announced
            && self.sends.are_settled()
            && self.sends.may_send()
            && !self.deferral.updates
    }

    /// Transmits a [short](Link::is_short) send; what the transport does not take waits.
    ///
    /// # Errors
    /// As [`send_to`](Link::send_to): the send is posted all the same.
    ///
    /// # Safety
    /// As [`post_send`](Link::post_send).
    #[inline]
    pub(super) unsafe fn send_short(
        &mut self,
        work: &SendWork<'_>,
        transport: &mut impl Transport,
    ) -> io::Result<usize> {
        let SendOp::Send { imm } = work.op else { return Ok(0) };
        let len = total_len(work.segments);
        let (ack, credit) = (self.incoming.debt.acknowledge(), self.recvs.announce());
        let (total, seq) = (len as u32, self.sends.sent());
        let kind = Kind::Send { total, imm };
        let ask = !work.flags.contains(SendFlags::LAZY);
        let header = Header { kind, ask, len: total, ack, credit, seq };
        let mut bytes = [0; MAX_HEADER];
        let size = header.write(&mut bytes);
        let mut frame = [MaybeUninit::<u8>::uninit(); MAX_HEADER + SHORT];
        let start = frame.as_mut_ptr().cast::<u8>();
        // SAFETY: the frame has room for the longest header.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), MAX_HEADER) };
        if let [segment] = work.segments {
            // SAFETY: the caller's promise: the segment's memory is valid.
            unsafe { memory::load_into(segment.addr, &mut frame[size..size + len]) };
        }
        // SAFETY: so many bytes are initialized by now.
        let frame = unsafe { slice::from_raw_parts_mut(frame.as_mut_ptr().cast(), size + len) };
        // SAFETY: the bytes are in our buffer.
        let sent = unsafe { transport.send(&[(frame.as_mut_ptr(), frame.len())]) };
        let taken = *sent.as_ref().unwrap_or(&0);
        self.outgoing.sent_beside(frame, taken);
        self.sends.push(work, Beside::No);
        self.sends.advance(len, Some(self.outgoing.end()), ask);
        if self.sends.needs_injected() {
            self.sends.keep_injected(1);
        }
        sent
    }

    /// Takes a send that is there whole, if the receive for it is one run of memory that is long enough. False: it is to be taken
    /// as other frames are.
    #[inline(always)] // one place calls it
    pub(super) fn take_short(&mut self, bytes: &mut &[u8]) -> Result<bool, Breach> {
        let Some(send) = WholeSend::read(bytes) else {
            cold_path();
            return Ok(false);
        };
        let Incoming { partial, discards, waits, .. } = &self.incoming;
        if !self.announced
            || *discards
            || *waits
            || !partial.is_empty()
            || !self.incoming.may_begin(send.seq)
        {
            cold_path();
            return Ok(false);
        }
        self.sends.hear(send.ack, send.credit, self.outgoing.transmitted())?;
        let len = send.payload.len();
        let Some((token, at)) = self.recvs.take_run(len) else {
            cold_path();
            return Ok(false);
        };
        // SAFETY: the receive has not completed, so its memory is valid; it has room for the message.
        unsafe { memory::store(at, send.payload) };
        *bytes = send.rest;
        self.context.stats.copied_bytes.add(len as u64);
        self.incoming.begun = send.seq.wrapping_add(1);
        self.incoming.long = false;
        self.incoming.debt.accept(len);
        if send.ask {
            self.incoming.debt.ask(self.incoming.begun);
        }
        self.complete_recv(received(token, len, send.imm, false));
        Ok(true)
    }
}
