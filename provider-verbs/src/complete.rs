//! Completions that are no plain success: failures, and ends of the provider's own requests.

use std::sync::atomic::Ordering;

use fabric_core::{DisconnectReason, RawCompletion, Side, Status, Token};
use smallvec::SmallVec;

use crate::conn::{Conn, End, Foreign, State};
use crate::cq::Sink;
use crate::ffi::ibv_wc_status as status;
use crate::post::Direct;
use crate::status::{of_recv, of_send};

impl Conn {
    /// Takes how a request of this queue pair number ended; under the completion queue's lock.
    pub(crate) fn complete(&self, wr_id: u64, ended: status::Type, sink: &mut Sink<'_>) {
        let mut state = self.lock();
        if Token::is_foreign(wr_id) {
            return match Foreign::parse(wr_id) {
                (_, name) if name != self.name => {}
                (Foreign::Leg, _) => self.leg_ended(&mut state, ended, sink),
                (Foreign::Probe, _) => self.probe_ended(&mut state, ended),
                (Foreign::Bind, _) => self.bind_ended(&mut state, ended),
                (Foreign::Mark, _) => self.mark_ended(&mut state, sink),
            };
        }
        let token = Token::from_bits(wr_id);
        if !self.tokens.owns(token) {
            return;
        }
        let (code, status) = match token.side() {
            Side::Send => {
                let code = self.sent(ended);
                (code, of_send(code, self.tokens.is_send(token)))
            }
            Side::Recv => (ended, of_recv(ended)),
        };
        let mut completion = RawCompletion::new(token, status);
        completion.provider_code = ended;
        self.failed(&mut state, code, &mut completion);
        if token.side() == Side::Send && state.last_failed.replace(token) == Some(token) {
            return;
        }
        self.deliver(&mut state, completion, sink);
    }

    /// How a request of the send queue ended, in the specification's words.
    fn sent(&self, code: status::Type) -> status::Type {
        let lost = self.shared.quirks.unsendable_is_local && code == status::IBV_WC_LOC_QP_OP_ERR;
        if lost { status::IBV_WC_RETRY_EXC_ERR } else { code }
    }

    /// The first failure ends the connection.
    fn failed(&self, state: &mut State, code: status::Type, completion: &mut RawCompletion) {
        self.end(state, End::Gone(reason(code)));
        let on_send_side = completion.token.side() == Side::Send;
        if on_send_side && completion.status == Status::Canceled && std::mem::take(&mut state.lost)
        {
            completion.status = Status::PeerLost;
        }
    }

    fn leg_ended(&self, state: &mut State, ended: status::Type, sink: &mut Sink<'_>) {
        if state.line.is_paused() {
            self.go_on_binding(state, ended == status::IBV_WC_SUCCESS);
        }
        let found = if ended == status::IBV_WC_SUCCESS {
            // Nothing is under way: what was posted since waits in the line.
            self.plain.store(false, Ordering::Relaxed);
            Ok(self.place.load_result())
        } else {
            let code = self.sent(ended);
            let mut failed = RawCompletion::new(Token::default(), of_send(code, false));
            failed.provider_code = ended;
            self.failed(state, code, &mut failed);
            Err(failed)
        };
        let mut good = true;
        let mut ended = SmallVec::<[RawCompletion; 4]>::new();
        let deliver = |completion: RawCompletion| {
            good &= completion.status == Status::Ok;
            ended.push(completion);
        };
        // SAFETY: the leg was this line's, and its operation's segments stay until its completion.
        unsafe { state.line.answer(found, &mut Direct(self), deliver) };
        self.set_waits(!state.line.is_idle());
        if !good {
            // Of what the device took and failed the end is known; what it did not take ends the connection as well.
            self.end(state, End::Gone(DisconnectReason::Internal));
        }
        for completion in ended {
            self.deliver(state, completion, sink);
        }
    }

    /// A probe came back, or did not.
    pub(crate) fn probe_ended(&self, state: &mut State, code: status::Type) {
        self.forget_probe(state);
        match self.sent(code) {
            status::IBV_WC_SUCCESS => {}
            // Somebody else's end of the connection.
            status::IBV_WC_WR_FLUSH_ERR if self.probe.is_some() => {}
            code => {
                state.lost = reason(code) == DisconnectReason::PeerLost;
                self.end(state, End::Gone(reason(code)));
            }
        }
    }
}

/// Why a connection whose first failure is this has ended.
pub(crate) fn reason(code: status::Type) -> DisconnectReason {
    match code {
        // Flushed, and not by this side: the queue pair refused what the peer asked for.
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
