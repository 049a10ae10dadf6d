//! What the domain brings to a connection: events of the connection manager and of the device, timers, and reported events.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fabric_core::{DisconnectReason, EndpointId, Error};
use fabric_util::log_line;

use crate::conn::{Conn, End, Stage, State};
use crate::connect::unreachable;
use crate::domain::state::{After, ConnEvents};
use crate::domain::timers::Timer;
use crate::ffi::{ibv_wc_status, rdma_cm_event_type as cm};
use crate::handle::{CmEvent, State as QpState};

impl ConnEvents for Conn {
    fn name(&self) -> u64 {
        self.name
    }

    fn endpoint(&self) -> EndpointId {
        self.id
    }

    fn qp_number(&self) -> u32 {
        self.qp.number()
    }

    fn cm_event(&self, event: CmEvent) {
        let mut state = self.lock();
        let is_current = state.id.as_ref().is_some_and(|(name, _)| *name == event.name);
        if !is_current {
            return;
        }
        match (state.stage, event.kind) {
            (Stage::Connecting, cm::RDMA_CM_EVENT_ADDR_RESOLVED) => self.address_found(&mut state),
            (Stage::Connecting, cm::RDMA_CM_EVENT_ROUTE_RESOLVED) => self.route_found(&mut state),
            (Stage::Connecting, cm::RDMA_CM_EVENT_CONNECT_RESPONSE) => {
                self.answered(&mut state, &event);
            }
            (Stage::Connecting, cm::RDMA_CM_EVENT_REJECTED) => self.rejected(&mut state, &event),
            (
                Stage::Connecting,
                cm::RDMA_CM_EVENT_ADDR_ERROR
                | cm::RDMA_CM_EVENT_ROUTE_ERROR
                | cm::RDMA_CM_EVENT_UNREACHABLE
                | cm::RDMA_CM_EVENT_CONNECT_ERROR
                | cm::RDMA_CM_EVENT_DISCONNECTED,
            ) => {
                let code = event.status.checked_abs().filter(|code| *code != 0);
                let code = code.unwrap_or(libc::EHOSTUNREACH);
                let error = unreachable(io::Error::from_raw_os_error(code));
                self.end(&mut state, End::Failed(error));
            }
            (Stage::Accepting, cm::RDMA_CM_EVENT_ESTABLISHED) => {
                self.linked(&mut state, Box::default(), After::Nothing);
            }
            (
                Stage::Accepting,
                cm::RDMA_CM_EVENT_REJECTED
                | cm::RDMA_CM_EVENT_UNREACHABLE
                | cm::RDMA_CM_EVENT_CONNECT_ERROR
                | cm::RDMA_CM_EVENT_DISCONNECTED,
            ) => self.end(&mut state, End::Gone(DisconnectReason::PeerLost)),
            (Stage::Linked, cm::RDMA_CM_EVENT_DISCONNECTED) => {
                drop(state);
                self.peer_left();
            }
            _ => {}
        }
    }

    fn expired(self: Arc<Self>, timer: Timer) {
        let mut state = self.lock();
        match (timer, state.stage) {
            (Timer::Connect, Stage::Connecting) => {
                self.end(&mut state, End::Failed(Error::TimedOut(None)));
            }
            (Timer::Connect, Stage::Accepting) => {
                self.end(&mut state, End::Gone(DisconnectReason::PeerLost));
            }
            (Timer::Retry, Stage::Connecting) => {
                let (Some(from), Some(to)) = (state.local, state.peer) else { return };
                let from = SocketAddr::new(from.ip(), 0);
                if let Err(cause) = self.resolve(&mut state, from, to) {
                    self.end(&mut state, End::Failed(unreachable(cause)));
                }
            }
            (Timer::Liveness, Stage::Linked) => self.probe_now(state),
            (Timer::Mark, Stage::Ended) => self.mark_the_end(&mut state),
            _ => {}
        }
    }

    fn probe_ended(&self, status: ibv_wc_status::Type) {
        self.end_probe(&mut self.lock(), status);
    }

    fn look(&self) {
        self.check_queue_pair();
    }

    fn established_early(&self) {
        let state = self.lock();
        if state.stage == Stage::Accepting
            && let Some((_, id)) = &state.id
            && let Err(error) = id.notify_established()
        {
            log_line!(Debug, "{}: {error}", self.id);
        }
    }

    fn establish(&self) {
        let mut state = self.lock();
        let Some((_, id)) = state.id.as_ref().filter(|_| state.stage == Stage::Linked) else {
            return;
        };
        if let Err(cause) = id.establish() {
            log_line!(Debug, "{}: the peer waits no more: {cause}", self.id);
            self.end(&mut state, End::Gone(DisconnectReason::PeerLost));
        }
    }

    fn release(&self) {
        self.release_held();
    }

    fn lose(&self, reason: DisconnectReason) {
        self.end(&mut self.lock(), End::Gone(reason));
        // Sleepers wake for what the device will not complete.
        self.send_queue.take_all();
        self.recv_queue.take_all();
    }
}

impl Conn {
    fn peer_left(&self) {
        // A completion that was not polled yet may have the cause, and ends the connection then.
        self.send_queue.take_all();
        self.recv_queue.take_all();
        let mut state = self.lock();
        // A queue pair that is in error before it was flushed refused something.
        let refused = matches!(self.qp.state(), Ok(QpState::Error));
        let reason =
            if refused { DisconnectReason::OperationFailed } else { DisconnectReason::Remote };
        self.end(&mut state, End::Gone(reason));
    }

    /// Ends the connection if the device itself has ended the queue pair.
    pub(crate) fn check_queue_pair(&self) {
        if !self.has_failed_alone(&self.lock()) {
            return;
        }
        // A completion that was not polled yet may have the cause, and ends the connection then.
        self.send_queue.take_all();
        self.recv_queue.take_all();
        let mut state = self.lock();
        if self.has_failed_alone(&state) {
            self.end(&mut state, End::Gone(DisconnectReason::OperationFailed));
        }
    }

    fn has_failed_alone(&self, state: &State) -> bool {
        state.stage == Stage::Linked && matches!(self.qp.state(), Ok(QpState::Error))
    }
}
