//! The send queue: operations in posting order, and how far each is on its way.
//!
//! The queue's front has been transmitted and waits for the peer; then comes at most one operation that is
//! being cut into fragments; the rest waits for credits, for room, or for a fence.

use std::collections::VecDeque;

use fabric_core::work::total_len;
use fabric_core::{SendFlags, SendOp, SendWork, Token, memory};

use super::acks::Questions;
use super::protocol_error::Breach;
use super::recv_queue::SHARED;
use super::segments::{Segments, Span};
use crate::region_table::Lent;

/// What of an operation does not go by the stream.
pub(super) enum Beside {
    /// Nothing.
    No,
    /// The peer takes its memory from here.
    Lent(Lent),
    /// It is executed by this side, when nothing is before it.
    Reached,
}

/// An operation of the send queue.
pub(super) struct Entry {
    pub(super) token: Token,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    pub(super) span: Span,
    /// Payload bytes.
    pub(super) len: usize,
    /// What of it does not go by the stream.
    pub(super) beside: Beside,
    /// The bytes of an inject that may be needed after its post.
    injected: Option<Box<[u8]>>,
    /// Reads and atomics: bytes of the answer that are there.
    pub(super) answered: usize,
    /// Where the stream to the peer was when all of it was in.
    end: u64,
    /// Reads and atomics: the answer is there.
    pub(super) done: bool,
}

impl Entry {
    /// Whether the peer answers with more than an ack.
    pub(super) fn has_answer(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::Atomic { fetch: true, .. })
    }

    /// Whether it counts as a read for fences and for the peer's limit.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::Atomic { .. })
    }

    /// Whether no one waits for its acknowledgement.
    #[inline]
    pub(super) fn is_lazy(&self) -> bool {
        self.flags.contains(SendFlags::LAZY)
    }

    fn needs_credit(&self) -> bool {
        matches!(self.op, SendOp::Send { .. } | SendOp::Write { imm: Some(_), .. })
    }
}

/// Bytes that an inject's memory has at least, so that it serves the next one, and how many are kept for that.
const SPARE: usize = 256;
const SPARES: usize = 16;

/// The send queue.
#[derive(Default)]
pub(super) struct Sends {
    entries: VecDeque<Entry>,
    pub(super) segments: Segments,
    /// Memory for injects that is not used now.
    spares: Vec<Box<[u8]>>,
    /// The number of the first entry.
    first: u32,
    /// Operations that the transport executed by itself, which have no number.
    reached: u32,
    /// Entries from the front that were transmitted in full.
    started: usize,
    /// Entries from the front that wait for no answer, as far as that was looked at.
    unanswered: usize,
    /// Bytes of the entry behind them that were transmitted.
    cut: usize,
    /// Whether the entry behind them has had its first fragment.
    begun: bool,
    /// Reads and atomics that were transmitted and have not completed.
    reads: u32,
    max_reads: u32,
    /// Receives that the peer has posted, and those that transmitted operations consume.
    credit: u32,
    consumed: u32,
    /// The peer's receives are shared: a message needs no credit, and may be refused for now.
    peer_shares: bool,
    /// The peer has refused the next operation for now.
    held: bool,
    /// Requests that the peer has accepted.
    acked: u32,
    questions: Questions,
}

impl Sends {
    pub(super) fn open(&mut self, reads: u32, credit: u32) {
        self.max_reads = reads;
        self.credit = credit;
        self.peer_shares = credit == SHARED;
        // By itself it would take room for four at first, most of what a quiet connection costs.
        self.entries.reserve_exact(2);
    }

    /// For tests: counts from here on, as after so many operations, and receives of the peer's.
    #[cfg(any(test, fuzzing))]
    pub(super) fn count_from(&mut self, first: u32, consumed: u32) {
        (self.first, self.acked, self.consumed) = (first, first, consumed);
        self.questions.hear(first);
        self.questions.go_back(first);
    }

