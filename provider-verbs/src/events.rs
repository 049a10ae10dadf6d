//! What the domain brings to a connection: events of the connection manager and of the device, timers, and reported events.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::{DisconnectReason, EndpointId, Error, GrantOps, Result};
use fabric_util::log_line;

use crate::conn::{CloseReason, Conn, ConnState, State};
use crate::connect::unreachable;
use crate::domain::state::{AfterReport, ConnEvents};
use crate::domain::timers::Timer;
use crate::ffi::{ibv_wc_status, rdma_cm_event_type as cm};
use crate::handle::{CmEvent, QpState};
use crate::shared_queue::SharedQueue;
use crate::windows::GrantedPart;

impl ConnEvents for Conn {
    fn number(&self) -> u64 {
        self.number
    }

    fn endpoint(&self) -> EndpointId {
        self.id
    }

    fn qp_number(&self) -> u32 {
        self.qp.number()
    }

    fn cm_event(self: Arc<Self>, event: CmEvent) {
        let mut state = self.lock();
        let is_current = state.id.as_ref().is_some_and(|(context, _)| *context == event.context);
        if !is_current {
            // It was closed since the event's owner was looked up, and the domain has the identifier now, if it is not gone.
            drop(state);
            return self.domain.on_late_event(&event);
        }
        match (state.conn_state, event.kind) {
            (ConnState::Connecting, cm::RDMA_CM_EVENT_ADDR_RESOLVED) => {
                self.on_address_resolved(&mut state)
            }
            (ConnState::Connecting, cm::RDMA_CM_EVENT_ROUTE_RESOLVED) => {
                self.on_route_resolved(&mut state)
            }
            (ConnState::Connecting, cm::RDMA_CM_EVENT_CONNECT_RESPONSE) => {
                self.on_connect_response(&mut state, &event);
            }
            (ConnState::Connecting, cm::RDMA_CM_EVENT_REJECTED) => {
                self.on_rejected(&mut state, &event)
            }
            (
                ConnState::Connecting,
                cm::RDMA_CM_EVENT_ADDR_ERROR
                | cm::RDMA_CM_EVENT_ROUTE_ERROR
                | cm::RDMA_CM_EVENT_UNREACHABLE
                | cm::RDMA_CM_EVENT_CONNECT_ERROR
                | cm::RDMA_CM_EVENT_DISCONNECTED,
            ) => {
                let code = event.status.checked_abs().filter(|code| *code != 0);
                let code = code.unwrap_or(libc::EHOSTUNREACH);
                let error = unreachable(io::Error::from_raw_os_error(code));
                self.close(&mut state, CloseReason::ConnectFailed(error));
            }
            (ConnState::Accepting, cm::RDMA_CM_EVENT_ESTABLISHED) => {
                self.set_established(&mut state, Box::default(), AfterReport::Nothing);
            }
            (ConnState::Accepting, cm::RDMA_CM_EVENT_UNREACHABLE) => self.unconfirmed(&mut state),
            (
                ConnState::Accepting,
                cm::RDMA_CM_EVENT_REJECTED | cm::RDMA_CM_EVENT_CONNECT_ERROR,
            ) => self.close(&mut state, CloseReason::Disconnected(DisconnectReason::PeerLost)),
            // Only what was confirmed is disconnected: the confirmation was lost on the way, or comes behind this.
            (ConnState::Accepting, cm::RDMA_CM_EVENT_DISCONNECTED) => {
                self.set_established(&mut state, Box::default(), AfterReport::Nothing);
                drop(state);
                self.settle_reads();
                self.on_peer_disconnected();
            }
            // An acceptor that ends before it knows of the confirmation rejects.
            (
                ConnState::Established,
                cm::RDMA_CM_EVENT_DISCONNECTED | cm::RDMA_CM_EVENT_REJECTED,
            ) => {
                drop(state);
                self.settle_reads();
                self.on_peer_disconnected();
            }
            _ => {}
        }
    }

    fn expired(self: Arc<Self>, timer: Timer) {
        let mut state = self.lock();
        match (timer, state.conn_state) {
            (Timer::Connect, ConnState::Connecting) => {
                self.close(&mut state, CloseReason::ConnectFailed(Error::TimedOut(None)));
            }
            (Timer::Connect, ConnState::Accepting) => self.unconfirmed(&mut state),
            (Timer::Retry, ConnState::Connecting) => {
                self.connect_again(&mut state);
            }
            (Timer::Liveness, ConnState::Established) => self.probe_now(state),
            (Timer::Stall, ConnState::Established) => {
                drop(state);
                self.look_for_stalls();
            }
            (Timer::EndMarker, ConnState::Closed) => self.mark_end(&mut state),
            _ => {}
        }
    }

    fn probe_ended(&self, status: ibv_wc_status::Type) {
        self.on_probe_ended(&mut self.lock(), status);
    }

    fn last_receive(&self) {
        self.last_receive.store(true, Ordering::Release);
    }

    fn may_take_from(&self, shared: &SharedQueue) -> bool {
        self.shared.as_deref().is_some_and(|own| std::ptr::eq(own, shared)) && !self.takes_no_more()
    }

    fn check_queue_pair(&self) {
        self.end_if_failed();
    }

    fn established_early(&self) {
        let state = self.lock();
        if state.conn_state == ConnState::Accepting {
            self.notify_established(&state);
        }
    }

    fn establish(&self) {
        let mut state = self.lock();
        let Some((_, id)) =
            state.id.as_ref().filter(|_| state.conn_state == ConnState::Established)
        else {
            return;
        };
        let confirmed = id.establish();
        state.owes_confirmation = false;
        if let Err(cause) = confirmed {
            // It has rejected or disconnected what it accepted, and the event that says so is behind this: its end is as wanted.
            log_line!(Debug, "{}: the peer waits no more: {cause}", self.id);
            self.close(&mut state, CloseReason::Disconnected(DisconnectReason::Remote));
        }
    }

    fn release(&self) {
        self.release_held();
    }

    fn lose(&self, reason: DisconnectReason) {
        self.close(&mut self.lock(), CloseReason::Disconnected(reason));
        // Sleepers wake for what the device will not complete.
        self.send_queue.drain();
        self.recv_queue.drain();
    }

    unsafe fn grant(self: Arc<Self>, part: &GrantedPart) -> Result<Box<dyn GrantOps>> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.open_window(part) }
    }
}

impl Conn {
    fn on_peer_disconnected(&self) {
        // A completion that was not polled yet may have the cause, and ends the connection then.
        self.send_queue.drain();
        self.recv_queue.drain();
        let mut state = self.lock();
        // A queue pair that is in error before it was flushed refused something.
        let refused = matches!(self.qp.state(), Ok(QpState::Error));
        let reason =
            if refused { DisconnectReason::OperationFailed } else { DisconnectReason::Remote };
        self.close(&mut state, CloseReason::Disconnected(reason));
    }

    /// Ends the connection if the device itself has ended the queue pair.
    pub(crate) fn end_if_failed(&self) {
        if !self.has_failed_alone(&self.lock()) {
            return;
        }
        // A completion that was not polled yet may have the cause, and ends the connection then.
        self.send_queue.drain();
        self.recv_queue.drain();
        let mut state = self.lock();
        if self.has_failed_alone(&state) {
            self.close(&mut state, CloseReason::Disconnected(DisconnectReason::OperationFailed));
        }
    }

    fn has_failed_alone(&self, state: &State) -> bool {
        state.conn_state == ConnState::Established && matches!(self.qp.state(), Ok(QpState::Error))
    }
}
