//! Short messages, where nothing is before them: the usual case of an application that waits for each answer.
//!
//! Such a send goes to the transport as it is posted, and one that came whole goes to its receive as its header is read. What
//! becomes of either is what `transmit` and `incoming` make of it, in fewer steps; whatever is in the way leaves it to them.

use std::io;

use fabric_core::work::total_len;
use fabric_core::{SendOp, SendWork, memory};
use smallvec::SmallVec;

use super::io_vec::{IoVec, store};
use super::link::Link;
use super::protocol_error::Breach;
use super::receives::Receive;
use super::requests::{Message, Place};
use super::sends::Beside;
use super::target::received;
use super::transport::Transport;
use crate::stream::wire::frame::{Header, Kind, MAX_HEADER};

/// The most bytes of a message that is copied on its way to the transport, with its header.
const SHORT: usize = 256 - MAX_HEADER;

impl Link {
    /// Whether the operation is a short send, and could be transmitted at once.
    #[inline]
    pub(super) fn is_short(&self, work: &SendWork<'_>) -> bool {
        matches!(work.op, SendOp::Send { .. })
            && matches!(work.segments, [] | [_])
            && total_len(work.segments) <= SHORT
            && self.is_clear()
            && self.sends.may_send()
            && !self.outgoing.has_output()
            && self.answers.is_empty()
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
        let (total, seq) = (len as u32, self.sends.first());
        let kind = Kind::Send { total, imm };
        let header = Header { kind, ask: true, len: total, ack, credit, seq };
        let mut frame = [0; MAX_HEADER + SHORT];
        let size = header.write(&mut frame);
        let frame = &mut frame[..size + len];
        if let [segment] = work.segments {
            // SAFETY: the caller's promise: the segment's memory is valid.
            unsafe { memory::load(segment.addr, &mut frame[size..]) };
        }
        // SAFETY: the bytes are in our buffer.
        let sent = unsafe { transport.send(&[(frame.as_mut_ptr(), frame.len())]) };
        let taken = *sent.as_ref().unwrap_or(&0);
        self.outgoing.sent_beside(frame, taken);
        self.sends.push(work, Beside::No);
        self.sends.advance(len, Some(self.outgoing.end()), true);
        if self.sends.needs_injected() {
            self.sends.keep_injected(1);
        }
        sent
    }

    /// Takes a send that is there whole, in one frame with its payload in `bytes`, if there is a receive for it that is
    /// long enough. False: nothing was done.
    #[inline]
    pub(super) fn take_short(
        &mut self,
        header: &Header,
        bytes: &mut &[u8],
    ) -> Result<bool, Breach> {
        let Kind::Send { total, imm } = header.kind else { return Ok(false) };
        let len = total as usize;
        if header.len != total
            || bytes.len() < len
            || !self.announced
            || self.incoming.discards
            || self.incoming.message.is_some()
            || self.incoming.waits
        {
            return Ok(false);
        }
        let shared = match self.recvs.is_shared() {
            true => self.recvs.take_shared_if_fits(len),
            false => None,
        };
        if shared.is_none() && !self.recvs.has_room_for(len) {
            return Ok(false);
        }
        let begun = self
            .sends
            .hear(header.ack, header.credit, self.outgoing.transmitted())
            .and_then(|()| self.incoming.begin(header.seq));
        if let Err(breach) = begun {
            // A receive that was taken ends behind the connection, as one that a message has begun.
            self.incoming.message = shared.map(|receive| {
                let place = Place::Receive(receive);
                Message { seq: header.seq, total: len, done: 0, imm, place }
            });
            return Err(breach);
        }
        let Some(receive) = shared.or_else(|| self.recvs.take()) else { return Ok(false) };
        let (payload, rest) = bytes.split_at(len);
        *bytes = rest;
        self.fill(&receive, payload);
        self.incoming.long = false;
        self.incoming.debt.accept(len);
        if header.ask {
            self.incoming.debt.ask(self.incoming.begun);
        }
        self.made_recvs.push(received(receive.token, len, imm, false));
        Ok(true)
    }

    /// Copies a message to the memory of its receive.
    #[inline]
    fn fill(&self, receive: &Receive, payload: &[u8]) {
        let segments = &self.recvs.receives.segments;
        if let Some(run) = segments.only(receive.span) {
            // SAFETY: the receive has not completed, so its segment is valid; it has room for the message.
            unsafe { memory::store(run.addr, payload) };
        } else {
            let mut runs: SmallVec<[IoVec; 8]> = SmallVec::new();
            segments.scatter(receive.span, 0, payload.len(), usize::MAX, &mut runs);
            // SAFETY: as above.
            unsafe { store(runs, payload) };
        }
        self.context.stats.copied_bytes.add(payload.len() as u64);
    }
}