    /// For tests: the number of the oldest operation, and of what the peer has accepted and posted.
    #[cfg(any(test, fuzzing))]
    pub(super) fn numbers(&self) -> (u32, u32, u32) {
        (self.first, self.acked, self.credit)
    }

    #[inline]
    pub(super) fn push(&mut self, work: &SendWork<'_>, beside: Beside) {
        self.entries.push_back(Entry {
            token: work.token,
            op: work.op,
            flags: work.flags,
            span: self.segments.push(work.segments),
            len: total_len(work.segments),
            beside,
            injected: None,
            answered: 0,
            end: 0,
            done: false,
        });
    }

    /// Copies the bytes of those of the last `posted` operations that are injects and still wait: their memory is the
    /// caller's again after the post.
    pub(super) fn keep_injected(&mut self, posted: usize) {
        // Fewer, if the link has ended in the midst of the post.
        let earlier = self.entries.len().saturating_sub(posted);
        // Others are not needed any more.
        let first = if self.peer_shares { earlier } else { earlier.max(self.started) };
        // By their places: for the one that there is mostly, a range costs more.
        for at in first..self.entries.len() {
            let entry = &mut self.entries[at];
            if !entry.flags.contains(SendFlags::INJECT) {
                continue;
            }
            let spare = self.spares.pop().filter(|spare| spare.len() >= entry.len);
            let mut bytes = spare.unwrap_or_else(|| vec![0; entry.len.max(SPARE)].into());
            if let Some(segment) = entry.span.one_mut() {
                // SAFETY: within the post that brought the entry, the caller's bytes are still borrowed.
                unsafe { memory::load(segment.addr, &mut bytes[..entry.len]) };
                segment.addr = bytes.as_mut_ptr();
            }
            entry.injected = Some(bytes);
        }
    }

    /// Whether injects may be needed after their post: they wait, or the peer may refuse them for now.
    pub(super) fn needs_injected(&self) -> bool {
        self.peer_shares || !self.nothing_waits()
    }

    /// Whether every operation was transmitted.
    pub(super) fn nothing_waits(&self) -> bool {
        self.started == self.entries.len()
    }

