//! Whether the send queue gets on: looks at how far it is.
//!
//! What the peer is owed, and what it has begun to send, is the device's business here.

use std::time::Instant;

use fabric_core::{DisconnectReason, Token};
use fabric_util::log_limiter::PeerEvent;
use fabric_util::log_line;
use fabric_util::stall_watch::{UnderWay, Verdict};

use crate::conn::{CloseReason, Conn, ConnState, State};
use crate::domain::timers::Timer;
use crate::tokens::is_behind;

impl Conn {
    /// Has the send queue looked at from now on. A post does not say that there is something to look at, so that is asked twice
    /// in the limit.
    pub(crate) fn watch_for_stalls(&self) {
        if let Some(limit) = self.attr.stall {
            self.domain.deadline(limit / 2, self.number, Timer::Stall);
        }
    }

    /// Looks; ends the connection if it has stalled. The lock is not held.
    pub(crate) fn look_for_stalls(&self) {
        let Some(done) = self.send_queue.done(self.qp.number()) else { return };
        let mut guard = self.lock();
        let state = &mut *guard;
        let found = [self.under_way(state, done)];
        let Some(watch) = &mut state.stall else { return };
        if state.conn_state != ConnState::Established {
            return;
        }
        match watch.look(Instant::now(), found) {
            Verdict::Rest => self.watch_for_stalls(),
            Verdict::LookAfter(part) => self.domain.deadline(part, self.number, Timer::Stall),
            Verdict::Stalled(_) => {
                let limit = watch.limit();
                let log = &self.domain.device.stats.peer_log;
                if let Some(suppressed) = log.check(PeerEvent::Liveness, state.peer) {
                    let id = self.id;
                    log_line!(
                        Warn,
                        "{id}: stalled: no operation completed for {limit:?}{suppressed}"
                    );
                }
                self.close(state, CloseReason::Disconnected(DisconnectReason::Stalled));
            }
        }
    }

    /// Of the send queue, whose operations up to the number `done` have completed by the device, or by completions of their own.
    fn under_way(&self, state: &State, done: u32) -> UnderWay {
        let quiet = state.soft_queue.last_unsignaled().map(Token::sequence);
        let done = quiet.filter(|quiet| is_behind(done, *quiet)).unwrap_or(done);
        let posted = self.tokens.last_send().is_some_and(|last| is_behind(done, last));
        UnderWay { pending: posted || !state.soft_queue.is_idle(), mark: done.into() }
    }
}
