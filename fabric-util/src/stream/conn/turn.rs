//! A connection's turn: reads what came, executes it, and writes what is due.

use std::io::ErrorKind;

use fabric_core::{cold_path, likely, unlikely};

use super::{ConnState, Host, Locked, Stage};
use crate::completion_ring::Outbox;
use crate::progress::Progress;
use crate::stream::incoming::Received;
use crate::stream::transmit::AckPolicy;
use crate::stream::transport::Transport;

/// Reads of one turn, so that one connection does not keep the others waiting. A turn also ends once a scratch buffer of frames
/// came: those small ones are as much work.
const READS_A_TURN: usize = 16;
/// Writes that follow each other before others have their turn, as a peer could read as fast as this side writes.
const WRITES_A_TURN: usize = 16;
/// Bytes after which they end as well: more would take longer than the domain's thread waits for a sign of the application that
/// polls.
const WRITTEN_A_TURN: usize = 1 << 20;

/// Turns for which the peer is not asked for what no one waits for: some tens of microseconds, where each finds nothing.
const UNASKED_TURNS: u32 = 64;

impl<T: Transport, H: Host> Locked<'_, T, H> {
    /// Reads what came, executes it, writes what is due; before the connection is established, what makes it so. To be
    /// called when the transport has changed, and again if it returns `More`.
    pub fn turn(&mut self, scratch: &mut [u8], outbox: &mut Outbox<'_>) -> Progress {
        match self.state.stage {
            Stage::Established => self.exchange(scratch, outbox),
            Stage::Connecting(_) => self.finish_connect(scratch),
            Stage::AwaitingReply(_) => self.receive_answer(scratch),
            Stage::Idle => Progress::Idle,
            Stage::Closed => {
                cold_path();
                // What was left may be taken by now.
                if self.state.transport.is_some() {
                    self.settle();
                }
                Progress::Closed
            }
        }
    }

    #[inline]
    fn exchange(&mut self, scratch: &mut [u8], outbox: &mut Outbox<'_>) -> Progress {
        if unlikely(self.completes_late()) {
            return Progress::Drained;
        }
        self.state.looks = false;
        if self.state.is_at_rest() {
            return Progress::Idle;
        }
        // An acknowledgement from the last turn that no frame has carried since.
        let holds = self.holds_ack();
        let silent = self.state.is_silent() && !self.state.link.has_to_fetch();
        let wrote = !holds && !silent && self.flush(AckPolicy::Due);
        let leaves = self.leaves_unasked();
        // With one that is held, or a question that is, the next turn has to follow.
        let mut found = if wrote || holds || leaves { Progress::Drained } else { Progress::Idle };
        let (mut reads, mut scratched) = (0, 0);
        loop {
            if reads == READS_A_TURN || scratched >= scratch.len() {
                cold_path();
                found = Progress::More;
                break;
            }
            let state = &mut *self.state;
            let Some(transport) = &mut state.transport else {
                cold_path();
                return Progress::Closed;
            };
            match state.link.recv_from(scratch, transport) {
                Ok(Received { bytes: 0, .. }) => {
                    cold_path();
                    state.read_all = true;
                    self.lose();
                    return Progress::Closed;
                }
                Ok(received) => {
                    (reads, scratched) = (reads + 1, scratched + received.scratched);
                    state.came += received.bytes as u64;
                    found = Progress::Drained;
                    if likely(!received.more && !self.host.has_ended()) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if transport.gave_up() {
                        found = Progress::More;
                    }
                    break;
                }
                Err(error) => {
                    cold_path();
                    if error.kind() == ErrorKind::InvalidData {
                        state.link.break_off(&error);
                    }
                    self.lose();
                    return Progress::Closed;
                }
            }
        }
        let may_defer = self.host.may_defer();
        if !likely(may_defer && self.state.link.has_received()) {
            self.state.link.complete_finished();
        }
        // A turn that found nothing, and had nothing to say, has nothing to say now; but the transport may.
        if found != Progress::Idle || !silent || self.state.full || self.state.is_holding() {
            let policy = if unlikely(!may_defer) {
                // Nothing else would send it. If the transport is full, an event leads back here.
                AckPolicy::Now
            } else if found == Progress::Idle {
                AckPolicy::Ask
            } else {
                AckPolicy::Piggyback
            };
            // Before the peer can hear that it came: who hears that finds it in the queue.
            self.state.link.deliver_to(outbox);
            if likely(policy == AckPolicy::Piggyback && self.state.is_done()) {
                return found;
            }
            self.flush(policy);
        }
        self.settle();
        match self.state.stage {
            Stage::Closed => Progress::Closed,
            _ if self.wants_turn() => Progress::More,
            _ => found,
        }
    }
}