    /// Whether a message may be transmitted: there is a receive for it, or the peer will say that there is none.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        !self.held & (self.peer_shares | (self.credit != self.consumed))
    }

    /// The operation to transmit next, if it may be, with its number and how many of its bytes went before.
    pub(super) fn next(&self) -> Option<(&Entry, u32, usize)> {
        let entry = self.entries.get(self.started)?;
        if !self.begun {
            if matches!(entry.beside, Beside::Reached) {
                return None;
            }
            if entry.flags.contains(SendFlags::FENCE) && self.reads > 0 {
                return None;
            }
            if self.held || entry.needs_credit() && !self.may_send() {
                return None;
            }
            if entry.is_read() && self.reads >= self.max_reads {
                return None;
            }
        }
        Some((entry, self.first.wrapping_add(self.started as u32), self.cut))
    }

    /// The operation that is next, if the transport is to execute it by itself.
    #[inline]
    fn next_reached(&self) -> Option<&Entry> {
        let next = if self.begun { None } else { self.entries.get(self.started) };
        next.filter(|entry| matches!(entry.beside, Beside::Reached))
    }

    /// The same where nothing is before it any more.
    #[inline]
    pub(super) fn to_reach(&self) -> Option<&Entry> {
        if self.started == 0 { self.next_reached() } else { None }
    }

    /// Whether it waits for those before it.
    #[inline]
    pub(super) fn waits_to_reach(&self) -> bool {
        self.started > 0 && self.next_reached().is_some()
    }

    /// It was executed, and the peer has not heard of it: no number was used for it.
    pub(super) fn take_reached(&mut self) -> Option<(Token, SendFlags)> {
        let entry = self.entries.pop_front()?;
        self.segments.forget_before(entry.span);
        self.reached = self.reached.wrapping_add(1);
        Some((entry.token, entry.flags))
    }

    /// It was not: it goes by the stream, as others do.
    pub(super) fn transmit_unreached(&mut self) {
        if let Some(entry) = self.entries.front_mut() {
            entry.beside = Beside::No;
        }
    }

    /// Whether an operation was transmitted that the peer has not acknowledged, and that someone waits for.
    #[inline]
    pub(super) fn awaits_ack(&self) -> bool {
        self.questions.awaits(self.acked)
    }

    /// Whether none is under way but those that are finished and not completed, and those that no one waits for.
    #[inline]
    pub(super) fn are_settled(&self) -> bool {
        self.nothing_waits() && self.reads == 0 && !self.awaits_ack()
    }

    /// Operations transmitted so far: the number of the next one.
    pub(super) fn sent(&self) -> u32 {
        self.first.wrapping_add(self.started as u32)
    }

    pub(super) fn has_questions(&self) -> bool {
        self.questions.are_open()
    }

    /// Whether the peer was not asked for all, and no one waits for what is left.
    #[inline]
    pub(super) fn leaves_unasked(&self) -> bool {
        self.questions.are_left(self.sent())
    }

    /// The peer is to be asked for all that was transmitted.
    #[inline]
    pub(super) fn want_all(&mut self) {
        self.questions.want(self.sent());
    }

    /// Whether the peer is to be asked for acknowledgements.
    #[inline]
    pub(super) fn wants_to_ask(&self) -> bool {
        self.questions.wants_to_ask(self.acked)
    }

    /// Whether the peer is to be asked for acknowledgements; it is as good as asked then.
    pub(super) fn ask(&mut self) -> bool {
        let sent = self.sent();
        self.questions.ask(sent, self.acked)
    }

    /// `bytes` more of the next operation are in the stream; if that is all of it, up to `end`. `ask` if it asks for an
    /// acknowledgement.
    #[inline]
    pub(super) fn advance(&mut self, bytes: usize, end: Option<u64>, ask: bool) {
        let sent = self.sent();
        let Some(entry) = self.entries.get_mut(self.started) else { return };
        if !self.begun {
            self.consumed = self.consumed.wrapping_add(u32::from(entry.needs_credit()));
            self.reads += u32::from(entry.is_read());
            self.begun = true;
            if ask || entry.has_answer() {
                self.questions.cover(sent.wrapping_add(1));
            }
        }
        self.cut += bytes;
        if let Some(end) = end {
            entry.end = end;
            if !entry.is_lazy() {
                self.questions.want(sent.wrapping_add(1));
            }
            (self.started, self.cut, self.begun) = (self.started + 1, 0, false);
        }
    }

    /// The peer has no receive for the request `seq` now, and executes none from that on: they are sent again when it is ready.
    pub(super) fn go_back(&mut self, seq: u32) -> Result<(), Breach> {
        let index = seq.wrapping_sub(self.first) as usize;
        let refused = self.entries.get(index).filter(|_| self.is_out(seq));
        // What it has accepted ends, and its memory is the application's then: none of it may be sent again.
        let accepted = (seq.wrapping_sub(self.acked) as i32) < 0;
        if !self.peer_shares || self.held || accepted || !refused.is_some_and(Entry::needs_credit) {
            return Err(Breach::of(
                "has no receive for what needs none, was not sent, or was accepted",
            ));
        }
        let again =
            self.entries.range(index..).take(self.started + usize::from(self.begun) - index);
        self.reads -= again.filter(|entry| entry.is_read()).count() as u32;
        (self.started, self.cut, self.begun, self.held) = (index, 0, false, true);
        self.unanswered = self.unanswered.min(index);
        self.questions.go_back(seq);
        Ok(())
    }

    /// The peer is ready again.
    pub(super) fn go_on(&mut self) -> Result<(), Breach> {
        if std::mem::take(&mut self.held) {
            Ok(())
        } else {
            Err(Breach::of("is ready again and was"))
        }
    }

    /// The peer has accepted `ack` requests and posted `credit` receives; the stream is transmitted up to `transmitted`.
    #[inline]
    pub(super) fn hear(&mut self, ack: u32, credit: u32, transmitted: u64) -> Result<(), Breach> {
        if ack != self.acked && !self.is_transmitted(ack, transmitted) {
            return Err(Breach::of("an acknowledgement of what was never sent"));
        }
        if (credit.wrapping_sub(self.credit) as i32) < 0 {
            return Err(Breach::of("a credit that was taken back"));
        }
        if (ack.wrapping_sub(self.acked) as i32) < 0 {
            return Err(Breach::of("an acknowledgement that was taken back"));
        }
        (self.acked, self.credit) = (ack, credit);
        self.questions.hear(ack);
        Ok(())
    }

    /// Whether `ack` requests are no more than were transmitted, to the last byte: with the acknowledgement their memory is
    /// the application's again.
    fn is_transmitted(&self, ack: u32, transmitted: u64) -> bool {
        // An old ack is behind `first`; a true one never is, since it never goes back.
        match ack.wrapping_sub(self.first) as usize {
            0 => true,
            count if count > self.started => false,
            count => self.entries.get(count - 1).is_some_and(|last| last.end <= transmitted),
        }
    }

    /// The oldest transmitted operation that waits for an answer, if it has the number `seq`.
    pub(super) fn answering(&mut self, seq: u32) -> Result<&mut Entry, Breach> {
        let waiting = |entry: &Entry| entry.has_answer() && !entry.done;
        while self.unanswered < self.started && !waiting(&self.entries[self.unanswered]) {
            self.unanswered += 1;
        }
        let oldest = self.first.wrapping_add(self.unanswered as u32);
        match self.entries.get_mut(self.unanswered) {
            Some(entry) if self.unanswered < self.started && oldest == seq => Ok(entry),
            _ => Err(Breach::of("an answer to what was not asked")),
        }
    }

    /// Whether the peer has accepted the oldest operation.
    #[inline]
    pub(super) fn has_finished(&self) -> bool {
        self.started > 0 && self.acked != self.first
    }

    /// Takes the oldest operation if it is finished; gives what its completion needs.
    #[inline]
    pub(super) fn pop_finished(&mut self) -> Option<(Token, SendFlags)> {
        if !self.has_finished() {
            return None;
        }
        let front = self.entries.front_mut()?;
        if front.has_answer() && !front.done {
            return None;
        }
        let finished = (front.token, front.flags);
        drop(std::mem::replace(&mut front.beside, Beside::No));
        self.strip_front();
        if let Some(stripped) = self.entries.pop_front() {
            // Nothing of it is left to drop, and so it is not even moved.
            std::mem::forget(stripped);
        }
        Some(finished)
    }

    /// Takes the oldest operation, however far it is.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.strip_front();
        self.entries.pop_front()
    }

    /// The oldest operation, which leaves the queue, counts no more, and its memory is for others.
    #[inline]
    fn strip_front(&mut self) {
        let Some(entry) = self.entries.front_mut() else { return };
        self.segments.forget_before(entry.span);
        if let Some(bytes) = entry.injected.take().filter(|_| self.spares.len() < SPARES) {
            // Nothing reads the entry's segment any more.
            self.spares.push(bytes);
        }
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.started > 0 {
            self.started -= 1;
            self.reads -= u32::from(entry.is_read());
        } else {
            (self.cut, self.begun) = (0, false);
        }
        self.first = self.first.wrapping_add(1);
    }

    /// Whether the operation `seq` has been transmitted, at least in part, and not completed.
    pub(super) fn is_out(&self, seq: u32) -> bool {
        (seq.wrapping_sub(self.first) as usize) < self.started + usize::from(self.begun)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of the oldest operation.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Operations that have left the queue; it wraps around.
    pub(super) fn finished(&self) -> u32 {
        self.first.wrapping_add(self.reached)
    }

    pub(super) fn dump(&self) -> String {
        format!(
            "{} sends in flight ({} transmitted, {} acknowledged of {}), {} reads out, credit {} of {}",
            self.entries.len(),
            self.started,
            self.acked,
            self.first.wrapping_add(self.entries.len() as u32),
            self.reads,
            self.consumed,
            self.credit,
        )
    }
}
