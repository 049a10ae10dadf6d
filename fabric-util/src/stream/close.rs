//! How a connection ends.
//!
//! An end comes from here (`disconnect`, `quiesce`, a request that is refused) or from there (a nak, a bye,
//! a breach, the end of the stream). In each case the application hears `Disconnected` first, then
//! everything in flight completes, in order. What the peer must still get is copied out of the operations'
//! memory before they complete, and goes on its way behind them.

use crate::log_limiter::PeerEvent;
use crate::log_line;
use fabric_core::{DisconnectReason, Event, RawCompletion, Status};

use super::link::{Deferral, Link};
use super::phase::{End, FinalFrame, Phase};
use super::protocol_error::{Breach, ProtocolError};
use super::receives::Receive;
use crate::stream::wire::frame::Kind;

impl Link {
    /// Ends the connection from this side, or because it was found ended. Harmless when repeated.
    pub fn end(&mut self, end: End) {
        if matches!(self.phase, Phase::Ending | Phase::Closed) {
            match end {
                End::Lost | End::Internal => self.close(),
                End::Quiet => self.hush(),
                End::Local | End::Stalled | End::Failed(_) => {}
            }
            return;
        }
        let open = self.phase == Phase::Open;
        let frame = if open { FinalFrame::Bye } else { FinalFrame::None };
        match end {
            End::Local => self.finish(DisconnectReason::Local, Status::Canceled, frame, None),
            End::Stalled => self.finish(DisconnectReason::Stalled, Status::Canceled, frame, None),
            End::Lost => {
                self.finish(DisconnectReason::PeerLost, Status::PeerLost, FinalFrame::None, None);
            }
            End::Internal => {
                self.finish(DisconnectReason::Internal, Status::Internal, FinalFrame::None, None);
            }
            End::Failed(error) => {
                let endpoint = self.context.id;
                self.report(Event::ConnectFailed { endpoint, error });
                self.close();
                self.cancel(Status::Canceled, None);
            }
            End::Quiet => {
                self.complete_finished();
                self.leave(frame);
                while self.sends.pop().is_some() {}
                while self.recvs.cancel().is_some() {}
                let begun = self.incoming.message.take().and_then(|message| message.into_receive());
                if let Some(receive) = begun.filter(|_| self.recvs.is_shared()) {
                    // Of those that are shared the application does not know which it took.
                    self.finish_receive(&receive, Status::Canceled);
                }
                self.hush();
            }
        }
    }

    /// No event is to be reported any more, so nothing waits for one.
    fn hush(&mut self) {
        self.events.clear();
        self.unreported = 0;
    }

    /// The peer violated the protocol: this connection ends, and nothing else.
    #[cold]
    pub(super) fn breach(&mut self, error: &ProtocolError) {
        self.context.stats.protocol_errors.add(1);
        if let Some(suppressed) = self.context.stats.peer_log.check(PeerEvent::Protocol, None) {
            let id = self.context.id;
            log_line!(Warn, "{id}: protocol error by the peer: {error}{suppressed}");
        }
        self.finish(DisconnectReason::Protocol, Status::PeerLost, FinalFrame::None, None);
    }

    /// What the transport received is not what the peer sent.
    pub(super) fn break_off(&mut self, error: &std::io::Error) {
        self.breach(&ProtocolError::Changed(error.to_string()));
    }

    /// The target refuses a request: the peer gets a nak behind the answers to what came before, and this
    /// side is dead too. `receive` is the one that the request took, with its status.
    pub(super) fn refuse(&mut self, seq: u32, status: Status, receive: Option<(Receive, Status)>) {
        let frame = FinalFrame::Nak(seq, status);
        self.finish(DisconnectReason::OperationFailed, Status::Canceled, frame, receive);
    }

