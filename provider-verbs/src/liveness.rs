//! Liveness: probes that ask whether the peer still answers.

use fabric_core::DisconnectReason;
use fabric_util::log_line;
use fabric_util::sync::MutexGuard;

use crate::complete::reason;
use crate::conn::{CloseReason, Conn, State};
use crate::domain::timers::Timer;
use crate::ffi::ibv_wc_status as status;
use crate::handle::Qp;

impl Conn {
    /// The queue pair that probes go out on.
    pub(crate) fn qp_of_probes(&self) -> &Qp {
        self.probe.as_ref().unwrap_or(&self.qp)
    }

    pub(crate) fn probe_now(&self, mut state: MutexGuard<'_, State>) {
        let unanswered = state.probing;
        if state.peer_answers_probes && !unanswered && self.domain.probes.reserve() {
            match self.post_probe() {
                Ok(()) => state.probing = true,
                Err(error) => {
                    self.domain.probes.release();
                    log_line!(Warn, "{}: cannot ask whether the peer lives: {error}", self.id);
                }
            }
        }
        drop(state);
        if unanswered && self.probe.is_none() {
            // The probe completes on the application's queue, which no thread may be polling.
            self.send_queue.drain();
        }
        if self.domain.device.quirks.silent_refusals {
            self.end_if_failed();
        }
        if let Some(interval) = self.attr.liveness {
            self.domain.deadline(interval, self.number, Timer::Liveness);
        }
    }

    /// A probe came back, or did not.
    pub(crate) fn on_probe_ended(&self, state: &mut State, code: status::Type) {
        self.forget_probe(state);
        match self.specified(code) {
            status::IBV_WC_SUCCESS => {}
            // Somebody else's end of the connection.
            status::IBV_WC_WR_FLUSH_ERR if self.probe.is_some() => {}
            code => {
                state.lost = reason(code) == DisconnectReason::PeerLost;
                self.close(state, CloseReason::Disconnected(reason(code)));
            }
        }
    }

    /// The probe that was on its way, if there was one, is not waited for any more.
    pub(crate) fn forget_probe(&self, state: &mut State) {
        if std::mem::take(&mut state.probing) {
            self.domain.probes.release();
        }
    }
}
