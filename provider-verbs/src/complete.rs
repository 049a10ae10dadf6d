//! Completions that are no plain success: failures, and ends of the provider's own requests.

use std::sync::atomic::Ordering;

use fabric_core::{DisconnectReason, RawCompletion, Side, Status, Token};
use smallvec::SmallVec;

use crate::conn::{CloseReason, Conn, State};
use crate::cq::{CqMember, Queue, Sink};
use crate::ffi::ibv_wc_status as status;
use crate::handle::QpState;
use crate::post::Direct;
use crate::status::{of_recv, of_send};
use crate::tokens::InternalWr;

impl CqMember for Conn {
    fn qp_number(&self) -> u32 {
        self.qp.number()
    }

    fn complete(&self, wr_id: u64, ended: status::Type, sink: &mut Sink<'_>) {
        let mut state = self.lock();
        if Token::is_internal(wr_id) {
            return match InternalWr::parse(wr_id) {
                (_, number) if number != self.number => {}
                (InternalWr::Cas, _) => self.on_cas_response(&mut state, ended, sink),
                (InternalWr::Probe, _) => self.on_probe_ended(&mut state, ended),
                (InternalWr::EndMarker, _) => self.on_end_marker(&mut state, sink),
                (InternalWr::Bind, _) => self.on_bind_ended(&mut state, ended),
            };
        }
        let token = Token::from_bits(wr_id);
        let shared = token.side() == Side::Recv && self.shared.is_some();
        if !shared && !self.tokens.owns(token) || shared && self.receives_are_canceled() {
            return;
        }
        let (code, status) = match token.side() {
            Side::Send => {
                let code = self.specified(ended);
                (code, of_send(code, self.tokens.is_send(token)))
            }
            Side::Recv => (ended, of_recv(ended)),
        };
        let mut completion = RawCompletion::new(token, status);
        completion.provider_code = ended;
        completion.endpoint = shared.then_some(self.id);
        self.on_failure(&mut state, code, &mut completion);
        if token.side() == Side::Send && state.last_failed.replace(token) == Some(token) {
            return;
        }
        completion.flushes_earlier = state.doubts_reads && token.side() == Side::Send;
        self.deliver(&mut state, completion, sink);
    }

    fn cancel_read(&self, read: Token, sink: &mut Sink<'_>) {
        self.complete(read.to_bits(), status::IBV_WC_WR_FLUSH_ERR, sink);
        self.lock().doubts_reads = true;
    }

    fn cancel_in_flight(&self, queue: &Queue, sink: &mut Sink<'_>) {
        self.cancel_in_flight(queue, sink);
    }

    fn is_broken(&self) -> bool {
        // Held while the queue pair is asked, so that it is not destroyed meanwhile.
        let _state = self.lock();
        matches!(self.qp.state(), Ok(QpState::Error))
    }
}

impl Conn {
    /// The status of a send request by the specification, where a driver departs from it.
    pub(crate) fn specified(&self, code: status::Type) -> status::Type {
        let lost =
            self.domain.device.quirks.unsendable_is_local && code == status::IBV_WC_LOC_QP_OP_ERR;
        if lost { status::IBV_WC_RETRY_EXC_ERR } else { code }
    }

    /// The first failure ends the connection.
    fn on_failure(&self, state: &mut State, code: status::Type, completion: &mut RawCompletion) {
        self.close(state, CloseReason::Disconnected(reason(code)));
        let on_send_side = completion.token.side() == Side::Send;
        if on_send_side && completion.status == Status::Canceled && std::mem::take(&mut state.lost)
        {
            completion.status = Status::PeerLost;
        }
    }

    fn on_cas_response(&self, state: &mut State, ended: status::Type, sink: &mut Sink<'_>) {
        if state.soft_queue.is_paused() {
            self.continue_binding(state, ended == status::IBV_WC_SUCCESS);
        }
        let found = if ended == status::IBV_WC_SUCCESS {
            // The device has nothing in flight: later posts wait in the soft queue.
            self.unacked_send.store(false, Ordering::Relaxed);
            Ok(self.scratch_slot.load_result())
        } else {
            let code = self.specified(ended);
            let mut failed = RawCompletion::new(Token::default(), of_send(code, false));
            failed.provider_code = ended;
            self.on_failure(state, code, &mut failed);
            Err(failed)
        };
        let before = state.soft_queue.last_unsignaled();
        let mut good = true;
        let mut ended = SmallVec::<[RawCompletion; 4]>::new();
        let deliver = |completion: RawCompletion| {
            good &= completion.status == Status::Ok;
            ended.push(completion);
        };
        // SAFETY: the request was this soft queue's, and its operation's segments stay until its completion.
        unsafe { state.soft_queue.on_result(found, &mut Direct(self), deliver) };
        self.set_soft_queue_active(!state.soft_queue.is_idle());
        if !good {
            // A request that the device did not take closes the connection like one that failed.
            self.close(state, CloseReason::Disconnected(DisconnectReason::Internal));
        }
        // No end marker reports what is known to have succeeded only now.
        let quiet = state.soft_queue.last_unsignaled().filter(|last| Some(*last) != before);
        if let Some(last) = quiet.filter(|_| self.is_dead()) {
            self.end_unsignaled(state, last, sink);
        }
        for completion in ended {
            self.deliver(state, completion, sink);
        }
    }
}

/// Why a connection is closed by a first failure with this status.
pub(crate) fn reason(code: status::Type) -> DisconnectReason {
    match code {
        // Flushed, and not by this side: the queue pair refused a request of the peer.
        status::IBV_WC_WR_FLUSH_ERR
        | status::IBV_WC_REM_INV_REQ_ERR
        | status::IBV_WC_REM_OP_ERR
        | status::IBV_WC_REM_ACCESS_ERR
        | status::IBV_WC_LOC_LEN_ERR
        | status::IBV_WC_LOC_QP_OP_ERR => DisconnectReason::OperationFailed,
        status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RNR_RETRY_EXC_ERR => {
            DisconnectReason::PeerLost
        }
        _ => DisconnectReason::Internal,
    }
}