    /// As [`refuse`](Link::refuse), when the answer is already on its way; what was to be said behind it is not said.
    pub(super) fn refuse_answer(&mut self, seq: u32) {
        self.answers.forget();
        if self.phase == Phase::Ending {
            self.final_frame = FinalFrame::Nak(seq, Status::RemoteAccess);
            self.queue_final_frame();
        } else {
            self.refuse(seq, Status::RemoteAccess, None);
        }
    }

    /// The peer refused a request.
    pub(super) fn take_nak(&mut self, seq: u32, status: Status) -> Result<(), Breach> {
        self.complete_finished();
        if !self.sends.is_out(seq) || self.sends.first() != seq {
            return Err(Breach::of("a refusal of what was not asked, or before earlier answers"));
        }
        self.finish(DisconnectReason::OperationFailed, status, FinalFrame::Bye, None);
        Ok(())
    }

    /// The peer ended the connection in order.
    pub(super) fn take_bye(&mut self) {
        self.finish(DisconnectReason::Remote, Status::Canceled, FinalFrame::Bye, None);
    }

    /// The one way down: what is finished completes well, the event, then the rest; the oldest operation of
    /// the send queue with `oldest`.
    fn finish(
        &mut self,
        reason: DisconnectReason,
        oldest: Status,
        frame: FinalFrame,
        receive: Option<(Receive, Status)>,
    ) {
        if matches!(self.phase, Phase::Ending | Phase::Closed) {
            return;
        }
        self.complete_finished();
        // What was completed well goes out before the event, so that an application that sees the end first
        // finds no less than there was.
        self.deliver();
        self.report_end(reason);
        self.leave(frame);
        self.cancel(oldest, receive);
    }

    /// Turns to what the peer must still get.
    fn leave(&mut self, frame: FinalFrame) {
        self.deferral = Deferral::default();
        self.context.regions.end_connection(self.context.id);
        self.recvs.stop_waiting(self.context.id);
        match frame {
            FinalFrame::None => self.close(),
            FinalFrame::Bye | FinalFrame::Nak(..) => {
                self.phase = Phase::Ending;
                self.final_frame = frame;
                match (self.outgoing.own(), frame) {
                    (Some(seq), FinalFrame::Nak(..)) => self.refuse_answer(seq),
                    (_, FinalFrame::Bye) => self.answers.forget(),
                    _ => {}
                }
                self.encode_pending();
            }
        }
        self.forget_incoming();
    }

    /// Completes everything in flight that is not finished.
    fn cancel(&mut self, oldest: Status, receive: Option<(Receive, Status)>) {
        let mut status = oldest;
        while let Some(entry) = self.sends.pop() {
            self.complete_send(entry.token, entry.flags, status);
            status = Status::Canceled;
        }
        if let Some(token) = self.unsaid.take() {
            // No completion comes behind it that would show its success.
            self.made_sends.push(RawCompletion::new(token, Status::Ok));
        }
        let begun = self.incoming.message.take().and_then(|message| message.into_receive());
        let begun = receive.or(begun.map(|receive| (receive, Status::Canceled)));
        if let Some((receive, status)) = begun {
            self.finish_receive(&receive, status);
        }
        while let Some(receive) = self.recvs.cancel() {
            self.finish_receive(&receive, Status::Canceled);
        }
    }

    /// Appends the last frame, once.
    pub(super) fn queue_final_frame(&mut self) {
        let (kind, seq) = match std::mem::take(&mut self.final_frame) {
            FinalFrame::None => return,
            FinalFrame::Bye => (Kind::Bye, 0),
            FinalFrame::Nak(seq, status) => (Kind::Nak { status }, seq),
        };
        let header = self.header(kind, 0, seq);
        self.outgoing.copied(|buffer| header.encode(buffer));
    }

    /// Whether everything that the peer must still get has been transmitted.
    pub(super) fn fully_sent(&self) -> bool {
        self.phase == Phase::Closed
            || self.phase == Phase::Ending && !self.outgoing.has_output() && self.answers.is_empty()
    }

    /// Nothing goes in or out any more.
    pub(super) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.outgoing.clear();
        self.answers.forget();
    }
}