impl<T: Transport, H: Host> Locked<'_, T, H> {
    /// Completes what the last turn left to this one: sends whose acknowledgement came with a message, as an application that
    /// polls has the message the sooner, and may answer it before the next turn. Whether that was all there was to do: then they
    /// go out without a look at the transport.
    #[inline]
    fn completes_late(&mut self) -> bool {
        let link = &mut self.state.link;
        link.has_finished() && {
            link.complete_finished();
            link.has_completions() && self.host.may_defer() && self.state.is_silent()
        }
    }

    /// Whether an acknowledgement that is due waits for one more turn: the application polls, and its answer may carry it.
    #[inline]
    fn holds_ack(&mut self) -> bool {
        let may_wait = self.state.link.may_hold_ack();
        match may_wait && !self.state.is_holding() && self.host.may_defer() {
            true => self.state.ack_hold.waits(),
            false => {
                self.state.ack_hold.on_none();
                false
            }
        }
    }

    /// Whether the peer is not asked yet for what no one waits for: something may come meanwhile that acknowledges it.
    #[inline]
    fn leaves_unasked(&mut self) -> bool {
        let state = &mut *self.state;
        if !state.link.leaves_unasked() || !self.host.may_defer() {
            state.unasked_turns = 0;
            return false;
        }
        state.unasked_turns += 1;
        state.unasked_turns <= UNASKED_TURNS
    }
}

impl<T: Transport> ConnState<T> {
    /// No turn follows until an event says that there is something to read. True: there is, so that one has to.
    pub fn arm(&mut self) -> bool {
        // A connection that has ended reads nothing.
        let reads = !matches!(self.stage, Stage::Idle | Stage::Closed);
        self.transport.as_mut().is_some_and(|transport| reads && transport.arm())
    }

    /// Whether the transport is full: an event follows when it is so no longer.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether a turn would find nothing to do.
    #[inline]
    fn is_at_rest(&self) -> bool {
        self.transport.as_ref().is_some_and(|transport| !transport.may_have_come())
            && self.is_silent()
            && !self.link.has_to_fetch()
    }

    /// Whether there is nothing to write.
    #[inline]
    fn is_silent(&self) -> bool {
        !self.is_holding() && self.link.is_at_rest()
    }

    /// Whether a turn that has read has no more to do: nothing goes by itself, and all is as it was.
    #[inline]
    fn is_done(&self) -> bool {
        !self.full
            && !self.looks
            && self.is_watched()
            && self.link.has_nothing_to_send()
            && !self.is_holding()
    }

    /// Whether it could do more, if it had its turn.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        let writes = !self.full && (self.link.has_output() || self.is_holding());
        (writes || self.looks || self.link.has_to_reach()) && self.transport.is_some()
    }

    /// Whether the transport has bytes of this connection that it has not passed on.
    #[inline]
    pub(super) fn is_holding(&self) -> bool {
        self.transport.as_ref().is_some_and(T::is_holding)
    }

    /// Encodes and writes what waits, as long as the transport takes it, but not for ever; says whether anything went.
    #[inline(never)]
    pub fn flush(&mut self, policy: AckPolicy) -> bool {
        let (mut wrote, mut written) = (false, 0);
        self.full = false;
        if self.link.has_to_reach() {
            self.reach_waiting();
        }
        self.link.encode(policy);
        for _ in 0..WRITES_A_TURN {
            let Some(transport) = &mut self.transport else { return wrote };
            let sent = if self.link.has_output() {
                self.link.send_to(transport)
            } else if transport.is_holding() {
                transport.flush().map(|()| 0)
            } else {
                break;
            };
            match sent {
                Ok(bytes) => {
                    (wrote, self.wrote) = (true, true);
                    written += bytes;
                }
                // Full, or the peer is gone. What it sent before is still to be read, and then the read reports that.
                Err(_) => {
                    self.full = !transport.gave_up();
                    return wrote;
                }
            }
            self.link.encode(policy);
            if written >= WRITTEN_A_TURN {
                break;
            }
        }
        wrote
    }

    /// Writes what is left for the peer, which gets no other turn for it.
    pub(super) fn flush_last(&mut self) {
        for _ in 0..WRITES_A_TURN {
            self.flush(AckPolicy::Piggyback);
            if !self.transport.as_ref().is_some_and(T::gave_up) {
                break;
            }
        }
    }
}
